"""A run in an object store, for workers on machines that come and go, and for its driver."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import boto3
import pytest
import torch

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.runs import journal
from seq2sweep.runs.event_writer import EventWriter
from seq2sweep.runs.layout import (
    FAILURE_NAME,
    JOURNAL_NAME,
    Retention,
    checkpoint_name,
    interrupted_name,
)
from seq2sweep.runs.remote_run_store import ALL_FILES, BEGUN, STOP, RemoteRunStore
from seq2sweep.runs.run_store import RunStore
from seq2sweep.runs.stores import driver_store, worker_store
from seq2sweep.runs.watchdog import hang_logs_here
from seq2sweep.storage import lease
from seq2sweep.storage.atomic import sha256
from seq2sweep.storage.lease import LeaseLostError
from seq2sweep.storage.object_store import ObjectStore, node_folder
from seq2sweep.train import checkpointing, loop
from seq2sweep.train.checkpointing import MANIFEST
from tests.cluster.checkpoints import damage, save
from tests.conftest import Corpus


class Machines:
    """Machines with temporary folders of their own, of which this process is on one at a time."""

    def __init__(self, root: Path, address: str, patch: pytest.MonkeyPatch) -> None:
        self.root, self.address, self.patch = root, address, patch

    def on(
        self, machine: str, attempt: str = "1", retention: Retention | None = None
    ) -> RemoteRunStore:
        """The run as a worker there has it."""
        temporary = self.root / machine
        temporary.mkdir(exist_ok=True)
        self.patch.setattr(tempfile, "tempdir", str(temporary))
        store = worker_store(self.address, attempt, retention)
        assert isinstance(store, RemoteRunStore)
        return store


@pytest.fixture
def machines(tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Machines:
    return Machines(tmp_path, f"{bucket}/run", monkeypatch)


@pytest.fixture
def there(machines: Machines) -> ObjectStore:
    return ObjectStore(machines.address)


@pytest.fixture
def first(machines: Machines) -> RemoteRunStore:
    """The run on a machine that has written its checkpoints of steps 4 and 8, and left."""
    run = machines.on("first")
    with run.writing():
        train(run, 4, 8)
    return run


@pytest.fixture
def config(tiny_config: Config) -> Config:
    """The newest two are kept, the best and every hundredth step's."""
    return configuration.with_changes(
        tiny_config, {"train.keep_best": 1, "train.keep_every": 100, "train.steps": 900}
    )


def train(run: RemoteRunStore, *steps: int, losses: dict[int, float] | None = None) -> list[Path]:
    """Do what a worker does at checkpoints of these steps, but for pruning."""
    made = []
    for step in steps:
        with (run.folder / JOURNAL_NAME).open("a") as stream:
            stream.write(json.dumps({"kind": "checkpoint", "step": step}) + "\n")
        made.append(save(run.folder / checkpoint_name(step), step, (losses or {}).get(step)))
        run.keep(made[-1])
    return made


def names(there: ObjectStore) -> list[str]:
    return [path.name for path in RemoteRunStore(there.address, Path("nowhere")).uploaded()]


