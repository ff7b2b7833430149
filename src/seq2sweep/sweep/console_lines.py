"""What the console says of a sweep: what will be trained, each round, and how it ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from seq2sweep import console, hardware
from seq2sweep.config import KEEPING_FAILURES, Config
from seq2sweep.config.scores import SCORES
from seq2sweep.errors import OperationalError
from seq2sweep.presets.rivals import select as rows_of_table2
from seq2sweep.sweep import contest
from seq2sweep.sweep.search import Proposal
from seq2sweep.sweep.trial_record import RESULT_NAME, TrialResult
from seq2sweep.sweep.variants import Refused, Variant

CHANGES_NO_RESULT = "lines on the console"


def outline(config: Config, chosen: Sequence[Variant]) -> str:
    """What will be trained, in a line."""
    sweep = config.sweep
    names = list(dict.fromkeys(variant.variant for variant in chosen))
    seeds = f", with {sweep.seeds} seeds each" if sweep.seeds > 1 else ""
    if sweep.method == "optuna":
        return (
            f"{names[0]} and {sweep.samples} variants{seeds}, proposed by Optuna {sweep.round} at "
            f"a time for {' and '.join(sweep.objectives)}"
        )
    if sweep.method == "table2":
        return (
            f"{', '.join(['base', *rows_of_table2(sweep.rows)])} at equal FLOPs{seeds}, after "
            f"{len(sweep.learning_rates)} tries of learning rates for each"
        )
    return f"{len(names)} variants{seeds}: {', '.join(names)}"


def say_choice(entrants: Sequence[contest.Entrant]) -> None:
    """Which learning rate each architecture found best, before it is trained with that."""
    for one in entrants:
        if one.refused is not None:
            console.say(f"{one.name}: not trained ({one.refused.cause})")
            continue
        found = ", ".join(console.perplexity(contest.perplexity(result)) for result in one.tries)
        console.say(
            f"{one.name}: train.learning_rate_scale {one.best:g} x the base's (validation "
            f"perplexities of its tries: {found})"
        )


def say_round(config: Config, proposals: Sequence[Proposal]) -> None:
    """What Optuna proposed, before it is trained."""
    rounds = math.ceil(config.sweep.samples / config.sweep.round)
    console.say(f"round {proposals[0].round} of {rounds}")
    for proposal in proposals:
        note = ": proposed before, not trained again" if proposal.repeats else ""
        if isinstance(proposal.made, Refused):
            note = f": refused ({proposal.made.cause})"
        console.say(f"  #{proposal.number} {proposal.variant}{note}")


def say_end(
    results: Sequence[TrialResult],
    summary: dict[str, Any],
    refused: int,
    seconds: float,
    every: Sequence[TrialResult] = (),
    job: str = "",
) -> None:
    """How the trials ended; OperationalError when all have failed, or none has a score.

    refused: variants that were not trained. every: the results and, of method table2, the tries of
    learning rates, after which nothing is trained where all of them have failed. job: where the
    results of the job that this is will be, and would be found again; '': it is none.
    """
    best = summary["best"]
    found = ""
    if best:
        score = SCORES[results[0].variant.config.data.score]
        found = f"; best: {best['variant']}, {score.label} {best[score.name]:.2f} on valid"
    trained = results or every
    failed = [result for result in trained if result.status == "failed"]
    unscored = [result for result in trained if result.status != "failed" and result.cause]
    tries = [result for result in every[len(trained) :] if result.status == "failed"]
    console.say(
        f"{summary['finished']} finished, {summary['stopped_early']} stopped early, "
        f"{summary['failed']} failed"
        + (f", {len(unscored)} without a score" if unscored else "")
        + (f", {refused} refused" if refused else "")
        + (f", {len(tries)} tries of learning rates failed" if tries else "")
        + f" in {console.duration(seconds)}{found}"
    )
    if failed or unscored or tries:
        _say_lost(failed, unscored, tries, len(trained), job)
    ended = [result.origin for result in results if "device" in result.origin]
    warnings = {hardware.no_peak_warning(of["device"], of["precision"]) for of in ended}
    for warning in sorted(filter(None, warnings)):
        console.say(warning)


def removal(result: TrialResult, folders: str) -> str:
    """How a trial that failed for good is tried again. folders: which, in words."""
    here, there = str(result.journal.parent.parent), result.store.location.rpartition("/")[0]
    return f"remove {RESULT_NAME} from {folders} in {' and '.join(dict.fromkeys([here, there]))}"


def _say_lost(
    failed: Sequence[TrialResult],
    unscored: Sequence[TrialResult],
    tries: Sequence[TrialResult],
    of: int,
    job: str,
) -> None:
    """How to try these again; OperationalError when all that were trained are among them."""
    lost = [*failed, *unscored]
    first = [*lost, *tries][0]
    here = first.journal.parent.parent
    # Without this file a trial that stays as it is resumes from its checkpoint.
    final = first.variant.config.sweep.method in KEEPING_FAILURES
    remove = f"{removal(first, 'their folders')}, then " if final else ""
    if len(lost) == of:
        name, how = first.variant.name, f"{first.cause}; their logs are in {here}"
        all_of_them = (
            f"none of {of} trials has a score, the first ({name}) as: {how}"
            if unscored
            else f"all {of} trials failed, the first ({name}) as: {how}"
        )
        raise OperationalError(f"{all_of_them}; {remove}run `dvc repro` again to resume")
    which = " or ".join(
        word for word, some in (("failed", [*failed, *tries]), ("have no score", unscored)) if some
    )
    again = "dvc repro --force --single-item sweep"
    if job:
        remove = f"remove {job}, then {remove}"
        again = f"submit the job again (where dvc repro did: {again})"
    console.say(f"to try those that {which} again: {remove}{again}")
