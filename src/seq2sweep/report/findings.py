"""Do published findings hold here? From the figures of a sweep alone.

Section 6.2 and the rows of Table 3 make six claims. Each is about the sign of a difference to the
base row, but the last, which is that there is none. Section 3.2.1 compares kinds of attention at
the same d_k, and Domhan (ACL 2018) one layer in the encoder with the same in the decoder: these are
differences between two variants, neither of which need be the base row. So is the order of models
in Table 2. Section 3.5 has a hypothesis about sentences longer than those trained on.

All of that is of translation. Of parsing it is asked whether differences have the same sign, and no
more: below which F1 they do not matter is not known, and Table 2 says nothing of parsers.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from seq2sweep.config.scores import BLEU, Score
from seq2sweep.presets import rivals
from seq2sweep.report.aggregate import Against, Variant, over_same_seeds
from seq2sweep.report.number_format import MISSING, fixed, p_value, signed
from seq2sweep.report.paper import changed_settings, kind_of, lacks_steps
from seq2sweep.report.positions.length_scores import ByLength, Scores

Verdict = Literal["holds", "does not hold", "can not be told"]

NEARLY = 0.5
"""BLEU: results are nearly identical that differ by less. The paper's rows are 0.1 apart."""

SHOWN = 0.05
"""Of any score: a smaller difference is 0.0 in the table, and no evidence of anything."""
LEARNED = {"bleu": 1.0, "f1": 50.0}
"""Of a base row that has learned its task at all. A parser that knows no grammar, and puts one
bracket S around each sentence, has an F1 of 50 where gold has three brackets (S, NP, VP), and less
where it has more."""

SMALL_D_K = 16
"""At most this is a small d_k: the smallest of Table 3."""
LARGE_D_K = 64
"""At least this is a large one: that of the paper's models."""

MIXERS = ("encoder_mixer", "decoder_mixer")
ATTENTION = "section 3.2.1"
DOMHAN = "Domhan 2018 (ACL, P18-1167), no claim of the paper"
POSITIONS = "section 3.5"
EXTRAPOLATION = "section 3.5, a hypothesis"

FEWEST_SENTENCES = 30
"""Corpus BLEU of fewer says more of these sentences than of the model."""


@dataclass(frozen=True)
class Finding:
    """claim: what `source` says; evidence: the differences that the verdict is made of."""

    claim: str
    verdict: Verdict
    evidence: str
    source: str


@dataclass(frozen=True)
class _Row:
    """A difference, in `unit`, and its name; status: of what was trained, where there is none."""

    label: str
    against: Against | None
    status: str
    unit: str = BLEU.label


def findings(variants: Sequence[Variant], lengths: ByLength | None = None) -> list[Finding]:
    """The claims that this sweep has variants for; `variants` are those of `aggregate`.

    lengths: of the same sweep, None where it has no scores by length.
    """
    base = variants[0]
    result = [*_of_table3(variants), *_of_attention(variants), *_of_mixers(variants)]
    if base.score == BLEU:
        result += _of_architectures(variants)
        if lengths is not None:
            result += _of_positions(variants, lengths)
    if (base.mean_score or 0) < LEARNED[base.score.name]:
        return [dataclasses.replace(found, verdict="can not be told") for found in result]
    return result


