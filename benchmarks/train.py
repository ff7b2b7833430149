"""Training speed against other toolkits: `python -m benchmarks.train`.

The same model (4 + 4 layers, d_model 256, d_ff 1024, 4 heads, dropout 0.1, embeddings tied) on the
same batches, each contender in a process of its own, in turns: this project's update, the loop over
torch.nn.Transformer that anybody would write, Hugging Face's MarianMTModel and Joey NMT, the last
two where they are installed (benchmarks/requirements.txt). `+malloc`: with the settings of the C
library's allocator that our own workers have. Beside them the rate of plain matrix products.
Prints a table and, with --json, writes all figures to a file.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import contenders, corpus
from seq2sweep import console
from seq2sweep.parallel import available_cpus

CONTENDERS = [
    (name, precision, keep)
    for precision in ("float32", "bf16")
    for name, keep in (
        ("ours", True), ("plain", False), ("plain", True),
        ("marian", False), ("marian", True), ("joey", False),
    )
]  # fmt: skip


RIVALS = {
    "recurrent": [("ours_recurrent", True), ("joey_recurrent", False), ("joey_recurrent", True)],
    "convolutional": [
        ("ours_convolutional", True),
        ("fairseq_convolutional", False),
        ("fairseq_convolutional", True),
    ],
}
"""Of `--architecture`, in float32 and bf16."""


class Way(NamedTuple):
    """A contender, its precision, and whether it has our settings of malloc."""

    name: str
    precision: str
    keep: bool

    def __str__(self) -> str:
        malloc = "+malloc" if self.keep and not self.name.startswith("ours") else ""
        return f"{self.name}{malloc} {self.precision}"


def main() -> None:
    """Measure, print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    corpus.add_options(parser)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender")
    parser.add_argument("--updates", type=int, default=10, help="measured updates of a turn")
    parser.add_argument("--threads", type=int, default=available_cpus())
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of these contenders alone")
    parser.add_argument(
        "--precisions", nargs="+", choices=("float32", "bf16"), default=("float32", "bf16"),
        help="a processor without bf16 emulates it, which takes minutes a turn",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, help="where to write all figures")
    parser.add_argument(
        "--architecture", choices=["transformer", *RIVALS], default="transformer",
        help="another model of 4 + 4 layers, d_model 256, against other toolkits' of its kind",
    )  # fmt: skip
    options = parser.parse_args()
    contending = CONTENDERS
    if options.architecture != "transformer":
        contending = [
            (name, precision, keep)
            for precision in ("float32", "bf16")
            for name, keep in RIVALS[options.architecture]
        ]
    ways = [
        Way(*each)
        for each in contending
        if each[1] in options.precisions and (not options.only or each[0] in options.only)
    ]
    with tempfile.TemporaryDirectory() as folder:
        corpus.make_as_asked(Path(folder), options)
        found: dict[Way, list[dict[str, Any]]] = {way: [] for way in ways}
        turns = [(turn, way) for turn in range(options.rounds) for way in ways]
        for turn, way in console.progress(turns, "train", "turns", len(turns)):
            found[way].append(run(way, Path(folder), options, turn * options.updates))
        flops = flops_per_token(Path(folder), options.pieces, options.architecture)
    products = {precision: product_rate(precision) for precision in options.precisions}
    result = {
        "flops_per_token": flops,
        "machine": f"{platform.machine()}, {options.threads} threads of {available_cpus()} CPUs",
        "products_flops_per_second": products,
        "ways": {str(way): summary(turns) for way, turns in found.items()},
    }
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    print(table(result))


def run(way: Way, folder: Path, options: argparse.Namespace, first: int) -> dict[str, Any]:
    """One turn of a contender."""
    command = [
        *(sys.executable, "-m", "benchmarks.contenders", way.name, str(folder)),
        *("--precision", way.precision, "--tokens", str(options.tokens)),
        *("--updates", str(options.updates), "--first", str(first)),
        *("--threads", str(options.threads)),
        *(["--keep-memory"] if way.keep else []),
    ]
    return contenders.told_by(command)


def summary(turns: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over a contender's turns."""
    absent = next((turn["absent"] for turn in turns if "absent" in turn), None)
    if absent is not None:
        return {"absent": absent}
    rates = [sum(turn["tokens"]) / sum(turn["seconds"]) for turn in turns]
    return {
        "tokens_per_second": statistics.median(rates),
        "of_each_turn": rates,
        "first_update_seconds": statistics.median(turn["first_update"] for turn in turns),
        "peak_megabytes": max(turn["peak_megabytes"] for turn in turns),
    }


def flops_per_token(folder: Path, size: int, architecture: str) -> float:
    """Operations for a real target token, its share of the source included; padding is none."""
    from seq2sweep.data.bitext import Bitext
    from seq2sweep.model.flops import training_flops

    model = contenders.our_model_config(architecture)
    data = Bitext.open(folder, "train")
    lengths = data.source_lengths, data.target_lengths
    return training_flops(model, size, *lengths) / int(data.target_lengths.sum())


def product_rate(precision: str) -> float:
    """Operations a second of square products of 2048, the best of some: what there is to have."""
    code = (
        "import time, torch\n"
        f"x = torch.randn(2048, 2048).to(torch.{'bfloat16' if precision == 'bf16' else 'float32'})"
        "\nx @ x\nbest = 1e9\nfor _ in range(10):\n"
        "    start = time.perf_counter(); x @ x; best = min(best, time.perf_counter() - start)\n"
        "print(2 * 2048**3 / best)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return float(done.stdout)


def table(result: dict[str, Any]) -> str:
    """As docs/performance.md has it."""
    lines = [
        "| trained by | target tokens/s | least to most | of the rate of products | "
        "first update after | peak memory |",
        "|---|---|---|---|---|---|",
    ]
    absent = []
    for name, figures in result["ways"].items():
        if "absent" in figures:
            absent.append(f"absent: {name} ({figures['absent']})")
            continue
        rates = figures["of_each_turn"]
        products = result["products_flops_per_second"][name.split()[-1]]
        share = figures["tokens_per_second"] * result["flops_per_token"] / products
        lines.append(
            f"| {name} | {figures['tokens_per_second']:,.0f} | {min(rates):,.0f} to "
            f"{max(rates):,.0f} | {share:.0%} | {figures['first_update_seconds']:.1f} s | "
            f"{figures['peak_megabytes']:,.0f} MB |"
        )
    rates_of_products = ", ".join(
        f"{precision} {rate / 1e9:,.0f}"
        for precision, rate in result["products_flops_per_second"].items()
    )
    return "\n".join([*lines, *absent, f"matrix products, GFLOP/s: {rates_of_products}"])


if __name__ == "__main__":
    main()
