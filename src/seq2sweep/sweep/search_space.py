"""What `sweep.space` stands for: the changes that its method draws from it."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import typing
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from seq2sweep import config as configuration
from seq2sweep.config import Config, TrainConfig, shown
from seq2sweep.errors import UserError

Changes = dict[str, Any]

# Other sections make the data, which all variants share, or what is done with it afterwards.
SWEPT_SECTIONS = ("model", "train")
MOST_VALUES = 2_000
"""Values of an entry."""
RANGE_KEYS = {"low", "high", "log"}


def changes(config: Config) -> Iterator[Changes]:
    """What each variant but the base changes, by dotted key, in the order of the space.

    Nothing for method optuna, which is asked later (`seq2sweep.sweep.optuna_search`).

    Raises UserError as `spelt_out` does.
    """
    sweep, space = config.sweep, spelt_out(config)
    if sweep.method == "random":
        chance = random.Random(sweep.seed)
        for _ in range(sweep.samples):
            row = [
                (choices.draw(chance),) if isinstance(choices, Range) else chance.choice(choices)
                for choices in space.values()
            ]
            yield merged(space, row)
    elif sweep.method in ("one_at_a_time", "grid"):
        listed = {keys: _listed(keys, choices) for keys, choices in space.items()}
        if sweep.method == "grid":
            rows = itertools.product(*listed.values()) if listed else ()
            yield from (merged(space, row) for row in rows)
        else:
            for keys, choices in listed.items():
                yield from (dict(zip(keys, values, strict=True)) for values in choices)


def spelt_out(config: Config) -> Space:
    """`sweep.space` with its keys taken apart.

    A key of the space may be several, joined by commas, whose values vary together:
    `"model.heads, model.d_k": [[1, 128], [8, 16]]`.

    Raises UserError naming the entry that is wrong. Values are not looked at.
    """
    entries = config.sweep.space
    _check_keys(config, [_keys(joined) for joined in entries])
    decimal = _decimal_keys(config)
    return {_keys(joined): _choices(joined, given, decimal) for joined, given in entries.items()}


def size(config: Config) -> int:
    """How many changes the method draws from the space; raises UserError as `spelt_out` does."""
    sweep, space = config.sweep, spelt_out(config)
    if sweep.method in ("random", "optuna"):
        return sweep.samples
    counts = [len(_listed(keys, choices)) for keys, choices in space.items()]
    if sweep.method == "grid":
        return math.prod(counts) if counts else 0
    return sum(counts)


def merged(space: Space, row: Iterable[tuple[Any, ...]]) -> Changes:
    """The changes of one combination, which has the values of each entry's keys as a tuple."""
    return {
        key: value
        for keys, values in zip(space, row, strict=True)
        for key, value in zip(keys, values, strict=True)
    }


def check_section(key: str, place: str, sections: tuple[str, ...]) -> None:
    """UserError, naming the place, unless the key is of one of these sections."""
    if key.partition(".")[0] not in sections:
        allowed = " and ".join(f"{section}.*" for section in sections)
        raise UserError(
            f"params.yaml: {place} cannot be varied in a sweep, only {allowed}: all variants "
            "share one data set, vocabulary and cluster; change it in its own section"
        )


def _check_keys(config: Config, entries: list[Keys]) -> None:
    """UserError for a key that does not exist, appears twice, or is not the space's to vary."""
    sweep, values = config.sweep, configuration.flatten(config)
    keys = [key for entry in entries for key in entry]
    # A key of another architecture is for the variants that name it.
    several = "model.architecture" in keys
    known = configuration.help_texts() if several else values
    unchanged = {key: values.get(key) for key in keys if key in values or key not in known}
    configuration.with_changes(config, unchanged, "params.yaml: sweep.space")
    # A key may stand alone and with others there, as d_k does in rows A and B of Table 3.
    named = [", ".join(entry) for entry in entries] if sweep.method == "one_at_a_time" else keys
    for key, count in itertools.chain(*(Counter(each).items() for each in (named, *entries))):
        if count > 1:
            raise UserError(f"params.yaml: sweep.space names {key} twice: give it one entry")
    if "train.seed" in keys and sweep.seeds > 1:
        raise UserError(
            "params.yaml: sweep.space varies train.seed, which sweep.seeds does: leave it out there"
        )
    if "train.steps" in keys and sweep.budget != "steps":
        raise UserError(
            f"params.yaml: sweep.space varies train.steps, which sweep.budget {sweep.budget} gives "
            "each variant: leave it out, or set sweep.budget to steps"
        )


