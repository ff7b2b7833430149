"""The page of attention maps: all that it shows is in it, and it runs from a file, offline.

Weights are kept as bytes, in steps of 1/255. What joins tokens to words is in attention.js too, as
on the page a click decides: weights on the tokens of a word are added up, those of its rows
averaged, so that rows still sum to 1.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from seq2sweep.evaluate.attention_maps import Choice, Maps
from seq2sweep.report.number_format import MISSING, fixed, percent, signed
from seq2sweep.report.page import environment

COLUMNS = {
    "entropy": "entropy",
    "distance": "distance",
    "previous": "previous",
    "same": "same",
    "next": "next",
    "ends": "ends",
    "punctuation": "punctuation",
    "diagonal": "diagonal",
    "loss_without": "loss without",
}
"""Of the table of heads: what attention_maps calls a number, and its heading."""
SHARES = ("previous", "same", "next", "ends", "punctuation", "diagonal")
SIDES = ("source", "read", "predicted")
KINDS = {
    "encoder.{}.attention": "Encoder",
    "decoder.{}.attention": "Decoder",
    "decoder.{}.memory_attention": "Decoder to source",
}


def render(
    maps: Sequence[Maps],
    numbers: Sequence[Mapping[str, Any]],
    about: str,
    start: Choice | None = None,
) -> str:
    """The page. numbers: of each head, from `attention_maps.numbers`; about: of which model; start:
    what is shown first, the row by word."""
    counts = {layer: len(weights) for layer, weights in maps[0].weights.items()}
    data = {
        "pairs": [_pair(one) for one in maps],
        "layers": [
            {"name": layer, "kind": _kind(layer), "number": _number(layer), "heads": count}
            for layer, count in counts.items()
        ],
        "start": start._asdict() if start else {},
    }
    # Inside <script> only this character could end it.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        environment()
        .get_template("attention/attention.html")
        .render(
            about=about,
            data=Markup(text),  # JSON without a "<"
            columns=COLUMNS.values(),
            rows=[_row(entry) for entry in numbers],
        )
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


def layer_name(layer: str) -> str:
    """What people read: `Encoder, layer 5`; layers count from 1, as in the paper."""
    return f"{_kind(layer)}, layer {_number(layer)}"


def _kind(layer: str) -> str:
    return KINDS[layer.replace(f".{_number(layer) - 1}.", ".{}.")]


def _number(layer: str) -> int:
    return int(layer.split(".")[1]) + 1


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


def _row(entry: Mapping[str, Any]) -> dict[str, Any]:
    cells = []
    for name in COLUMNS:
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
