"""Do the paper's findings hold here? From the figures of a sweep alone.

Section 6.2 and the rows of Table 3 make six claims. Each is about the sign of a difference to the
base row, but the last, which is that there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from seq2sweep.report.aggregate import Variant
from seq2sweep.report.number_format import p_value, signed
from seq2sweep.report.paper import kind_of

Verdict = Literal["holds", "does not hold", "can not be told"]

NEARLY = 0.5
"""BLEU: results are nearly identical that differ by less. The paper's rows are 0.1 apart."""

SHOWN = 0.05
"""BLEU: a smaller difference is 0.0 in the table, and no evidence of anything."""
LEARNED = 1.0
"""BLEU of a base row that has learned to translate at all."""


@dataclass(frozen=True)
class Finding:
    """claim: of the paper; evidence: the differences that the verdict is made of."""

    claim: str
    verdict: Verdict
    evidence: str


def findings(variants: Sequence[Variant]) -> list[Finding]:
    """The claims that this sweep has variants for; `variants` are those of `aggregate`."""
    base = variants[0]
    groups = [(v, kind_of(v, base)) for v in variants[1:] if v.state != "refused"]

    def of(kind: str, setting: str, fits: Callable[[Any, Any], bool]) -> list[Variant]:
        return [
            variant
            for variant, found in groups
            if found == (kind, setting) and fits(variant.settings[setting], base.settings[setting])
        ]

    sizes = [
        variant
        for variant, found in groups
        if (found and found[0] == "C") or variant.group == "big"
    ]
    smaller = [v for v in sizes if (v.mean("parameters") or 0) < (base.mean("parameters") or 0)]
    bigger = [v for v in sizes if v not in smaller]
    asked = [
        ("a single head is worse", of("A", "heads", lambda own, _: own == 1), []),
        # The paper's own loses nothing at twice the heads, and does at four times.
        ("too many heads are worse", of("A", "heads", lambda own, base: own >= 4 * base), []),
        ("a small d_k is worse", of("B", "d_k", lambda own, base: own < base), []),
        ("bigger models are better", smaller, bigger),
        ("dropout helps", of("D", "dropout", lambda own, _: own == 0), []),
    ]
    result = [_sign(claim, worse, better) for claim, worse, better in asked if worse or better]
    learned = of("E", "positions", lambda own, _: own == "learned")
    if learned:
        result.append(_equal("learned positions are as good as sinusoids", learned))
    if (base.mean("bleu") or 0) < LEARNED:
        return [Finding(f.claim, "can not be told", f.evidence) for f in result]
    return result


def notes() -> list[str]:
    """By what rule the verdicts are given."""
    return [
        "Holds: at least half of the rows named differ from the base row as the paper says, by "
        "more than chance explains, and more of them than differ the other way. Does not hold: as "
        "many or more differ the other way. Else it can not be told; nor can it where the base "
        f"row's BLEU is below {LEARNED:.0f}.",
        "Learned positions are as good where the interval of their difference lies within "
        f"{NEARLY} BLEU of 0, and are not where a difference is seen that may be larger.",
    ]


def _sign(claim: str, worse: Sequence[Variant], better: Sequence[Variant]) -> Finding:
    """Of variants that the paper says are worse, or better, than the base."""
    agree = oppose = 0
    for variants, sign in ((worse, -1), (better, 1)):
        for variant in variants:
            against = variant.against
            if against is not None and against.seen and abs(against.difference.mean) >= SHOWN:
                agree += against.difference.mean * sign > 0
                oppose += against.difference.mean * sign < 0
    verdict: Verdict = "can not be told"
    if agree > oppose and 2 * agree >= len(worse) + len(better):
        verdict = "holds"
    elif oppose and oppose >= agree:
        verdict = "does not hold"
    return Finding(claim, verdict, _evidence([*worse, *better]))


def _equal(claim: str, variants: Sequence[Variant]) -> Finding:
    against = variants[0].against
    verdict: Verdict = "can not be told"
    if against is not None and against.interval is not None:
        low, high = against.interval
        if low > -NEARLY and high < NEARLY:
            verdict = "holds"
        elif against.seen:
            verdict = "does not hold"
    return Finding(claim, verdict, _evidence(variants))


def _evidence(variants: Sequence[Variant]) -> str:
    return "; ".join(f"{variant.label} {_difference(variant)}" for variant in variants)


def _difference(variant: Variant) -> str:
    """`−1.5 BLEU (p 0.002, 95 % −2.1 to −0.9)`."""
    against = variant.against
    if against is None:
        return f"{variant.status}, not compared"
    tests = []
    if against.p is not None:
        tests.append(f"p {p_value(against.p)}")
    if against.interval is not None:
        low, high = against.interval
        tests.append(f"95 % {signed(low, 1)} to {signed(high, 1)}")
    shown = signed(against.difference.mean, 1) + " BLEU"
    return shown + (f" ({', '.join(tests)})" if tests else "")