def _decimal_keys(config: Config) -> set[str]:
    """The keys whose values are decimals, alone or beside null or a word, of all architectures;
    of a key that several have, as this configuration's has it."""
    models = [*configuration.architectures().values(), type(config.model)]
    kinds = [("train", TrainConfig), *(("model", kind) for kind in models)]
    hints = {
        f"{section}.{key}": hint
        for section, kind in kinds
        for key, hint in typing.get_type_hints(kind).items()
    }
    return {key for key, hint in hints.items() if float in (hint, *typing.get_args(hint))}


# --- choices ------------------------------------------------------------------------------------

Keys = tuple[str, ...]


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, both included; whole if both ends are, as `_range` makes them."""

    low: float
    high: float
    log: bool

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def draw(self, chance: random.Random) -> float:
        """Each number is as likely, or with `log` each order of magnitude."""
        if self.log:
            value = math.exp(chance.uniform(math.log(self.low), math.log(self.high)))
        elif self.whole:
            return chance.randint(int(self.low), int(self.high))
        else:
            value = chance.uniform(self.low, self.high)
        return self.shortened(value)

    def shortened(self, value: float) -> float:
        """Four digits: names and tables stay readable, and nobody needs more."""
        short = round(value) if self.whole else float(f"{value:.4g}")
        return min(max(short, self.low), self.high)


Choices = list[tuple[Any, ...]] | Range
"""Values of an entry, each a tuple with an item a key, or a range for the one key that it has."""

Space = dict[Keys, Choices]


def _keys(joined: str) -> Keys:
    keys = tuple(key.strip() for key in joined.split(","))
    for key in keys:
        check_section(key, f"sweep.space.{key}", SWEPT_SECTIONS)
    return keys


def _choices(joined: str, given: Any, decimal: Collection[str]) -> Choices:
    """The values of an entry as tuples, one item a key, or a range. decimal: keys of decimals."""
    place, keys = f"params.yaml: sweep.space.{joined}", _keys(joined)
    count = len(keys)
    if isinstance(given, Mapping):
        if count > 1:
            raise UserError(f"{place} varies several keys, which takes a list of value lists")
        return _range(place, given, keys[0] in decimal)
    if not isinstance(given, list | tuple) or not given:
        raise UserError(f"{place} must be a list of values, not {shown(given)}")
    if len(given) > MOST_VALUES:
        raise UserError(
            f"{place} has {len(given):,} values, where {MOST_VALUES:,} are the most: name fewer, "
            "or a range for sweep.method random or optuna"
        )
    rows = [[value] for value in given] if count == 1 else given
    for values in rows:
        if not isinstance(values, list | tuple) or len(values) != count:
            raise UserError(f"{place}: {shown(values)} must be a list of {count} values, one a key")
    return [
        tuple(
            _from_text(value) if key in decimal else value
            for key, value in zip(keys, values, strict=True)
        )
        for values in rows
    ]


def _from_text(value: Any) -> Any:
    """A decimal, also where YAML reads one as text, as it does 1e-4 (no dot); else as it is."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return float(value)
    return value


def _range(place: str, given: Mapping[str, Any], decimal: bool) -> Range:
    """decimal: the key's values are, so that from 1 to 4 there is more than 1, 2, 3 and 4."""
    if not {"low", "high"} <= given.keys() or not given.keys() <= RANGE_KEYS:
        raise UserError(f"{place} must be a list of values or {{low: , high: , log: true}}")
    low, high = (_number(place, given[end], decimal) for end in ("low", "high"))
    log = given.get("log", False)
    if not isinstance(log, bool):
        raise UserError(f"{place}: log must be true or false, not {log!r}")
    if low >= high:
        raise UserError(f"{place}: low {low} must be below high {high}")
    if not math.isfinite(float(high) - float(low)):
        raise UserError(f"{place}: low {low} and high {high} are too far apart")
    if log and low <= 0:
        raise UserError(f"{place}: low must be above 0 with log, not {low}")
    return Range(low, high, log)


def _number(place: str, value: Any, decimal: bool) -> float:
    try:
        # YAML reads 1e-4 (no dot) as text.
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{place}: low and high must be numbers, not {shown(value)}")
    if decimal:
        return number
    if not number.is_integer():
        raise UserError(f"{place}: low and high must be whole numbers, not {shown(value)}")
    return int(number)


def _listed(keys: Keys, choices: Choices) -> list[tuple[Any, ...]]:
    if isinstance(choices, Range):
        raise UserError(
            f"params.yaml: sweep.space.{keys[0]} is a range, which only sweep.method random and "
            "optuna draw from: list its values, or set the method to one of them"
        )
    return choices
