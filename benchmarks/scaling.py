"""What more workers give, and what their exchange costs: `python -m benchmarks.scaling`.

The model of benchmarks.train and its updates, each shared out over 1, 2 and 4 processes of one
thread that sum their gradients over loopback, as Ray's workers do: seconds an update with and
without that sum, in turns. On fewer cores than processes the rest share cores. Beside them what a
formula says, whose two constants are measured here: the seconds that one worker computes, and the
bytes a second that the sum of gradients moves; then what `seq2sweep plan` predicts of GPUs. Prints
a table and, with --json, writes all figures to a file.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import corpus
from benchmarks.sizes import LEARNING_RATE, SIZES, SMOOTHING
from seq2sweep import config as configuration
from seq2sweep import console, presets
from seq2sweep.parallel import available_cpus
from seq2sweep.planning import machine, speed, workload

WORKERS = (1, 2, 4)
WARM_UP = 3


@dataclass(frozen=True)
class Constants:
    """compute: FLOPs a second of a worker; bandwidth: bytes a second that it sends in a sum of
    gradients, and receives at the same time; latency: seconds of a sum of nearly nothing."""

    compute: float
    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Update:
    """FLOPs, real target tokens, and bytes of gradients."""

    flops: float
    tokens: float
    gradients: float


def seconds(update: Update, workers: int, constants: Constants) -> float:
    """Of an update of so many workers, that sum by a ring: each sends 2 (w - 1) / w of all bytes.

    Nothing of it is hidden: a CPU that sums does not compute.
    """
    computing = update.flops / (workers * constants.compute)
    sending = 2 * (workers - 1) / workers * update.gradients / constants.bandwidth
    return computing + sending + (constants.latency if workers > 1 else 0.0)


ON_PAPER = (
    *("1 x H200", "8 x P100", "1 x H100", "8 x H100", "64 x H100", "512 x H100"),
    *("64 x H100, 100 Gbit/s", "64 x H100, 40 Gbit/s"),
)
"""As `seq2sweep plan --on` has them."""
PAPER_HOURS = {"base": 12.0, "big": 84.0}
"""Of the paper's training, on 8 P100."""
PAIRS = 4_500_000
"""Of WMT14 English-German, in sentences of its usual lengths."""


def main() -> None:
    """Measure, print tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    corpus.add_options(parser)
    parser.add_argument("--updates", type=int, default=6, help="measured updates of a turn")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each number of workers")
    parser.add_argument("--json", type=Path, help="where to write all figures")
    parser.add_argument(
        "--on-paper", action="store_true", help="what is predicted of GPUs alone, as JSON"
    )
    options = parser.parse_args()
    if options.on_paper:
        print(json.dumps({"on_paper": on_paper()}, indent=2))
        return
    with tempfile.TemporaryDirectory() as folder:
        corpus.make_as_asked(Path(folder), options)
        turns = [workers for _ in range(options.rounds) for workers in WORKERS]
        found: dict[int, list[dict[str, Any]]] = {workers: [] for workers in WORKERS}
        for workers in console.progress(turns, "scaling", "turns", len(turns)):
            found[workers].append(turn(workers, Path(folder), options))
    result = summary(found)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(table(result))


def turn(workers: int, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One training of so many processes, as the first of them tells it."""
    context = multiprocessing.get_context("spawn")
    told: Any = context.Queue()
    with tempfile.TemporaryDirectory() as meeting:
        processes = [
            context.Process(
                target=work, args=(rank, workers, folder, f"{meeting}/store", options, told)
            )
            for rank in range(workers)
        ]
        for process in processes:
            process.start()
        found: dict[str, Any] = told.get(timeout=600)
        for process in processes:
            process.join()
    return found


