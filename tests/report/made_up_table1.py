"""A record of Table 1 that nobody measured, for the tests of the report."""

from __future__ import annotations

from typing import Any

from seq2sweep.table1.exponents import fit
from seq2sweep.table1.rows import ROWS

LENGTHS, WIDTHS, K, R = (32, 64, 128, 256, 512), (64, 128, 256), 3, 31
RATE = {"recurrent": 1e10, "lstm": 4e10}
"""Operations a second; 2e10 of all others. So the first of a pair crosses the second at twice n
by operations, of attention against Elman, and at half of it, of the whole layer against an LSTM."""


def record(*layers: str) -> dict[str, Any]:
    """As `measure` makes it, of layers whose time is their operations at one rate: of all, where
    none is named."""
    rows = [row for row in ROWS if row.name in layers or not layers]
    measurements = []
    for row in rows:
        for n in LENGTHS:
            for d in WIDTHS:
                flops = row.flops(n, d, K, R)
                seconds = flops / RATE.get(row.name, 2e10)
                times = {"low_quartile": 0.9 * seconds, "high_quartile": 1.2 * seconds}
                measurements.append(
                    {
                        "layer": row.name,
                        "n": n,
                        "d": d,
                        "flops": flops,
                        "flops_counted": flops,
                        "parameters": row.parameters(n, d, K, R),
                        "saved_bytes": 10 * n * d,
                        "forward": {"seconds": seconds, **times},
                        "forward_backward": {"seconds": 3 * seconds, **times},
                    }
                )
    exponents: dict[str, Any] = {}
    for row in rows:
        own = {(m["n"], m["d"]): m for m in measurements if m["layer"] == row.name}
        exponents[row.name] = {
            "flops": fit({size: m["flops"] for size, m in own.items()}),
            "forward": fit({size: m["forward"]["seconds"] for size, m in own.items()}),
            "forward_backward": fit({size: m["flops"] ** 0.5 for size, m in own.items()}),
        }
    return {
        "settings": {
            "kernel": K,
            "neighbourhood": R,
            "lengths": list(LENGTHS),
            "widths": list(WIDTHS),
        },
        "about": {
            "git.commit": "0123456789",
            "hardware.cpu": "a <processor>",
            "hardware.cores": "2",
            "date": "2026-11-24 10:00 UTC",
            "seconds": 75.2,
            "cpu_share": 0.98,
            "threads": 1,
            "precision": "float32",
            "torch": "2.13.0",
        },
        "measurements": measurements,
        "chains": {row.name: {"8": 8 if "n" in row.sequential else 5, "16": 5} for row in rows}
        | {row.name: {"8": 8, "16": 16} for row in rows if row.name in ("recurrent", "lstm")},
        "paths": {
            row.name: [
                {
                    "n": n,
                    "order": row.order(n, K, R),
                    "both": row.path_both(n, K, R),
                    "causal": row.path_causal(n, K, R),
                    "both_by_jacobian": row.path_both(n, K, R),
                    "causal_by_jacobian": row.path_causal(n, K, R),
                }
                for n in (8, 16, 32, 512)
            ]
            for row in rows
        },
        "exponents": exponents,
    }
