"""reports/sweep.json by variant, the figures of its seeds aggregated.

The one place that reads trials, so that all tables and figures say the same. Fields that a sweep of
an earlier version does not have are taken for unknown.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scipy.special import stdtrit

from seq2sweep.config.scores import Score
from seq2sweep.report.number_format import MISSING, fixed, whole

Trial = Mapping[str, Any]

PAPERS_OWN = "transformer"
"""The architecture of the paper, which alone its Table 3 is of."""


def figures(score: Score) -> tuple[str, ...]:
    """What is aggregated of the trials of a sweep."""
    return ("valid_perplexity", *score.metrics, "parameters", "flops", "device_hours")


@dataclass(frozen=True)
class Estimate:
    """The mean of a figure over n seeds, its sample standard deviation (n - 1), and `margin`: half
    the width of the 95 % confidence interval of the mean. Of one seed the last two are None.
    """

    mean: float
    n: int = 1
    deviation: float | None = None
    margin: float | None = None


@dataclass(frozen=True)
class Against:
    """A variant's score less another's, of finished trainings only.

    difference: over seeds; p, low and high: of the paired bootstrap over sentences, None where it
    is not known. seen: whether chance cannot explain it, by each of the two that there is; None
    where there is neither.
    """

    difference: Estimate
    p: float | None
    low: float | None
    high: float | None
    seen: bool | None

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 %: what the bootstrap or the seeds leave possible, whichever leaves more."""
        mean, margin = self.difference.mean, self.difference.margin
        ends = [end for end in (self.low, self.high) if end is not None]
        if margin is not None:
            ends += [mean - margin, mean + margin]
        return (min(ends), max(ends)) if ends else None


@dataclass(frozen=True)
class Variant:
    """One variant: what it is, how its trials ended, and its figures over seeds.

    score: by which it is compared; row: of Table 3 that it is (method table3), else None; number:
    of the proposal of a search that it is, from 1 on, else None; settings: of model and train by
    their plain names, which may be anything where it was refused; state: finished, stopped, failed,
    refused or not trained; status: that in more words; figures: of its finished trials, else of
    those stopped early, None where nothing is known; curve: (step, validation loss), mean over the
    same trials; shared: whether any of these trials shared its device with others at its time, None
    where that is not known; devices: what they ran on, as far as that is known; scores: of each
    finished trial by its seed, none where `selected`; costs: training FLOPs of the same, also where
    it is; failures: what failed, was refused or has no score, and its cause; selected: as
    `is_selected` says of its trials.
    """

    name: str
    score: Score
    row: str | None
    group: str | None
    changes: Mapping[str, Any]
    settings: Mapping[str, Any]
    state: str
    status: str
    figures: Mapping[str, Estimate | None]
    curve: Sequence[tuple[float, float]]
    failures: Sequence[tuple[str, str]]
    against: Against | None = None
    number: int | None = None
    shared: bool | None = None
    devices: Sequence[str] = ()
    scores: Mapping[int, float] = field(default_factory=dict)
    costs: Mapping[int, float] = field(default_factory=dict)
    selected: bool = False

    @property
    def is_base(self) -> bool:
        return not self.changes

    @property
    def comparable(self) -> bool:
        """Whether it may be judged beside others, by a difference or by its place among them: it
        finished, and which of its seeds did was not chosen by how good they were."""
        return self.state == "finished" and not self.selected

    @property
    def architecture(self) -> str:
        """As `model.architecture` has it; earlier sweeps had no key for the paper's own."""
        return str(self.settings.get("architecture", PAPERS_OWN))

    @property
    def label(self) -> str:
        """What it is called in tables and figures."""
        if self.number is not None:
            return f"#{self.number}"
        return "base" if self.is_base else self.row or self.name

    @property
    def unfinished(self) -> str:
        """What stands behind its label where trials were stopped early or diverged, as its figures
        are of those or of the better ones beside them."""
        return f" ({self.status})" if self.state == "stopped" or self.selected else ""

    def mean(self, figure: str) -> float | None:
        """Of one of `figures`, over seeds."""
        known = self.figures[figure]
        return known.mean if known else None

    @property
    def scored(self) -> Estimate | None:
        """Its score over seeds."""
        return self.figures[self.score.name]

    @property
    def mean_score(self) -> float | None:
        return self.mean(self.score.name)


