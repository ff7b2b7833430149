"""Average the newest or best checkpoints, translate the test set with beam search and score it.

Writes metrics/evaluate.json and reports/translations.tsv; records a child run and the model with
its scores in MLflow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pipeline import stage, tracking
from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.console import say
from seq2sweep.data.bitext import read_header
from seq2sweep.data.files import RECEIPT, sha256, write_whole
from seq2sweep.data.parallel import Mapper, serial
from seq2sweep.data.reading import read_lines
from seq2sweep.decode.exported import Weights, choose, read_receipt
from seq2sweep.errors import UserError
from seq2sweep.evaluate.evaluation import Data, evaluate
from seq2sweep.evaluate.phenomena import accuracy_by_phenomenon
from seq2sweep.tracking.writer import Writer


def work(config: Config) -> None:
    receipt = read_receipt(stage.MODEL)
    if receipt["config"]["model"] != configuration.to_dict(config)["model"]:
        raise UserError(
            f"{stage.MODEL} was trained with another `model` section than params.yaml has now: "
            "run `dvc repro evaluate`, which trains it first"
        )
    chosen = choose(stage.MODEL, config.evaluate)
    wanted = config.evaluate.average_checkpoints
    if len(chosen) < wanted and not config.evaluate.checkpoint_steps:
        say(f"only {len(chosen)} checkpoints were kept: those are averaged")
    files = [weights.file for weights in chosen]
    data = Data(stage.CLEAN, stage.VOCABULARY, stage.ENCODED)
    header = read_header(stage.ENCODED, "test")
    vocabulary = header["vocabulary"]["fingerprint"]
    if receipt["lineage"].get("data.vocabulary", vocabulary) != vocabulary:
        raise UserError(
            f"{stage.MODEL} was trained with another vocabulary than {stage.ENCODED} has now: run "
            "`dvc repro evaluate`, which trains it first"
        )
    with (
        tracking.delivery(config) as delivery,
        # Under the training's run, unless that was deleted.
        Writer(
            tracking.outboxes(config),
            f"test, beam {config.evaluate.beam}, alpha {config.evaluate.alpha}",
            kind="evaluation",
            parent=receipt["run"],
            params=configuration.flatten(config, "evaluate"),
            tags=tracking.lineage(config, header, model=stage.MODEL),
        ) as run,
    ):
        sentences = header["sentences"]
        with (
            _mapper(config.cluster) as mapper,
            tqdm(total=sentences, desc="translate", unit=" sentences", delay=1) as bar,
        ):
            result = evaluate(config, files, data, "test", bar.update, mapper)
        delivery.catch_up()
        metrics = result.metrics | {
            "averaged_checkpoints": [weights.step for weights in chosen],
            "mlflow_run_id": delivery.run_id(run),
        }
        references = data.lines("test", "target")
        tags = phenomena(stage.CLEAN / "test.phenomena.txt")
        if tags is not None:
            metrics["phenomena"] = accuracy_by_phenomenon(result.translations, references, tags)
        write_translations(data.lines("test", "source"), references, result.translations, tags)
        metrics["made_from"] = made_from(config, receipt, chosen)
        figures = mlflow_figures(metrics)
        shown = {k: figures[k] for k in ("bleu", "bleu_paper", "chrf", "test_perplexity")}
        stage.write_metrics("evaluate", metrics, shown)
        run.artifact(stage.METRICS / "evaluate.json")
        run.artifact(stage.REPORTS / "translations.tsv")
        last_step = chosen[-1].step
        run.model(
            "transformer",
            files=[*files, stage.VOCABULARY / "vocabulary.model", stage.MODEL / RECEIPT],
            params=configuration.flatten(config, "model"),
            metrics=figures,
            dataset_name=f"{config.data.dataset} {config.data.source}-{config.data.target} test",
            dataset_digest=header["fingerprint"],
            step=last_step,
            tags={"averaged_checkpoints": str(metrics["averaged_checkpoints"])},
        )
        # Training and scores in one row of the UI.
        run.log(figures, last_step, on_parent=True)
        for on_parent in (False, True):
            signature = metrics["bleu"]["sacrebleu"]["signature"]
            run.tag({"bleu.signature": signature}, on_parent=on_parent)
    sacrebleu = metrics["bleu"]["sacrebleu"]
    say(
        f"BLEU {sacrebleu['score']:.2f} ({sacrebleu['signature']})\n"
        f"paper's tokenised BLEU {metrics['bleu']['paper']['score']:.2f}, "
        f"chrF {metrics['chrf']['score']:.2f}, perplexity {metrics['perplexity']:.3f}, "
        f"{metrics['decode_tokens_per_second']:,.0f} tokens/s"
    )


@contextlib.contextmanager
def _mapper(cluster: configuration.ClusterConfig) -> Iterator[Mapper]:
    """Where there is a cluster, its CPUs, or GPUs, translate: this machine may have none."""
    if not stage.on_cluster(cluster):
        yield serial
        return
    # Imported here: Ray takes seconds to load.
    from seq2sweep.cluster.session import ray_session
    from seq2sweep.cluster.tasks import ray_tasks_on_gpus

    with ray_session(cluster):
        yield ray_tasks_on_gpus


def made_from(config: Config, receipt: dict[str, Any], chosen: list[Weights]) -> dict[str, Any]:
    """By what `seq2sweep compare` knows that scores and translations are of certain weights."""
    sums = {entry["step"]: entry["sha256"] for entry in receipt["checkpoints"]}
    return {
        "weights": [sums[weights.step] for weights in chosen],
        "translations": sha256(stage.REPORTS / "translations.tsv"),
        "test_set": stage.test_set("test"),
        "evaluate": configuration.to_dict(config)["evaluate"],
    }


def phenomena(path: Path) -> list[list[str]] | None:
    """Tags of each test sentence, for data sets that have them."""
    return [line.split() for line in read_lines(path)] if path.exists() else None


def write_translations(
    sources: list[str], references: list[str], translations: list[str], tags: list[list[str]] | None
) -> None:
    """reports/translations.tsv; a tab inside a text becomes a space."""
    rows = [("source", "reference", "translation", "phenomena")]
    all_tags = [" ".join(t) for t in tags] if tags is not None else [""] * len(sources)
    rows += list(zip(sources, references, translations, all_tags, strict=True))
    lines = ("\t".join(cell.replace("\t", " ") for cell in row) + "\n" for row in rows)
    write_whole(stage.REPORTS / "translations.tsv", "".join(lines))


def mlflow_figures(metrics: dict[str, Any]) -> dict[str, float]:
    """metrics/evaluate.json as flat MLflow metrics."""
    return {
        "bleu": metrics["bleu"]["sacrebleu"]["score"],
        "bleu_paper": metrics["bleu"]["paper"]["score"],
        "chrf": metrics["chrf"]["score"],
        "exact_match": metrics["exact_match"],
        "test_perplexity": metrics["perplexity"],
        "decode_tokens_per_second": metrics["decode_tokens_per_second"],
    }


if __name__ == "__main__":
    stage.run("evaluate", "average, translate, score", work)
