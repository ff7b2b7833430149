"""The data path against its floor: `python -m benchmarks.data`.

Encoding by the stage's code (from a text file to files on disk, with the start of its processes)
against bare SentencePiece with as many threads (from a list in memory, result thrown away), in
turns; and the batch plan of 36 million pairs. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

from benchmarks.text import pairs
from seq2sweep import config as configuration
from seq2sweep import console, presets
from seq2sweep.data import bitext, vocabulary
from seq2sweep.data.batching import EpochPlan, passes, plan_epoch, share
from seq2sweep.data.files import SIDES, write_pairs
from seq2sweep.parallel import Processes, available_cpus

CHUNK = 10_000


def main() -> None:
    """Measure, print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=500_000, help="sentence pairs to encode")
    parser.add_argument("--runs", type=int, default=5, help="measurements of each, in turns")
    parser.add_argument("--pieces", type=int, default=8000, help="size of the vocabulary")
    parser.add_argument("--text", type=Path, nargs=2, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--plan", type=int, default=36_000_000, help="pairs of the batch plan")
    options = parser.parse_args()
    text = tuple(options.text) if options.text else None
    with tempfile.TemporaryDirectory() as folder:
        encoding = encode(Path(folder), options.pairs, options.pieces, options.runs, text)
    result = {
        "machine": f"{platform.machine()}, {available_cpus()} CPUs",
        "sentencepiece": sentencepiece.__version__,
        "encode": encoding,
        "plan": in_a_process_of_its_own(options.plan),
    }
    print(json.dumps(result, indent=2))


def encode(
    folder: Path, count: int, size: int, runs: int, text: tuple[Path, Path] | None
) -> dict[str, Any]:
    """Sentences a second of both ways, median of the runs and all of them."""
    texts = {side: folder / f"{side}.txt" for side in SIDES}
    made = console.progress(pairs(count, text), "make text", "pairs", count)
    write_pairs(texts["source"], texts["target"], made)
    lines = [line for path in texts.values() for line in path.read_text("utf-8").splitlines()]
    settings = configuration.with_changes(
        presets.load("phrasebook").config, {"vocabulary.size": size}
    ).vocabulary
    model = vocabulary.train(lines[:: max(1, len(lines) // 200_000)], settings)
    ours, bare = (
        vocabulary.Vocabulary(model),
        sentencepiece.SentencePieceProcessor(model_proto=model),
    )
    threads = available_cpus()

    def by_the_stage() -> None:
        languages = {"source": "en", "target": "de"}
        bitext.write_split(folder, "train", texts, ours, languages, Processes(threads))

    def by_sentencepiece() -> None:
        for start in range(0, len(lines), CHUNK):
            bare.encode(lines[start : start + CHUNK], add_eos=True, num_threads=threads)

    rates: dict[str, list[float]] = {"stage": [], "sentencepiece": []}
    for _ in range(runs):
        rates["stage"].append(len(lines) / seconds(by_the_stage))
        rates["sentencepiece"].append(len(lines) / seconds(by_sentencepiece))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    ratios = [a / b for a, b in zip(rates["stage"], rates["sentencepiece"], strict=True)]
    return {
        "sentences": len(lines),
        "pieces": len(ours),
        "threads": threads,
        "sentences_per_second": medians,
        "ratio": statistics.median(ratios),
        "ratio_of_each_run": ratios,
    }


def plan(count: int) -> dict[str, Any]:
    """Batch plan of so many pairs with the lengths of real text, 25 000 tokens an update."""
    random = np.random.default_rng(0)
    source, target = np.empty((2, count), np.int32)
    for start in range(0, count, 1 << 20):
        block = slice(start, min(count, start + (1 << 20)))
        drawn = np.clip(random.gamma(2.5, 12, block.stop - start), 1, 250)
        source[block] = drawn
        target[block] = np.clip(drawn * random.normal(1.05, 0.2, len(drawn)), 1, 250)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    taken, figures = [], {}
    for epoch in range(3):
        started = time.perf_counter()
        made = plan_epoch(source, target, tokens_per_update=25_000, seed=1, epoch=epoch)
        taken.append(time.perf_counter() - started)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        figures = {"updates": len(made), "padding_share": padding_share(made, source, target)}
        del made  # two plans at once would count twice
    return {
        "pairs": count,
        "seconds": statistics.median(taken),
        "peak_megabytes_above_the_lengths": peak * 1024 / 1e6,
        **figures,
    }


def padding_share(
    plan: EpochPlan,
    source_lengths: NDArray[Any],
    target_lengths: NDArray[Any],
    *,
    world_size: int = 1,
    tokens_per_pass: int | None = None,
) -> float:
    """Share of padding among the tokens (of both sides) that an epoch computes, in [0, 1).

    Without `tokens_per_pass` each worker computes its share in one pass.
    """
    padded = 0
    for update in range(len(plan)):
        for rank in range(world_size):
            ids = share(plan[update], rank, world_size)
            parts = (
                passes(ids, source_lengths, target_lengths, tokens_per_pass)
                if tokens_per_pass is not None
                else [ids] * bool(len(ids))
            )
            for part in parts:
                longest = int(source_lengths[part].max()) + int(target_lengths[part].max())
                padded += len(part) * longest
    real = int(source_lengths.sum(dtype=np.int64)) + int(target_lengths.sum(dtype=np.int64))
    return 1 - real / padded


def in_a_process_of_its_own(count: int) -> Any:
    """`plan`, where no earlier work has left a higher peak of memory."""
    code = f"import json; from benchmarks.data import plan; print(json.dumps(plan({count})))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def seconds(work: Callable[[], None]) -> float:
    """How long it takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
