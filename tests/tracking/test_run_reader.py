"""Runs of a store, read by how their ids begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from seq2sweep.errors import UserError
from seq2sweep.tracking.mlflow_runs import Run
from seq2sweep.tracking.mlflow_store import Experiment
from seq2sweep.tracking.run_reader import RunReader


def test_a_run_is_found_by_how_its_id_begins(experiment: Experiment, uri: str, run: Run) -> None:
    reader = RunReader(uri)
    assert reader.find(run.id) == reader.find(run.id[:20]) == run.id
    other = "0" * 20 if not run.id.startswith("0" * 20) else "1" * 20
    with pytest.raises(UserError, match=f"run id {other}: .*has no such run, or it was deleted"):
        reader.find(other)
    run.client.delete_run(run.id)
    with pytest.raises(UserError, match="no such run"):
        reader.find(run.id)


def test_an_id_that_begins_two_runs_is_refused(
    experiment: Experiment, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = RunReader(uri)
    monkeypatch.setattr(reader, "_search", lambda filter_string: [1, 2])
    with pytest.raises(UserError, match="run id abcd: those of 2 runs begin so"):
        reader.find("abcd")


@pytest.mark.parametrize("run_id", ["", "abc", "ABCD", "abcd%", "a' OR '1", "x" * 500, "0" * 33])
def test_what_is_no_run_id_is_refused(experiment: Experiment, uri: str, run_id: str) -> None:
    with pytest.raises(UserError, match="is no run id") as caught:
        RunReader(uri).find(run_id)
    assert len(str(caught.value)) < 250


def test_runs_know_what_is_above_and_below_them(experiment: Experiment, uri: str, run: Run) -> None:
    below = [
        Run.begin(experiment, f"{run.id}.{n}", "below", started=1_700_000_000.0 + n, parent=run.id)
        for n in range(2)
    ]
    reader = RunReader(uri)
    assert reader.children(run.id) == [below[1].id, below[0].id]
    assert reader.parent(below[0].id) == run.id
    assert reader.parent(run.id) is None
    assert reader.children(below[0].id) == []


def test_files_of_a_run_are_fetched_by_name_and_within_a_size(
    uri: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "of").mkdir()
    for name, text in {"a": "first", "b": "second", "other": "third"}.items():
        (tmp_path / "of" / name).write_text(text)
    (tmp_path / "of" / "folder").mkdir()
    (tmp_path / "of" / "folder" / "x").write_text("")
    run.artifact([tmp_path / "of"])
    reader = RunReader(uri)
    reader.fetch(run.id, "of", ["a", "b", "missing"], 6, tmp_path / "to")
    assert {p.name: p.read_text() for p in (tmp_path / "to").iterdir()} == {
        "a": "first",
        "b": "second",
    }
    for name in ("b", "folder"):
        with pytest.raises(UserError, match=f"of/{name} is no file of at most 5 bytes"):
            reader.fetch(run.id, "of", [name], 5, tmp_path / f"again {name}")
    reader.fetch(run.id, "nowhere", ["a"], 5, tmp_path / "nothing")
    assert list((tmp_path / "nothing").iterdir()) == []


def test_reading_makes_no_store(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mlflow\.db is missing: set tracking\.uri or \$MLFLOW"):
        RunReader(f"sqlite:///{tmp_path}/mlflow.db")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mlflow.db").write_text("this is a text file, long enough to be looked at" * 20)
    with pytest.raises(UserError, match=r"tracking\.uri: .*file is not a database"):
        RunReader(f"sqlite:///{tmp_path}/mlflow.db")
