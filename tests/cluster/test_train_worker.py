"""What training workers do before and after the training loop; Ray and the loop are made up."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from seq2sweep import config as configuration
from seq2sweep.cluster import train_worker as worker
from seq2sweep.cluster.train_worker import START_SECONDS, train_worker
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.runs import event_writer, journal
from seq2sweep.runs.layout import JOURNAL_NAME, checkpoint_name
from seq2sweep.runs.run_store import RunStore
from seq2sweep.runs.watchdog import Watchdog
from seq2sweep.train import checkpointing
from seq2sweep.train.checkpointing import Snapshot
from seq2sweep.train.events import CheckpointDue, Event, Interrupted
from seq2sweep.train.metrics import Progress
from tests.cluster.checkpoints import save, snapshot
from tests.conftest import Corpus
from tests.runs.test_pass_size import longest_of


class Worker:
    """One that finds itself in a group of two.

    resumed: from which checkpoints it has trained; trained: with which configurations; said: what
    it gave to the others.
    """

    def __init__(self, folder: Path, config: Config, rank: int) -> None:
        self.folder, self.config, self.rank = folder, config, rank
        self.resumed: list[Path | None] = []
        self.trained: list[Config] = []
        self.said: list[Any] = []
        self.events: list[Event] = []
        self.hears: list[Any] = []

    def get_world_rank(self) -> int:
        return self.rank

    def get_world_size(self) -> int:
        return 2

    def get_local_world_size(self) -> int:
        return 2

    def broadcast(self, content: Any) -> Any:
        self.said.append(content)
        return content if self.rank == 0 else self.hears[len(self.said) - 1]

    def train(
        self, config: Config, *arguments: Any, resume: Path | None, **others: Any
    ) -> Iterator[Event]:
        self.resumed.append(resume)
        self.trained.append(config)
        yield from self.events

    def start(self, **changes: Any) -> None:
        settings = {
            "config": configuration.to_dict(self.config),
            "encoded": "nowhere",
            "location": str(self.folder),
            "cpus": 1,
            "attempt": "this",
            "sharers": 0,
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


def test_the_first_worker_decides_where_they_start(
    make_worker: Callable[[int], Worker],
) -> None:
    """Another one may see its files later: network file systems remember what was not there."""
    first = make_worker(0)
    newest = [
        save(first.folder / checkpoint_name(step), step, **{"train.precision": "float32"})
        for step in (4, 8)
    ][-1]
    first.start()
    assert (first.resumed, first.said) == (
        [newest],
        [{"resume": newest.name, "precision": "float32", "tokens_per_pass": None}],
    )
    other = make_worker(1)
    other.hears = [{"resume": checkpoint_name(4), "precision": None, "tokens_per_pass": None}]
    other.start()
    assert (other.resumed, other.said) == ([other.folder / checkpoint_name(4)], [None])


@pytest.mark.parametrize("rank", [0, 1])
def test_what_a_node_has_downloaded_goes_when_training_has_ended(
    make_worker: Callable[[int], Worker], monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    """Unless it is the first worker's, whose last checkpoint may not be uploaded yet."""
    made, cleared = make_worker(rank), list[int]()
    made.hears = [{"resume": None, "precision": None, "tokens_per_pass": None}]
    monkeypatch.setattr(RunStore, "clear", lambda store: cleared.append(len(made.resumed)))
    made.start()
    assert cleared == [1] * rank, "not before it has been loaded"


