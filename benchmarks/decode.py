"""Decoding speed against other toolkits: `python -m benchmarks.decode`.

The same sentences with beam 4 in batches of 64, the same model (4 + 4 layers, d_model 256) with the
same weights, on as many threads: this project's search, CTranslate2 and Hugging Face's
MarianMTModel; the last two where they are installed (benchmarks/requirements.txt). First with
lengths that are set: each translation has exactly --length pieces and then the end. Then, if the
model was trained for some --updates (a quarter of an hour for 700 on two cores), at natural length:
what a search by log P / length ** 0.6 finds. Each contender in a process of its own, in turns.
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
from benchmarks.sizes import SIZES, SMOOTHING
from seq2sweep import console
from seq2sweep.parallel import available_cpus

CONTENDERS = {
    "ours": "torch", "ctranslate2": "ctranslate2", "marian": "transformers",
    "marian bf16": "transformers",
}  # fmt: skip
"""And the package that each needs. In float32 where nothing is said."""
BEAM = 4
AT_ONCE = 64
ALPHA = 0.6
EXTRA = 50
"""Pieces that a translation may have more than its source, at natural length."""
WARM_UP = 400
SIZE = SIZES["4x256"]

Decode = Callable[[list[list[int]]], list[list[int]]]


def main() -> None:
    """Measure, print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--text", type=Path, nargs=2, metavar=("SOURCE", "TARGET"))
    parser.add_argument(
        "--learn-from", type=Path, nargs=2, metavar=("SOURCE", "TARGET"),
        help="text for the vocabulary and the training; without: --text",
    )  # fmt: skip
    parser.add_argument("--updates", type=int, default=0, help="train so long; 0: untrained")
    parser.add_argument("--model", type=Path, help="a folder to keep what was learned in")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--length", type=int, default=30, help="pieces of translations, if set")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender")
    parser.add_argument("--threads", type=int, default=available_cpus())
    parser.add_argument("--json", type=Path, help="where to write all figures")
    parser.add_argument("--turn", nargs=2, metavar=("NAME", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(turn(options)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.model or Path(temporary)
        make_model(folder, options)
        lengths = [options.length, 0] if options.updates else [options.length]
        found = [measure(folder, length, options) for length in lengths]
    titles = [f"{length} pieces" if length else "natural length" for length in lengths]
    if options.json:
        figures = {
            title: {
                name: [{key: turn[key] for key in turn if key != "said"} for turn in turns]
                for name, turns in each.items()
            }
            for title, each in zip(titles, found, strict=True)
        }
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    for title, each in zip(titles, found, strict=True):
        print(f"\n{title}\n{table(each)}")


def make_model(folder: Path, options: argparse.Namespace) -> None:
    """Vocabulary, text, and weights: for ourselves and for CTranslate2; what is there stays."""
    from safetensors.torch import save_model

    from seq2sweep.decode import ctranslate

    if (folder / "weights.safetensors").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    text = corpus.Texts(*options.text) if options.text else None
    learned = corpus.Texts(*options.learn_from) if options.learn_from else text
    corpus.make(folder, learned, options.sentences, SIZE.pieces)
    corpus.make(folder, text, options.sentences, SIZE.pieces, "test")
    model = our_model(SIZE.pieces)
    if options.updates:
        learn(model, folder, options.updates)
    if importlib.util.find_spec("ctranslate2") is not None:
        ctranslate.export(model, folder / "exported")
    save_model(model, str(folder / "weights.safetensors"))


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
    model.eval()


def measure(
    folder: Path, length: int, options: argparse.Namespace
) -> dict[str, list[dict[str, Any]]]:
    """The turns of each contender. length: pieces of every translation; 0: natural."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
    turns = [name for _ in range(options.rounds) for name in CONTENDERS]
    for name in console.progress(turns, "decode", "turns", len(turns)):
        found[name].append(in_a_process_of_its_own(name, folder, length, options))
    return found


def in_a_process_of_its_own(
    name: str, folder: Path, length: int, options: argparse.Namespace
) -> dict[str, Any]:
    """What `turn` gives."""
    if importlib.util.find_spec(CONTENDERS[name]) is None:
        return {"absent": f"{CONTENDERS[name]} is not installed"}
    command = [
        *(sys.executable, "-m", "benchmarks.decode", "--turn", name, str(folder)),
        *("--sentences", str(options.sentences), "--length", str(length)),
        *("--threads", str(options.threads)),
    ]
    return contenders.told_by(command)


def our_model(size: int) -> Any:
    """The model that every contender has, by sizes."""
    import torch

    from seq2sweep.model.architecture.transformer import Transformer

    torch.manual_seed(1)
    return Transformer(SIZE.config(), size).eval()


def saved_model(folder: Path, size: int) -> Any:
    """With the weights that all have."""
    from safetensors.torch import load_model

    model = our_model(size)
    load_model(model, str(folder / "weights.safetensors"))
    return model


def turn(options: argparse.Namespace) -> dict[str, Any]:
    """Seconds, and what was found."""
    import torch

    from seq2sweep.data.bitext import Bitext

    name, folder = options.turn[0], Path(options.turn[1])
    torch.set_num_threads(options.threads)
    side = Bitext.open(folder, "test").sides["source"]
    count = min(options.sentences, len(side.offsets) - 1)
    sentences = [
        np.asarray(side.tokens[side.offsets[i] : side.offsets[i + 1]]).tolist()
        for i in range(count)
    ]
    make: dict[str, Callable[..., Decode]] = {
        "ours": ours, "ctranslate2": by_ctranslate2, "marian": marian, "marian bf16": marian_bf16
    }  # fmt: skip
    decode = make[name](folder, options)
    decode(sentences[:AT_ONCE])  # what is loaded or chosen at the first call
    started = time.perf_counter()
    said = decode(sentences)
    seconds = time.perf_counter() - started
    if options.length:
        assert {len(pieces) for pieces in said} == {options.length}
    pieces = sum(map(len, said))
    return {"seconds": seconds, "sentences": count, "pieces": pieces, "said": said}


def batches(sentences: list[list[int]]) -> list[list[int]]:
    """Indices, AT_ONCE of similar length together."""
    order = sorted(range(len(sentences)), key=lambda i: -len(sentences[i]))
    return [order[i : i + AT_ONCE] for i in range(0, len(order), AT_ONCE)]


def ours(folder: Path, options: argparse.Namespace) -> Decode:
    """The core's search, of a model that says the end when it is told to."""
    import torch

    from seq2sweep.data.vocabulary import EOS
    from seq2sweep.decode.beam import _pad, search
    from seq2sweep.model.products import laid_out
    from seq2sweep.train.allocator import keep_memory

    keep_memory()
    model = saved_model(folder, SIZE.pieces)
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

    if options.length:
        model.step = until_length

    @laid_out()  # as in `beam.translate`
    def decode(sentences: list[list[int]]) -> list[list[int]]:
        said: list[list[int]] = [[] for _ in sentences]
        for group in batches(sentences):
            found = search(
                model, _pad([sentences[i] for i in group]), beam=BEAM, penalty="power",
                alpha=0.0 if options.length else ALPHA, max_extra_tokens=options.length or EXTRA,
            )  # fmt: skip
            for i, hypotheses in zip(group, found, strict=True):
                pieces = hypotheses[0].pieces
                said[i] = pieces[:-1] if pieces[-1] == EOS else pieces
        return said

    return decode


def by_ctranslate2(folder: Path, options: argparse.Namespace) -> Decode:
    """The same weights, exported."""
    from seq2sweep import presets
    from seq2sweep.decode import ctranslate

    changes = {
        "beam": BEAM, "length_penalty": "power", "alpha": 0.0 if options.length else ALPHA,
        "max_extra_tokens": EXTRA,
    }  # fmt: skip
    evaluate = presets.load("phrasebook").config.evaluate
    config = type(evaluate)(**(vars(evaluate) | changes))

    search = ctranslate.Search(
        folder / "exported", config, options.threads, options.length, options.length or None
    )

    def decode(sentences: list[list[int]]) -> list[list[int]]:
        said: list[list[int]] = [[] for _ in sentences]
        for group in batches(sentences):
            found = search([sentences[i] for i in group], n_best=1)
            for i, hypotheses in zip(group, found, strict=True):
                said[i] = hypotheses[0].pieces
        return said

    return decode


def marian(folder: Path, options: argparse.Namespace, bf16: bool = False) -> Decode:
    """Hugging Face's `generate`."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    from benchmarks.toolkits import marian_config
    from seq2sweep.data.vocabulary import BOS, EOS, PAD
    from seq2sweep.decode.beam import _pad
    from seq2sweep.export import to_marian

    model = MarianMTModel(marian_config(MarianConfig, SIZE)).eval()
    to_marian.fill(model, saved_model(folder, SIZE.pieces))
    if bf16:
        model = model.to(torch.bfloat16)

    @torch.inference_mode()
    def decode(sentences: list[list[int]]) -> list[list[int]]:
        said: list[list[int]] = [[] for _ in sentences]
        for group in batches(sentences):
            source = _pad([sentences[i] for i in group])
            length = options.length or source.size(1) - 1 + EXTRA
            found = model.generate(
                input_ids=source, attention_mask=source.ne(PAD), num_beams=BEAM, do_sample=False,
                min_new_tokens=options.length or None, max_new_tokens=length,
                length_penalty=0.0 if options.length else ALPHA, suppress_tokens=[PAD, BOS],
            )  # fmt: skip
            for i, pieces in zip(group, found.tolist(), strict=True):
                said[i] = [piece for piece in pieces[1:] if piece not in (PAD, EOS)]
        return said

    return decode


def marian_bf16(folder: Path, options: argparse.Namespace) -> Decode:
    """With weights and products in bf16, as its users have it faster."""
    return marian(folder, options, bf16=True)


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Sentences a second, and how many translations are ours to the piece."""
    lines = [
        "| decoded by | sentences/s | least to most | pieces/s | the same as ours |",
        "|---|---|---|---|---|",
    ]
    ours_said = found["ours"][0]["said"]
    for name, turns in found.items():
        absent = next((each["absent"] for each in turns if "absent" in each), None)
        if absent is not None:
            lines.append(f"absent: {name} ({absent})")
            continue
        rates = [each["sentences"] / each["seconds"] for each in turns]
        pieces = statistics.median(each["pieces"] / each["seconds"] for each in turns)
        same = sum(a == b for a, b in zip(ours_said, turns[0]["said"], strict=True))
        lines.append(
            f"| {name} | {statistics.median(rates):,.1f} | {min(rates):,.1f} to {max(rates):,.1f} "
            f"| {pieces:,.0f} | {same} of {len(ours_said)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
