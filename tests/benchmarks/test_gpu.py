"""The benchmark of a GPU leaves a result whatever its parts do; its check notices what is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import gpu, gpu_check, gpu_parts
from benchmarks.gpu_run import Run
from seq2sweep.train import loop, step
from seq2sweep.train.events import Logged

from ..clone import ROOT


def is_gone(pid: int) -> bool:
    """Dead, or about to be buried by its new parent."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return True
            os.kill(pid, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.1)
    return False


@dataclass(frozen=True)
class Seen:
    """An entry of PyTorch's profiler."""

    key: str
    device_type: torch.autograd.DeviceType
    self_device_time_total: float
    is_user_annotation: bool = False


def test_time_of_a_gpu_is_that_of_its_kernels() -> None:
    """Operations that started them, and ranges around them, have it once more."""
    cpu, cuda = torch.autograd.DeviceType.CPU, torch.autograd.DeviceType.CUDA
    seen = [
        Seen("aten::mm", cpu, 100.0),
        Seen("gemm", cuda, 100.0),
        Seen("Optimizer.step#Adam.step", cuda, 100.0, True),
    ]
    profiler: Any = SimpleNamespace(key_averages=lambda: seen)
    assert gpu_parts._measured(profiler, on_gpu=True) == seen[1:2]
    assert gpu_parts._measured(profiler, on_gpu=False) == seen


def test_every_part_leaves_a_result_and_the_next_goes_on(tmp_path: Path) -> None:
    file, pids = tmp_path / "gpu.json", tmp_path / "pids"
    limits = {"good": 60.0, "raises": 60.0, "is killed": 60.0, "says nothing": 60.0, "hangs": 3.0}
    said: list[str] = []
    written: list[list[str]] = []

    def say(line: str) -> None:
        said.append(line)
        written.append(list(json.loads(file.read_text())["parts"]))

    module = "tests.benchmarks.faulty_parts"
    found = gpu.measure(module, limits | {"last": 60.0}, ["--pids", str(pids)], file, 300.0, say)
    parts: dict[str, Any] = found["parts"]
    assert {name: part["status"] for name, part in parts.items()} == {
        "good": "done",
        "raises": "failed",
        "is killed": "killed",
        "says nothing": "failed",
        "hangs": "timed out",
        "last": "done",
    }
    assert parts["good"]["result"] == {"seconds": 60.0}
    assert "illegal memory access" in parts["raises"]["error"]
    assert parts["raises"]["result"] == {"first": 1}  # what it had before
    assert "signal 9" in parts["is killed"]["error"]
    assert 3 <= parts["hangs"]["seconds"] < 60
    assert all(map(is_gone, map(int, pids.read_text().split())))
    # Whole after each part, and nothing else in the folder.
    assert written == [list(parts)[: n + 1] for n in range(len(parts))]
    assert json.loads(file.read_text())["parts"] == parts
    assert {path.name for path in tmp_path.iterdir()} == {"gpu.json", "pids"}
    assert len(said) == len(parts)


def test_what_cannot_be_killed_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process that hangs in a driver."""
    file, pids = tmp_path / "gpu.json", tmp_path / "pids"
    monkeypatch.setattr(gpu, "TOO_SHORT", 0.5)
    monkeypatch.setattr(gpu.os, "killpg", lambda *_: None)
    module, arguments = "tests.benchmarks.faulty_parts", ["--pids", str(pids)]
    found = gpu.measure(
        module, {"hangs": 2.0, "good": 60.0}, arguments, file, 300.0, lambda _: None
    )
    for pid in map(int, pids.read_text().split()):
        os.kill(pid, signal.SIGKILL)
    assert [part["status"] for part in found["parts"].values()] == ["timed out", "done"]


def test_without_time_a_part_is_not_begun(tmp_path: Path) -> None:
    found = gpu.measure(
        "tests.benchmarks.faulty_parts",
        {"good": 60.0},
        [],
        tmp_path / "g.json",
        1.0,
        lambda _: None,
    )
    assert found["parts"] == {"good": {"status": "no time left"}}


def test_all_parts_have_a_limit_and_there_are_less_than_eight_minutes() -> None:
    assert list(gpu.PARTS) == list(gpu_parts.PARTS)
    assert gpu.ALL_SECONDS < 8 * 60


BARE = """
import importlib.util
import sys
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder

named = {"torch", "numpy", "yaml", "safetensors", "sentencepiece"}
of_torch = "functorch torchgen typing_extensions sympy mpmath networkx jinja2 markupsafe filelock"
known = {"benchmarks", "seq2sweep", "fsspec", "triton"} | named | {*of_torch.split()}
known |= sys.stdlib_module_names


class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        top = name.partition(".")[0]
        found = top in known or top.startswith("_sysconfigdata_")
        return super().find_spec(name, path, target) if found else None


sys.meta_path[:] = [BuiltinImporter, FrozenImporter, Bare]

import torch
from benchmarks import gpu, gpu_parts, gpu_run
from seq2sweep.model import kernel_check

run = gpu_run.Run(torch.device("cpu"), True, 0.0, lambda found: None)
for part in ("machine", "checkpoint"):
    gpu_parts.PARTS[part](run)