@pytest.mark.parametrize("rank", [0, 1])
def test_all_wait_together_for_a_slow_upload(
    make_worker: Callable[[int], Worker], monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    """Else those without a checkpoint would wait in an update, and it would look like a hang.

    None waits longer than ever without a word: a worker that stands still meanwhile is noticed.
    """
    patience: list[float] = []
    uploaded: list[str] = []
    begin = {"resume": None, "precision": None, "tokens_per_pass": None}

    def keep(store: RunStore, checkpoint: Path) -> None:
        until = time.monotonic() + 5
        while not uploaded and len(made.said) < 4 and time.monotonic() < until:
            time.sleep(0.01)
        uploaded.append(checkpoint.name)

    made = make_worker(rank)
    # The second checkpoint waits for the first one, for two signs of life.
    made.hears = [begin, False, True, True, False]
    made.events = [CheckpointDue(step, {}, snapshot) for step in (4, 8)]
    monkeypatch.setattr(RunStore, "keep", keep)
    monkeypatch.setattr(event_writer, "PULSE_SECONDS", 0.1)
    monkeypatch.setattr(Watchdog, "_arm", lambda _, s: patience.append(s))
    made.start()
    assert made.said == (made.hears if rank == 0 else [None] * 5)
    assert uploaded == [checkpoint_name(step) for step in (4, 8) if rank == 0]
    # As training begins, in each wait, and after each event.
    assert patience[1:6] == [made.config.cluster.hang_seconds] * 5
    # The end waits for the last checkpoint, which a busy disk may take longer to have.
    assert set(patience[6:]) <= {made.config.cluster.hang_seconds}


@pytest.mark.parametrize(("hang_seconds", "waits"), [(60, START_SECONDS), (5000, 5000)])
def test_a_start_may_take_as_long_as_an_update(
    make_worker: Callable[[int], Worker],
    monkeypatch: pytest.MonkeyPatch,
    hang_seconds: int,
    waits: float,
) -> None:
    """As where a large checkpoint is verified on a slow disk."""
    patience: list[float] = []
    monkeypatch.setattr(Watchdog, "_arm", lambda _, s: patience.append(s))
    made = make_worker(0)
    changes = {"cluster.hang_seconds": hang_seconds}
    made.config = configuration.with_changes(made.config, changes)
    made.hears = [{"resume": None, "precision": None, "tokens_per_pass": None}, False, False]
    made.start()
    assert patience[:2] == [waits, hang_seconds]


@pytest.mark.parametrize("fsdp", [True, False])
@pytest.mark.parametrize("rank", [0, 1])
def test_there_is_one_copy_at_a_time_of_what_workers_share_out(
    make_worker: Callable[[int], Worker], monkeypatch: pytest.MonkeyPatch, rank: int, fsdp: bool
) -> None:
    """All make it together, when the one before is kept; what each has whole the first one copies
    alone, also when the others are gone already."""
    monkeypatch.setattr(event_writer, "PULSE_SECONDS", 60.0)  # no word between, on a slow disk
    made, at = make_worker(rank), list[int]()
    made.config = configuration.with_changes(made.config, {"cluster.fsdp": fsdp})

    def capture() -> Snapshot:
        at.append(len(made.said))
        model = torch.nn.Linear(1, 1)
        return checkpointing.capture(model, torch.optim.SGD(model.parameters()), Progress(), {})

    begin = {"resume": None, "precision": None, "tokens_per_pass": None}
    made.hears = [begin, False, False]
    made.events = [CheckpointDue(4, {}, capture), Interrupted(6, capture)]
    made.start()
    told = made.hears if fsdp else made.hears[:2]
    assert made.said == (told if rank == 0 else [None] * len(told))
    assert at == ([2, 3] if fsdp else [2, 2] if rank == 0 else [])


def test_all_take_the_number_of_tokens_that_the_run_began_with(
    make_worker: Callable[[int], Worker], tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def free(device: torch.device, sharers: int) -> float:
        asked.append(sharers)
        return 80e9

    monkeypatch.setattr(worker.pass_size, "free_bytes", free)
    monkeypatch.setattr(worker.pass_size, "all_reduce", lambda *_: None)
    changes = {"train.tokens_per_pass": "auto", "train.tokens_per_update": 300}
    first = make_worker(0)
    auto = configuration.with_changes(first.config, changes)

    def start(one: Worker, **more: Any) -> None:
        values = configuration.to_dict(auto)
        one.start(config=values, encoded=str(tiny_corpus.encoded), **more)

    start(first)
    assert first.said[-1]["tokens_per_pass"] is None
    start(first, sharers=4)
    # Half of an update, and where a worker has a sentence more up to half of the longest.
    share = -(-(300 + longest_of(tiny_corpus.encoded)) // 2)
    assert first.said[-1]["tokens_per_pass"] == share
    (entry,) = journal.entries(first.folder / JOURNAL_NAME, "sized")
    assert entry["tokens_per_pass"] == share
    other = make_worker(1)
    other.hears = [{"resume": None, "precision": None, "tokens_per_pass": 140}]
    start(other)
    # Of this node there are two workers, or as many as a sweep has there at once.
    assert asked == [2, 4, 2]
    trained = [each.train.tokens_per_pass for each in (*first.trained, *other.trained)]
    assert trained == [share, share, 140]


@pytest.mark.parametrize(
    ("own", "others", "resumed", "expected"),
    [
        ("bf16", "bf16", None, "bf16"),
        ("bf16", "float32", None, "float32"),
        ("float32", "bf16", None, "float32"),
        ("bf16", "bf16", "bf16", "bf16"),
        ("bf16", "bf16", "float32", "float32"),
        ("bf16", "float32", "bf16", None),
        ("float32", "bf16", "bf16", None),
    ],
)
def test_all_take_one_precision_where_their_machines_differ(
    make_worker: Callable[[int], Worker],
    monkeypatch: pytest.MonkeyPatch,
    own: str,
    others: str,
    resumed: str | None,
    expected: str | None,
) -> None:
    """expected: None where the user has to decide."""

    def smallest(willing: torch.Tensor, operation: Any) -> None:
        assert operation == torch.distributed.ReduceOp.MIN
        willing.clamp_(max=float(others == "bf16"))

    monkeypatch.setattr(worker, "choose_precision", lambda wanted, device, width: own)
    monkeypatch.setattr(worker, "all_reduce", smallest)
    one = make_worker(1)
    if resumed is not None:
        save(one.folder / checkpoint_name(4), 4)
    name = None if resumed is None else checkpoint_name(4)
    one.hears = [{"resume": name, "precision": resumed, "tokens_per_pass": None}] * 2
    auto = configuration.with_changes(one.config, {"train.precision": "auto"})
    said = "the run is in bf16, .* keep that device out, or set train.precision to bf16, "
    with nullcontext() if expected else pytest.raises(UserError, match=said):
        one.start(config=configuration.to_dict(auto))
    one.start()
    trained = [config.train.precision for config in one.trained]
    assert trained == ([expected] if expected else []) + ["float32"]


def test_storage_that_fails_as_they_start_is_waited_for(
    make_worker: Callable[[int], Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_worker(0)
    save(first.folder / checkpoint_name(4), 4)
    listed, failed = os.listdir, list[str]()

    def fail_once(folder: Path) -> list[str]:
        if not failed:
            failed.append("once")
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(folder))
        return listed(folder)

    monkeypatch.setattr("seq2sweep.storage.retry.time.sleep", lambda seconds: None)
    monkeypatch.setattr("seq2sweep.runs.layout.os.listdir", fail_once)
    first.start()
    assert failed == ["once"]
    assert first.resumed == [first.folder / checkpoint_name(4)]
