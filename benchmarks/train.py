"""Training speed against other toolkits: `python -m benchmarks.train`.

The same model on the same batches, at several sizes, each contender in a process of its own: this
project's update with compiled layers (`train.compile`) and without, a loop written by hand, itself
also compiled, torch.nn.Transformer, and the toolkits that are installed
(benchmarks/requirements.txt), all with the same settings of the C library's allocator, fused Adam,
dropout in the same places, and padded batches in whatever way is fastest for each. They train in
turns of some updates, the same for all; `times` are ours, compiled (but of other architectures),
against an opponent: the median of the ratios of turns on the same batches. `products` multiplies
the matrices alone: the floor.
Prints JSON; `python -m benchmarks.tables` makes tables of it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import corpus
from benchmarks.processes import Turns, absent, in_turns, times
from benchmarks.sizes import MADE_UP_PAIRS, SIZES
from seq2sweep.parallel import available_cpus
from seq2sweep.train.allocator import PROCESS_ENVIRONMENT

TUNABLES = "GLIBC_TUNABLES"
OPPONENTS = {
    "transformer": ["hand_compiled", "hand", "plain", "marian", "joey", "eole", "sockeye"],
    "recurrent": ["joey_recurrent"],
    "convolutional": ["fairseq_convolutional"],
}
IN_FLOAT32 = ["hand", "hand_compiled"]
"""Of Transformers' opponents, those that are measured in float32, where an update takes up to three
times as long: on a Zen 5 the best of the others was within 3 % of `hand` at every size."""
FLOOR = "products"
EAGER = "ours"
"""Without compiled layers: no opponent of those with them."""
TOGETHER = 3
"""Opponents at most that take turns with ours: a machine's own speed changes by a tenth within
half a minute, and turns that are compared must not lie further apart. One less for the paper's
vocabulary, with which some need 9 GB."""
WARM_UP = 8
"""Updates of each contender before its first turn: graphs of compiled layers are made during the
first of them."""


def main() -> None:
    """Measure, print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--text", type=Path, nargs=2, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender")
    parser.add_argument("--threads", type=int, default=available_cpus())
    parser.add_argument("--only", nargs="+", metavar="NAME", help="against these alone")
    parser.add_argument(
        "--precisions", nargs="+", choices=("bf16", "float32"), default=("bf16", "float32"),
        help="a processor without bf16 emulates it, which takes minutes a turn",
    )  # fmt: skip
    parser.add_argument(
        "--architecture", choices=OPPONENTS, default="transformer",
        help="another model, of --sizes 4x256, against other toolkits' of its kind",
    )  # fmt: skip
    options = parser.parse_args()
    # The C library reads it when a contender starts.
    os.environ.setdefault(TUNABLES, PROCESS_ENVIRONMENT[TUNABLES])
    print(json.dumps({
        "machine": f"{platform.machine()}, {options.threads} threads of {available_cpus()} CPUs",
        "text": "of files" if options.text else "of the phrasebook, put together anew",
        "sizes": {name: measure(name, options) for name in options.sizes},
    }, indent=2))  # fmt: skip


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One size, in each precision."""
    size = SIZES[name]
    text = corpus.Texts(*options.text) if options.text and name != "demo" else None
    with tempfile.TemporaryDirectory() as folder:
        corpus.make(Path(folder), text, MADE_UP_PAIRS, size.pieces, words=size.words)
        data, groups = corpus.batches(Path(folder), size.tokens)
        return {
            **dataclasses.asdict(size),
            "tokens_of_a_sentence": float(data.target_lengths.mean()),
            "batches": len(groups),
            **{each: in_precision(each, name, folder, options) for each in options.precisions},
        }


def in_precision(
    precision: str, name: str, folder: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Ours beside some opponents at a time, as many as memory is for."""
    size, own = SIZES[name], "ours"
    if options.architecture != "transformer":
        own += f"_{options.architecture}"
        opponents = options.only or OPPONENTS[options.architecture]
    else:
        measured = IN_FLOAT32 if precision == "float32" else OPPONENTS["transformer"]
        own, opponents = "ours_compiled", [EAGER, *(options.only or measured), FLOOR]
    command = [
        *("--size", name, "--precision", precision, "--threads", str(options.threads)), folder
    ]  # fmt: skip
    our_turns: Turns = []
    ways: dict[str, dict[str, Any]] = {}
    questions = [(WARM_UP + turn * size.updates, size.updates) for turn in range(options.rounds)]
    together = TOGETHER - (size.vocabulary > 20_000)
    for start in range(0, len(opponents), together):
        some = [own, *opponents[start : start + together]]
        commands = {each: ("-m", "benchmarks.contenders", each, *command) for each in some}
        found = in_turns(commands, questions, (0, WARM_UP), f"{name} {precision}")
        our_turns += found[own]
        ways |= {each: against(found[own], found[each]) for each in some[1:]}
    if why := absent(our_turns):
        sys.exit(f"benchmarks.train: {own} does not train: {why}")
    return summary(our_turns, ways)


def against(ours: Turns, theirs: Turns) -> dict[str, Any]:
    """An opponent, and how many times as fast ours is."""
    why = absent(ours, theirs)
    return {"absent": why} if why else {**rates(theirs), **times(ours, theirs)}


def rates(turns: Turns) -> dict[str, Any]:
    """Of a contender."""
    each = [turn["tokens"] / turn["seconds"] for turn in turns]
    return {
        "tokens_per_second": statistics.median(each),
        "of_each_turn": each,
        "peak_megabytes": max(turn["peak_megabytes"] for turn in turns),
    }


def summary(ours: Turns, ways: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Ours, the others, which of them is the best, and ours beside that."""
    there = {name: way for name, way in ways.items() if "absent" not in way}
    result: dict[str, Any] = {"ours": rates(ours), "others": ways}
    if FLOOR in there:
        floor = there.pop(FLOOR)
        result["percent_of_floor"] = 100 * floor["times"]
    if EAGER in there:
        result["times_of_eager"] = there.pop(EAGER)["times"]
    if there:
        best = min(there, key=lambda name: there[name]["times"])
        memory = result["ours"]["peak_megabytes"] / there[best]["peak_megabytes"]
        times = there[best]["times"]
        result |= {"best": best, "times_of_best": times, "memory_of_best": memory}
    return result


if __name__ == "__main__":
    main()