def steps_in(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_another_machine_goes_on(machines: Machines, there: ObjectStore) -> None:
    first = machines.on("first")
    with first.writing():
        assert first.resume_point() is None
        written = train(first, 4, 8)[-1]
    second = machines.on("second")
    with second.writing():
        found = second.resume_point()
        assert found == second.folder / written.name != written
        checkpointing.verify(found)
        assert steps_in(second.folder / JOURNAL_NAME) == [4, 8]
    # A worker of the same training on a third machine fetches the one it is told.
    third = machines.on("third")
    third.fetch(checkpoint_name(8))
    third.fetch(checkpoint_name(4))
    assert [path.name for path in third.folder.glob("step-*")] == [checkpoint_name(4)]
    checkpointing.verify(third.folder / checkpoint_name(4))


def test_sums_of_a_checkpoint_are_known_without_its_files(machines: Machines) -> None:
    first = machines.on("first")
    with first.writing():
        (written,) = train(first, 4)
    expected = {path.name: sha256(path) for path in written.iterdir() if path.name != MANIFEST}
    assert RunStore(first.folder).sums(checkpoint_name(4)) == expected
    elsewhere = machines.on("second")
    assert elsewhere.sums(checkpoint_name(4)) == expected
    assert not (elsewhere.folder / checkpoint_name(4)).exists()


def test_a_worker_beside_the_first_one_removes_nothing(machines: Machines) -> None:
    first = machines.on("first")
    with first.writing():
        train(first, 4, 8)
        machines.on("first").fetch(checkpoint_name(8))
        assert (first.folder / checkpoint_name(4)).exists()


def test_a_node_is_cleared_unless_somebody_writes_there(
    machines: Machines, there: ObjectStore
) -> None:
    first = machines.on("first")
    with first.writing():
        written = train(first, 4, 8)
        machines.on("first").clear()
        assert all(path.exists() for path in written)
    machines.on("first").clear()
    assert not any(path.exists() for path in written)
    assert names(there) == [path.name for path in written]
    shutil.rmtree(first.folder)
    first.clear()


def test_a_damaged_one_is_removed_and_the_one_before_is_taken(
    machines: Machines, first: RemoteRunStore, there: ObjectStore
) -> None:
    there.write(f"{checkpoint_name(8)}/model.safetensors", b"torn")
    second = machines.on("second")
    with second.writing():
        assert second.resume_point() == second.folder / checkpoint_name(4)
    assert names(there) == [checkpoint_name(4)]
    with pytest.raises(OSError, match="no such object"):
        machines.on("third").fetch(checkpoint_name(8))


def test_a_node_that_reads_badly_removes_nothing(
    machines: Machines, first: RemoteRunStore, there: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By bad memory, or a bad network: what is there may be the only copy."""
    uploaded, download, reads = names(there), ObjectStore.download, itertools.count()
    bad = 2

    def flips_bits(self: ObjectStore, name: str, path: Path) -> None:
        download(self, name, path)
        if name.endswith("model.safetensors") and (read := next(reads)) < bad:
            path.write_bytes(path.read_bytes()[:-1] + bytes([read]))

    monkeypatch.setattr(ObjectStore, "download", flips_bits)
    second = machines.on("second")
    with second.writing():
        with pytest.raises(OSError, match=r"come differently each time: .*step-00000008"):
            second.resume_point()
        assert names(there) == uploaded
        assert second.resume_point() == second.folder / checkpoint_name(8)
    bad = next(reads) + 2  # once only
    third = machines.on("third")
    with third.writing():
        assert third.resume_point() == third.folder / checkpoint_name(8)
    assert names(there) == uploaded


def test_one_that_is_damaged_there_is_uploaded_again_by_the_node_that_has_it(
    machines: Machines,
    first: RemoteRunStore,
    there: ObjectStore,
    soon: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its worker resumes from its own, and holds the lease while another one downloads."""
    monkeypatch.setattr("seq2sweep.runs.remote_run_store.OLD_WRITER_SECONDS", 0.0)
    there.write(f"{checkpoint_name(8)}/model.safetensors", b"torn")
    first = machines.on("first", "2")
    with first.writing():
        assert first.resume_point() == first.folder / checkpoint_name(8)
        with pytest.raises(OperationalError, match="step-00000008 is truncated or was changed"):
            machines.on("second", "2").fetch(checkpoint_name(8))
        assert names(there) == [checkpoint_name(4)]
    first = machines.on("first", "3")
    with first.writing():
        assert first.resume_point() == first.folder / checkpoint_name(8)
        assert names(there) == [checkpoint_name(4), checkpoint_name(8)]
        checkpointing.verify(machines.on("second", "3").fetch(checkpoint_name(8)))


class Fails(ObjectStore):
    """A bucket that is away from the n-th upload on."""

    def __init__(self, address: str, uploads: int) -> None:
        super().__init__(address)
        self.left = uploads

    def upload(self, path: Path, name: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(5, "away", name)
        super().upload(path, name)


@pytest.mark.parametrize("uploads", range(4))
def test_an_upload_that_stops_halfway_is_no_checkpoint_and_goes_on(
    machines: Machines, there: ObjectStore, uploads: int
) -> None:
    first = machines.on("first")
    with first.writing():
        train(first, 4)
        first.objects = Fails(there.address, uploads)
        with pytest.raises(OSError, match="away"):
            train(first, 8)
        checkpointing.verify(first.folder / checkpoint_name(8))
        assert names(there) == [checkpoint_name(4)]
    again = machines.on("first")
    with again.writing():  # nobody else wrote meanwhile: what it has is newer
        assert again.resume_point() == again.folder / checkpoint_name(8)
    assert names(there) == [checkpoint_name(4), checkpoint_name(8)]
    assert steps_in(again.folder / JOURNAL_NAME) == [4, 8]


def test_what_a_machine_has_does_not_count_when_another_went_on(
    machines: Machines, there: ObjectStore
) -> None:
    first = machines.on("first")
    with first.writing():
        train(first, 4)
        first.objects = Fails(there.address, 0)
        with pytest.raises(OSError, match="away"):
            train(first, 8)
    second = machines.on("second")
    with second.writing():
        assert second.resume_point() == second.folder / checkpoint_name(4)
        train(second, 12)
    again = machines.on("first")
    with again.writing():
        assert again.resume_point() == again.folder / checkpoint_name(12)
        assert not (again.folder / checkpoint_name(8)).exists()
        assert steps_in(again.folder / JOURNAL_NAME) == [4, 12]


def test_the_journal_is_there_before_the_checkpoint(machines: Machines, there: ObjectStore) -> None:
    """Whoever goes on from it would else miss what was written of the steps before."""
    first = machines.on("first")
    with first.writing():
        first.objects = Fails(there.address, 3)
        with pytest.raises(OSError, match="away"):
            train(first, 4)
    assert names(there) == []
    assert there.read(JOURNAL_NAME) == (first.folder / JOURNAL_NAME).read_bytes()


def test_a_journal_that_a_power_failure_has_cut_here_is_whole_there(
    machines: Machines, first: RemoteRunStore, there: ObjectStore
) -> None:
    path = first.folder / JOURNAL_NAME
    path.write_bytes(path.read_bytes()[:-50])
    again = machines.on("first")
    with again.writing():
        train(again, 12)
    assert steps_in(path) == [4, 8, 12]
    assert there.read(JOURNAL_NAME) == path.read_bytes()


def test_a_journal_that_was_mended_there_is_taken_by_the_node_that_wrote_it(
    machines: Machines, first: RemoteRunStore, there: ObjectStore
) -> None:
    path = first.folder / JOURNAL_NAME
    good = path.read_bytes()
    path.write_bytes(good.replace(b"\n", b"\n\xff\xff\n", 1))
    there.write(JOURNAL_NAME, path.read_bytes())
    with (
        pytest.raises(UserError, match=rf"^{there.address}/{JOURNAL_NAME} has a damaged line"),
        machines.on("first", "2").writing(),
    ):
        pass
    there.write(JOURNAL_NAME, good + b'{"kind": "torn')  # as by hand, without its last line end
    again = machines.on("first", "3")
    with again.writing():
        train(again, 12)
    assert steps_in(path) == [4, 8, 12]
    assert there.read(JOURNAL_NAME) == path.read_bytes()


def test_a_folder_that_is_removed_here_takes_no_journal_there_with_it(
    machines: Machines, there: ObjectStore
) -> None:
    first = machines.on("first")
    with first.writing():
        train(first, 4, 8)
        before = there.read(JOURNAL_NAME)
        shutil.rmtree(first.folder)  # as whoever cleans the folder for temporary files does
        first.folder.mkdir()
        with pytest.raises(FileNotFoundError, match="removed or cut"):
            train(first, 12)
        assert there.read(JOURNAL_NAME) == before
        assert names(there) == [checkpoint_name(4), checkpoint_name(8)]
    again = machines.on("first", attempt="2")
    with again.writing():
        assert again.resume_point() == again.folder / checkpoint_name(8)
        assert steps_in(again.folder / JOURNAL_NAME) == [4, 8]


def test_a_line_that_is_not_whole_stays_here(machines: Machines, there: ObjectStore) -> None:
    first = machines.on("first")
    with first.writing():
        train(first, 4)
        whole = (first.folder / JOURNAL_NAME).read_bytes()
        (first.folder / JOURNAL_NAME).write_bytes(whole + b'{"kind": "val')
        first.journal.upload(lambda: None)
    assert there.read(JOURNAL_NAME) == whole


def test_whoever_was_taken_for_dead_writes_no_more(machines: Machines, there: ObjectStore) -> None:
    first = machines.on("first")
    with first.writing():
        train(first, 4)
        taken = {"host": "far", "process": 1, "machine": None}
        there.at("leases/writer").write("00000099.json", json.dumps(taken).encode())
        # Half of an upload of whoever took its place.
        there.write(f"{checkpoint_name(8)}/{MANIFEST}", b"theirs")
        before = there.sizes()
        with pytest.raises(LeaseLostError):
            train(first, 8)
        with pytest.raises(LeaseLostError):
            first.finish()
        with pytest.raises(LeaseLostError):
            first.prune(first.folder / checkpoint_name(4))
        assert there.sizes() == before
        checkpointing.verify(first.folder / checkpoint_name(8))


def test_the_bucket_keeps_what_a_folder_would(
    machines: Machines, there: ObjectStore, config: Config
) -> None:
    """Also where a machine has only the newest of those before: losses stand in the bucket."""
    losses = {80: 1.0, 90: 2.0, 100: 3.0, 110: 4.0, 120: 5.0, 130: 6.0}
    first = machines.on("first", retention=Retention.of(config))
    with first.writing():
        train(first, 80, 90, 100, 110, losses=losses)
        first.prune(first.folder / checkpoint_name(110))
    assert names(there) == [checkpoint_name(step) for step in (80, 100, 110)]
    there.delete(f"{checkpoint_name(110)}/manifest.json")  # as a removal that was killed leaves it
    second = machines.on("second", retention=Retention.of(config))
    with second.writing():
        second.resume_point()
        save(second.folder / interrupted_name(105), 105)
        second.keep(second.folder / interrupted_name(105))
        for path in train(second, 120, 130, losses=losses):
            second.prune(path)
    assert names(there) == [checkpoint_name(step) for step in (80, 100, 120, 130)]
    assert [name for name in there.sizes() if "110" in name or "105" in name] == []


def test_whoever_is_cut_off_while_it_prunes_removes_nothing_of_the_next(
    machines: Machines, there: ObjectStore, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A removal may be retried for minutes, and another writer have begun since."""
    losses = {80: 1.0, 90: 2.0, 95: 2.0, 100: 3.0, 105: 3.0, 110: 4.0}
    first = machines.on("first", retention=Retention.of(config))
    theirs = f"{checkpoint_name(120)}/{checkpointing.FILES[0]}"
    delete, deleted = ObjectStore.delete, list[str]()

    def stalls(store: ObjectStore, name: str) -> None:
        delete(store, name)
        deleted.append(name.partition("/")[0])
        taken = {"host": "far", "process": 1, "machine": None}
        there.at("leases/writer").write("00000099.json", json.dumps(taken).encode())
        there.write(theirs, b"theirs")

    with contextlib.suppress(LeaseLostError), first.writing():
        train(first, *losses, losses=losses)
        monkeypatch.setattr(ObjectStore, "delete", stalls)
        with pytest.raises(LeaseLostError):
            first.prune(first.folder / checkpoint_name(110))
        monkeypatch.setattr(ObjectStore, "delete", delete)
    assert len({*deleted}) == 1, "one after another, as long as it holds the lease"
    assert there.read(theirs) == b"theirs"


def test_what_somebody_puts_beside_a_checkpoint_changes_nothing(
    machines: Machines, there: ObjectStore, config: Config
) -> None:
    """A note, or the empty object that a console or a mount makes of a folder."""
    first = machines.on("first", retention=Retention.of(config))
    with first.writing():
        (path,) = train(first, 100)
        there.write(f"{checkpoint_name(100)}/NOTE.txt", b"the best so far")
        bucket, _, run = there.address.removeprefix("s3://").partition("/")
        mark = {"Bucket": bucket, "Key": f"{run}/{checkpoint_name(100)}/"}
        boto3.client("s3").put_object(**mark)
        assert names(there) == [checkpoint_name(100)]
        first.prune(path)
    second = machines.on("second")
    with second.writing():
        assert second.resume_point() == second.folder / checkpoint_name(100)
    assert there.read(f"{checkpoint_name(100)}/NOTE.txt") == b"the best so far"


def test_the_end(machines: Machines, there: ObjectStore) -> None:
    first = machines.on("first")
    with first.writing():
        train(first, 4)
        with (first.folder / JOURNAL_NAME).open("a") as stream:
            stream.write('{"kind": "finished", "step": 4}\n')
        first.finish()
        assert there.read(JOURNAL_NAME) == (first.folder / JOURNAL_NAME).read_bytes()
        assert list(first.folder.glob("step-*")) == []
    assert names(there) == [checkpoint_name(4)]


def test_what_driver_and_worker_tell_each_other(
    machines: Machines, there: ObjectStore, driver: RemoteRunStore
) -> None:
    run = machines.on("first")
    driver.begin_attempt("1")
    assert driver.request_stop()
    assert there.read(f"attempts/1/{STOP}") == b""
    driver.end_attempt()
    driver.begin_attempt("1")
    with run.writing():
        assert driver.has_begun()
        run.poll()
        assert not run.stop_requested()
        assert driver.request_stop()
        run.poll()
        assert run.stop_requested()
    assert not machines.on("second", "2").stop_requested()
    driver.end_attempt()
    assert there.at("attempts").sizes() == {}


def test_a_worker_shows_itself_before_it_uploads_what_another_left(
    machines: Machines, driver: RemoteRunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it is taken for one that does not start, and ended, again and again."""
    driver.begin_attempt("1")
    run = machines.on("first")
    seen = []
    monkeypatch.setattr(RemoteRunStore, "_agree", lambda *of: seen.append(driver.has_begun()))
    with run.writing():
        pass
    assert seen == [True]


def test_small_files_are_read_where_they_are(
    machines: Machines, there: ObjectStore, driver: RemoteRunStore
) -> None:
    assert driver.read("made_by.json") is None
    machines.on("first").write("made_by.json", "theirs")
    assert driver.read("made_by.json") == "theirs"
    there.delete("made_by.json")
    assert driver.read("made_by.json") is None
    driver.write("made_by.json", "ours")
    there.delete("made_by.json")  # as of a run that ended in a folder
    assert driver.read("made_by.json") == "ours"


def test_looking_for_signals_again_and_again_makes_no_connections(
    machines: Machines, driver: RemoteRunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each store has its own, and asks for credentials of its own."""
    run = machines.on("first")
    driver.begin_attempt("1")
    monkeypatch.setattr(ObjectStore, "__init__", Mock(side_effect=AssertionError))
    assert not driver.has_begun()
    driver.objects.write(f"attempts/1/{BEGUN}", b"")
    assert driver.has_begun()
    assert driver.request_stop()
    run.poll()
    assert run.stop_requested()
    driver.end_attempt()


@pytest.mark.parametrize("host", ["node", "node.17", "10.0.0.17", "17"])
def test_logs_of_workers_that_hung(
    machines: Machines, driver: RemoteRunStore, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: host)
    run = machines.on("first")
    (run.logs / "hang-0.log").touch()
    (run.logs / "hang-1.log").write_text("Timeout!")
    (name,) = hang_logs_here(run.location, "1")
    assert name.startswith(f"hang-1.{host}")
    driver.begin_attempt("1")
    (log,) = driver.stack_traces(lambda question, *about: [question(*about)])
    assert (log.parent, log.read_text()) == (driver.folder, "Timeout!")
    assert machines.on("first", "2").logs.is_dir()
    assert not run.logs.exists()
    assert hang_logs_here(run.location, "2") == {}
    driver.begin_attempt("2")
    assert driver.stack_traces(lambda question, *about: [question(*about)]) == []


def test_by_the_settings(machines: Machines, config: Config, bucket: str, tmp_path: Path) -> None:
    machines.on("first")
    for storage, kind in (
        ("runs", RunStore),
        (bucket, RemoteRunStore),
        (f"{bucket}/", RemoteRunStore),
    ):
        made = driver_store(storage, tmp_path)
        assert type(made) is kind
        assert type(worker_store(made.location, "1")) is kind
        assert made.location == (str(tmp_path) if kind is RunStore else f"{bucket}/{tmp_path.name}")


def test_nobody_else_can_enter_a_nodes_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    one, other = node_folder("s3://b/one"), node_folder("s3://b/other")
    assert one != other
    assert node_folder("s3://b/one") == one
    assert one.parent.stat().st_mode & 0o777 == 0o700
    one.parent.chmod(0o755)
    with pytest.raises(UserError, match="that nobody else can enter"):
        node_folder("s3://b/one")
    shutil.rmtree(one.parent)
    (tmp_path / "mine").mkdir(mode=0o700)
    one.parent.symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match="that nobody else can enter"):
        node_folder("s3://b/one")


# --- for the driver -------------------------------------------------------------------------------


@pytest.fixture
def driver(machines: Machines, tmp_path: Path, tiny_config: Config) -> RemoteRunStore:
    """The newest two checkpoints of 4, 8 and 12 are kept."""
    folder = tmp_path / "project" / "runs" / "run"
    folder.mkdir(parents=True)
    return RemoteRunStore(machines.address, folder, retention=Retention.of(tiny_config))


@pytest.fixture
def worker(machines: Machines, tmp_path: Path) -> RemoteRunStore:
    (tmp_path / "node").mkdir()
    return RemoteRunStore(machines.address, tmp_path / "node")


def leave(worker: RemoteRunStore, *steps: int, end: bool = False) -> None:
    """Leave checkpoints of these steps in the store, and the journal."""
    with (worker.folder / JOURNAL_NAME).open("a") as stream:
        for step in steps:
            stream.write(json.dumps({"kind": "checkpoint", "step": step}) + "\n")
        if end:
            stream.write(json.dumps({"kind": "finished", "step": steps[-1], "workers": 2}) + "\n")
    with worker._as_writer() as lease:
        for step in steps:
            path = worker.folder / checkpoint_name(step)
            worker._upload(path if path.exists() else save(path, step), lease)
        worker.journal.upload(lease.check)


def listed(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_how_far_a_run_is(driver: RemoteRunStore, worker: RemoteRunStore) -> None:
    assert driver.status().checkpoints == []
    leave(worker, 4, 8)
    with worker._as_writer() as lease:
        worker._upload(save(worker.folder / interrupted_name(9), 9), lease)
    found = driver.status(newest_only=True)
    assert (found.step, found.summary, found.finished, driver.step()) == (9, {}, False, 9)
    assert not any(path.exists() for path in found.checkpoints), "none is fetched before the end"
    assert len((driver.folder / JOURNAL_NAME).read_text().splitlines()) == 2


def test_what_has_finished_is_downloaded_once(
    driver: RemoteRunStore,
    worker: RemoteRunStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leave(worker, 8, 12, end=True)
    found = driver.status()
    assert found.finished
    assert found.summary == {"step": 12, "workers": 2}
    assert listed(found.checkpoints) == [checkpoint_name(8), checkpoint_name(12)]
    assert all(path.parent == driver.folder for path in found.checkpoints)
    # What somebody has removed here comes home again.
    shutil.rmtree(driver.folder / checkpoint_name(8))
    assert driver.status() == found
    driver.check_kept(found)
    # Then nobody asks the store any more, not even when it is empty.
    monkeypatch.setattr(driver, "objects", None)
    assert driver.status() == found


def test_one_of_lowest_loss_that_is_damaged_here_comes_home_again(
    driver: RemoteRunStore, worker: RemoteRunStore, tiny_config: Config
) -> None:
    driver.retention = Retention.of(configuration.with_changes(tiny_config, {"train.keep_best": 1}))
    losses = {4: 1.0, 8: 2.0, 12: 2.0}
    lines = [{"kind": "validated", "step": s, "valid_loss": loss} for s, loss in losses.items()]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    (worker.folder / JOURNAL_NAME).write_text(text)
    for step, loss in losses.items():
        save(worker.folder / checkpoint_name(step), step, loss)
    leave(worker, *losses, end=True)
    found = driver.status()
    assert listed(found.checkpoints) == [checkpoint_name(step) for step in (4, 8, 12)]
    damage(driver.folder / checkpoint_name(4))
    assert driver.status() == found
    driver.check_kept(found)


def test_a_last_one_that_is_damaged_there_is_trained_again(
    driver: RemoteRunStore, worker: RemoteRunStore
) -> None:
    leave(worker, 8, 12, end=True)
    there = ObjectStore(driver.location)
    there.write(f"{checkpoint_name(12)}/model.safetensors", b"torn")
    found = driver.status(newest_only=True)
    assert (found.finished, found.step) == (False, 8)
    assert there.read(f"{checkpoint_name(12)}/manifest.json") is None
    leave(worker, 12, end=True)
    assert driver.status(newest_only=True).finished


def test_what_only_this_machine_has_is_uploaded(
    driver: RemoteRunStore, worker: RemoteRunStore
) -> None:
    """The first steps, taken over from another run."""
    for step in (4, 8):
        save(driver.folder / checkpoint_name(step), step)
    (driver.folder / JOURNAL_NAME).write_text('{"kind": "logged", "step": 8}\n')
    assert driver.status().step == 8
    assert listed(worker.uploaded()) == [checkpoint_name(4), checkpoint_name(8)]
    worker.journal.fetch()
    assert (worker.folder / JOURNAL_NAME).read_text() == '{"kind": "logged", "step": 8}\n'
    # Once only: what the workers have removed since stays away.
    leave(worker, 12)
    worker._delete(checkpoint_name(4))
    driver.status()
    assert listed(worker.uploaded()) == [checkpoint_name(8), checkpoint_name(12)]


def test_what_a_driver_uploads_is_newer_than_what_a_node_has(
    machines: Machines, driver: RemoteRunStore
) -> None:
    """A node that wrote the run before goes on with what was put there since."""
    node = machines.on("node")
    with node.writing():
        train(node, 4)
    for step in (4, 8):
        save(driver.folder / checkpoint_name(step), step)
    entries = [json.dumps({"kind": "logged", "step": step, "loss": 1.25}) for step in (2, 4, 8)]
    (driver.folder / JOURNAL_NAME).write_text("\n".join([*entries, ""]))
    assert driver.status().step == 8
    node = machines.on("node", "2")
    with node.writing():
        assert node.resume_point() == node.folder / checkpoint_name(8)
        assert (node.folder / JOURNAL_NAME).read_text() == "\n".join([*entries, ""])


def test_a_finished_run_that_lacks_one_is_told_where_to_remove_them(
    driver: RemoteRunStore, worker: RemoteRunStore, tiny_config: Config
) -> None:
    leave(worker, 8, 12, end=True)
    driver.retention = Retention(tiny_config.train, [4])
    found = driver.status()
    message = (
        f"step-00000004 on there, with writer.json, and in {driver.folder}, and run `dvc repro` to"
    )
    with pytest.raises(UserError, match=message):
        driver.check_kept(found)
    # Once they are removed in both places, it is trained from before.
    for step in (8, 12):
        worker._delete(checkpoint_name(step))
        shutil.rmtree(driver.folder / checkpoint_name(step))
    assert (driver.status().step, driver.status().finished) == (0, False)


def test_what_is_removed_there_does_not_come_back_from_a_node(
    machines: Machines, driver: RemoteRunStore, there: ObjectStore, tiny_config: Config
) -> None:
    """Nor does training resume from what its node has of an interrupted start."""
    before = machines.on("node")
    with before.writing():
        train(before, 8)
    driver.retention = Retention(tiny_config.train, [4])
    with pytest.raises(UserError, match=r"step-00000004 on there, with writer\.json, and in"):
        driver.check_kept(driver.status())
    for name in (*(f"{checkpoint_name(8)}/{file}" for file in ALL_FILES), "writer.json"):
        there.delete(name)
    driver.check_kept(driver.status())
    again = machines.on("node", "2")
    with again.writing():
        assert again.resume_point() is None
        assert not list(again.folder.glob("step-*"))


def test_one_that_is_damaged_there_is_removed_when_it_is_fetched(
    driver: RemoteRunStore, worker: RemoteRunStore
) -> None:
    """To score a trial; then its last steps are trained again."""
    leave(worker, 8, 12, end=True)
    there = ObjectStore(driver.location)
    there.write(f"{checkpoint_name(12)}/model.safetensors", b"torn")
    with pytest.raises(OperationalError, match=r"step-00000012 is trunc.*: run `dvc repro` again"):
        driver.fetch(checkpoint_name(12))
    assert driver.newest_checkpoint() == driver.folder / checkpoint_name(8)
    assert driver.fetch(checkpoint_name(8)).is_dir()


def test_a_driver_whose_lease_was_taken_over_is_told(
    driver: RemoteRunStore, tmp_path: Path
) -> None:
    driver.check_lease()
    RunStore(tmp_path).check_lease()
    with driver.driving():
        driver.check_lease()
        held = driver._held()
        held.store.create(f"{held.generation + 1:08d}.json", b"{}")
        held.renew()
        with pytest.raises(LeaseLostError, match="another process has taken over"):
            driver.check_lease()


def test_the_journal_is_followed(driver: RemoteRunStore, worker: RemoteRunStore) -> None:
    path, there = driver.folder / JOURNAL_NAME, ObjectStore(driver.location)
    leave(worker, 2)
    driver.follow_journal()
    assert not path.exists()  # before an attempt the one here may be another run's
    driver.begin_attempt("1")
    leave(worker, 4)
    driver.follow_journal()
    first = path.read_bytes()
    with path.open("ab") as stream:
        stream.write(b'{"kind": "torn by a ki')
    leave(worker, 8)
    whole = there.read(JOURNAL_NAME) or b""
    there.write(JOURNAL_NAME, whole + b'{"kind": "vali')
    driver.follow_journal()
    assert path.read_bytes() == whole != first


@pytest.mark.parametrize(
    ("size", "uploads"), [(1_000, 20), (2_000_000, 3), (20_000_000, 2)], ids=str
)
def test_a_long_journal_is_not_uploaded_again_for_each_line(
    worker: RemoteRunStore, monkeypatch: pytest.MonkeyPatch, size: int, uploads: int
) -> None:
    """What is uploaded would else grow with the square of its lines. size: in bytes.

    For a minute a line comes every 3 seconds: at 100 kB/s one of 2 MB waits for 20 s, and none for
    more than 30.
    """
    now, there, path = 0.0, Mock(), worker.folder / JOURNAL_NAME
    monkeypatch.setattr(journal, "time", SimpleNamespace(monotonic=lambda: now))
    worker.journal.objects, worker._lease = there, Mock()
    path.write_bytes(bytes(size) + b"\n")
    while now < 60:
        with path.open("ab") as stream:
            stream.write(b"{}\n")
        worker._sync()
        now += 3
    assert there.write.call_count == uploads
    # Before a checkpoint or the end of the run nothing waits.
    worker.finish()
    there.write.assert_called_with(JOURNAL_NAME, path.read_bytes())


@pytest.mark.parametrize("damage", [b"\x00\x00", b"{torn", b'{"kind": "\xff"}', b"\xed\xa0\x80"])
def test_a_damaged_line_of_the_journal_there_is_named_and_not_taken(
    driver: RemoteRunStore, worker: RemoteRunStore, there: ObjectStore, damage: bytes
) -> None:
    """Whoever has mended the one here would else find it damaged again."""
    leave(worker, 4)
    driver.status()
    good = (driver.folder / JOURNAL_NAME).read_bytes()
    there.write(JOURNAL_NAME, damage + b"\n" + good)
    for ask in (driver.status, driver.refresh):
        with pytest.raises(UserError, match=rf"^{there.address}/{JOURNAL_NAME} has a damaged line"):
            ask()
    assert (driver.folder / JOURNAL_NAME).read_bytes() == good
    there.write(JOURNAL_NAME, good)
    assert driver.status().step == 4


def test_a_trial_that_was_trained_elsewhere_is_uploaded(
    driver: RemoteRunStore, there: ObjectStore
) -> None:
    """`cluster.storage` was a folder before."""
    for step in (4, 8):
        save(driver.folder / checkpoint_name(step), step)
    damage(driver.folder / checkpoint_name(4))
    lines = '{"kind": "validated", "step": 8}\n{"kind": "finished", "step": 8}\n'
    (driver.folder / JOURNAL_NAME).write_text(lines)
    driver.refresh()
    assert names(there) == [checkpoint_name(8)]
    assert (driver.folder / JOURNAL_NAME).read_text() == lines
    assert there.read(JOURNAL_NAME) == lines.encode()
    # Once only, and never over what is there.
    save(driver.folder / checkpoint_name(12), 12)
    driver.refresh()
    assert names(there) == [checkpoint_name(8)]


def test_an_interrupted_upload_of_a_trial_leaves_the_checkpoint_that_is_scored(
    driver: RemoteRunStore, there: ObjectStore
) -> None:
    """Those before it, and a newer one of an interruption, are not uploaded any more."""
    for step in (4, 8):
        save(driver.folder / checkpoint_name(step), step)
    save(driver.folder / interrupted_name(9), 9)
    lines = '{"kind": "validated", "step": 8}\n'
    (driver.folder / JOURNAL_NAME).write_text(lines)
    driver.objects = Fails(there.address, len(ALL_FILES))
    with pytest.raises(OSError, match="away"):
        driver.refresh()
    driver.objects = there
    driver.refresh()
    assert names(there) == [checkpoint_name(8)]
    assert driver.newest_checkpoint() == driver.folder / checkpoint_name(8)
    assert there.read(JOURNAL_NAME) == lines.encode()


def test_a_failure_that_a_worker_has_removed_is_gone(
    driver: RemoteRunStore, worker: RemoteRunStore
) -> None:
    """Also for a driver that was started since; no other file of this machine is removed."""
    here = driver.folder / FAILURE_NAME
    worker.write(FAILURE_NAME, "the first attempt's")
    driver.objects.write(".DS_Store", b"\xff\x00")  # which is none of ours
    driver.refresh()
    assert here.read_text() == "the first attempt's"
    (driver.folder / "result.json").write_text("{}")
    worker.delete(FAILURE_NAME)
    RemoteRunStore(driver.location, driver.folder).refresh()
    assert not here.exists()
    assert (driver.folder / "result.json").exists()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases are renewed and looked at often."""
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
    monkeypatch.setattr(lease, "POLL_SECONDS", 0.1)


def test_two_drivers(driver: RemoteRunStore, tmp_path: Path, soon: None) -> None:
    """Of two copies of a project on one machine, whose locks do not meet."""
    copy = tmp_path / "copy" / "runs" / "run"
    copy.mkdir(parents=True)
    with (
        driver.driving(),
        pytest.raises(UserError, match=f"is working in {driver.location}: wait for its end"),
        RemoteRunStore(driver.location, copy).driving(),
    ):
        pass
    with RemoteRunStore(driver.location, copy).driving():
        pass


def test_a_driver_that_was_taken_for_dead_starts_no_workers(driver: RemoteRunStore) -> None:
    with driver.driving():
        driver.begin_attempt("1")
        taken = {"host": "far", "process": 1, "machine": None}
        there = ObjectStore(f"{driver.location}/leases/driver")
        there.write("00000002.json", json.dumps(taken).encode())
        with pytest.raises(LeaseLostError, match="as if this one had ended"):
            driver.begin_attempt("2")


def test_a_worker_that_still_writes_is_waited_for(
    driver: RemoteRunStore,
    worker: RemoteRunStore,
    soon: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seq2sweep.runs.remote_run_store.OLD_WRITER_SECONDS", 0.0)
    with worker._as_writer(), pytest.raises(OperationalError, match="is working in s3://"):
        driver.status()
    assert driver.status().step == 0


def test_a_store_that_is_away(driver: RemoteRunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*arguments: Any) -> None:
        raise OSError(5, "Input/output error", "s3://...")

    monkeypatch.setattr("seq2sweep.storage.retry.time.sleep", lambda seconds: None)
    for action in ("sizes", "size", "read", "write", "create"):
        monkeypatch.setattr(ObjectStore, action, away)
    with pytest.raises(
        OperationalError, match=f"{driver.location} cannot be used .* fix the storage"
    ):
        driver.status()
    driver.begin_attempt("1")
    driver.follow_journal()
    driver.end_attempt()
    assert not driver.request_stop()


def test_a_driver_does_not_wait_in_the_end_for_a_store_that_is_silent(
    driver: RemoteRunStore, soon: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client would hold the main thread for minutes, deaf to a second Ctrl-C."""
    answered, held = threading.Event(), set[str]()

    def silent(there: ObjectStore, name: str, *more: Any) -> None:
        held.add(threading.current_thread().name)
        answered.wait(20)

    monkeypatch.setattr("seq2sweep.storage.retry.LAST_SECONDS", 0.05)
    monkeypatch.setattr("seq2sweep.runs.remote_run_store.SYNC_SECONDS", 0.01)
    began = time.monotonic()
    with driver.driving():
        driver.begin_attempt("1")
        for action in ("size", "read", "write", "delete"):
            monkeypatch.setattr(ObjectStore, action, silent)
        while not {"journal", "lease"} <= held:
            time.sleep(0.01)
        driver.end_attempt()
    assert time.monotonic() - began < 15
    assert held == {"journal", "lease", "briefly"}
    answered.set()


def test_a_worker_that_was_seen_has_begun_when_the_store_is_away(
    machines: Machines, driver: RemoteRunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.begin_attempt("1")
    assert not driver.has_begun()
    with machines.on("first").writing():
        assert driver.has_begun()
    monkeypatch.setattr(ObjectStore, "size", Mock(side_effect=OSError(5, "no answer")))
    assert driver.has_begun()
    driver.begin_attempt("2")
    assert not driver.has_begun()


def test_no_space_at_home(
    driver: RemoteRunStore,
    worker: RemoteRunStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(there: ObjectStore, name: str, path: Path) -> None:
        raise OSError(28, "No space left on device")

    leave(worker, 8, 12, end=True)
    monkeypatch.setattr(ObjectStore, "download", full)
    oldest = driver.folder / checkpoint_name(8)
    with pytest.raises(OperationalError, match=f"^no space left in {oldest}: free some, and run"):
        driver.status()


def test_a_full_disk_is_the_nodes_own(driver: RemoteRunStore) -> None:
    assert "set TMPDIR to another disk" in driver.disk_full(OSError(28, "No space left", "/tmp/x"))


# --- both of them, with the training loop ---------------------------------------------------------


@pytest.mark.parametrize("kind", [RunStore, RemoteRunStore])
def test_a_run_from_its_beginning_to_its_end(
    kind: type[RunStore],
    machines: Machines,
    bucket: str,
    tiny_config: Config,
    tiny_corpus: Corpus,
    tmp_path: Path,
) -> None:
    """Interrupted twice, each time on another machine, where there is a bucket."""
    config = configuration.with_changes(tiny_config, {"train.steps": 16})
    retention, folder = Retention.of(config), tmp_path / "project" / "run"
    storage = bucket if kind is RemoteRunStore else str(folder.parent)
    driver = driver_store(storage, folder, retention)
    with driver.driving():
        data = driver.publish(tiny_corpus.encoded.resolve())
        reached = []
        for machine, updates in (("first", 6), ("second", 9), ("third", 1000)):
            machines.on(machine)
            driver.begin_attempt(machine)
            worker = worker_store(driver.location, driver.attempt, retention)
            count = itertools.count(1)
            with worker.writing(), EventWriter(worker) as writer:
                for event in loop.train(
                    config,
                    worker.data(data),
                    device=torch.device("cpu"),
                    resume=worker.resume_point(),
                    stop=lambda left=updates, count=count: next(count) == left,
                ):
                    writer.write(event)
            driver.follow_journal()
            driver.end_attempt()
            status = driver.status(newest_only=True)
            reached.append(status.step)
        driver.check_kept(status)
    assert (reached, status.finished) == ([6, 15, 16], True)
    assert [path.name for path in status.checkpoints] == [checkpoint_name(12), checkpoint_name(16)]
    assert all(path.parent == folder for path in status.checkpoints)
    entries = list(journal.entries(folder / JOURNAL_NAME))
    told = [(entry["kind"], entry["step"]) for entry in entries]
    assert len(told) == len(set(told))
    assert told[-1] == ("finished", 16)