def work(
    rank: int, workers: int, folder: Path, store: str, options: argparse.Namespace, told: Any
) -> None:
    """A worker: its share of the same updates, with and without the sum, in turns."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    from torch import distributed as dist

    from seq2sweep.data.batching import collate, share
    from seq2sweep.model.architecture.transformer import Transformer
    from seq2sweep.model.flops import training_flops
    from seq2sweep.train import optimizers, step
    from seq2sweep.train.allocator import keep_memory
    from seq2sweep.train.distributed import averaged

    keep_memory()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=workers)
    config = SIZES["4x256"].config()
    data, groups = corpus.batches(folder, options.tokens)
    device = torch.device("cpu")
    model = Transformer(config, options.pieces).train()
    optimizer = optimizers.make_adam(model)
    parallel: Any = averaged(model)
    precision = step.choose_precision("auto", device, config.d_model)
    taken: dict[str, list[float]] = {"with": [], "without": []}
    tokens, flops = [], []
    for i in range(2 * (WARM_UP + options.updates)):
        ids = groups[(i // 2) % len(groups)]
        batch = collate(data, share(ids, rank, workers))
        exchanged = i % 2 == 0
        dist.barrier()
        before = time.perf_counter()
        with contextlib.nullcontext() if exchanged else parallel.no_sync():
            step.accumulate(
                parallel, [batch], update_target_tokens=int(data.target_lengths[ids].sum()),
                smoothing=SMOOTHING, world_size=workers, precision=precision,
                device=device,
            )  # fmt: skip
        step.apply(model, optimizer, LEARNING_RATE)
        dist.barrier()
        if i >= 2 * WARM_UP:
            taken["with" if exchanged else "without"].append(time.perf_counter() - before)
            tokens.append(int(data.target_lengths[ids].sum()))
            source, target = data.source_lengths[ids], data.target_lengths[ids]
            flops.append(training_flops(config, options.pieces, source, target))
    gradients = torch.zeros(sum(p.numel() for p in model.parameters()))
    sums = {"all": gradients, "one": gradients[:1]}
    alone = {name: [time_of_sum(x) for _ in range(7)] for name, x in sums.items()}
    if rank == 0:
        figures = {key: statistics.median(times) for key, times in taken.items()}
        figures |= {f"sum_of_{key}": statistics.median(times) for key, times in alone.items()}
        figures |= {"tokens": statistics.mean(tokens), "flops": statistics.mean(flops)}
        figures["gradients"] = 4.0 * gradients.numel()
        told.put(figures)
    dist.barrier()
    dist.destroy_process_group()


def time_of_sum(tensor: Any) -> float:
    """Seconds of one sum over the workers."""
    from torch import distributed as dist

    dist.barrier()
    before = time.perf_counter()
    dist.all_reduce(tensor)
    return time.perf_counter() - before


def summary(found: dict[int, list[dict[str, Any]]]) -> dict[str, Any]:
    """Medians of the turns, and what the model says of each number of workers."""
    medians = {
        workers: {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
        for workers, turns in found.items()
    }
    one, two = medians[1], medians[2]
    update = Update(one["flops"], one["tokens"], one["gradients"])
    sending = max(two["sum_of_all"] - two["sum_of_one"], 1e-9)
    constants = Constants(
        one["flops"] / one["without"], update.gradients / sending, two["sum_of_one"]
    )
    rows = {}
    for workers, each in medians.items():
        cores = min(workers, available_cpus())
        shared = Constants(
            constants.compute * cores / workers, constants.bandwidth, constants.latency
        )
        rows[workers] = each | {
            "lost_to_exchange": 1 - each["without"] / each["with"],
            "model_seconds": seconds(update, workers, shared),
        }
    return {"cpus": available_cpus(), "constants": vars(constants), "workers": rows}


def table(result: dict[str, Any]) -> str:
    """As docs/performance.md has it."""
    lines = [
        "| workers | target tokens/s | seconds an update | without exchange | lost to it | model |",
        "|---|---|---|---|---|---|",
    ]
    for workers, each in result["workers"].items():
        lines.append(
            f"| {workers} | {each['tokens'] / each['with']:,.0f} | {each['with']:.2f} | "
            f"{each['without']:.2f} | {each['lost_to_exchange']:.1%} | "
            f"{each['model_seconds']:.2f} |"
        )
    constants = result["constants"]
    lines += [
        f"a worker computes {constants['compute'] / 1e9:,.0f} GFLOP/s, sums "
        f"{constants['bandwidth'] / 1e9:.2f} GB/s, and one number in "
        f"{1000 * constants['latency']:.1f} ms; {result['cpus']} CPUs",
        "",
        "| on paper | GPUs | tokens an update | target tokens/s | exchange adds |",
        "|---|---|---|---|---|",
        *(
            f"| {row['model']} | {row['on']} | {row['tokens']:,} | {row['rate']:,.0f} | "
            f"{1000 * row['exchange']:.1f} ms |"
            for row in on_paper()
        ),
    ]
    return "\n".join(lines)


def on_paper() -> list[dict[str, Any]]:
    """What `seq2sweep plan` predicts of GPUs, for the paper's updates and for larger ones.

    seconds, exchange: of an update, and of it what the exchange adds; rate: target tokens a second;
    hours: of the updates alone, for as many tokens as the paper's training has; of_paper: how many
    times as long the paper's training took.
    """
    rows = []
    for name, times in itertools.product(PAPER_HOURS, (1, 16)):
        config = presets.load(f"wmt14-en-de-{name}").config
        tokens = times * config.train.tokens_per_update
        config = configuration.with_changes(config, {"train.tokens_per_update": tokens})
        load = workload.workload(config, {"train": PAIRS}, None)
        found = workload.training(config, load)
        for on in ON_PAPER:
            device = machine.parse(on, config, Path(__file__).parents[1])
            rates = device.rates()
            assert rates is not None
            update = speed.update_of(
                config, found, load.vocabulary_size, rates, device.precision, device.count
            )
            hours = update.seconds * found.steps / times / 3600
            rows.append(
                {
                    "model": name,
                    "on": on,
                    "tokens": tokens,
                    "seconds": update.seconds,
                    "exchange": update.exchange,
                    "rate": found.target_tokens_per_update / update.seconds,
                    "hours": hours,
                    "of_paper": PAPER_HOURS[name] / hours,
                }
            )
    return rows


if __name__ == "__main__":
    main()
