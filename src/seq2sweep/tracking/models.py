"""Trained models in MLflow: files, parameters and scores, linked to their run and their data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import time as now
from typing import Any

from mlflow.entities import LoggedModelOutput, Metric

from seq2sweep.tracking.runs import Run
from seq2sweep.tracking.store import LONGEST_DIGEST, clean_tags, finite, param_text


def log_model(
    run: Run,
    *,
    name: str,
    files: Sequence[Path],
    params: Mapping[str, Any],
    metrics: Mapping[str, float],
    dataset_name: str,
    dataset_digest: str,
    step: int = 0,
    tags: Mapping[str, str] | None = None,
) -> str:
    """Record a model of `run` and give its id (`m-...`).

    `files` and folders are stored with the model as they are. `metrics` are recorded on the run
    and on the model, tied to the dataset, so that `metrics.bleu > 20` finds models. `step` is
    the training step of the weights. The model is READY only once all of it is stored; on any
    failure it is marked FAILED and the error raised.
    """
    client = run.client
    model = client.create_logged_model(
        run.experiment_id,
        name=name,
        source_run_id=run.id,
        tags=clean_tags(tags or {}),
        params={key: param_text(value) for key, value in params.items()},
    )
    try:
        for path in files:
            if path.is_dir():
                client.log_model_artifacts(model.model_id, str(path), path.name)
            else:
                client.log_model_artifact(model.model_id, str(path))
        run.dataset(dataset_name, dataset_digest)
        stamp = round(now() * 1000)
        scores = [
            Metric(
                key,
                float(value),
                stamp,
                step,
                model_id=model.model_id,
                dataset_name=dataset_name,
                dataset_digest=dataset_digest[:LONGEST_DIGEST],
            )
            for key, value in metrics.items()
            if finite(key, value)
        ]
        client.log_batch(run.id, metrics=scores, synchronous=True)
        # The model knows its run by `source_run_id`; this tells the run of its model.
        client.log_outputs(run.id, models=[LoggedModelOutput(model.model_id, step)])
        client.finalize_logged_model(model.model_id, "READY")
    except BaseException:
        client.finalize_logged_model(model.model_id, "FAILED")
        raise
    return str(model.model_id)
