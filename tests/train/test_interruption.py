"""A run that is stopped anywhere, and goes on, is the run that was never stopped."""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import distributed as dist

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.model.building import build
from seq2sweep.runs import journal
from seq2sweep.runs.journal import Journal
from seq2sweep.runs.layout import checkpoint_name, interrupted_name, resume_point
from seq2sweep.storage import atomic
from seq2sweep.train import checkpointing
from seq2sweep.train.events import CheckpointDue, Interrupted
from seq2sweep.train.loop import train

from ..conftest import Corpus
from ..processes import forking, run_together

STEPS = 14
TIMES = ("time", "tokens_per_second", "seconds_left", "rss_bytes",
         "peak_rss_bytes", "cpu_percent", "memory_percent", "train_seconds", "wall_seconds",
         "device_hours", "flops_per_second")  # fmt: skip


@pytest.fixture(scope="module")
def config(tiny_config: Config) -> Config:
    """Log lines, validations and checkpoints at steps of their own; an epoch ends in between."""
    return configuration.with_changes(
        tiny_config,
        {
            "train.steps": STEPS,
            "train.log_every": 5,
            "train.validate_every": 6,
            "train.checkpoint_every": 4,
            "train.tokens_per_update": 600,
            "train.tokens_per_pass": 250,
            "model.dropout": 0.2,
        },
    )


def go_on(
    config: Config,
    encoded: Path,
    folder: Path,
    stop: Callable[[], bool] = lambda: False,
    rank: int = 0,
    world_size: int = 1,
    until: int | None = None,
) -> None:
    """As a training worker does, from where the folder's run stands."""
    folder.mkdir(exist_ok=True)
    writer = Journal(folder / "journal.jsonl") if rank == 0 else None
    saved = 0
    for event in train(
        config,
        encoded,
        rank=rank,
        world_size=world_size,
        device=torch.device("cpu"),
        resume=resume_point(folder),
        stop=stop,
        until=until,
    ):
        if isinstance(event, Interrupted):
            if rank == 0 and not (config.cluster.fsdp and event.step == saved):
                event.capture().write(folder / interrupted_name(event.step))
            elif rank and config.cluster.fsdp:
                event.capture()
            break
        if writer:
            writer.append(event)
        if isinstance(event, CheckpointDue):
            saved = event.step
            if rank == 0:
                event.capture().write(folder / checkpoint_name(event.step))
            elif config.cluster.fsdp:
                event.capture()
    if writer:
        writer.close()


def after(updates: int) -> Callable[[], bool]:
    """Says stop after so many updates."""
    count = itertools.count(1)
    return lambda: next(count) >= updates


def told(folder: Path) -> list[dict[str, Any]]:
    """The journal without what a clock says."""
    entries = [*journal.entries(folder / "journal.jsonl")]
    return [{key: value for key, value in e.items() if key not in TIMES} for e in entries]


def end(folder: Path) -> dict[str, torch.Tensor]:
    path = folder / checkpoint_name(STEPS)
    return load_file(path / "model.safetensors") | load_file(path / "optimizer.safetensors")


def same(folder: Path, whole: Path) -> None:
    """A run tells and ends as the other one does, to the last bit."""
    assert told(folder) == told(whole), folder
    found, expected = end(folder), end(whole)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], expected[key]) for key in expected), folder


