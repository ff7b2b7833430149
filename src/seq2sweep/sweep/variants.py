"""What a sweep compares: the `sweep` section of params.yaml, spelt out. Knows nothing of Ray."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from seq2sweep import config as configuration
from seq2sweep.config import KEEPING, Config, SelfTrainingConfig
from seq2sweep.data.bitext import Bitext
from seq2sweep.errors import UserError
from seq2sweep.presets import rivals, table3
from seq2sweep.sweep import scaled_rows, search_space
from seq2sweep.sweep.budget import Budget, rivals_of
from seq2sweep.sweep.search_space import SWEPT_SECTIONS, Changes

MOST_TRAININGS = 2_000
"""Of one sweep, seeds counted: spelling them out takes each stage about a tenth of a second where
nearly all are seeds, and 10 to 20 seconds of one CPU where all are variants, each of which is
checked as params.yaml is. Under `sweep.budget: flops` up to a tenth of a second comes on top for
each model and million sentence pairs."""
BASE_SECTIONS = (*SWEPT_SECTIONS, "evaluate")
LEARNING_RATE = "train.learning_rate_scale"
PASS_SIZE = "train.tokens_per_pass"


@dataclass(frozen=True)
class Variant:
    """One training of a sweep.

    variant: what is compared, the same for all seeds; name: of this training alone. changes: what
    it does to the base variant, by dotted key, the seed left out. row: of Table 3, where
    `sweep.method` is table3. scored: whether it is to translate; of a try of a learning rate the
    perplexity counts.
    """

    name: str
    variant: str
    changes: Changes
    config: Config
    row: table3.Row | None = None
    scored: bool = True

    @property
    def seed(self) -> int:
        """Fixes its initial weights, order of the data and dropout."""
        return self.config.train.seed

    @property
    def alone(self) -> Config:
        """Of the training by itself: the sweep's other seeds do not count from its own."""
        sweep = dataclasses.replace(self.config.sweep, seeds=1)
        return dataclasses.replace(self.config, sweep=sweep)

    @property
    def slug(self) -> str:
        """A folder name of its own: the variant in plain characters and a hash of the values."""
        plain = re.sub(r"[^A-Za-z0-9.=_-]+", "-", self.variant)[:60]
        return f"{plain}-{self.fingerprint[:8]}"

    @property
    def fingerprint(self) -> str:
        """Hash of all that determines how this variant trains, apart from the data, and from how
        checkpoints are kept: `with_trials_checkpoints`. Of the size of a pass, which changes no
        update, only what is compared: variants that change it, and the base beside them."""
        entries = self.changes or self.config.sweep.space
        compared = [key.strip() for entry in entries for key in entry.split(",")]
        same = KEEPING if PASS_SIZE in compared else (*KEEPING, PASS_SIZE)
        return _hash(self.config, same)

    @property
    def settings(self) -> str:
        """Hash of the same with the size of a pass, whether it was asked for or is that of the
        base: of two variants with the same one, one is enough."""
        return _hash(self.config, KEEPING)

    def trained_with(self, tokens_per_pass: int | None) -> Variant:
        """With so many tokens a pass in the place of another number, as one that an earlier sweep
        trained may have had; `auto` stays. None: not known."""
        train = self.config.train
        if tokens_per_pass is None or train.tokens_per_pass == "auto":
            return self
        train = dataclasses.replace(train, tokens_per_pass=tokens_per_pass)
        return dataclasses.replace(self, config=dataclasses.replace(self.config, train=train))


def _hash(config: Config, without: Collection[str]) -> str:
    return configuration.fingerprint(config, *SWEPT_SECTIONS, of_result=True, without=without)


@dataclass(frozen=True)
class Refused:
    """A variant that cannot be trained, and why; values: its sections, as they were asked for."""

    name: str
    changes: Changes
    cause: str
    values: dict[str, dict[str, Any]]
    row: table3.Row | None = None


def folder_names(variants: Iterable[Variant], there: Iterable[str]) -> list[str]:
    """The folder of each variant of a sweep: its slug, or what it was trained in before.

    there: the folders that the sweep has. A name follows the keys of sweep.space and their order,
    so one that trains the same may be there under another. No two variants get the same folder.
    """
    variants, present = list(variants), set(there)
    slugs = {variant.slug for variant in variants}
    renamed = {name.rpartition("-")[2]: name for name in sorted(present - slugs, reverse=True)}
    return [
        variant.slug
        if variant.slug in present
        else renamed.pop(variant.fingerprint[:8], variant.slug)
        for variant in variants
    ]


Trainings = dict[str, list[Variant] | Refused]
"""Of each architecture of method table2, by its name."""


