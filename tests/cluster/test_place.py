"""A run in a bucket, as its driver has it. Workers are played by files that are put there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep.cluster.place import BucketPlace, Place, place_of
from seq2sweep.cluster.sweep_driver import require_folder
from seq2sweep.config import Config
from seq2sweep.errors import Failure, UserError
from seq2sweep.runs.layout import JOURNAL_NAME, checkpoint_name, interrupted_name
from seq2sweep.runs.messages import BEGUN, STOP, USER_ERROR, Signals
from seq2sweep.runs.remote import RemoteRun
from seq2sweep.storage import lease
from seq2sweep.storage.lease import ClaimLost
from seq2sweep.storage.node_folder import node_folder
from seq2sweep.storage.object_store import Bucket
from tests.cluster.checkpoints import save


@pytest.fixture
def config(tiny_config: Config) -> Config:
    """The newest two of 4, 8 and 12 are kept."""
    return tiny_config


@pytest.fixture
def workers(bucket: str, tmp_path: Path) -> RemoteRun:
    """The run as a worker's machine has it."""
    (tmp_path / "node").mkdir()
    return RemoteRun(f"{bucket}/run", tmp_path / "node")


@pytest.fixture
def place(bucket: str, tmp_path: Path) -> BucketPlace:
    folder = tmp_path / "project" / "runs" / "run"
    folder.mkdir(parents=True)
    return BucketPlace(f"{bucket}/", folder)


def train(workers: RemoteRun, *steps: int, end: bool = False) -> None:
    """Leave checkpoints of these steps in the bucket, and the journal."""
    with (workers.local / JOURNAL_NAME).open("a") as stream:
        for step in steps:
            stream.write(json.dumps({"kind": "checkpoint", "step": step}) + "\n")
        if end:
            stream.write(json.dumps({"kind": "finished", "step": steps[-1], "workers": 2}) + "\n")
    for step in steps:
        path = workers.local / checkpoint_name(step)
        workers.upload(path if path.exists() else save(path, step), lambda: None)
    workers.upload_journal(lambda: None)


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_where_a_run_stands(config: Config, place: BucketPlace, workers: RemoteRun) -> None:
    assert place.look(config).checkpoints == []
    train(workers, 4, 8)
    workers.upload(save(workers.local / interrupted_name(9), 9), lambda: None)
    standing = place.look(config, again=True)
    assert (standing.reached, standing.summary, standing.lost) == (9, None, None)
    assert (place.reached(), place.reached(before=9), place.reached(before=3)) == (9, 8, 0)
    assert not any(path.exists() for path in standing.checkpoints), "none is fetched before the end"
    assert len((place.folder / JOURNAL_NAME).read_text().splitlines()) == 2


