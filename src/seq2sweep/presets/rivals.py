"""Table 2 of the paper: BLEU on newstest2014 and what each training cost, as printed.

A cost is days x devices x what a device sustains (the footnote of section 6.1). Days and devices
are those of each model's own paper; the products round to what is printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seq2sweep.errors import UserError, did_you_mean

PAIRS = ("en-de", "en-fr")
DAY = 86_400
SUSTAINED = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}
"""FLOP/s, as `hardware.PAPER_SUSTAINED_FLOPS`, which loads torch; a page needs none."""


@dataclass(frozen=True)
class Cost:
    """FLOPs of a training as printed, and what they are made of, where that is known.

    models: of an ensemble, of which the paper multiplies one model's printed figure.
    """

    printed: float
    days: float
    devices: int
    device: str
    models: int = 1

    @property
    def computed(self) -> float:
        """days x seconds x devices x FLOP/s, of all models."""
        one = self.days * DAY * self.devices * SUSTAINED[self.device]
        return one if self.models == 1 else self.models * float(f"{one:.1e}")


@dataclass(frozen=True)
class Row:
    """One model. architecture: what it is as `model.architecture`, None of what is not here;
    bleu, cost: by language pair, where the table prints them."""

    name: str
    architecture: str | None
    bleu: dict[str, float]
    cost: dict[str, Cost]


ROWS = (
    Row("ByteNet", "bytenet", {"en-de": 23.75}, {}),
    Row("Deep-Att + PosUnk", None, {"en-fr": 39.2}, {"en-fr": Cost(1.0e20, 10, 32, "K40")}),
    Row(
        "GNMT + RL",
        "recurrent",
        {"en-de": 24.6, "en-fr": 39.92},
        {"en-de": Cost(2.3e19, 1, 96, "K80"), "en-fr": Cost(1.4e20, 6, 96, "K80")},
    ),
    Row(
        "ConvS2S",
        "convolutional",
        {"en-de": 25.16, "en-fr": 40.46},
        {"en-de": Cost(9.6e18, 18.5, 1, "M40"), "en-fr": Cost(1.5e20, 37, 8, "M40")},
    ),
    Row(
        "MoE",
        None,
        {"en-de": 26.03, "en-fr": 40.56},
        {"en-de": Cost(2.0e19, 1, 64, "K40"), "en-fr": Cost(1.2e20, 6, 64, "K40")},
    ),
    Row(
        "Deep-Att + PosUnk Ensemble",
        None,
        {"en-fr": 40.4},
        {"en-fr": Cost(8.0e20, 10, 32, "K40", 8)},
    ),
    Row(
        "GNMT + RL Ensemble",
        None,
        {"en-de": 26.30, "en-fr": 41.16},
        {"en-de": Cost(1.8e20, 1, 96, "K80", 8), "en-fr": Cost(1.1e21, 6, 96, "K80", 8)},
    ),
    Row(
        "ConvS2S Ensemble",
        None,
        {"en-de": 26.36, "en-fr": 41.29},
        {"en-de": Cost(7.7e19, 18.5, 1, "M40", 8), "en-fr": Cost(1.2e21, 37, 8, "M40", 8)},
    ),
    Row(
        "Transformer (base model)",
        "transformer",
        {"en-de": 27.3, "en-fr": 38.1},
        dict.fromkeys(PAIRS, Cost(3.3e18, 0.5, 8, "P100")),
    ),
    Row(
        "Transformer (big)",
        None,
        {"en-de": 28.4, "en-fr": 41.8},
        dict.fromkeys(PAIRS, Cost(2.3e19, 3.5, 8, "P100")),
    ),
)
"""In the paper's order; its costs of the Transformer stand for both language pairs."""

BASE = "base"
RIVALS = tuple(row.architecture for row in ROWS if row.architecture not in (None, "transformer"))
"""What `sweep.rows` may name beside base, in the paper's order."""


def select(names: Sequence[str]) -> list[str]:
    """The named rivals, or of `all` each, in the paper's order.

    Raises UserError for a name that is none of these, with the nearest that is.
    """
    known = ["all", BASE, *RIVALS]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, cutoff=0.4) or f"; known: {', '.join(known)}"
            raise UserError(f"params.yaml: sweep.rows: Table 2 has no row {name}{hint}")
    return [name for name in RIVALS if {"all", name} & set(names)]
