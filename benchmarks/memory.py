"""Memory of one update at the paper's size: `python -m benchmarks.memory`.

The base model with 37 000 pieces, and 25 000 source and 25 000 target tokens in one pass, forward,
backward and Adam, on the CPU: by the core's update, and with `--plain` by one that pads and has all
logits at once. Sentences have made-up lengths around the 27 pieces of WMT14's. Each in a process of
its own. Prints JSON: the peak of its memory, what of that was there before the update (libraries,
weights), and the bytes that all logits alone would take.

With `--trials N`: a sweep of so many short trainings (a quarter of a million parameters, a
vocabulary of 2000, 30 updates of 1000 tokens); with `--updates N`: so many updates of the demo's
training. Both by Ray, as the stages do it, the trials in bf16 where the CPU has it. Prints JSON: of
each of Ray's processes that lived longer than a minute the memory after its first minute, half way,
at its end and at most, looked at every second (`growth` is from the first of these to the end), and
what the plan says a worker takes.
With `--threads N`: so many short trainings one after another, each in a thread of its own as trials
are (60 updates of 1000 tokens, d_model 64, new shapes, bf16); the megabytes and the seconds
of each. The environment is a worker's (`seq2sweep.train.allocator.PROCESS_ENVIRONMENT`), but for
what is set.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from unittest import mock

import psutil

from benchmarks import contenders

PIECES, TOKENS = 37_000, 25_000
MEAN_LENGTH = 27
COMPUTING = ("ray::RayTrainWorker", "ray::ImplicitFunc")
"""Processes of Ray that train: workers, and trials."""
MINUTE = 60.0


def main() -> None:
    """Measure in a process of its own for each way, print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--preset", default="base", choices=("base", "big"))
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--plain", action="store_true", help="the plain update as well")
    parser.add_argument("--trials", type=int, help="of a sweep, instead")
    parser.add_argument("--updates", type=int, help="of the demo's training, instead")
    parser.add_argument("--threads", type=int, help="short trainings, instead")
    parser.add_argument("--turn", choices=("ours", "plain"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(turn(options)))
        return
    if options.trials or options.updates:
        print(json.dumps(by_ray(options.trials, options.updates), indent=2))
        return
    if options.threads:
        from seq2sweep.train.allocator import PROCESS_ENVIRONMENT

        if PROCESS_ENVIRONMENT.keys() - os.environ.keys():
            # The C library reads its own when a process starts.
            again = [sys.executable, "-m", "benchmarks.memory", *sys.argv[1:]]
            os.execve(sys.executable, again, PROCESS_ENVIRONMENT | os.environ)
        print(json.dumps(in_threads(options.threads), indent=2))
        return
    command = [sys.executable, "-m", "benchmarks.memory", *sys.argv[1:]]
    ways = ["ours", "plain"] if options.plain else ["ours"]
    found: dict[str, Any] = {way: contenders.told_by([*command, "--turn", way]) for way in ways}
    found["all_logits_megabytes"] = PIECES * TOKENS * 4 / 1e6
    print(json.dumps(found, indent=2))


def turn(options: argparse.Namespace) -> dict[str, float]:
    """Megabytes: the peak, and before the update."""
    import torch

    from benchmarks import curves
    from seq2sweep import presets
    from seq2sweep.model.building import build
    from seq2sweep.train import optimizers, step
    from seq2sweep.train.allocator import keep_memory

    keep_memory()
    torch.manual_seed(1)
    config = presets.load(options.preset).config
    model = build(config.model, PIECES).train()
    optimizer = optimizers.make_adam(model)
    batch = made_up()
    before = contenders.peak_megabytes()
    with mock.patch.object(
        step, "sums_of", curves.plain if options.turn == "plain" else step.sums_of
    ):
        step.accumulate(
            model, [batch], update_target_tokens=TOKENS, smoothing=0.1, world_size=1,
            precision=options.precision, device=torch.device("cpu"),
        )  # fmt: skip
    step.apply(model, optimizer, 1e-4)
    return {"peak_megabytes": contenders.peak_megabytes(), "before_the_update_megabytes": before}


def made_up() -> Any:
    """A batch of 25 000 real tokens a side, sentences of similar length."""
    import torch

    from seq2sweep.data.batching import Batch

    count = TOKENS // MEAN_LENGTH
    lengths = torch.full((count,), MEAN_LENGTH)
    lengths[: TOKENS - count * MEAN_LENGTH] += 1
    real = torch.arange(int(lengths.max())) < lengths[:, None]
    pieces = torch.randint(4, PIECES, (3, *real.shape)) * real
    return Batch(*pieces)


# --- processes that train for long --------------------------------------------------------------


def by_ray(trials: int | None, updates: int | None) -> dict[str, Any]:
    """Memory of each process of a sweep or of a training, and what is planned for one."""
    import torch

    from benchmarks.safety import encode
    from seq2sweep import config as configuration
    from seq2sweep import console, presets
    from seq2sweep.cluster.session import ray_session
    from seq2sweep.hardware import Precision
    from seq2sweep.planning.machine import Device
    from seq2sweep.planning.memory import memory
    from seq2sweep.planning.workload import workload
    from seq2sweep.train.step import choose_precision

    console.quiet_environment()
    cpu = torch.device("cpu")
    # bf16 is what memory once grew in: wherever the processor need not emulate it.
    precision: Precision = "bf16" if torch.cpu.get_capabilities().get("avx512_bf16") else "float32"
    config = presets.load("phrasebook").config
    if updates:
        precision = choose_precision(config.train.precision, cpu, config.model.d_model)
    changes = of_sweep(config, trials, precision) if trials else {"train.steps": updates}
    config = configuration.with_changes(config, changes)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoded = encode(folder, config)
        with Watch() as watch, ray_session(config.cluster):
            trained = (sweep if trials else training)(config, encoded, folder)
        load = workload(config, {}, encoded)
        workers = 1 if trials else config.cluster.workers
        planned = memory(trained, load, Device("CPU", workers, precision), workers).needed
    return {
        "trials": trials,
        "updates": updates,
        "precision": precision,
        "planned_megabytes": planned / 1e6,
        "processes": watch.found(planned),
    }


def of_sweep(config: Any, trials: int, precision: str) -> dict[str, Any]:
    """What makes the demo's sweep one of many short trials."""
    base = {
        "train.steps": 30, "train.tokens_per_update": 1000, "train.precision": precision,
        "train.validate_every": 30, "train.log_every": 10,
    }  # fmt: skip
    return {
        "vocabulary.size": 2000,
        "sweep.method": "grid",
        "sweep.space": {},
        "sweep.base": config.sweep.base | base,
        "sweep.seeds": trials,
        "sweep.scheduler": "none",
    }


def sweep(config: Any, encoded: Path, folder: Path) -> Any:
    """Train all trials; the configuration of one of them."""
    from benchmarks.orchestration import no_score
    from seq2sweep.cluster.tune_runner import run_sweep
    from seq2sweep.sweep.variants import variants

    made, _ = variants(config)
    results = run_sweep(
        config, made, encoded=encoded, project=folder, name="sweep", score=no_score,
        on_trial=lambda event, variant, metrics: None,
    )  # fmt: skip
    failed = [f"{r.variant.name}: {r.cause}" for r in results if r.status != "finished"]
    if failed:
        raise RuntimeError("; ".join(failed))
    return made[0].config


def training(config: Any, encoded: Path, folder: Path) -> Any:
    """Train to the end; the configuration that was trained."""
    from seq2sweep.cluster.train_driver import run_training
    from seq2sweep.runs.layout import Retention, run_folder
    from seq2sweep.runs.stores import driver_store

    run = run_folder(config.cluster, folder, "long")
    store = driver_store(config.cluster.storage, run, Retention.of(config))
    run_training(config, store, encoded=encoded, on_event=lambda entry: None)
    return config


class Watch:
    """Looks every second how much memory each of Ray's processes takes that compute."""

    def __init__(self) -> None:
        self.seen: dict[int, list[tuple[float, int]]] = defaultdict(list)
        self.names: dict[int, str] = {}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.ended.set()
        self.thread.join()

    def _look(self) -> None:
        while not self.ended.wait(1.0):
            for process in psutil.Process().children(recursive=True):
                try:
                    name = process.cmdline()[0]
                    rss = process.memory_info().rss
                except (psutil.NoSuchProcess, IndexError):
                    continue  # it has ended meanwhile
                if name.startswith(COMPUTING) and rss:
                    # Ray adds what a process does at the moment.
                    self.names.setdefault(process.pid, name.partition(".")[0])
                    self.seen[process.pid].append((time.monotonic(), rss))

    def found(self, planned: float) -> list[dict[str, Any]]:
        """Of each process, in megabytes, those that lived for more than a minute."""
        told = []
        for pid, samples in self.seen.items():
            begun, ended = samples[0][0], samples[-1][0]
            if ended - begun <= MINUTE:
                continue
            first = next(rss for at, rss in samples if at - begun >= MINUTE)
            half = next(rss for at, rss in samples if at - begun >= (ended - begun) / 2)
            last, peak = samples[-1][1], max(rss for _, rss in samples)
            told.append(
                {
                    "process": self.names[pid],
                    "pid": pid,
                    "seconds": round(ended - begun),
                    "after_a_minute_megabytes": first / 1e6,
                    "half_way_megabytes": half / 1e6,
                    "end_megabytes": last / 1e6,
                    "peak_megabytes": peak / 1e6,
                    "growth": last / first - 1,
                    "peak_of_plan": peak / planned,
                }
            )
        return told


def in_threads(count: int) -> dict[str, list[float]]:
    """Megabytes of this process after each of so many trainings, and how long each took."""
    import torch

    from seq2sweep import hardware
    from seq2sweep.train.allocator import keep_memory

    keep_memory()
    torch.set_num_threads(1)
    after, seconds = [], []
    for seed in range(count):
        begun = time.perf_counter()
        thread = threading.Thread(target=short_training, args=(seed,))
        thread.start()
        thread.join()
        seconds.append(time.perf_counter() - begun)
        after.append(hardware.memory_of_process(torch.device("cpu"))["rss_bytes"] / 1e6)
    return {"after_each_megabytes": after, "seconds": seconds}


def short_training(seed: int) -> None:
    """60 updates of the demo's base variant on made-up sentences, of new shapes each time."""
    import torch

    from seq2sweep import config as configuration
    from seq2sweep import presets
    from seq2sweep.data.batching import Batch
    from seq2sweep.model.building import build
    from seq2sweep.train import optimizers, step

    torch.manual_seed(seed)
    config = presets.load("phrasebook").config
    sizes = {k: v for k, v in config.sweep.base.items() if k.startswith("model.")}
    model = build(configuration.with_changes(config, sizes).model, 3000).train()
    optimizer = optimizers.make_adam(model)
    for _ in range(60):
        width = int(torch.randint(5, 30, ()))
        lengths = torch.randint(3, width + 1, (1000 // width + int(torch.randint(0, 4, ())),))
        real = torch.arange(int(lengths.max())) < lengths[:, None]
        batch = Batch(*(torch.randint(4, 3000, (3, *real.shape)) * real))
        step.accumulate(
            model, [batch], update_target_tokens=int(lengths.sum()), smoothing=0.1, world_size=1,
            precision="bf16", device=torch.device("cpu"),
        )  # fmt: skip
        step.apply(model, optimizer, 1e-4)


if __name__ == "__main__":
    main()
