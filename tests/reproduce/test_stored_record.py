"""A record that others may have written is read, or refused in a line that can be printed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from seq2sweep.errors import UserError
from seq2sweep.reproduce.stored_record import StoredRecord
from seq2sweep.reproduce.verdict import Verdict, causes, parts_of

CONTENT: dict[str, Any] = {
    "stage": "train",
    "commit": "a" * 40,
    "origin": None,
    "changes_missing": None,
    "identity": {"data": "d"},
    "machine": {"python": "3.11"},
    "trained": {"workers": 2},
    "outcome": {
        "weights": {"4": "a" * 64},
        "curves": {"loss": [[2, 1.5], [4, None]]},
        "scores": {"bleu": 1.0},
        "stopped_early": False,
    },
}


def read(folder: Path, content: Any) -> StoredRecord:
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / "record.json").write_text(text)
    (folder / "constraints.txt").write_bytes(b"torch==2.13.0\n\xff\nray==2.60.0\n")
    return StoredRecord.read("0" * 32, folder)


def changed(path: str, to: Any) -> dict[str, Any]:
    again = copy.deepcopy(CONTENT)
    *above, last = path.split(".")
    place: Any = again
    for key in above:
        place = place[key]
    place[last] = to
    return again


def test_a_record_is_read(tmp_path: Path) -> None:
    found = read(tmp_path, CONTENT)
    assert found.content == CONTENT | {"packages": {"torch": "2.13.0", "ray": "2.60.0"}}
    assert found.stage == "train"


@pytest.mark.parametrize(
    ("stage", "scores", "file"),
    [
        ("train", {}, "metrics/train.json"),
        ("evaluate", {"bleu": 1.0}, "metrics/evaluate.json"),
        ("sweep", {"bleu": 1.0}, "reports/sweep.json"),
        ("student", {}, "metrics/student.json"),
        ("student", {"f1": 1.0}, "metrics/semi_supervised.json"),
    ],
)
def test_a_stage_names_the_run_that_it_records_again(
    stage: str, scores: dict[str, float], file: str, tmp_path: Path
) -> None:
    outcome = {**CONTENT["outcome"], "scores": scores}
    assert read(tmp_path, CONTENT | {"stage": stage, "outcome": outcome}).result == file


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "null", "[" * 100_000, '{"stage": ' + "9" * 5000 + "}",
        *(changed(key, to) for key in CONTENT for to in (5, [], {"a": {}}) if key != "origin"),
        changed("stage", "../train"), changed("commit", "--upload=x"), changed("commit", "HEAD"),
        changed("outcome.weights", {"4": "../x"}), changed("outcome.weights", {"x": "a" * 64}),
        changed("outcome.weights", {"4": None}), changed("outcome.curves", {"loss": []}),
        changed("outcome.curves", {"loss": 5}), changed("outcome.curves", {"loss": [[1]]}),
        changed("outcome.curves", {"loss": [["1", 2.0]]}), changed("trained", {"workers": []}),
        changed("outcome.curves", {"loss": [[1, "2"]]}), changed("outcome.scores", {"bleu": {}}),
        changed("outcome.stopped_early", "no"),
    ],
)  # fmt: skip
def test_what_is_no_record_is_one_line(tmp_path: Path, content: Any) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, content)
    assert "run 0000" in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_hostile_values_can_be_printed_and_compared(tmp_path: Path) -> None:
    hostile = changed("machine", {"\x1b[2J": "\x1b]0;x\x07" * 500})
    hostile["outcome"]["curves"]["loss"] = [[2, 1e308], [4, 10**400], [6, 0]]
    text = json.dumps(hostile).replace("1e+308", "Infinity")
    found = read(tmp_path, text).content
    assert found["outcome"]["curves"]["loss"] == [[2, None], [4, None], [6, 0]]
    again = changed("outcome.curves", {"loss": [[2, 1.0], [6, -1e308]]}) | {"packages": {}}
    again["outcome"]["scores"]["bleu"] = "x"
    verdict = Verdict(parts_of([(found, again)]), causes(found, again))
    assert all(line.isprintable() for line in verdict.lines())
    assert not verdict.identical