def notes(found: Sequence[Finding], score: Score) -> list[str]:
    """By what rule the verdicts of these findings are given; score: of the sweep."""
    result = [
        "Holds: at least half of the rows named differ from the base row as published, by more "
        "than chance explains, and more than differ the other way. Does not hold: as many or more "
        "do. Else it can not be told, nor where the base row's "
        f"{score.label} is below {LEARNED[score.name]:.0f}.",
    ]
    if score == BLEU:
        result.append(
            "A row is as good where the interval of its difference lies within "
            f"{NEARLY} BLEU of 0, and is not where a difference is seen that may be larger."
        )
    else:
        result.append(
            "All of this was published of translation. Which rows are as good is not asked: it is "
            f"not known below which {score.label} a difference does not matter."
        )
    sources = {one.source for one in found}
    table2 = any(source.startswith("Table 2") for source in sources)
    if table2 or sources & {ATTENTION, DOMHAN, POSITIONS}:
        result.append(
            "Findings of other sources than Table 3 compare two variants with each other: each "
            "such difference counts as a row. Its interval is Welch's, over the seeds that both "
            "finished; one seed tells nothing, and what other sentences would have changed is not "
            "in it." + " A pair with the base row is judged as a row of Table 3." * table2
        )
    if ATTENTION in sources:
        result.append(f"A d_k is small up to {SMALL_D_K}, and large from {LARGE_D_K} on.")
    if POSITIONS in sources:
        result.append(
            "Within the lengths trained on: sources of no more tokens than 99 % of the training "
            "data have; beyond them: of more tokens than any has. "
            "The paper chose sinusoids since they “may allow the model to extrapolate” to these: "
            "a hypothesis, of which it shows no figures. As longer sentences are harder for any "
            "model, what is compared with learned positions is the change from BLEU within to BLEU "
            f"beyond. It can not be told from fewer than {FEWEST_SENTENCES} sentences, nor where "
            f"both are below {LEARNED['bleu']:.0f} BLEU beyond."
        )
    if DOMHAN in sources:
        result.append(
            f"In the encoder, in the decoder: what {score.label} changes by when the layer named "
            "takes the place of self-attention there alone. Each layer counts by itself; their "
            "mean is shown beside."
        )
    return result


# --- variants and the base row -------------------------------------------------------------------


def _of_table3(variants: Sequence[Variant]) -> list[Finding]:
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
        if (found and found[0] == "C") or (variant.group == "big" and not lacks_steps(variant))
    ]
    smaller = [v for v in sizes if (v.mean("parameters") or 0) < (base.mean("parameters") or 0)]
    bigger = [v for v in sizes if v not in smaller]
    asked = [
        ("A", "a single head is worse", of("A", "heads", lambda own, _: own == 1), []),
        # The paper's own loses nothing at twice the heads, and does at four times.
        ("A", "too many heads are worse", of("A", "heads", lambda own, base: own >= 4 * base), []),
        ("B", "a small d_k is worse", of("B", "d_k", lambda own, base: own < base), []),
        ("C", "bigger models are better", smaller, bigger),
        ("D", "dropout helps", of("D", "dropout", lambda own, _: own == 0), []),
    ]
    result = [
        _sign(claim, f"Table 3 ({group})", _to_base(worse), _to_base(better))
        for group, claim, worse, better in asked
    ]
    if base.score == BLEU:
        learned = _to_base(of("E", "positions", lambda own, _: own == "learned"))
        result.append(_equal("learned positions are as good as sinusoids", "Table 3 (E)", learned))
    return [found for found in result if found.evidence]


def _to_base(variants: Sequence[Variant]) -> list[_Row]:
    return [_Row(one.label, one.against, one.status, one.score.label) for one in variants]


# --- variants and each other ---------------------------------------------------------------------


def _of_attention(variants: Sequence[Variant]) -> list[Finding]:
    """Section 3.2.1: unscaled dot products beside the two other kinds of the same d_k."""
    of = {
        (variant.settings.get("attention"), variant.settings.get("d_k")): variant
        for variant in _that_change(variants, {"attention", "d_k"})
    }
    widths = sorted({d_k for kind, d_k in of if kind == "dot_product" and d_k is not None})
    small = [d_k for d_k in widths if d_k <= SMALL_D_K]
    large = [d_k for d_k in widths if d_k >= LARGE_D_K]

    def rows(one: str, other: str, some: Iterable[int], label: str) -> list[_Row]:
        return [
            _pair(label.format(d_k), of[one, d_k], of[other, d_k])
            for d_k in some
            if {(one, d_k), (other, d_k)} <= of.keys()
        ]

    as_good = [
        *rows("dot_product", "scaled_dot_product", small, "d_k {} less scaled"),
        *rows("dot_product", "additive", small, "d_k {} less additive"),
    ]
    behind = rows("dot_product", "scaled_dot_product", large, "d_k {} less scaled")
    ahead = rows("additive", "dot_product", large, "d_k {} less unscaled")
    equal = _equal("at small d_k unscaled dot-product attention is as good", ATTENTION, as_good)
    result = [
        *[equal] * (variants[0].score == BLEU),
        _sign("at large d_k unscaled dot-product attention falls behind", ATTENTION, behind, []),
        _sign("at large d_k additive attention outperforms unscaled", ATTENTION, [], ahead),
    ]
    return [found for found in result if found.evidence]


