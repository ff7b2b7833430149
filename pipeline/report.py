"""Stage report: every result so far on one page, and Tables 1 to 4 in four formats."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from seq2sweep import project_files
from seq2sweep.config import Config
from seq2sweep.data.files import RECEIPT
from seq2sweep.data.reading import read_lines
from seq2sweep.errors import UserError
from seq2sweep.evaluate.scores_in_words import in_words
from seq2sweep.evaluate.translations_table import read_table
from seq2sweep.paths import mismatch, read_json
from seq2sweep.presets.parsers import TEST_SECTIONS, TEST_TREES, TRAIN_SECTIONS, TRAIN_TREES
from seq2sweep.report import page, samples
from seq2sweep.report.attention import heads_table
from seq2sweep.report.formats import table_files
from seq2sweep.report.markdown import markdown_table
from seq2sweep.report.paper_tables.table1 import table1_files
from seq2sweep.report.paper_tables.table1_record import problem
from seq2sweep.report.paper_tables.table2 import table2_files
from seq2sweep.report.paper_tables.table4 import OWN, Parser, table4_files
from seq2sweep.report.pareto import overview
from seq2sweep.report.positions import length_scores
from seq2sweep.stages import stage
from seq2sweep.storage.atomic import write_whole
from seq2sweep.tracking.lineage import code
from seq2sweep.tracking.recorder import attach

SELF_TRAINING: Mapping[str, dict[str, Any]] = {
    "semi_supervised": {
        "f1": float,
        "gain": {**dict.fromkeys(("f1_difference", "low", "high", "p"), float), "seen": bool},
    },
    "silver": dict.fromkeys(("gold", "parsed", "agreed"), int),
}
"""What is shown of the metrics of that name."""
ATTENTION: Mapping[str, Any] = {
    "sentences": [int],
    "measured": int,
    **heads_table.SHAPE,
    "alignment": (dict, type(None)),
}
"""The same of metrics/attention.json."""


def work(config: Config) -> None:
    receipt = read_json(project_files.MODEL / RECEIPT)
    trained = receipt.get("config")
    model = trained.get("model") if isinstance(trained, dict) else None
    train = read_json(project_files.METRICS / "train.json")
    prepare = read_json(project_files.METRICS / "prepare.json")
    score = config.data.score
    evaluate = checked(project_files.EVALUATED, lambda c: length_scores.problem_of_model(c, score))
    table1 = checked(project_files.REPORTS / "table1.json", problem)
    results = page.Results(
        dataset=stage.dataset_in_words(config),
        prepare=prepare,
        train=train,
        curves=read_curves(project_files.METRICS / "curves.csv"),
        evaluate=evaluate,
        translations=[
            samples.Translation(source, reference, translation, tuple(tags.split()))
            for source, reference, translation, tags in read_table(project_files.TRANSLATIONS)
        ],
        lineage=receipt["lineage"],
        tree=code(Path()),
        sweep=read_sweep(project_files.SWEEP),
        table1=table1,
        attention=checked(
            project_files.METRICS / "attention.json",
            lambda c: mismatch(c, {"reason": str} if c.get("reason") else ATTENTION),
        ),
        model=model,
        parser=parser(config, evaluate, model, train["parameters"], prepare),
    )
    texts = table_files(results.sweep, results.dataset, results.train["vocabulary_size"])
    texts |= table2_files(results.sweep, results.dataset, page.trained_here(results))
    texts |= table4_files(results.parser)
    texts |= table1_files(table1)
    texts["index.html"] = page.render(results)
    for name, text in texts.items():
        write_whole(project_files.REPORTS / name, text)
    if not config.data.kept_back:
        record(config, receipt, results, evaluate)


def record(
    config: Config, receipt: dict[str, Any], results: page.Results, evaluate: dict[str, Any]
) -> None:
    """Give the evaluation's run in MLflow the report and the page that it links, and the
    experiment its description.

    receipt: of the training; evaluate: metrics/evaluate.json.
    """
    # Here: MLflow takes seconds to load.
    from seq2sweep.tracking.mlflow_store import destination
    from seq2sweep.tracking.relay_thread import RelayThread

    where = destination(config, Path.cwd())
    told = [
        f"Trainings on {results.dataset}. {results.train['parameters'] / 1e6:.2f} M parameters, "
        f"{results.train['steps']} steps: {in_words(evaluate)}.",
        "",
        "[The report](RUN_PAGE/artifacts/index.html) · [the newest evaluation](RUN_PAGE)",
    ]
    if results.sweep is not None:
        told += ["", *markdown_table(*overview(results.sweep))]
    with RelayThread(*where) as relay:
        pages = ("index.html", "attention.html")  # the first links the second
        files = [path for name in pages if (path := project_files.REPORTS / name).exists()]
        name, run_id = stage.evaluation_of(receipt), evaluate["mlflow_run_id"]
        attach(relay.root, name, files, "\n".join(told), run_id, relay.to)


def parser(
    config: Config,
    evaluate: dict[str, Any],
    model: dict[str, Any] | None,
    parameters: int,
    prepare: dict[str, Any],
) -> Parser | None:
    """What Table 4 says of this run; None where it translates. prepare: metrics/prepare.json."""
    if config.data.task != "parsing":
        return None
    asked = (config.parsing.train_sections, config.parsing.test_sections)
    sections = tuple(tuple(sorted(those)) for those in asked)
    # A copy of which files are missing has trees in each section too.
    trees = prepare["train"]["read"], evaluate["sentences"]
    standard = (
        config.data.dataset == "ptb"
        and sections == (TRAIN_SECTIONS, TEST_SECTIONS)
        and trees == (TRAIN_TREES, TEST_TREES)
    )
    student, silver = (read_self_training(name) for name in ("semi_supervised", "silver"))
    own, dataset = OWN, config.data.dataset
    if dataset == "files":  # of one's own, which other parsers may have made
        own = " and ".join(config.data.files.train)
    return Parser(evaluate, model, parameters, dataset, standard, student, silver, own)


def read_self_training(name: str) -> dict[str, Any] | None:
    """metrics/NAME.json; None where there was no self-training."""
    path, shape = project_files.METRICS / f"{name}.json", SELF_TRAINING[name]
    return checked(path, lambda content: mismatch(content, shape) if content else None) or None


def checked(path: Path, problem: Callable[[dict[str, Any]], str | None]) -> dict[str, Any]:
    """What an earlier stage wrote. problem: what is wrong with it, in words; None if nothing."""
    content: dict[str, Any] = read_json(path)
    if wrong := problem(content):
        raise UserError(f"{path} is damaged ({wrong}): remove it and run `dvc repro`")
    return content


def read_sweep(path: Path) -> dict[str, Any] | None:
    """The sweep's record, or None where no sweep has been run or sweep.method is none."""
    if not path.exists():
        return None
    content = checked(path, lambda c: length_scores.problem(c) or heads_table.problem(c))
    return None if content.get("method") == "none" else content


def read_curves(path: Path) -> list[dict[str, float | None]]:
    """Rows of metrics/curves.csv; an empty cell is None."""
    try:
        return [
            {column: float(cell) if cell else None for column, cell in row.items()}
            for row in csv.DictReader(read_lines(path))
        ]
    except (TypeError, ValueError):
        raise UserError(f"{path} is damaged: remove it and run `dvc repro`") from None


if __name__ == "__main__":
    stage.run("report", "every result on one page", work)
