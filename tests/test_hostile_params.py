"""params.yaml as nobody should write it: read, or refused in one line, and soon."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep.config.schema import MOST_RUNGS
from seq2sweep.errors import UserError
from seq2sweep.planning.plan import plan
from seq2sweep.sweep.variants import variants
from tests import hostile

ROOT = Path(__file__).parents[1]
SECONDS = 60
"""It takes one or two; the machine may be busy."""


ONE = {"model.heads": [1, 2]}


class TooLong(BaseException):
    """Not an exception that something could handle."""


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def interrupt(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def outcome(content: bytes) -> str:
    """What a stage, and then `plan`, make of params.yaml: "good", or the line that refuses it."""
    path = Path("params.yaml")
    path.write_bytes(content)
    with time_limit(SECONDS):
        try:
            variants(configuration.load(path))
            plan(Path(), on="8 x H100")
        except UserError as error:
            return str(error)
    return "good"


def check(first: int, last: int) -> None:
    """Of these numbers; an exception of any other kind ends the test."""
    found = []
    for number in range(first, last):
        try:
            found.append(outcome(hostile.params(number)))
        except BaseException as error:
            raise AssertionError(f"params {number}: {error!r}") from error
        assert "\n" not in found[-1], number
        assert len(found[-1]) < 2500, (number, found[-1])
    assert 0 < found.count("good") < len(found) / 2
    assert len(set(found)) > len(found) / 5  # they are not all refused for one reason


@pytest.fixture(autouse=True)
def _project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("infra").mkdir()
    Path("infra/prices.yaml").symlink_to(ROOT / "infra/prices.yaml")


def test_no_params_end_in_a_stack_trace_or_never() -> None:
    check(0, 32)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
def test_none_of_five_hundred_params_do() -> None:
    check(0, 500)


def test_a_file_that_is_good_stays_good() -> None:
    assert outcome(hostile.TEXT.encode()) == "good"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x: " + "[" * 10_000, "line 1: not valid YAML (nested deeper than 20 levels)"),
        ("a: &a [*a]", "line 1: not valid YAML (*a stands inside of what it names)"),
        (
            "a0: &a0 [x]\n"
            + "".join(f"a{i}: &a{i} [{f'*a{i - 1},' * 10}]\n" for i in range(1, 10)),
            "more than 20,000 values, aliases written out)",
        ),
        (
            "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 30)),
            "nested deeper than 20 levels, aliases written out)",
        ),
        ("a: " + "1" + ":59" * 9000, "a number of 27001 characters"),
        (f"a: {10**30}", "a whole number of more than 63 bits"),
        ("a: 1\nb: 0500", "line 2: not valid YAML (a number with a leading zero or a colon)"),
        ("a: -0_1", "a number with a leading zero or a colon"),
        ("a: 8:20", "a number with a leading zero or a colon"),
        ("a: 1:30.5", "a number with a leading zero or a colon"),
        ("a: [0, -0, 0.5, 00.5, 0x1F, 0b1, 1_000, '8:20']", "unknown key a"),
        ('a: "\\0"', "a text with the character U+0000"),
        ('a: "\\ud800"', "a text with the character U+D800"),
        ("#" * 300_000, "it is longer than 256 KiB"),
        ("a: 1\na: 2", "line 2: not valid YAML (key 'a' appears twice)"),
        ("a: 1\nb: !!bool x", "line 2: not valid YAML ('x' is no bool)"),
        ('a: !!int ""', "line 1: not valid YAML ('' is no int)"),
        ('a: [1, !!int "-"]', "'-' is no int"),
        ('a: {b: !!float ""}', "'' is no float"),
        ("!!timestamp x: 1", "'x' is no timestamp"),
    ],
)
def test_yaml_is_read_within_bounds(text: str, message: str) -> None:
    assert message in outcome(text.encode())


def test_anchors_are_fine() -> None:
    anchored = hostile.TEXT.replace("  layers: 2 ", "  layers: &few 2 ")
    assert outcome(anchored.replace("  keep_best: 0 ", "  keep_best: 0 ").encode()) == "good"
    assert outcome(anchored.replace("  seeds: 1 ", "  seeds: *few ").encode()) == "good"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"sweep.space": {"model.heads": list(range(1, 100_000))}},
            "sweep.space.model.heads has 99,999 values, where 2,000 are the most",
        ),
        (
            {
                "sweep.method": "grid",
                "sweep.space": {f"model.{key}": [*range(1, 100)] for key in ("heads", "d_ff")},
            },
            "the sweep asks for 9,802 trainings (9,802 variants with 1 seed(s) each)",
        ),
        ({"sweep.seeds": 10**9}, "lower the values of sweep.space or sweep.seeds"),
        (
            {"sweep.method": "random", "sweep.space": ONE, "sweep.samples": 10**9},
            "lower sweep.samples or sweep.seeds",
        ),
        (
            {"sweep.method": "optuna", "sweep.space": ONE, "sweep.samples": 10**9},
            "lower sweep.samples or sweep.seeds",
        ),
    ],
)
def test_a_sweep_has_an_end(changes: dict[str, Any], message: str) -> None:
    config = configuration.with_changes(hostile.SHIPPED, {**changes, "sweep.scheduler": "none"})
    with time_limit(SECONDS), pytest.raises(UserError) as caught:
        variants(config)
    assert message in str(caught.value)


def test_the_rungs_of_median_have_an_end() -> None:
    most = {"sweep.scheduler": "median", "sweep.grace_steps": 1, "train.steps": MOST_RUNGS}
    configuration.with_changes(hostile.SHIPPED, most)
    many = most | {"train.steps": 10**11}
    with time_limit(SECONDS), pytest.raises(UserError) as caught:
        configuration.with_changes(hostile.SHIPPED, many)
    assert "sweep.grace_steps must be at least 10000000 with" in str(caught.value)
    assert "train.steps 100000000000, not 1" in str(caught.value)
    for other in ({"sweep.scheduler": "asha"}, {"sweep.method": "none"}):
        configuration.with_changes(hostile.SHIPPED, many | other)


def test_steps_that_are_kept_are_told_however_many_there_are() -> None:
    many = {
        "train.steps": 10**12,
        "train.checkpoint_every": 1,
        "train.keep_checkpoints": 10**11,
        "evaluate.checkpoint_steps": [10**12, 10**12 - 10**11 + 1],
    }
    with time_limit(SECONDS):
        configuration.with_changes(hostile.SHIPPED, many)
        many["evaluate.checkpoint_steps"] = [10**12 - 10**11]
        with pytest.raises(UserError, match=r"900000000020, \.\.\., 1000000000000\)"):
            configuration.with_changes(hostile.SHIPPED, many)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.source": "de"}, "data.target must be another than data.source, de"),
        ({"data.source": "DE", "data.target": "de"}, "another than data.source, DE"),
        ({"data.source": "fr"}, "or de to en or en to trees for data.dataset phrasebook, not fr"),
        ({"data.target": "xx"}, "not en to xx: it holds English, German and trees of"),
        ({"evaluate.checkpoint_steps": [600, 600]}, "must be steps that are not repeated, not"),
        ({"data.files.train": ["a", "./a"]}, "names ./a, which it names twice"),
        ({"data.files.test": ["c", "b"]}, "data.files.test names b, which data.files.train names"),
        ({"data.files.test": ["va", "d"]}, "data.files.test names va, which data.files.valid"),
        ({"data.folder": "a\nb"}, "must be text of one line, not 'a\\nb'"),
    ],
)
def test_a_false_origin_is_refused(changes: dict[str, Any], message: str) -> None:
    files = {f"data.files.{s}": [f"{s[0]}a", f"{s[0]}b"] for s in ("valid", "test")}
    files |= {"data.files.train": ["a", "b"]}
    own = any(key.startswith("data.files") for key in changes)
    base = files | {"data.dataset": "files"} if own else {}
    with pytest.raises(UserError) as caught:
        configuration.with_changes(hostile.SHIPPED, base | changes)
    assert message in str(caught.value)
