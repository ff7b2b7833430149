"""A search: rounds of variants, each proposed by what those before it have shown.

It remembers nothing on disk. What it proposes follows from the seed and from how the trials ended,
which their folders say, so a search that is begun again comes to the same variants, finds most of
them trained, and goes on where it was.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext
from seq2sweep.model import flops
from seq2sweep.sweep import search_space
from seq2sweep.sweep.optuna_search import FIGURE_OF, Outcome, Proposals
from seq2sweep.sweep.trial_record import OnTrial, TrialResult
from seq2sweep.sweep.variants import Refused, Variant, base_of, proposed

Run = Callable[[Sequence[Variant], OnTrial], list[TrialResult]]


@dataclass(frozen=True)
class Proposal:
    """What was asked for as the `number`-th, from 1 on, in a round, from 1 on.

    repeats: whether an earlier one, or the base variant, is the same; then `made` is that one's,
    and nothing was trained.
    """

    number: int
    round: int
    made: list[Variant] | Refused
    repeats: bool

    @property
    def variant(self) -> str:
        """The name that the variant has in tables."""
        return self.made.name if isinstance(self.made, Refused) else self.made[0].variant


OnRound = Callable[[Sequence[Proposal]], None]


def search(
    config: Config, data: Bitext, run: Run, *, on_trial: OnTrial, on_round: OnRound
) -> tuple[list[TrialResult], list[Proposal]]:
    """Train the base variant and `sweep.samples` that Optuna proposes, `sweep.round` at a time.

    data: the training split. run: trains variants and finds those trained that an earlier call has
    seen, and that one's failures final, as `run_sweep` does; where a scheduler stops trials it is
    given all variants so far, since what becomes of the new ones depends on those before.
    on_trial: hears of each trial once. on_round: called with the proposals of a round before they
    are trained.

    The results are in order of the proposals, the base variant's first.
    """
    base = base_of(config)
    make = proposed(base, data)
    first = make({})
    assert not isinstance(first, Refused)
    proposals: list[Proposal] = []
    source = Proposals(config.sweep, search_space.spelt_out(base))
    all_again = config.sweep.scheduler != "none"
    variants, results, heard = list(first), list[TrialResult](), set[str]()

    def tell(event: str, variant: Variant, figures: dict[str, Any]) -> None:
        if variant.fingerprint not in heard:
            on_trial(event, variant, figures)

    while len(proposals) < config.sweep.samples:
        count = min(config.sweep.round, config.sweep.samples - len(proposals))
        asked = _proposals([make(changes) for changes in source.ask(count)], first, proposals)
        proposals += asked
        on_round(asked)
        for proposal in asked:
            if not proposal.repeats and not isinstance(proposal.made, Refused):
                variants += proposal.made
        if len(variants) > len(results):
            found = [] if all_again else results
            results = found + run(variants[len(found) :], tell)
            heard = {variant.fingerprint for variant in variants}
        by_fingerprint = {result.variant.fingerprint: result for result in results}
        outcome = functools.partial(
            _outcome,
            config.sweep.objectives,
            by_fingerprint,
            int(data.header["vocabulary"]["size"]),
        )
        if asked[0].round == 1:
            source.add(configuration.flatten(base), outcome(first))
        source.tell([outcome(proposal.made) for proposal in asked])
    return results, proposals


def _proposals(
    made: Sequence[list[Variant] | Refused], base: list[Variant], before: Sequence[Proposal]
) -> list[Proposal]:
    """The next round, each proposal compared with all before it."""
    known = {_identity(base): base} | {_identity(p.made): p.made for p in before}
    number = before[-1].round + 1 if before else 1
    found = []
    for place, one in enumerate(made, start=len(before) + 1):
        same = known.setdefault(_identity(one), one)
        found.append(Proposal(place, number, same, repeats=same is not one))
    return found


def _identity(made: list[Variant] | Refused) -> str:
    return f"refused {made.name}" if isinstance(made, Refused) else made[0].settings


def _outcome(
    objectives: Sequence[str],
    results: Mapping[str, TrialResult],
    vocabulary_size: int,
    made: list[Variant] | Refused,
) -> Outcome:
    """What the study is told of a variant: means over the seeds that finished, or if none did over
    those that were stopped; no value if a figure is missing or no number. results: by fingerprint.

    A mean over the seeds that the scheduler left is too good. But of a variant that was stopped
    the study thinks worse than of all that finished, also of bad ones that were first.
    """

    def figure(trial: TrialResult, objective: str) -> float:
        if objective == "parameters":
            return flops.parameter_count(trial.variant.config.model, vocabulary_size)
        value = trial.metrics.get(FIGURE_OF.get(objective, objective))
        return math.nan if value is None else float(value)

    trials = [] if isinstance(made, Refused) else [results[one.fingerprint] for one in made]
    finished = [trial for trial in trials if trial.status == "finished"]
    ended = finished or [trial for trial in trials if trial.status == "stopped early"]
    values = tuple(
        statistics.fmean(figure(trial, name) for trial in ended) for name in objectives if ended
    )
    known = values if all(map(math.isfinite, values)) else ()
    if ended and not finished:
        return Outcome("stopped early", known, max(trial.steps for trial in ended))
    return Outcome("finished", known) if known else Outcome("failed")