def test_what_has_ended_comes_home_once(
    config: Config, place: BucketPlace, workers: RemoteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(workers, 8, 12, end=True)
    standing = place.look(config)
    assert standing.is_done
    assert standing.summary == {"step": 12, "workers": 2}
    assert names(standing.checkpoints) == [checkpoint_name(8), checkpoint_name(12)]
    assert all(path.parent == place.folder for path in standing.checkpoints)
    # Then nobody asks the bucket any more, not even when it is empty.
    monkeypatch.setattr(place, "remote", None)
    assert place.look(config) == standing


def test_what_was_lost_in_the_bucket_is_done_again(
    config: Config, place: BucketPlace, workers: RemoteRun
) -> None:
    train(workers, 8, 12, end=True)
    there = Bucket(place.address)
    there.write(f"{checkpoint_name(8)}/model.safetensors", b"torn")
    standing = place.look(config, again=True)
    assert (standing.lost, standing.is_done) == (8, False)
    assert there.read(f"{checkpoint_name(8)}/manifest.json") is None
    # By the list alone this time.
    assert place.look(config, again=True).lost == 8
    train(workers, 8)
    assert place.look(config, again=True).is_done


def test_what_only_this_machine_has_is_brought_there(
    config: Config, place: BucketPlace, workers: RemoteRun
) -> None:
    """The first steps, taken over from another run."""
    for step in (4, 8):
        save(place.folder / checkpoint_name(step), step)
    (place.folder / JOURNAL_NAME).write_text('{"kind": "logged", "step": 8}\n')
    assert place.look(config).reached == 8
    assert names(workers.checkpoints()) == [checkpoint_name(4), checkpoint_name(8)]
    workers.fetch_journal()
    assert (workers.local / JOURNAL_NAME).read_text() == '{"kind": "logged", "step": 8}\n'
    # Once only: what the workers have removed since stays away.
    train(workers, 12)
    workers.remove(checkpoint_name(4))
    place.look(config)
    assert names(workers.checkpoints()) == [checkpoint_name(8), checkpoint_name(12)]


def test_the_journal_is_followed(place: BucketPlace, workers: RemoteRun) -> None:
    path, there = place.folder / JOURNAL_NAME, Bucket(place.address)
    place.catch_up()
    assert not path.exists()
    train(workers, 4)
    place.catch_up()
    first = path.read_bytes()
    with path.open("ab") as stream:
        stream.write(b'{"kind": "torn by a ki')
    train(workers, 8)
    whole = there.read(JOURNAL_NAME) or b""
    there.write(JOURNAL_NAME, whole + b'{"kind": "vali')
    place.catch_up()
    assert path.read_bytes() == whole != first


def test_two_drivers(place: BucketPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two copies of a project on one machine, whose locks do not meet."""
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(lease, "LOOK_SECONDS", 0.1)
    copy = tmp_path / "copy" / "runs" / "run"
    copy.mkdir(parents=True)
    with (
        place.held(),
        pytest.raises(UserError, match=f"is working in {place.address}: wait for its end"),
        BucketPlace(place.storage, copy).held(),
    ):
        pass
    with BucketPlace(place.storage, copy).held():
        pass


def test_a_driver_that_was_taken_for_dead_starts_no_workers(place: BucketPlace) -> None:
    with place.held():
        place.begin("1")
        taken = {"host": "far", "process": 1, "machine": None}
        there = Bucket(f"{place.address}/claims/driver")
        there.write("00000002.json", json.dumps(taken).encode())
        with pytest.raises(ClaimLost, match="as if this one had ended"):
            place.begin("2")


def test_a_worker_that_still_writes_is_waited_for(
    config: Config, place: BucketPlace, workers: RemoteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2sweep.runs.remote.OLD_WRITER_SECONDS", 0.0)
    monkeypatch.setattr(lease, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(lease, "LOOK_SECONDS", 0.1)
    with workers.claim_for_writing(), pytest.raises(Failure, match="is writing in s3://"):
        place.look(config)
    assert place.look(config).reached == 0


def test_what_is_told_and_asked(place: BucketPlace, workers: RemoteRun) -> None:
    place.begin("1")
    there = Signals(workers.bucket, "1")
    assert not place.ask(), "no worker has begun"
    assert there.told(STOP) == ""
    there.tell(BEGUN)
    assert place.ask()
    assert place.user_error() is None
    there.tell(USER_ERROR, "mend it")
    assert place.user_error() == "mend it"
    place.end()
    assert place.user_error() is None


def test_a_bucket_that_is_away(
    config: Config, place: BucketPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*arguments: Any) -> None:
        raise OSError(5, "Input/output error", "s3://...")

    monkeypatch.setattr("seq2sweep.storage.retry.time.sleep", lambda seconds: None)
    for action in ("sizes", "read", "write", "create"):
        monkeypatch.setattr(Bucket, action, away)
    with pytest.raises(Failure, match=f"{place.address} cannot be used .* fix the storage"):
        place.look(config)
    place.begin("1")
    place.catch_up()
    place.end()
    assert not place.ask()


def test_by_the_setting(config: Config, bucket: str, tmp_path: Path) -> None:
    def made(storage: str) -> Place:
        changed = configuration.with_changes(config, {"cluster.storage": storage})
        return place_of(changed.cluster, tmp_path)

    assert type(made("runs")) is Place
    assert type(made(bucket)) is BucketPlace
    assert made(f"{bucket}/").address == f"{bucket}/{tmp_path.name}"


def test_logs_of_workers_that_hung_come_home(cluster: None, place: BucketPlace) -> None:
    logs = node_folder(place.address) / "logs-1"
    logs.mkdir()
    (logs / "hang-0.log").touch()
    (logs / "hang-1.log").write_text("Timeout!")
    place.begin("1")
    try:
        (log,) = place.hung()
        assert log.parent == place.folder
        assert (log.name[:7], log.read_text()) == ("hang-1.", "Timeout!")
    finally:
        shutil.rmtree(logs.parent)
    place.begin("2")
    assert place.hung() == []
    shutil.rmtree(node_folder(place.address))


def test_no_room_at_home(
    config: Config, place: BucketPlace, workers: RemoteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(there: Bucket, name: str, path: Path) -> None:
        raise OSError(28, "No space left on device")

    train(workers, 8, 12, end=True)
    monkeypatch.setattr(Bucket, "download", full)
    with pytest.raises(Failure, match=f"no room left in {place.folder} for what comes home"):
        place.look(config)


def test_a_full_disk_is_the_nodes_own(place: BucketPlace) -> None:
    assert "set TMPDIR to another disk" in place.no_room(OSError(28, "No space left", "/tmp/x"))


def test_sweeps_need_a_folder(config: Config) -> None:
    require_folder(config.cluster)
    bucket = configuration.with_changes(config, {"cluster.storage": "s3://b/x"})
    with pytest.raises(UserError, match=r"cluster\.storage is s3://b/x: sweeps need a folder"):
        require_folder(bucket.cluster)
