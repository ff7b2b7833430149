"""One of two runs that are compared: what made it, and what it scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2sweep.data.files import text_name
from seq2sweep.data.reading import read_lines
from seq2sweep.storage.atomic import sha256

CLEAN = Path("data/clean")
Texts = tuple[list[list[str]], list[str]]
"""Translations, a list a training, and their references."""


@dataclass(frozen=True)
class Scores:
    """What a run scored.

    bleu: sacreBLEU's of each of its trainings; figures: means over them by name, such as `chrf`,
    None where not known; test_set: what was translated, the same exactly where scores can be
    compared, None if not known; texts: reads translations and references, raises NotComparableError
    where they are not there, or should not be tested.
    """

    bleu: list[float]
    figures: dict[str, float | None]
    signature: str
    test_set: dict[str, Any] | None
    texts: Callable[[], Texts]


@dataclass(frozen=True)
class ScoredRun:
    """A run.

    about: what it is, in words; remarks: how trainings of it ended that did not finish; config:
    sections as params.yaml has them, as far as they are known; lineage: tags that name code and
    data; unknown: why there are no scores or what they are of, and how to know.
    """

    name: str
    about: str
    remarks: list[str]
    config: Mapping[str, Any]
    lineage: Mapping[str, Any]
    scores: Scores | None = None
    unknown: str | None = None


class NotComparableError(Exception):
    """A text is not there, or is not the one that was scored."""


def read_scored(path: Path, wanted: str, remedy: str) -> list[str]:
    """The lines of a text, if it is the one with this sha256; raises NotComparableError."""
    if not path.is_file():
        raise NotComparableError(f"{path} is missing: {remedy}")
    if sha256(path) != wanted:
        raise NotComparableError(f"{path} is not the text that was scored: {remedy}")
    return list(read_lines(path))


def read_references(project: Path, test_set: Mapping[str, Any]) -> list[str]:
    """What the translations of a test set were scored against; raises NotComparableError."""
    file = project / CLEAN / text_name(test_set["split"], "target")
    return read_scored(file, test_set["target"], "run `dvc checkout data/clean`, or `dvc repro`")


def scored_on(test_set: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """All that two scores must agree on to be compared."""
    return {
        **test_set,
        "to": config["data"]["target"],
        "lowercase": config["prepare"]["lowercase"],
    }
