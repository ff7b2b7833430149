"""Average the newest or best checkpoints, decode the test set with beam search and score it.

Writes metrics/evaluate.json and reports/translations.tsv; records a child run and the model with
its scores in MLflow.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tqdm import tqdm

from pipeline import stage
from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.config import Config, ModelConfig
from seq2sweep.data.bitext import read_header
from seq2sweep.data.files import CHECKPOINTS, RECEIPT
from seq2sweep.decode.exported_weights import Weights, choose, read_receipt
from seq2sweep.decode.receipt import write_average
from seq2sweep.errors import UserError
from seq2sweep.evaluate.evaluation import (
    Data,
    evaluate_weights,
    shown,
    shown_by_dvc,
    signature,
)
from seq2sweep.evaluate.task import TASKS
from seq2sweep.parallel import Mapper, serial
from seq2sweep.storage.atomic import write_whole
from seq2sweep.tracking.lineage import dataset_name
from seq2sweep.tracking.mlflow_store import destination
from seq2sweep.tracking.recorder import Recorder
from seq2sweep.tracking.relay_thread import RelayThread


def work(config: Config) -> None:
    header = read_header(stage.ENCODED, "test")
    receipt = _receipt(config, header)
    chosen = choose(stage.MODEL, config.evaluate)
    wanted = config.evaluate.average_checkpoints
    if len(chosen) < wanted and not config.evaluate.checkpoint_steps:
        console.say(f"only {len(chosen)} checkpoints were kept: those are averaged")
    data = Data(stage.CLEAN, stage.VOCABULARY, stage.ENCODED)
    with (
        RelayThread(*destination(config, Path.cwd())) as relay,
        # Under the training's run, unless that was deleted.
        Recorder(
            relay.root,
            f"test, beam {config.evaluate.beam}, alpha {config.evaluate.alpha}",
            kind="evaluation",
            parent=receipt["run"],
            params=configuration.flatten(config),
            tags=stage.lineage(config, header, model=stage.MODEL),
        ) as run,
    ):
        sentences = header["sentences"]
        with (
            _mapper(config.cluster) as mapper,
            tqdm(total=sentences, **console.bar("translate", "sentences")) as bar,
        ):
            result = evaluate_weights(config, stage.MODEL, chosen, data, "test", bar.update, mapper)
        relay.flush()
        metrics = result.metrics | {"mlflow_run_id": relay.run_id(run)}
        write_whole(stage.REPORTS / "translations.tsv", result.table)
        stage.write_metrics("evaluate", metrics, shown_by_dvc(metrics, config))
        record(run, config, receipt, chosen, header, metrics)
    console.say(
        TASKS[config.data.task].in_words(metrics)
        + f", perplexity {metrics['perplexity']:.3f}, "
        + f"{metrics['decode_tokens_per_second']:,.0f} tokens/s"
    )


def _receipt(config: Config, header: dict[str, Any]) -> dict[str, Any]:
    """Of the weights; UserError where they are of another model or vocabulary.

    header: of the encoded data.
    """
    receipt = read_receipt(stage.MODEL)
    where = f"{stage.MODEL / RECEIPT}, which `dvc repro -f train` writes again"
    trained = configuration.section(ModelConfig, receipt["config"]["model"], "model.", where)
    if trained != config.model:
        raise UserError(
            f"{stage.MODEL} was trained with another `model` section than params.yaml has now: "
            "run `dvc repro evaluate`, which trains it first"
        )
    vocabulary = header["vocabulary"]["fingerprint"]
    if receipt["lineage"].get("data.vocabulary", vocabulary) != vocabulary:
        raise UserError(
            f"{stage.MODEL} was trained with another vocabulary than {stage.ENCODED} has now: run "
            "`dvc repro evaluate`, which trains it first"
        )
    return receipt


def record(
    run: Recorder,
    config: Config,
    receipt: dict[str, Any],
    chosen: Sequence[Weights],
    header: dict[str, Any],
    metrics: dict[str, Any],
) -> None:
    """Give the run its files and the model that was scored, and the training's run the scores.

    receipt: of the training; chosen: its checkpoints that are averaged; header: of the encoded
    data; metrics: as in metrics/evaluate.json.
    """
    run.artifact(stage.METRICS / "evaluate.json")
    if not config.data.private:
        run.artifact(stage.REPORTS / "translations.tsv")
    figures, last_step = shown(metrics, config), chosen[-1].step
    with TemporaryDirectory(prefix=".averaged-", dir=stage.MODEL.parent) as name:
        folder = Path(name)
        write_average(folder, chosen, receipt)
        run.model(
            "transformer",
            files=[folder / RECEIPT, folder / CHECKPOINTS, stage.VOCABULARY],
            params=configuration.flatten(config, "model"),
            metrics=figures,
            dataset=(dataset_name(config.data, "test"), header["fingerprint"]),
            step=last_step,
            tags={"averaged_checkpoints": str(metrics["averaged_checkpoints"])},
        )
    # Training and scores in one row of the UI.
    run.log(figures, last_step, on_parent=True)
    how = {
        f"{config.data.score}.signature": signature(metrics, config),
        # The training's run shows `evaluate` as it was when it began.
        f"{config.data.score}.evaluate": json.dumps(metrics["made_from"]["evaluate"]),
    }
    run.tag(how)
    run.tag(how, on_parent=True)


def _mapper(cluster: configuration.ClusterConfig) -> contextlib.AbstractContextManager[Mapper]:
    """Where there is a cluster, its CPUs, or GPUs, translate: this machine may have none."""
    if not stage.on_cluster(cluster):
        return contextlib.nullcontext(serial)
    from seq2sweep.cluster.tasks import ray_mapper  # here: Ray takes seconds to load

    return ray_mapper(cluster)


if __name__ == "__main__":
    stage.run("evaluate", "average, translate, score", work)