@pytest.fixture(scope="module")
def undisturbed(
    config: Config, tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    go_on(config, tiny_corpus.encoded, folder)
    return folder


def test_stopped_once(
    config: Config, tiny_corpus: Corpus, tmp_path: Path, undisturbed: Path, thorough: bool
) -> None:
    """Amid updates, at a line of the log, at a validation, and at a checkpoint with one."""
    assert {entry.get("epoch") for entry in told(undisturbed)} >= {0.0, 1.0}
    for step in range(1, STEPS) if thorough else (3, 5, 6, 12):
        folder = tmp_path / str(step)
        go_on(config, tiny_corpus.encoded, folder, after(step))
        assert (folder / interrupted_name(step)).exists()
        assert not (folder / checkpoint_name(STEPS)).exists()
        go_on(config, tiny_corpus.encoded, folder)
        same(folder, undisturbed)


def test_stopped_after_every_update(
    config: Config, tiny_corpus: Corpus, tmp_path: Path, undisturbed: Path
) -> None:
    for _ in range(STEPS):
        go_on(config, tiny_corpus.encoded, tmp_path / "often", after(1))
    same(tmp_path / "often", undisturbed)


def test_from_checkpoint_to_checkpoint(
    config: Config, tiny_corpus: Corpus, tmp_path: Path, undisturbed: Path
) -> None:
    folder = tmp_path / "by parts"
    for step in (4, 12):
        go_on(config, tiny_corpus.encoded, folder, until=step)
        assert resume_point(folder) == folder / checkpoint_name(step)
        assert told(folder) == [entry for entry in told(undisturbed) if entry["step"] <= step]
    go_on(config, tiny_corpus.encoded, folder, until=STEPS)
    same(folder, undisturbed)


def _work_alone(folder: Path, config: Config, encoded: Path, begun: Any) -> None:
    torch.set_num_threads(1)
    begun.set()
    go_on(config, encoded, folder)


def test_killed_at_random_moments(
    config: Config, tiny_corpus: Corpus, tmp_path: Path, undisturbed: Path, thorough: bool
) -> None:
    """SIGKILL from a seeded schedule, until each of several runs has got to its end between two."""
    draw = random.Random(0)
    context = forking()
    kills = 0
    for run in itertools.count():
        folder = tmp_path / str(run)
        folder.mkdir()
        longest = 0.4
        while not (folder / checkpoint_name(STEPS)).exists():
            begun = context.Event()
            arguments = (folder, config, tiny_corpus.encoded, begun)
            worker = context.Process(target=_work_alone, args=arguments)
            worker.start()
            begun.wait()
            worker.join(draw.uniform(0.0, longest))
            longest *= 1.1  # a busy machine needs longer to get to the next checkpoint
            if worker.exitcode is None:
                worker.kill()
                kills += 1
            worker.join()
        go_on(config, tiny_corpus.encoded, folder)  # what a kill at the very end left undone
        same(folder, undisturbed)
        if kills >= (30 if thorough else 8) and run >= 1:
            break


def _work_until(folder: Path, config: Config, encoded: Path, fatal: str) -> None:
    """Be killed where the second checkpoint calls a function."""
    torch.set_num_threads(1)
    module = atomic if fatal == "flush" else checkpointing
    called = getattr(module, fatal)

    def kill(*arguments: Any, **options: Any) -> Any:
        if (folder / f".{checkpoint_name(8)}.partial").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return called(*arguments, **options)

    setattr(module, fatal, kill)
    go_on(config, encoded, folder)


@pytest.mark.parametrize("fatal", ["_save_tensors", "_as_json", "_manifest", "sha256", "flush"])
def test_killed_while_a_checkpoint_is_written(
    config: Config, tiny_corpus: Corpus, tmp_path: Path, undisturbed: Path, fatal: str
) -> None:
    folder = tmp_path / "killed"
    arguments = (folder, config, tiny_corpus.encoded, fatal)
    worker = forking().Process(target=_work_until, args=arguments)
    worker.start()
    worker.join(120)
    assert worker.exitcode == -signal.SIGKILL
    assert any(path.name.startswith(".step-00000008") for path in folder.iterdir())
    assert resume_point(folder) == folder / checkpoint_name(4)
    go_on(config, tiny_corpus.encoded, folder)
    same(folder, undisturbed)
    assert not any(path.name.startswith(".") for path in folder.iterdir())


# --- damage --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoints(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A run that was stopped after its second checkpoint."""
    folder = tmp_path_factory.mktemp("checkpoints")
    go_on(tiny_config, tiny_corpus.encoded, folder, after(10))
    return folder


@hypothesis.settings(
    max_examples=150, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_damage_is_noticed_and_the_checkpoint_before_is_taken(
    checkpoints: Path, data: st.DataObject
) -> None:
    saved, newest, oldest = (
        checkpoints / name
        for name in (interrupted_name(10), checkpoint_name(8), checkpoint_name(4))
    )
    assert resume_point(checkpoints) == saved
    files = [data.draw(st.sampled_from(sorted(folder.iterdir()))) for folder in (saved, newest)]
    whole = [file.read_bytes() for file in files]
    try:
        for file, content in zip(files, whole, strict=True):
            file.write_bytes(damaged(content, data))
        assert resume_point(checkpoints) == oldest
        files[0].write_bytes(whole[0])
        assert resume_point(checkpoints) == saved
    finally:
        for file, content in zip(files, whole, strict=True):
            file.write_bytes(content)


def damaged(content: bytes, data: st.DataObject) -> bytes:
    """Some bytes of it flipped, cut out or put in, or its end cut off."""
    start = data.draw(st.integers(0, len(content) - 1), "start")
    length = data.draw(st.integers(1, 64), "length")
    stop = min(start + length, len(content))
    how = data.draw(st.sampled_from(["flip", "cut", "end", "insert"]))
    if how == "flip":
        mask = data.draw(st.integers(1, 255), "mask")
        return content[:start] + bytes(b ^ mask for b in content[start:stop]) + content[stop:]
    if how == "cut":
        return content[:start] + content[stop:]
    if how == "end":
        return content[:start]
    return content[:start] + bytes(length) + content[start:]


# --- several workers -----------------------------------------------------------------------------


def _work(
    rank: int, world_size: int, folder: Path, config: Config, encoded: Path, updates: int
) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / f'meeting-{world_size}-{updates}'}",
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=300),
    )
    # Only the last one is told; the others learn of it.
    told_to = after(updates) if rank == world_size - 1 and updates else lambda: False
    go_on(config, encoded, folder, told_to, rank, world_size)
    dist.destroy_process_group()


