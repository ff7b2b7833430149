"""The parts of `benchmarks.gpu`, one a call: `python -m benchmarks.gpu_parts PART --output FILE`.

Training is the loop's own (`train.loop`). What a part has found so far is in its file.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu_check import check
from benchmarks.gpu_run import SETTLED, VOCABULARY, WINDOW, Run, each_update, training
from seq2sweep import config as configuration
from seq2sweep import hardware
from seq2sweep.config import Config
from seq2sweep.data.vocabulary import EOS
from seq2sweep.decode.beam import search
from seq2sweep.model.building import build
from seq2sweep.presets import table3
from seq2sweep.storage.atomic import write_json
from seq2sweep.train import step
from seq2sweep.train.events import CheckpointDue, Logged


def rate(
    run: Run, config: Config, seconds: float, keep: Callable[[Any], None] | None = None
) -> dict[str, Any]:
    """Target tokens a second and MFU of so many seconds of training, as the loop logs them: medians
    of the later half of its lines, when most shapes were there before. keep: what is given what is
    known after each line, instead of the part's file."""
    often = configuration.with_changes(
        config, {"train.log_every": WINDOW, "train.checkpoint_every": 10**6}
    )
    if run.on_gpu:
        torch.cuda.init()  # which the next call does not do for a device with a number
        torch.cuda.reset_peak_memory_stats(run.device)
    began, lines, first = time.perf_counter(), list[dict[str, float]](), 0.0

    def measured() -> dict[str, Any]:
        steady = lines[len(lines) // 2 :]
        found: dict[str, Any] = {
            key: statistics.median(line[key] for line in steady)
            for key in ("tokens_per_second", "mfu", "peak_gpu_bytes")
            if key in steady[0]
        }
        if run.on_gpu:
            free, total = torch.cuda.mem_get_info(run.device)
            # With CUDA's own memory, of graphs too.
            held = torch.cuda.memory_reserved()
            found |= {"held_gpu_bytes": held, "used_gpu_bytes": total - free}
        updates = {"updates": WINDOW * len(lines), "of_them_steady": WINDOW * len(steady)}
        return found | updates | {"seconds_to_first_line": first}

    with training(run, often, 10**6) as events:
        for event in events:
            if isinstance(event, Logged):
                first = first or time.perf_counter() - began
                lines.append(event.metrics)
                (keep or run.write)(measured())
                if len(lines) > 1 and time.perf_counter() - began > seconds:
                    break
    return measured()


def _beside(run: Run, found: dict[str, Any], name: str) -> Callable[[Any], None]:
    """Keeps what is known of `name` so far, with what was found before."""
    return lambda known: run.write(found | {name: known})


def machine(run: Run) -> dict[str, Any]:
    """What this is."""
    name = hardware.device_name(run.device)
    precision = step.choose_precision("auto", run.device, run.config("base").model.d_model)
    return {
        "device": name,
        "torch": torch.__version__,
        "precision": precision,
        "peak_flops_per_second": hardware.peak_flops(name, precision),
    }


def ceilings(run: Run) -> dict[str, float]:
    """Bytes a second of a copy, and FLOPs a second of large and of narrow products in bf16."""
    size = 1 << 20 if run.tiny else 1 << 29
    numbers = _random(run, size)
    found = {"copied_bytes_per_second": 4 * size / _seconds(run, numbers.clone)}
    shapes = {"8192": (8192, 8192, 8192), "k_512": (25_000, 512, 2048)}
    for name, (rows, inner, columns) in shapes.items():
        if run.tiny:
            rows, inner, columns = 128, 64, 128
        a, b = _random(run, rows, inner), _random(run, inner, columns)
        spent = _seconds(run, partial(torch.mm, a, b))
        found[f"product_{name}_flops_per_second"] = 2 * rows * inner * columns / spent
    return found


def _random(run: Run, *shape: int) -> Tensor:
    """Of alike numbers a GPU multiplies faster, as it takes less power."""
    return torch.randn(shape, dtype=torch.bfloat16, device=run.device)


def _seconds(run: Run, work: Callable[[], Any], times: int = 20) -> float:
    """Of one call, in a row of them."""
    for _ in range(3):
        work()
    before = run.now()
    for _ in range(times):
        work()
    return (run.now() - before) / times


def passes(run: Run) -> dict[str, Any]:
    """Base with an update in one pass and in two."""
    found: dict[str, Any] = {}
    for tokens in (12_500, 25_000):
        changes = {} if run.tiny else {"train.tokens_per_pass": tokens}
        found[str(tokens)] = rate(
            run,
            run.config("base", changes),
            run.left() / (3 - len(found)),
            _beside(run, found, str(tokens)),
        )
        run.write(found)
    return found


def rows(run: Run) -> dict[str, Any]:
    """Rows (A) and (B) of Table 3."""
    chosen = table3.select(["A", "B"])
    found: dict[str, Any] = {}
    for number, row in enumerate(chosen):
        share = run.left() / (len(chosen) - number + 1)
        found[row.name] = rate(
            run,
            run.config("base", row.changes),
            share,
            _beside(run, found, row.name),
        )
        run.write(found)
    return found


def profile(run: Run) -> dict[str, Any]:
    """Where the time of steady updates of base goes, and how long the device has nothing to do."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if run.on_gpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    first = SETTLED if run.on_gpu else WINDOW
    seen, spent = 0, 0.0
    profiler = torch.profiler.profile(activities=activities)

    def watched(update: Callable[[], Tensor], _: Any) -> Tensor:
        nonlocal seen, spent
        seen += 1
        if seen == first + 1:
            spent = -run.now()
            profiler.start()
        done = update()
        if seen == first + WINDOW:
            spent += run.now()
            profiler.stop()
        return done

    steps = first + WINDOW
    with each_update(watched), training(run, run.config("base"), steps) as events:
        next(event for event in events if isinstance(event, Logged) and seen == steps)
    by = "self_device_time_total" if run.on_gpu else "self_cpu_time_total"
    found = sorted(_measured(profiler, run.on_gpu), key=lambda event: -getattr(event, by))
    busy = sum(getattr(event, by) for event in found) / 1e6
    return {
        "seconds_of_an_update": spent / WINDOW,
        "idle_share": 1 - busy / spent if run.on_gpu else None,
        "most": [f"{getattr(e, by) / 1e6 / busy:.1%} {e.key[:80]} x {e.count}" for e in found[:20]],
    }


def _measured(profiler: torch.profiler.profile, on_gpu: bool) -> list[Any]:
    """What takes time: of a GPU its kernels and copies, whose time the operations that started
    them and the ranges around them have as well."""
    return [
        event
        for event in profiler.key_averages()
        if not on_gpu or (event.device_type.name == "CUDA" and not event.is_user_annotation)
    ]


def decoding(run: Run) -> dict[str, Any]:
    """Output tokens a second of beam search with beam 4, 28 pieces in and about 30 out.

    first_tokens_per_second: where the shapes are new, as in most batches of a test set, and plans
    are made for them; tokens_per_second: the median of those after.
    """
    found: dict[str, Any] = {}
    size = 500 if run.tiny else VOCABULARY
    sizes = (4, 8) if run.tiny else (32, 128, 512)
    for name, dtype in (("float32", torch.float32), ("bf16", torch.bfloat16)):
        torch.manual_seed(1)
        model: Any = build(run.config("base").model, size).to(run.device).eval()
        with torch.no_grad():
            model.projection.weight[EOS] = 0  # hardly ever the end: cut at the longest
        model = model.to(dtype)
        beam = partial(search, model, beam=4, alpha=0.6, max_extra_tokens=3)
        for sentences in sizes:
            source = torch.randint(4, size, (sentences, 28), device=run.device)
            source[:, -1] = EOS
            beam(source[:2, -3:])  # other shapes: the first run is not that of the libraries
            rates = []
            for _ in range(3):
                before = run.now()
                best = beam(source)
                rates.append(sum(len(each[0].pieces) for each in best) / (run.now() - before))
            found[f"{name}, {sentences} sentences"] = {
                "first_tokens_per_second": rates[0],
                "tokens_per_second": statistics.median(rates[1:]),
            }
            run.write(found)
    return found


def checkpoint(run: Run) -> dict[str, float]:
    """Seconds for which training waits for a checkpoint of base, and of writing it."""
    config = configuration.with_changes(run.config("base"), {"train.checkpoint_every": 3})
    # A step more, as a training validates before the last one's checkpoint.
    with training(run, config, 4) as events, tempfile.TemporaryDirectory() as folder:
        due = next(event for event in events if isinstance(event, CheckpointDue))
        before = run.now()
        snapshot = due.capture()
        captured = time.perf_counter()
        snapshot.write(Path(folder) / "checkpoint")
        return {"waiting": captured - before, "writing": time.perf_counter() - captured}


def compiled(run: Run) -> dict[str, Any]:
    """Base with `train.compile`."""
    found = rate(run, run.config("base", {"train.compile": True}), 0.8 * run.left())
    return found | {"graph_breaks": sum(torch._dynamo.utils.counters["graph_break"].values())}


PARTS: dict[str, Callable[[Run], Any]] = {
    "machine": machine,
    "ceilings": ceilings,
    "check": check,
    "base": lambda run: rate(run, run.config("base"), 0.8 * run.left()),
    "big": lambda run: rate(run, run.config("big"), 0.8 * run.left()),
    "passes": passes,
    "profile": profile,
    "decoding": decoding,
    "rows": rows,
    "checkpoint": checkpoint,
    "compiled": compiled,
}


def main() -> None:
    """Measure one part and write what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    # Less than the limit, which has the start of Python in it; tiny ones are done at once.
    seconds = 0.0 if options.tiny else 0.8 * options.seconds
    run = Run(
        torch.device(options.device),
        options.tiny,
        time.perf_counter() + seconds,
        lambda found: write_json(options.output, found),
    )
    run.write(PARTS[options.part](run))


if __name__ == "__main__":
    main()
