"""A disk that is full: what was recorded stays whole, and all goes on when there is room."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from seq2sweep.tracking.delivery import ATTEMPTS, UnavailableError
from seq2sweep.tracking.mlflow_store import Experiment
from seq2sweep.tracking.outbox import Outbox
from seq2sweep.tracking.recorder import Recorder
from seq2sweep.tracking.relay import Relay
from tests.tracking import scenario
from tests.tracking.unreliable import runs


def fill(disk: Path) -> Path:
    """Leave no page free; the file that takes the room."""
    filler = disk / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(4096))
    return filler


def kinds(run: Recorder) -> list[str]:
    return [record.content["do"] for record in Outbox(run.folder).records()]


def names(folder: Path) -> Iterable[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_records_before_a_full_disk_stay_whole(small_disk: Path) -> None:
    with Recorder(small_disk / "tracking", "t", kind="test") as run:
        filler = fill(small_disk)
        logged = 0

        def log() -> None:
            nonlocal logged
            while True:  # there is some room in the file's last page
                run.log({"loss": 1.0}, logged)
                logged += 1

        with pytest.raises(OSError, match="No space left on device") as caught:
            log()
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename == str(run.folder / "records.jsonl")
        assert (run.folder / "records.jsonl").read_bytes().endswith(b"}\n")
        assert kinds(run) == ["start", *["log"] * logged]
        filler.unlink()
        run.log({"loss": 1.0}, logged)
    assert kinds(run) == ["start", *["log"] * (logged + 1), "end"]


@pytest.mark.parametrize("what", ["file", "folder", "model", "curves"])
def test_files_that_do_not_fit_leave_nothing(small_disk: Path, tmp_path: Path, what: str) -> None:
    folder = tmp_path / "folder"
    (folder / "in it").mkdir(parents=True)
    (folder / "in it" / "small").write_text("x")
    big = folder / "in it" / "big"
    big.write_bytes(bytes(600_000))
    with Recorder(small_disk / "tracking", "t", kind="test") as run:

        def record() -> None:
            if what == "model":
                run.model(
                    "m",
                    files=[folder / "in it" / "small", big],
                    params={},
                    metrics={},
                    dataset=("d", "d"),
                )
            elif what == "curves":
                run.curves(big)
            else:
                run.artifact(folder if what == "folder" else big)

        before = list(names(run.folder))
        with pytest.raises(OSError, match="No space left on device") as caught:
            record()
        assert caught.value.errno == errno.ENOSPC
        assert str(run.folder) in str(caught.value)
        assert set(names(run.folder)) - {"files"} == {*before}
        assert kinds(run) == ["start"]
        big.write_bytes(bytes(1000))
        record()
        kept = next((run.folder / "files").rglob("big"))
        assert kept.read_bytes() == bytes(1000)
    assert len(kinds(run)) == 3


@pytest.mark.parametrize(
    "call", ["create_run", "log_inputs", "log_batch", "log_artifact", "set_terminated"]
)
def test_what_mlflow_has_cannot_be_noted(
    experiment: Experiment,
    tmp_path: Path,
    small_disk: Path,
    new: Callable[..., Relay],
    call: str,
) -> None:
    """From some call to MLflow on; a batch may be a part of a curve."""
    (tmp_path / "tracking").symlink_to(small_disk)
    recorded = scenario.record(tmp_path)

    def fate(name: str) -> None:
        if name == call:
            filler.append(fill(small_disk))

    filler: list[Path] = []
    relay = new(fate=fate)
    for _ in range(ATTEMPTS + 1):
        with pytest.raises(UnavailableError, match=r"No space left on device: .*delivered\.json"):
            relay.deliver()
    assert relay.refused == {}
    filler[0].unlink()
    assert new().deliver()
    scenario.check(experiment, recorded)


def test_mlflow_has_no_room_for_a_file(
    uri: str, tmp_path: Path, small_disk: Path, folder: Path
) -> None:
    recorded = scenario.record(tmp_path)
    place = (tmp_path / "tracking", uri, "a small disk", small_disk / "artifacts")
    filler = fill(small_disk)
    relay = Relay(*place)
    for _ in range(ATTEMPTS + 1):
        with pytest.raises(
            UnavailableError, match=f"have no room in {place[3]} .*No space left on device"
        ):
            relay.deliver()
    assert relay.refused == {}
    filler.unlink()
    assert relay.deliver()
    scenario.check(Experiment(*place[1:]), recorded)


def test_the_end_of_a_run_that_died_waits_for_room(
    experiment: Experiment, tmp_path: Path, small_disk: Path, new: Callable[..., Relay]
) -> None:
    (tmp_path / "tracking").symlink_to(small_disk)
    run = Recorder(small_disk, "t", kind="test")
    path = run.folder / "records.jsonl"
    while path.stat().st_size % 4096 < 4000:  # the end will need a new page
        run.log({"loss": 1.0}, 1)
    run.close()
    before = path.read_bytes()
    filler = fill(small_disk)
    with pytest.raises(UnavailableError, match=r"No space left on device: .*records\.jsonl"):
        new().deliver()
    assert path.read_bytes() == before
    filler.unlink()
    assert new().deliver()
    assert runs(experiment, run.name)[0].info.status == "KILLED"
