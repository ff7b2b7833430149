"""Decoding speed against other toolkits: `python -m benchmarks.decode`.

The same sentences with beam 4 in batches of 64, the same model (4 + 4 layers, d_model 256), on as
many threads: this project's search, CTranslate2 with the same weights, exported, and Hugging Face's
MarianMTModel with weights of its own; the last two where they are installed
(benchmarks/requirements.txt). The model has learned nothing, so lengths are set: each translation
has exactly --length pieces and then the end. Each contender in a process of its own, in turns.
Prints a table.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import contenders, corpus
from seq2sweep import console
from seq2sweep.data.parallel import available_cpus

CONTENDERS = {"ours": "torch", "ctranslate2": "ctranslate2", "marian": "transformers"}
"""And the package that each needs."""
BEAM = 4
AT_ONCE = 64

Decode = Callable[[list[list[int]]], list[list[int]]]


def main() -> None:
    """Measure, print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--text", type=Path, nargs=2, metavar=("SOURCE", "TARGET"))
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--pieces", type=int, default=8000, help="size of the vocabulary")
    parser.add_argument("--length", type=int, default=30, help="pieces of every translation")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender")
    parser.add_argument("--threads", type=int, default=available_cpus())
    parser.add_argument("--turn", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(turn(options)))
        return
    with tempfile.TemporaryDirectory() as folder:
        text = corpus.Texts(*options.text) if options.text else None
        corpus.make(Path(folder), text, options.sentences, options.pieces)
        save_model(Path(folder), options.pieces)
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
        turns = [name for _ in range(options.rounds) for name in CONTENDERS]
        for name in console.progress(turns, "decode", "turns", len(turns)):
            found[name].append(in_a_process_of_its_own(name, folder, options))
    print(table(found))


def in_a_process_of_its_own(name: str, folder: str, options: argparse.Namespace) -> dict[str, Any]:
    """What `turn` gives."""
    if importlib.util.find_spec(CONTENDERS[name]) is None:
        return {"absent": f"{CONTENDERS[name]} is not installed"}
    command = [
        *(sys.executable, "-m", "benchmarks.decode", "--turn", name, folder),
        *("--sentences", str(options.sentences), "--length", str(options.length)),
        *("--threads", str(options.threads), "--pieces", str(options.pieces)),
    ]
    return contenders.told_by(command)


def save_model(folder: Path, size: int) -> None:
    """Weights as they are at the start of training, for ourselves and for CTranslate2."""
    from safetensors.torch import save_model

    from seq2sweep.decode import ctranslate

    model = our_model(size)
    save_model(model, str(folder / "weights.safetensors"))
    if importlib.util.find_spec("ctranslate2") is not None:
        ctranslate.export(model, folder / "exported")


def our_model(size: int) -> Any:
    """The model that every contender has, by sizes."""
    import torch

    from seq2sweep import config as configuration
    from seq2sweep import presets
    from seq2sweep.model.transformer import Transformer

    torch.manual_seed(1)
    changes = {f"model.{key}": value for key, value in contenders.SIZES.items()}
    config = configuration.with_changes(presets.load("phrasebook").config, changes)
    return Transformer(config.model, size).eval()


