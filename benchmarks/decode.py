"""Decoding speed against other toolkits: `python -m benchmarks.decode`.

The same sentences with beam 4, the same model (4 + 4 layers, d_model 256) with the same weights, on
as many threads: this project's search by each of its stopping rules, CTranslate2, Hugging Face's
MarianMTModel, eole and Sockeye, those that are installed (benchmarks/requirements.txt), each with
the batch size that is best for it. With --lengths that are set each translation has exactly so many
pieces; at natural length, for a model that has learned for some --updates (a quarter of an hour for
700 on two cores), it is what a search by log P / length ** 0.6 finds. In turns, each contender in a
process of its own; `times` are ours against an opponent: the median of the ratios.
Prints JSON; `python -m benchmarks.tables` makes tables of it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import corpus
from benchmarks.processes import Turns, absent, in_turns, times
from benchmarks.sizes import MADE_UP_PAIRS, SIZES, SMOOTHING
from seq2sweep import console
from seq2sweep.parallel import available_cpus

WARM_UP = 400
SIZE = SIZES["4x256"]
STOPPING = {
    "exact": "until no open hypothesis can win any more",
    "own_length": "until the best open one would not win if it ended now",
    "ctranslate2": "when four hypotheses have ended",
    "marian": "when four hypotheses have ended",
    "sockeye": "when all four hypotheses have ended",
}
"""When a contender leaves a sentence at natural length."""
NATURAL = "natural length"
AT_SET_LENGTHS = "cannot have our weights: its layers begin with the norm"
"""Why eole is absent at natural length."""


def main() -> None:
    """Measure, print JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--text", type=Path, nargs=2, metavar=("SOURCE", "TARGET"))
    parser.add_argument(
        "--learn-from", type=Path, nargs=2, metavar=("SOURCE", "TARGET"),
        help="text for the vocabulary and the training; without: --text",
    )  # fmt: skip
    parser.add_argument("--updates", type=int, default=0, help="train so long")
    parser.add_argument("--model", type=Path, help="a folder to keep what was learned in")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument(
        "--lengths", nargs="+", type=int, default=[30],
        help="pieces of translations; 0: natural, of a model that has learned",
    )  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender")
    parser.add_argument("--threads", type=int, default=available_cpus())
    parser.add_argument("--only", nargs="+", metavar="NAME", help="against these alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.model or Path(temporary)
        make_model(folder, options)
        print(json.dumps({
            "machine": f"{platform.machine()}, {options.threads} of {available_cpus()} CPUs",
            "text": "of files" if options.text else "of the phrasebook, put together anew",
            **{f"{length} pieces" if length else NATURAL:
               measure(folder, length, options) for length in options.lengths},
        }, indent=2))  # fmt: skip


def make_model(folder: Path, options: argparse.Namespace) -> None:
    """Vocabulary, text, and weights: for ourselves and for CTranslate2; what is there stays."""
    import torch
    from safetensors.torch import save_model

    from seq2sweep.decode import ctranslate
    from seq2sweep.model.architecture.transformer import Transformer

    if (folder / "weights.safetensors").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    text = corpus.Texts(*options.text) if options.text else None
    learned = corpus.Texts(*options.learn_from) if options.learn_from else text
    corpus.make(folder, learned, MADE_UP_PAIRS, SIZE.pieces)
    corpus.make(folder, text, options.sentences, SIZE.pieces, "test")
    torch.manual_seed(1)
    model = Transformer(SIZE.config(), SIZE.vocabulary)
    if options.updates:
        learn(model, folder, options.updates)
    if importlib.util.find_spec("ctranslate2") is not None:
        ctranslate.export(model.eval(), folder / "exported")
    save_model(model.eval(), str(folder / "weights.safetensors"))


def learn(model: Any, folder: Path, updates: int) -> None:
    """The core's own updates, of 4096 target tokens."""
    import torch

    from seq2sweep.data.batching import collate
    from seq2sweep.train import allocator, optimizers, step

    allocator.keep_memory()
    torch.set_num_threads(available_cpus())
    device = torch.device("cpu")
    data, groups = corpus.batches(folder, 4096)
    optimizer = optimizers.make_adam(model.train())
    for i in console.progress(range(updates), "train", "updates", updates):
        batch = collate(data, groups[i % len(groups)])
        tokens = int(batch.target_out.ne(0).sum())
        step.accumulate(
            model, [batch], update_target_tokens=tokens, smoothing=SMOOTHING,
            world_size=1, device=device,
            precision=step.choose_precision("auto", device, SIZE.d_model),
        )  # fmt: skip
        rate = optimizers.learning_rate(i + 1, SIZE.d_model, WARM_UP)
        step.apply(model, optimizer, rate)


def measure(folder: Path, length: int, options: argparse.Namespace) -> dict[str, Any]:
    """All contenders. length: pieces of every translation; 0: natural."""
    from benchmarks.decoders import DECODERS

    own = [name for name in DECODERS if name.startswith("ours")]
    others = options.only or [name for name in DECODERS if name not in own]
    with (folder / "test.source.txt").open("rb") as lines:
        sentences = min(options.sentences, sum(1 for _ in lines))
    arguments = (
        *(str(folder), "--length", str(length), "--threads", str(options.threads)),
        *("--sentences", str(sentences)),
    )
    asked = [*own, *(name for name in others if length or not name.startswith("eole"))]
    commands = {name: ("-m", "benchmarks.decoders", name, *arguments) for name in asked}
    numbers = list(range(sentences))
    title = f"{length} pieces" if length else NATURAL
    found = in_turns(commands, [numbers] * options.rounds, [0], title)
    ours = {name: found[name] for name in own}
    ways = {name: against(ours, name, found[name]) for name in others if name in found}
    ways |= {name: {"absent": AT_SET_LENGTHS} for name in others if name not in found}
    return {
        "sentences": sentences,
        "ours": {name: against(ours, name, found[name]) for name in own},
        "others": ways,
        "times_of_best": times_of_best(own, ways),
    }


def against(ours: dict[str, Turns], name: str, theirs: Turns) -> dict[str, Any]:
    """A contender, and how many times as fast we are by each of our rules."""
    why = absent(*ours.values(), theirs)
    if why:
        return {"absent": why}
    rates = [len(turn["said"]) / turn["seconds"] for turn in theirs]
    exact = next(iter(ours.values()))
    return {
        "sentences_per_second": statistics.median(rates),
        "of_each_turn": rates,
        "pieces": sum(map(len, theirs[0]["said"])),
        "batch": str(theirs[0]["batch"]),
        "same": sum(a == b for a, b in zip(exact[0]["said"], theirs[0]["said"], strict=True)),
        "stopping": STOPPING.get(name.removeprefix("ours ").removesuffix("_bf16"), ""),
        "against": {rule: times(turns, theirs) for rule, turns in ours.items()},
    }


def times_of_best(rules: list[str], ways: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Of our search by each rule against the best opponent; nothing where there is none."""
    there = [way["against"] for way in ways.values() if "absent" not in way]
    return {rule: min(against[rule]["times"] for against in there) for rule in rules if there}


if __name__ == "__main__":
    main()
