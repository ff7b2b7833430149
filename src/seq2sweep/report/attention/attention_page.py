"""The page of attention maps: all that it shows is in it, and it runs from a file, offline.

Weights are kept as bytes, in steps of 1/255. What joins tokens to words is in attention.js too, as
on the page a click decides: weights on the tokens of a word are added up, those of its rows
averaged, so that rows still sum to 1.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from seq2sweep.evaluate.attention.attention_maps import KINDS, Choice, Maps, place
from seq2sweep.evaluate.attention.head_numbers import NUMBERS
from seq2sweep.report import templates
from seq2sweep.report.markdown import as_csv
from seq2sweep.report.number_format import MISSING, fixed, percent, signed

MOST_BYTES = 1_000_000
"""Of the page of a training, which a browser and a mail still take."""
TITLES = dict(zip(KINDS, ("Encoder", "Decoder", "Decoder to source"), strict=True))
SHARES = {"previous", "same", "next", "ends", "punctuation", "diagonal", "aer"}
"""Numbers that are shares of one."""
SIDES = ("source", "read", "predicted")


def render(
    maps: Sequence[Maps],
    numbers: Sequence[Mapping[str, Any]],
    about: str,
    start: Choice | None = None,
    *,
    words: bool = True,
) -> str:
    """The page; where no sentence's maps fit, it has the numbers alone, and says why.

    numbers: of each head, from `head_numbers.measure`; about: of which model; start, words: what is
    shown first, and whether by word, as its row is, or by token.
    """
    counts = Counter(entry["layer"] for entry in numbers)
    data = {
        "pairs": [_pair(one) for one in maps],
        "layers": [
            {"name": layer, "kind": TITLES[kind], "number": number + 1, "heads": counts[layer]}
            for layer in counts
            for kind, number in (place(layer),)
        ],
        "start": {"joined": words, **(start._asdict() if start else {})},
    }
    # Inside <script> only this character could end it.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return templates.render(
        "attention/attention.html",
        about=about,
        sentences=len(maps),
        data=Markup(text),  # JSON without a "<"
        columns=[name.replace("_", " ") for name in _columns(numbers)],
        rows=[_row(entry, _columns(numbers)) for entry in numbers],
    )


def as_json(maps: Sequence[Maps], numbers: Sequence[Mapping[str, Any]]) -> str:
    """All of it: `pairs` with `source`, `read` and `predicted` tokens and `weights` [heads, rows,
    keys] by layer; and `heads`."""
    pairs = [
        {
            **{side: getattr(one, side) for side in SIDES},
            "weights": {layer: weights.tolist() for layer, weights in one.weights.items()},
        }
        for one in maps
    ]
    return json.dumps({"pairs": pairs, "heads": [*numbers]}, ensure_ascii=False) + "\n"


def heads_as_csv(numbers: Sequence[dict[str, Any]]) -> str:
    """A line a head, layers and heads from 1, all numbers as they are."""
    lines = [
        entry | {"layer": layer_name(entry["layer"]).replace(",", ""), "head": entry["head"] + 1}
        for entry in numbers
    ]
    return as_csv(lines, lines[0] if lines else ("layer", "head"))


def weight_bytes(layers: Iterable[str], source: int, target: int) -> int:
    """What the weights of a sentence take on the page: of heads by their layers' names, of so many
    tokens."""
    cells = {"encoder": source**2, "decoder": target**2, "memory": source * target}
    return sum(4 * cells[place(layer)[0]] // 3 for layer in layers)


def layer_name(layer: str) -> str:
    """What people read: `Encoder, layer 5`; layers count from 1, as in the paper."""
    kind, number = place(layer)
    return f"{TITLES[kind]}, layer {number + 1}"


def _columns(numbers: Sequence[Mapping[str, Any]]) -> list[str]:
    """The error rate is there where there is a gold alignment."""
    aligned = any(entry.get("aer") is not None for entry in numbers)
    return [*NUMBERS, "loss_without", *["aer"] * aligned]


def _pair(one: Maps) -> dict[str, Any]:
    sides = {side: getattr(one, side) for side in SIDES}
    return {
        **{
            side: {"tokens": tokens, "words": one.words(tokens), "texts": one.texts(tokens)}
            for side, tokens in sides.items()
        },
        "weights": {layer: _bytes(weights) for layer, weights in one.weights.items()},
    }


def _bytes(weights: Any) -> str:
    return base64.b64encode(np.rint(weights * 255).astype(np.uint8).tobytes()).decode()


def _row(entry: Mapping[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    cells = []
    for name in columns:
        value = entry.get(name)
        if value is None:
            cells.append(MISSING)
        elif name in SHARES:
            cells.append(percent(value))
        else:
            cells.append(signed(value, 3) if name == "loss_without" else fixed(value, 2))
    positional = f"{entry['offset']:+d}" if entry["positional"] else ""
    return {
        "layer": layer_name(entry["layer"]),
        "head": entry["head"] + 1,
        "cells": cells,
        "positional": positional,
    }