importlib.util.find_spec = lambda _: True  # Triton is there
assert not kernel_check.is_right("a kernel", run.device, lambda: 1.0, 0.5, "off by {}")
assert "tqdm" not in sys.modules
"""
"""Where nothing is installed but what benchmarks/gpu.py names, and what PyTorch needs."""


def test_the_named_packages_are_enough() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BARE], capture_output=True, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "src", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "a kernel does not work on cpu (off by 1): training is slower without\n"


def run_on_the_cpu() -> Run:
    return Run(torch.device("cpu"), True, time.perf_counter(), lambda _: None)


def test_the_rate_of_the_first_search_of_new_shapes_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, seen = [0.0], set[tuple[int, ...]]()

    def search(model: Any, source: torch.Tensor, **_: Any) -> Any:
        """15 tokens a sentence; 5 seconds where the shape is new, else 1."""
        clock[0] += 1.0 if source.shape in seen else 5.0
        seen.add(tuple(source.shape))
        return [[SimpleNamespace(pieces=[0] * 15)]] * len(source)

    def build(*_: Any) -> Any:
        seen.clear()
        model: Any = torch.nn.Module()
        model.projection = torch.nn.Linear(4, 500)
        return model

    monkeypatch.setattr(gpu_parts, "search", search)
    monkeypatch.setattr(gpu_parts, "build", build)
    monkeypatch.setattr(Run, "now", lambda _: clock[0])
    assert gpu_parts.decoding(run_on_the_cpu()) == {
        f"{name}, {sentences} sentences": {
            "first_tokens_per_second": sentences * 3.0,
            "tokens_per_second": sentences * 15.0,
        }
        for name in ("float32", "bf16")
        for sentences in (4, 8)
    }


class BegunError(Exception):
    """The training is to begin."""


def test_a_device_with_a_number_is_ready_before_its_memory_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyTorch's own function, on a machine without a GPU, as a process's first call of CUDA."""
    calls: list[str] = []

    def begin(*_: Any) -> None:
        raise BegunError

    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: calls.append("init"))
    monkeypatch.setattr(
        torch._C, "_cuda_resetPeakMemoryStats", lambda _: calls.append("reset"), raising=False
    )
    monkeypatch.setattr(gpu_parts, "training", begin)
    run = Run(torch.device("cuda:0"), True, 0.0, lambda _: None)
    with pytest.raises(BegunError):
        gpu_parts.rate(run, run.config("base"), 0.0)
    assert calls == ["init", "reset"]


def test_each_line_of_a_rate_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that is ended leaves what it had found: of two settings, the first and so far the
    second."""
    kept: list[dict[str, Any]] = []
    run = Run(torch.device("cpu"), True, 0.0, lambda found: kept.append(dict(found)))
    lines = [Logged(10 * i, {"tokens_per_second": 100.0 * i}) for i in (1, 2)]

    @contextmanager
    def begin(*_: Any) -> Iterator[Iterator[Any]]:
        yield iter(lines)

    monkeypatch.setattr(gpu_parts, "training", begin)
    gpu_parts.rate(run, run.config("base"), 0.0)
    assert [(each["updates"], each["tokens_per_second"]) for each in kept] == [(10, 100), (20, 200)]
    kept.clear()
    gpu_parts.passes(run)
    assert [list(each) for each in kept] == [["12500"]] * 3 + [["12500", "25000"]] * 3
    assert [each["25000"]["updates"] for each in kept[3:]] == [10, 20, 20]


def test_a_checkpoint_is_measured_without_a_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    def validate(*_: Any, **__: Any) -> None:
        raise AssertionError("it validates, which takes most of the part's time")

    monkeypatch.setattr(loop, "negative_log_likelihood", validate)
    assert gpu_parts.checkpoint(run_on_the_cpu()).keys() == {"waiting", "writing"}


def test_the_check_holds_and_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_on_the_cpu()
    assert gpu_check._exact(run, "scaled_dot_product", 13, 15)["gradients"] > 0  # it is bf16
    accumulate = step.accumulate

    def smoother(*arguments: Any, **options: Any) -> Any:
        narrow = options["precision"] == "bf16"
        return accumulate(*arguments, **options | {"smoothing": 0.2 if narrow else 0.1})

    monkeypatch.setattr(step, "accumulate", smoother)
    with pytest.raises(AssertionError, match="off by"):
        gpu_check._exact(run, "scaled_dot_product", 13, 15)


def test_a_failed_check_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of memory")

    kept: list[dict[str, Any]] = []
    run = Run(torch.device("cpu"), True, 0.0, lambda found: kept.append(dict(found)))
    monkeypatch.setattr(gpu_check, "_exact", wrong)
    monkeypatch.setattr(gpu_check, "_falls", lambda _: {"first": 2.0, "last": 1.0})
    monkeypatch.setattr(gpu_check, "_resumes", lambda _: "the same bits")
    with pytest.raises(AssertionError, match="out of memory"):
        gpu_check.check(run)
    assert kept[-1]["resume"] == "the same bits"
    assert kept[-1]["no waits"] == "of a GPU only"
