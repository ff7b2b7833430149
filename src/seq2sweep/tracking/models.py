"""Trained models in MLflow: files, parameters and scores, linked to their run and their data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mlflow.entities import LoggedModelOutput, Metric

from seq2sweep.tracking.runs import Run
from seq2sweep.tracking.values import LONGEST_DIGEST, clean_tags, finite, param_text


def log_model(
    run: Run,
    *,
    name: str,
    files: Sequence[Path],
    params: Mapping[str, Any],
    metrics: Mapping[str, float],
    time: float,
    dataset_name: str,
    dataset_digest: str,
    step: int = 0,
    tags: Mapping[str, str] | None = None,
    on_file: Callable[[Path], None] = lambda path: None,
) -> str:
    """Record the model of this name of `run` and give its id (`m-...`).

    `files` and folders are stored with the model as they are; `on_file` is called before each.
    `metrics` are recorded on the run and on the model at `time` (unix seconds), tied to the
    dataset, so that `metrics.bleu > 20` finds models. `step` is the training step of the weights.
    The model is READY only once all of it is stored. A second call with the same goes on with what
    the first could not.
    """
    client = run.client
    texts = {key: param_text(value) for key, value in params.items()}
    model = find_model(run, name)
    if model is None:
        model = client.create_logged_model(
            run.experiment_id,
            name=name,
            source_run_id=run.id,
            tags=clean_tags(tags or {}),
            params=texts,
        )
    elif missing := {key: text for key, text in texts.items() if key not in model.params}:
        client.log_model_params(model.model_id, missing)
    for path in files:
        on_file(path)
        if path.is_dir():
            client.log_model_artifacts(model.model_id, str(path), path.name)
        else:
            client.log_model_artifact(model.model_id, str(path))
    run.dataset(dataset_name, dataset_digest)
    scores = [
        Metric(
            key,
            float(value),
            round(time * 1000),
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
    outputs = client.get_run(run.id).outputs
    told = [output.model_id for output in outputs.model_outputs] if outputs else []
    if model.model_id not in told:
        client.log_outputs(run.id, models=[LoggedModelOutput(model.model_id, step)])
    client.finalize_logged_model(model.model_id, "READY")
    return str(model.model_id)


def find_model(run: Run, name: str) -> Any | None:
    """The model of this name that `log_model` began, perhaps not READY.

    The first one, should a late answer have made two.
    """
    found = run.client.search_logged_models(
        [run.experiment_id], filter_string=f"source_run_id = '{run.id}' AND name = '{name}'"
    )
    first, *twins = sorted(found, key=lambda model: model.creation_timestamp) or [None]
    for twin in twins:
        run.client.delete_logged_model(twin.model_id)
    return first
