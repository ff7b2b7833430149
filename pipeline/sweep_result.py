"""What a sweep comes to in MLflow: its tables, and its best variant as a registered model."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pipeline import stage, tracking
from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.files import CHECKPOINTS, RECEIPT
from seq2sweep.decode.receipt import receipt, weights_entry
from seq2sweep.report.formats import table_files
from seq2sweep.sweep.trial_record import TrialResult
from seq2sweep.tracking.writer import Writer

CHANGES_NO_RESULT = "what is recorded of a result"

MODEL = "transformer"
ALIAS = "best-of-sweep"


def record_tables(parent: Writer, config: Config, report: dict[str, Any]) -> None:
    """Give the sweep's run its tables; report: as in reports/sweep.json."""
    texts = table_files(report, stage.dataset_in_words(config), report["vocabulary_size"])
    with TemporaryDirectory() as folder:
        for name, text in texts.items():
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8")
            parent.artifact(path)


def record_best(
    run: Writer,
    result: TrialResult,
    *,
    header: dict[str, Any],
    lineage: dict[str, str],
    bleu: float,
) -> None:
    """Give a trial's run its weights as a model, and make that a version of a registered model.

    The model's files are what `seq2sweep translate` takes: a folder such as models/train, and in it
    the vocabulary. header: of the encoded data; bleu: mean of the variant's seeds on the validation
    set.
    """
    variant, data = result.variant, result.variant.config.data
    checkpoint = result.fetch()
    with TemporaryDirectory() as name:
        folder = Path(name)
        weights = folder / CHECKPOINTS / f"{checkpoint.name}.safetensors"
        weights.parent.mkdir()
        weights.symlink_to((checkpoint / "model.safetensors").resolve())
        entries = [weights_entry(checkpoint, weights)]
        own = tracking.of_run(lineage, variant.config)
        made_of = receipt(run.name, entries, variant.config, own, result.metrics)
        stage.write_json(folder / RECEIPT, made_of)
        run.model(
            MODEL,
            files=[folder / RECEIPT, folder / CHECKPOINTS, stage.VOCABULARY],
            params=configuration.flatten(variant.config, "model"),
            metrics={f"valid_{name}": result.metrics[name] for name in ("bleu", "bleu_paper")},
            dataset_name=f"{data.dataset} {data.source}-{data.target} valid",
            dataset_digest=header["fingerprint"],
            step=result.steps,
        )
    run.register(
        MODEL,
        f"{data.dataset}-{data.source}-{data.target}",
        ALIAS,
        {"variant": variant.variant, "seed": str(variant.seed), "valid_bleu": f"{bleu:.2f}"},
    )