def aggregate(sweep: Mapping[str, Any]) -> list[Variant]:
    """Every variant of the sweep, the base first, else in the order of its trials."""
    trials = by_variant(sweep["trials"])
    untrained = {"name": "base", "group": "base", "changes": {}, "status": "not trained"}
    score = Score.of(sweep)
    first = next((name for name, found in trials.items() if not found[0]["changes"]), "base")
    base = _variant(first, trials.pop(first, [untrained | sweep.get("base", {})]), score)
    significance = sweep.get("significance") or {}
    numbers = {
        proposal["variant"]: proposal["number"]
        for proposal in sweep.get("proposals", [])
        if not proposal["repeats"]
    }
    found = [base]
    for name, of_variant in trials.items():
        variant = _variant(name, of_variant, score)
        ours, theirs = (one.scored if one.comparable else None for one in (variant, base))
        to_base = against(ours, theirs, significance.get(name)) if ours and theirs else None
        found.append(dataclasses.replace(variant, against=to_base, number=numbers.get(name)))
    return found


def variant_of(trial: Trial) -> str:
    """The name of the variant that it is of; a trial of an earlier version is one by itself."""
    return str(trial.get("variant") or trial["name"])


def by_variant(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    """The trials of each variant by its name, in their order."""
    found: dict[str, list[Trial]] = {}
    for trial in trials:
        found.setdefault(variant_of(trial), []).append(trial)
    return found


def is_selected(trials: Sequence[Trial]) -> bool:
    """Whether some trials of a variant were lost to what they were themselves, as `is_weak` says,
    and others finished, which were the better ones: what is measured of these alone is too good."""
    finished = any(one["status"] == "finished" and not is_weak(one) for one in trials)
    return finished and any(map(is_weak, trials))


def is_weak(trial: Trial) -> bool:
    """Whether a scheduler stopped it, or it diverged, as its cause then says. Memory that runs out
    or a machine that is lost says nothing of how good a training is."""
    return trial["status"] == "stopped early" or _diverged(trial)


def _diverged(trial: Trial) -> bool:
    """In training, or so that it finished and has no score."""
    return "diverged" in str(trial.get("cause"))


def most_seeds(variants: Sequence[Variant]) -> int:
    """The largest number of trainings that a variant's figures are the means of, at least 1."""
    found = [
        variant.figures[name]
        for variant in variants
        for name in ("valid_perplexity", variant.score.name)
    ]
    return max((known.n for known in found if known), default=1)


def against(ours: Estimate, theirs: Estimate, significance: Mapping[str, Any] | None) -> Against:
    """Two variants' scores over seeds, and what the bootstrap says: `p`, `low`, `high`, `seen`."""
    over_seeds = difference(ours, theirs)
    tests = []
    if significance is not None:
        tests.append(bool(significance["seen"]))
    if over_seeds.margin is not None:
        tests.append(abs(over_seeds.mean) > over_seeds.margin)
    p, low, high = ((significance or {}).get(key) for key in ("p", "low", "high"))
    return Against(over_seeds, p, low, high, all(tests) if tests else None)


def seeds_untested(variants: Sequence[Variant]) -> str:
    """A sentence, where what is said of differences to the base is said by the bootstrap alone, as
    there is one score of a row, or of the base; empty where the seeds are in all of it."""
    known = [(v.name, v.against) for v in variants if v.against is not None]
    tested = [(name, one) for name, one in known if one.p is not None or one.low is not None]
    alone = [name for name, one in tested if one.difference.margin is None]
    if not alone:
        return ""
    of = f" of {', '.join(alone)}" if len(alone) < len(tested) else ""
    return f"What another seed would have changed{of} is not in it."


def over_same_seeds(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Against | None:
    """Two variants' `scores`, neither of which need be the base, over the seeds that both have.

    The bootstrap over sentences is of differences to the base alone, so none is in it. None where
    they have no seed in common.
    """
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    one, other = (estimate([scores[seed] for seed in seeds]) for scores in (ours, theirs))
    return against(one, other, None)


def _variant(name: str, trials: Sequence[Trial], score: Score) -> Variant:
    finished = [trial for trial in trials if trial["status"] == "finished"]
    stopped = [trial for trial in trials if trial["status"] == "stopped early"]
    measured = finished or stopped
    found = {figure: over_seeds(measured, figure) for figure in figures(score)}
    # Counted, not measured: known of every trial that could be built.
    found["parameters"] = over_seeds(trials, "parameters")
    state, status = _state(trials, finished, stopped)
    first, selected = trials[0], is_selected(trials)
    fewer = _fewer(found, score, len(measured))
    return Variant(
        name=name,
        score=score,
        row=first.get("row"),
        group=first.get("group"),
        changes=first["changes"],
        settings={**first["train"], **first["model"]},
        state=state,
        status=", ".join([status, *fewer]),
        figures=found,
        curve=_curve(measured),
        failures=_failures(name, trials),
        shared=_shared(measured),
        devices=list(dict.fromkeys(one["device"] for one in measured if one.get("device"))),
        scores={} if selected else _by_seed(finished, score.name),
        costs=_by_seed(finished, "flops"),
        selected=selected,
    )


def _shared(measured: Sequence[Trial]) -> bool | None:
    known = [trial.get("shared_device") for trial in measured]
    if any(known):
        return True
    return None if None in known or not known else False


def _by_seed(finished: Sequence[Trial], name: str) -> dict[int, float]:
    return {
        trial["train"]["seed"]: float(trial[name])
        for trial in finished
        if trial.get(name) is not None and math.isfinite(trial[name])
    }


def _failures(name: str, trials: Sequence[Trial]) -> list[tuple[str, str]]:
    """Each cause once, with the trials it ended; all of a variant's are called by its name."""
    causes: dict[str, list[str]] = {}
    for trial in trials:
        if trial["status"] in ("failed", "refused") or trial.get("cause"):
            cause = " ".join(str(trial.get("cause") or "cause unknown").split())
            causes.setdefault(cause, []).append(trial["name"])
    return [
        (name if len(ended) == len(trials) else ", ".join(ended), cause)
        for cause, ended in causes.items()
    ]


def _state(
    trials: Sequence[Trial], finished: Sequence[Trial], stopped: Sequence[Trial]
) -> tuple[str, str]:
    if len(finished) == len(trials):
        return "finished", "finished"
    if finished:
        diverged = sum(trial["status"] == "failed" and _diverged(trial) for trial in trials)
        others = f", {len(stopped)} stopped early" if stopped else ""
        others += f", {diverged} diverged" if diverged else ""
        return "finished", f"{len(finished)} of {len(trials)} seeds finished{others}"
    if stopped:
        steps = [whole(step) for step in sorted({trial["steps"] for trial in stopped})]
        some = "" if len(stopped) == len(trials) else f"{len(stopped)} of {len(trials)} seeds "
        return "stopped", f"{some}stopped early at step {', '.join(steps)}"
    statuses = {trial["status"] for trial in trials}
    state = statuses.pop() if len(statuses) == 1 else "failed"
    return state, state


def _fewer(found: Mapping[str, Estimate | None], score: Score, measured: int) -> Iterator[str]:
    """Which figures are of fewer trials than were measured, as one that diverged has no perplexity
    and one that could not be scored no score."""
    for figure, name in (("valid_perplexity", "perplexity"), (score.name, score.label)):
        known = found[figure]
        if known is not None and known.n < measured:
            yield f"{name} of {known.n} seed{'s' * (known.n > 1)}"


def over_seeds(trials: Sequence[Trial], name: str) -> Estimate | None:
    """Of one figure, as far as it is a number in these trials."""
    found = [float(trial[name]) for trial in trials if trial.get(name) is not None]
    values = [value for value in found if math.isfinite(value)]
    return estimate(values) if values else None


def _curve(trials: Sequence[Trial]) -> list[tuple[float, float]]:
    """Of the steps at which all trials have a loss that is a number."""
    if not trials:
        return []
    curves = [
        {step: loss for step, loss in trial["curve"] if loss is not None and math.isfinite(loss)}
        for trial in trials
    ]
    steps = sorted(set.intersection(*map(set, curves)))
    return [(step, sum(curve[step] for curve in curves) / len(curves)) for step in steps]


# --- statistics over seeds -----------------------------------------------------------------------


def estimate(values: Sequence[float]) -> Estimate:
    """From at least one value; the interval is Student's t's."""
    n = len(values)
    mean = statistics.fmean(values)
    if n == 1:
        return Estimate(mean)
    deviation = statistics.stdev(values)
    return Estimate(mean, n, deviation, _t(n - 1) * deviation / math.sqrt(n))


def with_margin(estimate: Estimate | None, decimals: int) -> str:
    """`25.3 ± 0.4`: mean and half the width of its interval, or the mean alone of one seed."""
    if estimate is None:
        return MISSING
    margin = "" if estimate.margin is None else f" ± {fixed(estimate.margin, decimals)}"
    return fixed(estimate.mean, decimals) + margin


def difference(one: Estimate, other: Estimate) -> Estimate:
    """`one` less `other`, with Welch's interval where both are of several seeds.

    Its n is the smaller of the two, and it has no deviation of its own.
    """
    mean, n = one.mean - other.mean, min(one.n, other.n)
    if one.deviation is None or other.deviation is None:
        return Estimate(mean, n)
    first, second = one.deviation**2 / one.n, other.deviation**2 / other.n
    if first + second == 0:
        return Estimate(mean, n, margin=0.0)
    freedom = (first + second) ** 2 / (first**2 / (one.n - 1) + second**2 / (other.n - 1))
    return Estimate(mean, n, margin=_t(freedom) * math.sqrt(first + second))


def _t(freedom: float) -> float:
    """What Student's t stays within in 95 of 100 cases."""
    return float(stdtrit(freedom, 0.975))
