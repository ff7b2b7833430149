"""reports/table1.json: what it holds, and whether it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seq2sweep.paths import mismatch
from seq2sweep.table1.rows import BOTH, BY_NAME, FORWARD

SHAPE: dict[str, Any] = {
    "settings": {"kernel": int, "neighbourhood": int, "lengths": [int], "widths": [int]},
    "about": {
        "git.commit": str,
        "hardware.cpu": str,
        "hardware.cores": str,
        "date": str,
        "seconds": float,
        "cpu_share": (float, type(None)),
        "threads": int,
        "precision": str,
        "torch": str,
    },
    "measurements": [
        {
            "layer": str,
            "n": int,
            "d": int,
            "flops": int,
            "flops_counted": int,
            "parameters": int,
            "saved_bytes": int,
            **{
                what: {"seconds": float, "low_quartile": float, "high_quartile": float}
                for what in (FORWARD, BOTH)
            },
        }
    ],
    "chains": dict,
    "paths": dict,
    "exponents": dict,
}
"""Of a record, for `seq2sweep.paths.mismatch`; of each of its layers these:"""
_NUMBER = (float, type(None))
SHAPES_OF_LAYERS: dict[str, Any] = {
    "chains": dict,
    "paths": [{"n": int, "order": float, "both": _NUMBER, "causal": _NUMBER}],
    "exponents": {
        what: {axis: {"exponent": float, "low": _NUMBER, "high": _NUMBER} for axis in "nd"}
        for what in ("flops", FORWARD, BOTH)
    },
}


def of_layer(record: Mapping[str, Any], layer: str) -> dict[tuple[int, int], Mapping[str, Any]]:
    """A layer's measurements by n and d."""
    return {(m["n"], m["d"]): m for m in record["measurements"] if m["layer"] == layer}


def problem(record: Any) -> str | None:
    """What of a record is not as `seq2sweep.table1.measure` makes it, in words; None if nothing."""
    if found := mismatch(record, SHAPE):
        return found
    sizes = [(n, d) for n in record["settings"]["lengths"] for d in record["settings"]["widths"]]
    lengths: set[int] | None = None
    for layer in record["exponents"]:
        if layer not in BY_NAME:
            return f"exponents.{layer} is of no known layer"
        for part, shape in SHAPES_OF_LAYERS.items():
            if found := mismatch(record[part], {layer: shape}, part):
                return found
        if any(not isinstance(chain, int) for chain in record["chains"][layer].values()):
            return f"chains.{layer} holds what is no number"
        own = {entry["n"] for entry in record["paths"][layer]}
        lengths = lengths or own
        if not own or own != lengths:
            return f"paths.{layer} are not of the lengths of the others"
        found_sizes = of_layer(record, layer)
        if not found_sizes.keys() >= set(sizes):
            return f"measurements of {layer} are missing"
        if any(m[what]["seconds"] <= 0 for m in found_sizes.values() for what in (FORWARD, BOTH)):
            return f"measurements of {layer} hold a time that is not above 0"
    return None if sizes and record["exponents"] else "nothing was measured"
