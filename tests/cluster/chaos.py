"""When and whom to kill: moments of a training, from a seeded schedule, and its processes."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from ray.cluster_utils import Cluster
from safetensors.torch import load_file

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.runs import journal
from seq2sweep.runs.layout import JOURNAL_NAME, checkpoint_name
from tests.train.test_interruption import told

ROOT = Path(__file__).parents[2]
LONGEST_WAIT = 540.0
"""Seconds after which something hangs: ten times what takes longest, below pytest's own limit."""


@dataclass(frozen=True)
class Moment:
    """A kind, and the worker whose moment it is.

    any: `amount` seconds after the attempt began, wherever it is then; training: when the journal
    has got `amount` steps further; writing: while worker 0 writes a checkpoint.
    """

    kind: str
    amount: float
    rank: int


def schedule(seed: int, longest: float, **counts: int) -> list[Moment]:
    """So many moments of each kind, in a drawn order.

    longest: seconds of an attempt in which none gets through a whole run.
    """
    draw = random.Random(seed)
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    draw.shuffle(kinds)
    most = {"any": longest, "training": 25.0, "writing": 0.0}
    return [
        Moment(kind, draw.uniform(0.0, most[kind]), 0 if kind == "writing" else draw.randrange(2))
        for kind in kinds
    ]


def below_this_process(*titles: str) -> list[psutil.Process]:
    """Live processes of Ray with one of these words in their title."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            line = " ".join(process.cmdline())
            if any(title in line for title in titles) and not is_gone(process):
                found.append(process)
    return found


def trainers() -> list[psutil.Process]:
    """Training workers, those that are only starting among them."""
    return below_this_process("RayTrainWorker")


def is_gone(process: psutil.Process) -> bool:
    """Whether it has ended, if only its parent does not know yet."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


class Target:
    """The run in a folder, under fire."""

    def __init__(self, folder: Path, ended: Callable[[], bool]) -> None:
        """ended: says that nothing is to be hit any more."""
        self.folder, self.ended = folder, ended
        self.hit_before: set[psutil.Process] = set()

    def wait_for(self, moment: Moment) -> psutil.Process:
        """Wait for the moment; gives the worker whose it is, or any when there is not yet that one.

        Never one of a group that was hit before: those are ending already.
        """
        if moment.kind == "any":
            self.sleep(moment.amount)
            worker = self._next(trainers, moment.rank)
        else:
            worker = self._next(lambda: list(self._of_rank(moment.rank)))
        self.hit_before |= {worker, *trainers()}
        if moment.kind == "training":
            step = self._step()
            self._until(lambda: self._step() >= step + moment.amount)
        elif moment.kind == "writing":
            since = time.time()
            self._until(lambda: self._writes(since))
        return worker

    def _next(
        self, candidates: Callable[[], list[psutil.Process]], index: int = 0
    ) -> psutil.Process:
        found: list[psutil.Process] = []

        def look() -> bool:
            found[:] = [process for process in candidates() if process not in self.hit_before]
            return bool(found)

        self._until(look, every=0.05)
        return found[index % len(found)]

    def _of_rank(self, rank: int) -> Iterator[psutil.Process]:
        log = str(self.folder / f"hang-{rank}.log")
        for process in trainers():
            with contextlib.suppress(psutil.NoSuchProcess):
                if any(file.path == log for file in process.open_files()):
                    yield process

    def _step(self) -> int:
        entries = list(journal.entries(self.folder / JOURNAL_NAME))
        return int(entries[-1]["step"]) if entries else 0

    def _writes(self, since: float) -> bool:
        """Whether there is a half-written checkpoint that was begun after `since`."""
        for path in self.folder.glob(".step-*.partial"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime > since:
                    return True
        return False

    def sleep(self, seconds: float) -> None:
        """Wait, wherever the run is meanwhile."""
        until = time.monotonic() + seconds
        self._until(lambda: time.monotonic() >= until)

    def _until(self, condition: Callable[[], bool], every: float = 0.001) -> None:
        def has_come() -> bool:
            assert not self.ended(), "the run has ended before all kills were done"
            return condition()

        wait_until(has_come, every)


def wait_until(
    condition: Callable[[], object], every: float = 0.05, said: Callable[[], str] = str
) -> None:
    """Poll, and fail when it takes absurdly long, with the end of what was said until then."""
    give_up = time.monotonic() + LONGEST_WAIT
    while not condition():
        assert time.monotonic() < give_up, f"nothing happens any more: {said()[-2000:]}"
        time.sleep(every)


def assert_same(folder: Path, undisturbed: Path, steps: int) -> None:
    """The same journal and, bitwise, the same weights and moments; and nothing half done."""
    assert told(folder) == told(undisturbed)
    here, there = (sorted(path.name for path in f.glob("step-*")) for f in (folder, undisturbed))
    assert here == there
    for name in ("model.safetensors", "optimizer.safetensors"):
        found, expected = (
            load_file(f / checkpoint_name(steps) / name) for f in (folder, undisturbed)
        )
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in expected), name
    assert not [path.name for path in folder.iterdir() if "partial" in path.name]


class StageProcess:
    """A stage of the pipeline in a project folder of its own, started as `dvc repro` does."""

    def __init__(self, name: str, project: Path, config: Config, temporary: Path) -> None:
        """temporary: where its Ray is to lie."""
        self.name, self.project, self.temporary = name, project, temporary
        project.mkdir(exist_ok=True)
        (project / "params.yaml").write_text(configuration.dump(config), encoding="utf-8")
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("MLFLOW_", "RAY_"))},
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "TMPDIR": str(temporary),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> psutil.Process:
        with (self.project / "said.txt").open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"pipeline.{self.name}"],
                cwd=self.project,
                env=self.environment,
                stdout=said,
                stderr=said,
            )
        return psutil.Process(self.process.pid)

    def ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def finish(self) -> None:
        assert self.process is not None
        assert self.process.wait(timeout=LONGEST_WAIT) == 0, self.said()[-2000:]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds, or the stage has ended, which is an error."""

        def has_come() -> bool:
            assert not self.ended(), self.said()[-2000:]
            return condition()

        wait_until(has_come, 0.1, self.said)

    def said(self) -> str:
        """What all of its processes have said."""
        return (self.project / "said.txt").read_text(encoding="utf-8")


def end(*stages: StageProcess) -> None:
    """Kill stages, and wait for their guards to end their Rays, which may lie in one folder."""
    for stage in stages:
        stage.kill()
    wait_until(
        lambda: not any([*stage.temporary.glob("s2s-*")] for stage in stages),
        said=lambda: "\n".join(stage.said() for stage in stages),
    )


def lose(machines: Cluster, worker: psutil.Process, alone: bool) -> None:
    """Kill the raylet above a worker and, unless `alone`, all below it."""
    raylet = worker.parent()
    below = raylet.children(recursive=True)
    for process in [raylet] if alone else [raylet, *below]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    (node,) = (
        node
        for node in machines.worker_nodes
        if node.all_processes["raylet"][0].process.pid == raylet.pid
    )
    machines.remove_node(node, allow_graceful=False)
