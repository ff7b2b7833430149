"""The figures that README and docs quote are those of docs/figures, of the code as it is.

A page quotes a file of docs/figures between `<!-- figures: NAME -->` and `<!-- /figures -->`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.contenders import MAKERS, ours
from benchmarks.record import FIGURES, MEASURED, NOT_RUN, UNUSED, read
from benchmarks.sizes import SIZES
from benchmarks.tables import PAGE, with_tables
from seq2sweep import code_fingerprint
from seq2sweep.data.batching import Batch
from seq2sweep.data.vocabulary import BOS, EOS, PAD

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
QUOTED = re.compile(r"<!-- figures: (\w+) -->\n(.*?)<!-- /figures -->", re.DOTALL)
# 1.31, 13,348, 25 000, 8.51e-04; not the digits of a word, such as float32 or E5.
NUMBER = re.compile(r"(?<![\w.])\d+(?:[, ]\d{3}(?!\d))*(?:\.\d+)?(?:e[+-]\d+)?")
COMMIT = re.compile(r"commit\s`?([0-9a-f]{7})\b")
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")


def quoted() -> Iterator[tuple[str, str, str]]:
    """Page, name of the file and text of each place that quotes one."""
    for page in PAGES:
        for name, text in QUOTED.findall(page.read_text(encoding="utf-8")):
            yield page.relative_to(ROOT).as_posix(), name, text


def leaves(value: Any) -> Iterator[Any]:
    """All numbers and texts in it, keys too."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def numbers(text: str) -> list[str]:
    """As they are written, less what separates thousands."""
    text = DATE.sub("", COMMIT.sub("", text)).replace("−", "-")
    return [found.replace(",", "").replace(" ", "") for found in NUMBER.findall(text)]


def unknown(text: str, content: dict[str, Any]) -> list[str]:
    """The numbers of a text that are none of a file, rounded as they are shown."""
    found = list(leaves(content))
    written = {n for leaf in found if isinstance(leaf, str) for n in numbers(leaf)}
    measured = [float(leaf) for leaf in found if isinstance(leaf, int | float)]

    def known(number: str) -> bool:
        decimals = len(number.partition(".")[2])
        return number in written or any(
            f"{abs(value):.{decimals}f}" == number for value in measured
        )

    return [number for number in numbers(text) if not known(number)]


def test_a_number_is_known_as_it_is_rounded() -> None:
    content = {"figures": {"bleu": 86.6149, "lines": ["13,348 tokens", "left 1m59s"], "n": 25_000}}
    assert unknown("86.61, 86.6, 13,348, 25 000 and commit 1234567 of 2026-11-23", content) == []
    assert unknown("86.62, 13 349, 25 001, 0.8", content) == ["86.62", "13349", "25001", "0.8"]


@pytest.mark.parametrize(("page", "name", "text"), quoted())
def test_each_number_is_one_of_the_file(page: str, name: str, text: str) -> None:
    content = read(name)
    assert unknown(text, content) == []
    assert COMMIT.findall(text) == [content["commit"]]
    assert DATE.findall(text) == [content["date"]]


def test_each_line_of_the_terminal_is_one_that_was_printed() -> None:
    """Also where another number of the file would pass for it."""
    shown = [(name, line) for _, name, text in quoted() for line in text.splitlines()]
    lines = [(name, line.strip()) for name, line in shown if line.startswith("    ")]
    assert len(lines) > 50
    printed = {
        name: {" ".join(leaf.split()) for leaf in leaves(read(name)) if isinstance(leaf, str)}
        for name, _ in lines
    }
    for name, line in lines:
        assert line == "..." or " ".join(line.split()) in printed[name], line


def test_the_tables_are_those_of_the_files() -> None:
    page = (ROOT / PAGE).read_text(encoding="utf-8")
    assert with_tables(page) == page


@pytest.mark.parametrize("name", sorted(MEASURED))
def test_the_code_is_what_was_measured(name: str) -> None:
    code = MEASURED[name].fingerprint()  # of files that are there
    if not (ROOT / FIGURES / f"{name}.json").exists():
        assert name not in {found for _, found, _ in quoted()}
        return
    assert read(name)["code"] == code, (
        f"what docs/figures/{name}.json measures has changed since: "
        f"python -m benchmarks.record {name}, and put the new figures into the pages that quote it"
    )


@pytest.mark.parametrize("program", sorted(set(MAKERS.values())))
def test_what_an_update_is_measured_by_counts(program: str) -> None:
    used = code_fingerprint.modules(program, ROOT / "src", ROOT, whole=True)
    assert not {ROOT / file for file in UNUSED} & set(used.values())


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_an_update_runs_nothing_of_what_does_not_count(precision: Any) -> None:
    pieces = torch.tensor([[5, 6, EOS], [7, EOS, PAD]])
    batch = Batch(pieces, torch.tensor([[BOS, 5, 6], [BOS, 7, PAD]]), pieces)
    update, run = ours(SIZES["demo"], precision), set[str]()
    sys.setprofile(lambda frame, event, argument: run.add(frame.f_code.co_filename))
    try:
        update(batch)
    finally:
        sys.setprofile(None)
    assert str(ROOT / "src/seq2sweep/model/attention.py") in run
    assert not {str(ROOT / file) for file in NOT_RUN} & run


def test_each_file_is_quoted_and_says_where_it_comes_from() -> None:
    names = {path.stem for path in (ROOT / FIGURES).glob("*.json")}
    assert names == {name for _, name, _ in quoted()}
    assert names <= set(MEASURED)
    for name in names:
        content = read(name)
        command = " ".join(MEASURED[name].command)
        assert content["command"] == command
        assert DATE.fullmatch(content["date"])
        assert re.fullmatch("[0-9a-f]{7}", content["commit"])
        assert content["machine"]["cores"].isdigit()
        assert json.dumps(content["figures"]) not in ("{}", "[]", "null")


def test_commits_stand_where_a_file_is_quoted() -> None:
    """What says by which commit it was measured has a file, or says that it is of older code."""
    for page in PAGES:
        rest = QUOTED.sub("", page.read_text(encoding="utf-8"))
        for paragraph in re.split(r"\n\s*\n", rest):
            if COMMIT.search(paragraph):
                assert "an earlier version" in paragraph, (page.name, paragraph)
