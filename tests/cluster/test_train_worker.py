"""What training workers do before and after the training loop; Ray and the loop are made up."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from seq2sweep import config as configuration
from seq2sweep.cluster import train_worker as worker
from seq2sweep.cluster.train_worker import Keeper, train_worker
from seq2sweep.config import Config
from seq2sweep.errors import Failure, UserError
from seq2sweep.runs.layout import checkpoint_name, interrupted_name
from seq2sweep.runs.messages import USER_ERROR_NAME, read_user_error
from seq2sweep.runs.mirror import SharedFolder
from seq2sweep.train import checkpointing
from seq2sweep.train.events import CheckpointDue, Event, Interrupted
from tests.cluster.checkpoints import save


class Worker:
    """One that finds itself in a group of two.

    resumed: from which checkpoints it has trained; said: what it gave to the others.
    """

    def __init__(self, folder: Path, config: Config, rank: int) -> None:
        self.folder, self.config, self.rank = folder, config, rank
        self.resumed: list[Path | None] = []
        self.said: list[Any] = []
        self.hears: Any = None

    def get_world_rank(self) -> int:
        return self.rank

    def get_world_size(self) -> int:
        return 2

    def broadcast(self, content: Any) -> Any:
        self.said.append(content)
        return content if self.rank == 0 else self.hears

    def train(self, *arguments: Any, resume: Path | None, **others: Any) -> Iterator[Event]:
        self.resumed.append(resume)
        yield from ()

    def start(self, **changes: Any) -> None:
        settings = {
            "config": configuration.to_dict(self.config),
            "encoded": "nowhere",
            "folder": str(self.folder),
            "cpus": 1,
            "attempt": "this",
            "lost": None,
            "until": None,
        }
        train_worker(settings | changes)


@pytest.fixture
def make_worker(
    tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], Worker]:
    def make(rank: int) -> Worker:
        made = Worker(tmp_path, tiny_config, rank)
        ray_train = SimpleNamespace(
            get_context=lambda: made,
            collective=SimpleNamespace(broadcast_from_rank_zero=made.broadcast),
            torch=SimpleNamespace(get_device=lambda: torch.device("cpu")),
        )
        monkeypatch.setattr(worker, "ray", SimpleNamespace(train=ray_train))
        monkeypatch.setattr(worker, "train", made.train)
        return made

    return make


def tell_user_error(folder: Path, attempt: str) -> None:
    content = {"attempt": attempt, "message": "mend it"}
    (folder / USER_ERROR_NAME).write_text(json.dumps(content))


def test_the_first_worker_decides_whether_they_train(make_worker: Callable[[int], Worker]) -> None:
    """Another one may see its error later or earlier: network file systems remember what was not
    there. Whoever left alone would be waited for."""
    first = make_worker(0)
    tell_user_error(first.folder, "earlier")
    first.start()
    assert first.resumed == [None]
    tell_user_error(first.folder, "this")
    first.start()
    assert first.resumed == [None]
    assert first.said[-1] is None

    other = make_worker(1)
    other.hears = first.said[0]
    other.start()
    assert (other.said, other.resumed) == ([None], [None])  # though it sees the error
    (other.folder / USER_ERROR_NAME).unlink()
    other.hears = first.said[1]
    other.start()
    assert (other.said, other.resumed) == ([None, None], [None])


def test_where_they_go_on(make_worker: Callable[[int], Worker]) -> None:
    first = make_worker(0)
    places = [save(first.folder / checkpoint_name(step), step) for step in (4, 8)]
    first.start()
    first.start(lost=8)
    assert first.resumed == places[::-1]


@pytest.mark.parametrize("action", ["read_text", "replace"])
def test_storage_that_fails_as_they_start_is_waited_for(
    make_worker: Callable[[int], Worker], action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One error of the disk, as the error of an earlier attempt is read or one of this is told."""
    first = make_worker(0)
    tell_user_error(first.folder, "earlier")
    done, failed = getattr(Path, action), set[str]()

    def fail_once(path: Path, *arguments: Any, **options: Any) -> Any:
        if USER_ERROR_NAME in path.name and action not in failed:
            failed.add(action)
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return done(path, *arguments, **options)

    def refuse(*arguments: Any, **options: Any) -> Iterator[Event]:
        raise UserError("mend it")

    monkeypatch.setattr("seq2sweep.storage.retry.time.sleep", lambda seconds: None)
    monkeypatch.setattr(Path, action, fail_once)
    monkeypatch.setattr(worker, "train", refuse)
    with pytest.raises(UserError, match="mend it"):
        first.start()
    assert failed == {action}
    assert read_user_error(first.folder, "this") == "mend it"


# --- checkpoints ---------------------------------------------------------------------------------


def snapshot() -> checkpointing.Snapshot:
    model = torch.nn.Linear(1, 1)
    return checkpointing.capture(
        model, torch.optim.SGD(model.parameters()), checkpointing.Progress(), {}
    )


def test_an_interruption_at_a_checkpoint_writes_it_once(
    tiny_config: Config, tmp_path: Path
) -> None:
    """It is whole when the worker leaves."""
    with Keeper(SharedFolder(tmp_path, ""), tiny_config) as keeper:
        keeper.keep(CheckpointDue(4, {}, snapshot))
        keeper.keep(Interrupted(4, pytest.fail))
    checkpointing.verify(tmp_path / checkpoint_name(4))
    with Keeper(SharedFolder(tmp_path, ""), tiny_config) as keeper:
        keeper.keep(CheckpointDue(8, {}, snapshot))
        keeper.keep(Interrupted(9, snapshot))
    checkpointing.verify(tmp_path / interrupted_name(9))


def test_what_could_not_be_kept_elsewhere_stays_here(tiny_config: Config, tmp_path: Path) -> None:
    class Fails(SharedFolder):
        def keep(self, checkpoint: Path) -> None:
            if checkpoint.name == checkpoint_name(12):
                raise Failure("away")

        def prune(self, config: Config, newest: Path) -> None:
            pruned.append(newest.name)

    def there() -> list[str]:
        return sorted(path.name for path in tmp_path.glob("step-*"))

    pruned: list[str] = []
    keeper = Keeper(Fails(tmp_path, ""), tiny_config)
    for step in (4, 8, 12):
        keeper.keep(CheckpointDue(step, {}, snapshot))
    with pytest.raises(Failure, match="away"):
        keeper.__exit__(None, None, None)
    assert there() == [checkpoint_name(step) for step in (4, 8, 12)], "two are kept otherwise"
    assert pruned == [checkpoint_name(4), checkpoint_name(8)]


def test_what_killed_processes_left_is_removed(tiny_config: Config, tmp_path: Path) -> None:
    (tmp_path / ".step-00000004.partial").mkdir()
    (tmp_path / ".run.json.0123abcd.partial").touch()
    with Keeper(SharedFolder(tmp_path, ""), tiny_config):
        assert [path.name for path in tmp_path.iterdir()] == ["journal.jsonl"]
