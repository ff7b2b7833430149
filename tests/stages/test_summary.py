"""The last lines of `make reproduce`, of both tasks."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep import presets, project_files
from seq2sweep.evaluate.scores_in_words import in_words
from seq2sweep.report.paper_tables.table4 import table4_files
from seq2sweep.stages import stage, summary
from tests.report.made_up_parsing import parser
from tests.report.made_up_results import SIGNATURE, results


def write(folder: Path, evaluate: Any, table4: str) -> None:
    stage.write_json(project_files.METRICS / "train.json", results().train)
    stage.write_json(project_files.METRICS / "evaluate.json", evaluate)
    project_files.REPORTS.mkdir()
    (project_files.REPORTS / "table3.md").write_text(
        "# Table 3, measured\n\n## More\n", encoding="utf-8"
    )
    (project_files.REPORTS / "table4.md").write_text(table4, encoding="utf-8")


def config(target: str) -> configuration.Config:
    given = presets.load("phrasebook").config
    return dataclasses.replace(given, data=dataclasses.replace(given.data, target=target))


def test_of_translation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, results().evaluate, table4_files(None)["table4.md"])
    summary.work(config("de"))
    out = capsys.readouterr().out
    assert f"BLEU 61.23 ({SIGNATURE})\npaper's tokenised BLEU 61.90, chrF 78.66, perplexity " in out
    assert "reports/table3.md" in out
    assert "Table 3, measured" in out
    assert "F1" not in out
    assert "More" not in out


def test_scores_of_lower_cased_text_are_called_so() -> None:
    """Of the paper's BLEU and of chrF no signature is shown that would tell."""
    scores = copy.deepcopy(results().evaluate)
    assert "lower-cased" not in in_words(scores)
    scores["bleu"]["paper"]["signature"] = SIGNATURE.replace("case:mixed", "case:lc")
    told = "\npaper's tokenised BLEU 61.90, chrF 78.66 (both of lower-cased text), perplexity "
    assert told in in_words(scores)


@pytest.mark.parametrize(("changed", "loud"), [({}, False), ({"errors": 2, "skipped": 1}, True)])
def test_of_parsing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changed: dict[str, Any],
    loud: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    made = parser(**changed)
    write(tmp_path, made.evaluate, table4_files(made)["table4.md"])
    summary.work(config("trees"))
    out = capsys.readouterr().out
    scores = made.evaluate
    warning = "WARNING: 3 of 20 sentences are not in F1\n"
    assert (
        f"F1 {scores['f1']:.2f} ± 0.44 (EVALB, COLLINS.prm)\n{warning if loud else ''}"
        f"precision {scores['precision']:.2f}, recall {scores['recall']:.2f}, complete match "
        f"50.00 %; {'2 errors, 1 skipped' if loud else '0 errors, 0 skipped'}\n"
        "search among all symbols: F1 80.25, 3 of 20 malformed and repaired\n"
        "floors: flat 9.55, right-branching 17.86, perplexity 1.070\n"
    ) in out
    assert "Transformer (ours)" in out
    assert "Petrov" not in out
    assert "BLEU" not in out
    assert "reports/table4.md" in out
    assert ("WARNING" in out) is loud