def variants(config: Config, data: Bitext | None = None) -> tuple[list[Variant], list[Refused]]:
    """The base variant and those that `config.sweep` makes of it, each with all of its seeds.

    Beside them the variants whose values are not valid. What is there already is left out. For
    method optuna there is the base variant alone: `seq2sweep.sweep.search` asks for the others.
    For method none there is nothing. For method table2 there are the tries of learning rates, and
    what is trained after them, at the first of the rates (`seq2sweep.sweep.contest` has the best).

    data: the training split; `Budget` says what for.

    Raises UserError naming the entry of the section that is wrong.
    """
    base = base_of(config)
    if base.sweep.method == "none":
        return [], []
    _check_number(base)
    if base.sweep.method == "table2":
        names = ["base", *rivals.select(base.sweep.rows)]
        rates = dict.fromkeys(names, base.sweep.learning_rates[0])
        tries, after = entries(base, data, {}), entries(base, data, rates)
        # All others are compared with it.
        for own in (tries["base"], after["base"]):
            if isinstance(own, Refused):
                raise UserError(f"params.yaml: sweep.method table2: base: {own.cause}")
        both = [*tries.values(), *after.values()]
        unfit = {one.name: one for one in both if isinstance(one, Refused)}
        trained = [trial for one in both if not isinstance(one, Refused) for trial in one]
        return trained, list(unfit.values())
    budget = Budget(base, data)
    found: dict[str, Variant] = {}
    refused: dict[str, Refused] = {}
    for draft in _drafts(base):
        made = _make(draft, base, budget)
        if isinstance(made, Variant):
            # Also where the size of a pass is that of the base once more.
            first = found.setdefault(made.settings, made)
            if first is made or not made.row:
                continue
            made = _refuse(draft, base, f"it is the same as {first.name} here")
        refused.setdefault(made.name, made)
    seeds = base.sweep.seeds
    seeded = [trial for variant in found.values() for trial in _seeded(variant, seeds)]
    return seeded, list(refused.values())


def _check_number(base: Config) -> None:
    sweep = base.sweep
    if sweep.method == "table3":
        count = len(table3.select(["base", *sweep.rows]))
    elif sweep.method == "table2":
        count = (1 + len(rivals.select(sweep.rows))) * (1 + len(sweep.learning_rates))
    else:
        count = 1 + search_space.size(base)
    if count * sweep.seeds > MOST_TRAININGS:
        by = {"random": "sweep.samples", "optuna": "sweep.samples"}
        by |= {"table2": "sweep.rows", "table3": "sweep.rows"}
        raise UserError(
            f"params.yaml: the sweep asks for {count * sweep.seeds:,} trainings "
            f"({count:,} variants with {sweep.seeds:,} seed(s) each), where "
            f"{MOST_TRAININGS:,} are the most: lower "
            f"{by.get(sweep.method, 'the values of sweep.space')} or sweep.seeds"
        )


def base_of(config: Config) -> Config:
    """What every variant of the sweep starts from; UserError when `sweep.base` is wrong."""
    for key in config.sweep.base:
        search_space.check_section(key, f"sweep.base.{key}", BASE_SECTIONS)
    # Trials are scored at their newest checkpoint, whatever is kept and averaged elsewhere.
    kept = {"train.keep_best": 0, "train.keep_every": 0}
    scored = {"evaluate.average_checkpoints": 1, "evaluate.checkpoints": "newest"}
    changes = kept | config.sweep.base | scored | {"evaluate.checkpoint_steps": []}
    # Of self-training, whose seed may be that of a trial, they know nothing.
    config = dataclasses.replace(config, self_training=SelfTrainingConfig())
    return configuration.with_changes(config, changes, "params.yaml: sweep.base")


def in_one_precision(config: Config, resolve: Callable[[int], str]) -> Config:
    """With a `train.precision` of auto resolved once, by the base variant, for all variants.

    Else it would be resolved by each one's width, and on its node, and figures of a table would
    differ by their precision too. A variant that sets it itself keeps it. It is as if `sweep.base`
    had said it, so it is part of each variant's fingerprint. resolve: what auto is, of a d_model.
    """
    base = base_of(config)
    if base.sweep.method == "none" or base.train.precision != "auto":
        return config
    resolved = config.sweep.base | {"train.precision": resolve(base.model.d_model)}
    return configuration.with_changes(config, {"sweep.base": resolved})


def with_trials_checkpoints(config: Config) -> Config:
    """As a trial is trained: with a checkpoint at each validation.

    Where Tune may stop a trial there must be one, or its BLEU would be of another step than its
    perplexity. Only the newest is scored: none is kept for its loss or for ever, and of the newest
    as many as train.keep_checkpoints says, to resume from where the last one is damaged.
    """
    trained = dataclasses.replace(
        config.train, checkpoint_every=config.train.validate_every, keep_best=0, keep_every=0
    )
    return dataclasses.replace(config, train=trained)


def entries(base: Config, data: Bitext | None, rates: Mapping[str, float]) -> Trainings:
    """What method table2 trains of each architecture, by its name, base first; base: `base_of`.

    rates: the best learning rate, as a multiple of the base's, of each architecture whose tries
    have ended: it is trained with each seed on what the tries left of the budget. Of others there
    are the tries, with one seed.
    """
    budget = Budget(base, data)
    found: Trainings = {}
    for name, changes in [("base", {}), *rivals_of(base.sweep.rows, base, data)]:
        drafts = _drafts_of_table2(name, changes, rates.get(name), base)
        made = [_make(draft, base, budget) for draft in drafts]
        refused = next((one for one in made if isinstance(one, Refused)), None)
        seeds = base.sweep.seeds if name in rates else 1
        found[name] = refused or [
            trial for one in made if isinstance(one, Variant) for trial in _seeded(one, seeds)
        ]
    return found


