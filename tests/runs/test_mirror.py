"""A run in a bucket, as workers on machines that come and go have it."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.runs import mirror
from seq2sweep.runs.layout import JOURNAL_NAME, checkpoint_name, interrupted_name
from seq2sweep.runs.messages import BEGUN, STOP, Signals, stop_file
from seq2sweep.runs.mirror import Mirror, SharedFolder
from seq2sweep.runs.remote import RemoteRun
from seq2sweep.storage.lease import ClaimLost
from seq2sweep.storage.node_folder import node_folder
from seq2sweep.storage.object_store import Bucket
from seq2sweep.train import checkpointing
from tests.cluster.checkpoints import save


class Machines:
    """Machines with temporary folders of their own, of which this process is on one at a time."""

    def __init__(self, root: Path, address: str, patch: pytest.MonkeyPatch) -> None:
        self.root, self.address, self.patch = root, address, patch

    def on(self, machine: str, attempt: str = "1") -> Mirror:
        """The run's mirror there."""
        temporary = self.root / machine
        temporary.mkdir(exist_ok=True)
        self.patch.setattr(tempfile, "tempdir", str(temporary))
        return Mirror(self.address, attempt)


@pytest.fixture
def machines(tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Machines:
    return Machines(tmp_path, f"{bucket}/run", monkeypatch)


@pytest.fixture
def there(machines: Machines) -> Bucket:
    return Bucket(machines.address)


@pytest.fixture
def config(tiny_config: Config) -> Config:
    """The newest two are kept, the best and every hundredth step's."""
    return configuration.with_changes(
        tiny_config, {"train.keep_best": 1, "train.keep_every": 100, "train.steps": 900}
    )


def train(run: Mirror, *steps: int, losses: dict[int, float] | None = None) -> list[Path]:
    """Do what a worker does at checkpoints of these steps, but for pruning."""
    made = []
    for step in steps:
        with (run.folder / JOURNAL_NAME).open("a") as stream:
            stream.write(json.dumps({"kind": "checkpoint", "step": step}) + "\n")
        made.append(save(run.folder / checkpoint_name(step), step, (losses or {}).get(step)))
        run.keep(made[-1])
    return made


def names(there: Bucket) -> list[str]:
    return [path.name for path in RemoteRun(there.address, Path("nowhere")).checkpoints()]


def steps_in(path: Path) -> list[int]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_another_machine_goes_on(machines: Machines, there: Bucket) -> None:
    first = machines.on("first")
    with first.writing():
        assert first.resume_point(None) is None
        written = train(first, 4, 8)[-1]
    second = machines.on("second")
    with second.writing():
        found = second.resume_point(None)
        assert found == second.folder / written.name != written
        checkpointing.verify(found)
        assert steps_in(second.folder / JOURNAL_NAME) == [4, 8]
        assert second.resume_point(lost=8) == second.folder / checkpoint_name(4)
    # A worker of the same training on a third machine fetches the one it is told.
    third = machines.on("third")
    third.fetch(checkpoint_name(8))
    third.fetch(checkpoint_name(4))
    assert [path.name for path in third.folder.glob("step-*")] == [checkpoint_name(4)]
    checkpointing.verify(third.folder / checkpoint_name(4))


def test_a_worker_beside_the_first_one_removes_nothing(machines: Machines) -> None:
    first = machines.on("first")
    with first.writing():
        train(first, 4, 8)
        machines.on("first").fetch(checkpoint_name(8))
        assert (first.folder / checkpoint_name(4)).exists()


def test_a_damaged_one_is_removed_and_the_one_before_is_taken(
    machines: Machines, there: Bucket, tmp_path: Path
) -> None:
    first = machines.on("first")
    with first.writing():
        train(first, 4, 8)
    there.write(f"{checkpoint_name(8)}/model.safetensors", b"torn")
    second = machines.on("second")
    with second.writing():
        assert second.resume_point(None) == second.folder / checkpoint_name(4)
    assert names(there) == [checkpoint_name(4)]
    with pytest.raises(OSError, match="NoSuchKey"):
        machines.on("third").fetch(checkpoint_name(8))


class Fails(Bucket):
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
    machines: Machines, there: Bucket, uploads: int
) -> None:
    first = machines.on("first")
    with first.writing():
        train(first, 4)
        first.remote.bucket = Fails(there.address, uploads)
        with pytest.raises(OSError, match="away"):
            train(first, 8)
        checkpointing.verify(first.folder / checkpoint_name(8))
        assert names(there) == [checkpoint_name(4)]
    again = machines.on("first")
    with again.writing():  # nobody else wrote meanwhile: what it has is newer
        assert again.resume_point(None) == again.folder / checkpoint_name(8)
    assert names(there) == [checkpoint_name(4), checkpoint_name(8)]
    assert steps_in(again.folder / JOURNAL_NAME) == [4, 8]