def _of_mixers(variants: Sequence[Variant]) -> list[Finding]:
    """Each layer in the place of self-attention in the encoder, and the same in the decoder."""
    base = variants[0]
    if any(base.settings.get(key) != "self_attention" for key in MIXERS):
        return []
    encoder, decoder = (
        {v.settings[key]: v for v in _that_change(variants, {key}) if v is not base}
        for key in MIXERS
    )
    both = [mixer for mixer in encoder if mixer in decoder]
    rows = [
        _pair(
            f"{mixer} {_change(base, encoder[mixer])} in the encoder, "
            f"{_change(base, decoder[mixer])} in the decoder, difference",
            encoder[mixer],
            decoder[mixer],
        )
        for mixer in both
    ]
    if not rows:
        return []
    found = _sign(
        "self-attention matters more in the encoder than in the decoder", DOMHAN, rows, []
    )
    means = [_mean_scores([place[mixer] for mixer in both]) for place in (encoder, decoder)]
    row = _Row("mean of all, difference", over_same_seeds(*means), "incomplete", base.score.label)
    return [dataclasses.replace(found, evidence=_evidence([*rows, row]))]


def _of_architectures(variants: Sequence[Variant]) -> list[Finding]:
    """The order of Table 2, of each two that are here: the base, and the first of each other."""
    sizes = {"architecture", "layers", "d_model"}
    here: dict[str | None, Variant] = {}
    for variant in variants:
        if {key.rpartition(".")[2] for key in variant.changes} <= sizes:
            here.setdefault(variant.settings.get("architecture", "transformer"), variant)
    order = [row for row in rivals.ROWS if row.architecture in here and "en-de" in row.bleu]
    order.sort(key=lambda row: -row.bleu["en-de"])
    result = []
    for better, worse in itertools.combinations(order, 2):
        one, other = here[better.architecture], here[worse.architecture]
        first, second = better.architecture, worse.architecture
        behind, ahead = [_pair(f"{second} less {first}", other, one)], []
        if one.is_base:
            behind = [_Row(f"{second} less {first}", other.against, other.status)]
        elif other.is_base:
            behind, ahead = [], [_Row(f"{first} less {second}", one.against, one.status)]
        printed = f"{better.bleu['en-de']:g} against {worse.bleu['en-de']:g}"
        claim = f"{first} translates better than {second}"
        result.append(_sign(claim, f"Table 2, En-De: {printed}", behind, ahead))
    return result


def _of_positions(variants: Sequence[Variant], lengths: ByLength) -> list[Finding]:
    """Section 3.5: sinusoids beside a learned table, within the lengths trained on and beyond.

    Rows of the table that no training sentence reached are as they were initialised, so lengths
    that few reached count as neither.
    """
    of = {v.settings.get("positions"): v for v in _that_change(variants, {"positions"})}
    if not {"sinusoidal", "learned"} <= of.keys():
        return []
    pair = of["learned"], of["sinusoidal"]
    learned, sinusoidal = map(lengths.compared, pair)
    status = pair[1].status if learned.within else pair[0].status
    within = _Row(
        "learned less sinusoidal, within",
        over_same_seeds(learned.within, sinusoidal.within),
        status,
    )
    as_good = _equal(
        "within the lengths trained on learned positions are as good",
        POSITIONS,
        [within],
    )
    claim = "beyond the lengths trained on sinusoids lose less"
    if lengths.longer < FEWEST_SENTENCES:
        few = f"{lengths.longer or 'no'} validation sentence{'s' * (lengths.longer != 1)}"
        evidence = f"{few} of more than {lengths.longest} tokens"
        return [as_good, Finding(claim, "can not be told", evidence, EXTRAPOLATION)]
    seeds = learned.change.keys() & sinusoidal.change.keys()
    learned, sinusoidal = learned.over(seeds), sinusoidal.over(seeds)
    label = (
        f"sinusoids {_fall(sinusoidal)}, learned {_fall(learned)}: change of learned less that of "
        "sinusoids"
    )
    row = _Row(label, over_same_seeds(learned.change, sinusoidal.change), status)
    found = _sign(claim, EXTRAPOLATION, [row], [])
    # Where neither translates anything any more, what is left is the difference within.
    if all(_mean(scores.beyond) < LEARNED["bleu"] for scores in (learned, sinusoidal)):
        found = dataclasses.replace(found, verdict="can not be told")
    return [as_good, found]