def _drafts_of_table2(
    name: str, changes: Changes, rate: float | None, base: Config
) -> Iterator[_Draft]:
    sweep, scale = base.sweep, base.train.learning_rate_scale
    if rate is not None:
        tuned = {LEARNING_RATE: rate * scale}
        yield _Draft(changes, label=name, tuned=tuned, share=1 - sweep.search_share)
        return
    for tried in sweep.learning_rates:
        yield _Draft(
            changes,
            label=f"{name} at {_text(tried)} x the learning rate",
            tuned={LEARNING_RATE: tried * scale},
            share=sweep.search_share / len(sweep.learning_rates),
            scored=False,
        )


def proposed(base: Config, data: Bitext) -> Callable[[Changes], list[Variant] | Refused]:
    """What makes a variant, of all its seeds, of changes to `base_of` a configuration."""
    budget = Budget(base, data)

    def make(changes: Changes) -> list[Variant] | Refused:
        made = _make(_Draft(changes), base, budget)
        return made if isinstance(made, Refused) else list(_seeded(made, base.sweep.seeds))

    return make


@dataclass(frozen=True)
class _Draft:
    """What a method asks for; problem: why it cannot be. tuned: what it changes besides, for its
    own good, and is not called by; share: of the budget; scored: as of `Variant`."""

    changes: Changes
    row: table3.Row | None = None
    problem: str | None = None
    label: str | None = None
    tuned: Changes = dataclasses.field(default_factory=dict)
    share: float = 1.0
    scored: bool = True

    @property
    def name(self) -> str:
        return self.label or (self.row.name if self.row else _name(self.changes))


def _drafts(base: Config) -> Iterator[_Draft]:
    """The base variant first."""
    sweep = base.sweep
    if sweep.method != "table3":
        yield _Draft({})
        yield from map(_Draft, search_space.changes(base))
        return
    for row, changes, problem in scaled_rows.scaled(["base", *sweep.rows], base):
        if sweep.budget != "steps":  # which gives each row its steps
            changes.pop("train.steps", None)
        yield _Draft(changes, row, problem)


def _make(draft: _Draft, base: Config, budget: Budget) -> Variant | Refused:
    if draft.problem:
        return _refuse(draft, base, draft.problem)
    try:
        config = configuration.with_changes(base, draft.changes | draft.tuned, draft.name)
    except UserError as error:
        return _refuse(draft, base, str(error).removeprefix(f"{draft.name}: "))
    # As the configuration has them: 1e-4 is a number there and text in YAML.
    values = configuration.flatten(config)
    exact = dataclasses.replace(draft, changes={key: values[key] for key in draft.changes})
    train = dataclasses.replace(config.train, steps=budget.steps(config, draft.share))
    if draft.tuned and train.steps <= config.warmup_steps:
        other = "lower" if draft.scored else "raise"  # the search's share, or what it leaves
        return _refuse(
            draft,
            base,
            f"its {train.steps} steps end before the warm-up, train.warmup_steps "
            f"{train.warmup_steps}: {other} sweep.search_share, or raise train.steps, or lower "
            "the warm-up",
        )
    config = dataclasses.replace(config, train=train)
    if problem := next(config.problems_of_rungs(), None):
        return _refuse(draft, base, problem)
    return Variant(exact.name, exact.name, exact.changes, config, exact.row, exact.scored)


def _refuse(draft: _Draft, base: Config, cause: str) -> Refused:
    sections = configuration.to_dict(base)
    changes = {key: _recordable(value) for key, value in draft.changes.items()}
    for key, value in changes.items():
        section, _, last = key.partition(".")
        sections[section][last] = value
    values = {section: sections[section] for section in SWEPT_SECTIONS}
    return Refused(draft.name, changes, cause, values, draft.row)


def _recordable(value: Any) -> Any:
    """What JSON can hold: YAML has infinity as well. A list is shown as text."""
    plain = value is None or isinstance(value, str | int)
    return value if plain or isinstance(value, float) and math.isfinite(value) else str(value)


def _seeded(variant: Variant, seeds: int) -> Iterator[Variant]:
    first = variant.config.train
    for seed in range(first.seed, first.seed + seeds):
        name = f"{variant.name} seed={seed}" if seeds > 1 else variant.name
        train = dataclasses.replace(first, seed=seed)
        config = dataclasses.replace(variant.config, train=train)
        yield dataclasses.replace(variant, name=name, config=config)


def _name(changes: Changes) -> str:
    """`heads=8 d_k=16`, or `base`."""
    return " ".join(f"{key.rpartition('.')[2]}={_text(v)}" for key, v in changes.items()) or "base"


def _text(value: Any) -> str:
    """Short, but different for different values."""
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)