def test_what_a_machine_has_does_not_count_when_another_went_on(
    machines: Machines, there: Bucket
) -> None:
    first = machines.on("first")
    with first.writing():
        train(first, 4)
        first.remote.bucket = Fails(there.address, 0)
        with pytest.raises(OSError, match="away"):
            train(first, 8)
    second = machines.on("second")
    with second.writing():
        assert second.resume_point(None) == second.folder / checkpoint_name(4)
        train(second, 12)
    again = machines.on("first")
    with again.writing():
        assert again.resume_point(None) == again.folder / checkpoint_name(12)
        assert not (again.folder / checkpoint_name(8)).exists()
        assert steps_in(again.folder / JOURNAL_NAME) == [4, 12]


def test_the_journal_is_there_before_the_checkpoint(machines: Machines, there: Bucket) -> None:
    """Whoever goes on from it would else miss what was written of the steps before."""
    first = machines.on("first")
    with first.writing():
        first.remote.bucket = Fails(there.address, 3)
        with pytest.raises(OSError, match="away"):
            train(first, 4)
    assert names(there) == []
    assert there.read(JOURNAL_NAME) == (first.folder / JOURNAL_NAME).read_bytes()


def test_a_journal_that_a_power_failure_has_cut_here_is_whole_there(
    machines: Machines, there: Bucket
) -> None:
    first = machines.on("first")
    with first.writing():
        train(first, 4, 8)
    path = first.folder / JOURNAL_NAME
    path.write_bytes(path.read_bytes()[:-50])
    again = machines.on("first")
    with again.writing():
        train(again, 12)
    assert steps_in(path) == [4, 8, 12]
    assert there.read(JOURNAL_NAME) == path.read_bytes()


def test_a_line_that_is_not_whole_stays_here(machines: Machines, there: Bucket) -> None:
    first = machines.on("first")
    with first.writing():
        train(first, 4)
        whole = (first.folder / JOURNAL_NAME).read_bytes()
        (first.folder / JOURNAL_NAME).write_bytes(whole + b'{"kind": "val')
        first.remote.upload_journal(lambda: None)
    assert there.read(JOURNAL_NAME) == whole


def test_whoever_was_taken_for_dead_writes_no_more(machines: Machines, there: Bucket) -> None:
    first = machines.on("first")
    with first.writing():
        train(first, 4)
        taken = {"host": "far", "process": 1, "machine": None}
        there.at("claims/writer").write("00000099.json", json.dumps(taken).encode())
        before = there.sizes()
        with pytest.raises(ClaimLost):
            train(first, 8)
        with pytest.raises(ClaimLost):
            first.finish()
        assert there.sizes() == before
        checkpointing.verify(first.folder / checkpoint_name(8))


def test_the_bucket_keeps_what_a_folder_would(
    machines: Machines, there: Bucket, config: Config
) -> None:
    """Also where a machine has only the newest of those before: losses stand in the bucket."""
    losses = {80: 1.0, 90: 2.0, 100: 3.0, 110: 4.0, 120: 5.0, 130: 6.0}
    first = machines.on("first")
    with first.writing():
        train(first, 80, 90, 100, 110, losses=losses)
        first.prune(config, first.folder / checkpoint_name(110))
    assert names(there) == [checkpoint_name(step) for step in (80, 100, 110)]
    there.delete(f"{checkpoint_name(110)}/manifest.json")  # as a removal that was killed leaves it
    second = machines.on("second")
    with second.writing():
        second.resume_point(None)
        save(second.folder / interrupted_name(105), 105)
        second.keep(second.folder / interrupted_name(105))
        for path in train(second, 120, 130, losses=losses):
            second.prune(config, path)
    assert names(there) == [checkpoint_name(step) for step in (80, 100, 120, 130)]
    assert [name for name in there.sizes() if "110" in name or "105" in name] == []


def test_the_end(machines: Machines, there: Bucket) -> None:
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
    machines: Machines, there: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, run = Signals(there, "1"), machines.on("first")
    stop = stop_file(run.folder, "1")
    assert driver.told(BEGUN) is None
    with run.writing():
        assert driver.told(BEGUN) == ""
        run._tick()
        assert not stop.exists()
        driver.tell(STOP)
        run._tick()
        assert stop.exists()
        run.tell_user_error("mend it")
    assert not stop.exists()
    assert run.user_error() == "mend it"
    assert machines.on("second", "2").user_error() is None
    driver.forget()
    assert there.at("attempts").sizes() == {}


def test_logs_of_workers_that_hung(machines: Machines) -> None:
    run = machines.on("first")
    (run.logs / "hang-0.log").touch()
    (run.logs / "hang-1.log").write_text("Timeout!")
    (name,) = mirror.hang_logs_here(run.remote.bucket.address, "1")
    assert name.startswith("hang-1.")
    assert machines.on("first", "2").logs.is_dir()
    assert not run.logs.exists()
    assert mirror.hang_logs_here(run.remote.bucket.address, "2") == {}


def test_by_the_settings(machines: Machines) -> None:
    def made(place: str) -> SharedFolder:
        return mirror.of({"folder": place, "attempt": "1"})

    assert type(made("/some/folder")) is SharedFolder
    machines.on("first")
    assert type(made(machines.address)) is Mirror


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