def _fall(scores: Scores) -> str:
    """`41.0 within, 20.2 beyond`, the means over seeds."""
    within, beyond = (
        fixed(_mean(some), 1) if some else MISSING for some in (scores.within, scores.beyond)
    )
    return f"{within} within, {beyond} beyond"


def _mean(scores: Mapping[int, float]) -> float:
    return statistics.fmean(scores.values()) if scores else 0.0


def _that_change(variants: Sequence[Variant], settings: set[str]) -> list[Variant]:
    """The base row and those that differ from it in these settings alone."""
    base, *others = variants
    return [base] + [
        variant
        for variant in others
        if variant.state != "refused" and set() < changed_settings(variant, base) <= settings
    ]


def _pair(label: str, one: Variant, other: Variant) -> _Row:
    status = other.status if one.scores else one.status
    return _Row(label, over_same_seeds(one.scores, other.scores), status, one.score.label)


def _change(base: Variant, variant: Variant) -> str:
    before, after = (v.mean_score if v.comparable else None for v in (base, variant))
    return MISSING if before is None or after is None else signed(after - before, 1)


def _mean_scores(variants: Sequence[Variant]) -> Mapping[int, float]:
    """By seed, of the seeds that all have."""
    seeds = set.intersection(*(set(variant.scores) for variant in variants))
    return {seed: statistics.fmean(v.scores[seed] for v in variants) for seed in seeds}


# --- verdicts ------------------------------------------------------------------------------------


def _sign(claim: str, source: str, worse: Sequence[_Row], better: Sequence[_Row]) -> Finding:
    """Of rows whose difference is said to be below 0, or above."""
    agree = oppose = 0
    for rows, sign in ((worse, -1), (better, 1)):
        for row in rows:
            against = row.against
            if against is not None and against.seen and abs(against.difference.mean) >= SHOWN:
                agree += against.difference.mean * sign > 0
                oppose += against.difference.mean * sign < 0
    rows = [*worse, *better]
    return Finding(claim, _verdict(agree, oppose, len(rows)), _evidence(rows), source)


def _equal(claim: str, source: str, rows: Sequence[_Row]) -> Finding:
    """Of rows whose difference is said to be none."""
    agree = oppose = 0
    for row in rows:
        if row.against is not None and row.against.interval is not None:
            low, high = row.against.interval
            nearly = low > -NEARLY and high < NEARLY
            agree += nearly
            oppose += bool(row.against.seen) and not nearly
    return Finding(claim, _verdict(agree, oppose, len(rows)), _evidence(rows), source)


def _verdict(agree: int, oppose: int, rows: int) -> Verdict:
    if agree > oppose and 2 * agree >= rows:
        return "holds"
    return "does not hold" if oppose and oppose >= agree else "can not be told"


def _evidence(rows: Sequence[_Row]) -> str:
    return "; ".join(f"{row.label} {_difference(row)}" for row in rows)


def _difference(row: _Row) -> str:
    """`−1.5 BLEU (p 0.002, 95 % −2.1 to −0.9)`."""
    against = row.against
    if against is None:
        return f"{row.status}, not compared"
    tests = []
    if against.p is not None:
        tests.append(f"p {p_value(against.p)}")
    if against.interval is not None:
        low, high = against.interval
        tests.append(f"95 % {signed(low, 1)} to {signed(high, 1)}")
    shown = f"{signed(against.difference.mean, 1)} {row.unit}"
    return shown + (f" ({', '.join(tests)})" if tests else "")