def work_together(
    world_size: int, folder: Path, config: Config, encoded: Path, updates: int = 0
) -> None:
    """Go on with so many workers, for so many updates (0: to the end)."""
    folder.mkdir(exist_ok=True)
    run_together(
        _work,
        [(rank, world_size, folder, config, encoded, updates) for rank in range(world_size)],
    )


def test_two_workers_stop_at_the_same_update_and_go_on_bitwise(
    config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    work_together(2, tmp_path / "whole", config, tiny_corpus.encoded)
    work_together(2, tmp_path / "parts", config, tiny_corpus.encoded, updates=6)
    assert (tmp_path / "parts" / interrupted_name(7)).exists()  # the answer comes one late
    work_together(2, tmp_path / "parts", config, tiny_corpus.encoded)
    same(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.parametrize("fsdp", [False, True])
def test_four_then_two_then_three_workers_end_where_one_does(
    config: Config, tiny_corpus: Corpus, tmp_path: Path, fsdp: bool
) -> None:
    # Without dropout, whose numbers each worker draws for itself.
    changes = {"model.dropout": 0.0, "cluster.fsdp": fsdp}
    # Few enough that workers differ in how many passes they have.
    changes |= {"train.tokens_per_pass": 100} if fsdp else {}
    dry = configuration.with_changes(config, changes)
    go_on(dry, tiny_corpus.encoded, tmp_path / "one")
    several = tmp_path / "several"
    work_together(4, several, dry, tiny_corpus.encoded, updates=4)
    work_together(2, several, dry, tiny_corpus.encoded, updates=2)  # where a checkpoint is due
    there = {path.name for path in several.glob("*-0*")} - {interrupted_name(8)}
    assert there == {checkpoint_name(4), interrupted_name(5), checkpoint_name(8)}
    work_together(3, several, dry, tiny_corpus.encoded)
    torch.manual_seed(dry.train.seed)
    before = build(dry.model, tiny_corpus.size).state_dict()  # as training begins
    found, expected = end(several), end(tmp_path / "one")
    weights = [key for key in expected if "|" not in key]  # the others are of the optimizer
    worst = max(float((found[key] - expected[key]).abs().max()) for key in weights)
    print(f"largest difference of a weight: {worst:.1e}")
    for key in weights:
        way = (expected[key] - before[key]).norm()
        assert (found[key] - expected[key]).norm() < 1e-3 * way, key
        assert (found[key] - expected[key]).abs().max() < 1e-5, key
    for one, other in zip(told(tmp_path / "one"), told(several), strict=True):
        assert (one["kind"], one["step"]) == (other["kind"], other["step"])
        for figure in ("loss", "perplexity", "valid_loss", "gradient_norm"):
            if figure in one:
                assert other[figure] == pytest.approx(one[figure], rel=1e-4), one["step"]
