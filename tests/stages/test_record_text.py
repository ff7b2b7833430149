"""What an evaluation records of the text that it was made on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.stages.scoring import described, record_text

TEXT = "source\treference\n( a\u2028b\t(TOP (S (NN a)))\n"


class Run:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.files: list[Path] = []
        self.tables: dict[str, Any] = {}

    def artifact(self, path: Path) -> None:
        self.files.append(path)

    def table(self, name: str, columns: list[str], rows: list[list[str]]) -> None:
        self.tables[name] = (columns, rows)


def recorded(name: str, changes: dict[str, Any]) -> Any:
    run: Any = Run()
    config = configuration.with_changes(presets.load(name).config, changes)
    record_text(run, config, Path("translations.tsv"), TEXT)
    return run


def test_sentences_are_recorded() -> None:
    run = recorded("parsing", {})
    assert run.files == [Path("translations.tsv")]
    rows = [["( a\u2028b", "(TOP (S (NN a)))"]]
    assert run.tables == {"translations.json": (["source", "reference"], rows)}


@pytest.mark.parametrize(
    ("preset", "changes"),
    [("parsing-wsj", {}), ("parsing-semi", {}), ("phrasebook", {"data.private": True})],
)
def test_what_must_stay_here_is_not(preset: str, changes: dict[str, Any]) -> None:
    run = recorded(preset, changes)
    assert (run.files, run.tables) == ([], {})
    assert linked(preset, changes, "") == ["lineage.json"]


def linked(name: str, changes: dict[str, Any], ending: str) -> list[str]:
    """What the description of an evaluation has links to."""
    config = configuration.with_changes(presets.load(name).config, changes)
    return re.findall(r"\(RUN_PAGE/artifacts/([^)]*)\)", described(config, {}, {}, ending))


def test_the_report_is_linked_where_it_is_recorded() -> None:
    """With the evaluation of the stage evaluate, not with a self-trained parser's."""
    always = ["translations.json", "lineage.json"]
    assert linked("parsing", {}, "") == ["index.html", *always]
    assert linked("parsing", {}, "-semi-supervised") == always