def turn(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds, and a sum over what was found."""
    import torch

    from seq2sweep.data.bitext import Bitext

    name, folder = options.turn[0], Path(options.turn[1])
    torch.set_num_threads(options.threads)
    side = Bitext.open(folder, "train").sides["source"]
    count = min(options.sentences, len(side.offsets) - 1)
    sentences = [
        np.asarray(side.tokens[side.offsets[i] : side.offsets[i + 1]]).tolist()
        for i in range(count)
    ]
    make: dict[str, Callable[..., Decode]] = {
        "ours": ours, "ctranslate2": by_ctranslate2, "marian": marian
    }  # fmt: skip
    decode = make[name](folder, options)
    decode(sentences[:AT_ONCE])  # what is loaded or chosen at the first call
    started = time.perf_counter()
    said = decode(sentences)
    seconds = time.perf_counter() - started
    assert {len(pieces) for pieces in said} == {options.length}
    return {"seconds": seconds, "sentences": count, "first": said[:20]}


def batches(sentences: list[list[int]]) -> list[list[int]]:
    """Indices, AT_ONCE of similar length together."""
    order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
    return [order[i : i + AT_ONCE] for i in range(0, len(order), AT_ONCE)]


def ours(folder: Path, options: argparse.Namespace) -> Decode:
    """The core's search, of a model that says the end when it is told to."""
    import torch
    from safetensors.torch import load_model

    from seq2sweep.data.vocabulary import EOS
    from seq2sweep.decode.beam import _pad, search
    from seq2sweep.train.allocator import keep_memory

    keep_memory()
    model = our_model(options.pieces)
    load_model(model, str(folder / "weights.safetensors"))
    step = model.step

    def until_length(pieces: Any, cache: Any) -> Any:
        logits = step(pieces, cache)
        if cache.steps <= options.length:
            logits[..., EOS] = -torch.inf
        else:
            end = logits[..., EOS].clone()
            logits.fill_(-torch.inf)
            logits[..., EOS] = end
        return logits

    model.step = until_length

    def decode(sentences: list[list[int]]) -> list[list[int]]:
        said: list[list[int]] = [[] for _ in sentences]
        for group in batches(sentences):
            source = _pad([sentences[i] for i in group])
            found = search(
                model, source, beam=BEAM, alpha=0.0, max_extra_tokens=options.length, n_best=1
            )
            for i, hypotheses in zip(group, found, strict=True):
                said[i] = hypotheses[0].pieces[:-1]
        return said

    return decode


def by_ctranslate2(folder: Path, options: argparse.Namespace) -> Decode:
    """The same weights, exported."""
    from seq2sweep import presets
    from seq2sweep.decode import ctranslate

    evaluate = presets.load("phrasebook").config.evaluate
    config = type(evaluate)(**(vars(evaluate) | {"beam": BEAM, "alpha": 0.0}))

    def decode(sentences: list[list[int]]) -> list[list[int]]:
        return ctranslate.search(
            folder / "exported", sentences, config, threads=options.threads, at_once=AT_ONCE,
            shortest=options.length, longest=options.length,
        )  # fmt: skip

    return decode


def marian(folder: Path, options: argparse.Namespace) -> Decode:
    """Hugging Face's `generate`."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    from seq2sweep.decode.beam import _pad

    model = MarianMTModel(contenders.marian_config(MarianConfig, options.pieces)).eval()

    @torch.inference_mode()
    def decode(sentences: list[list[int]]) -> list[list[int]]:
        said: list[list[int]] = [[] for _ in sentences]
        for group in batches(sentences):
            source = _pad([sentences[i] for i in group])
            found = model.generate(
                input_ids=source, attention_mask=source.ne(0), num_beams=BEAM, do_sample=False,
                min_new_tokens=options.length, max_new_tokens=options.length,
            )  # fmt: skip
            for i, pieces in zip(group, found.tolist(), strict=True):
                said[i] = pieces[1:]
        return said

    return decode


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Sentences a second, and whether ours and CTranslate2 found the same."""
    lines = ["| decoded by | sentences/s | least to most |", "|---|---|---|"]
    for name, turns in found.items():
        absent = next((each["absent"] for each in turns if "absent" in each), None)
        if absent is not None:
            lines.append(f"absent: {name} ({absent})")
            continue
        rates = [each["sentences"] / each["seconds"] for each in turns]
        lines.append(
            f"| {name} | {statistics.median(rates):,.1f} | {min(rates):,.1f} to {max(rates):,.1f} |"
        )
    first = [found[name][0].get("first", []) for name in ("ours", "ctranslate2")]
    if all(first):
        same = [a == b for a, b in zip(*first, strict=True)]
        lines.append(f"the same by both: {sum(same)} of {len(same)} looked at")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
