"""The sweep of a plan, row by row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.planning import machine, speed, sweeps
from seq2sweep.planning.machine import Machine
from seq2sweep.planning.plan import plan
from seq2sweep.planning.render import overview
from tests.planning.conftest import load_of, preset, record_run, write

HERE = Machine(machine.Device("CPU", 2, "float32"), 2, slots=2)


@pytest.fixture(autouse=True)
def known_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rate at each look."""
    monkeypatch.setattr(speed, "_product_rate", lambda _: 1e11)


def test_without_a_sweep_no_trial_is_counted(project: Path) -> None:
    made = plan(project, on="8 x H100")
    sweep = made["sweep"]
    assert (sweep["method"], sweep["rows"], sweep["refused"]) == ("none", [], [])
    assert (sweep["flops"], sweep["seconds"], sweep["at_most"]) == (0, 0.0, False)
    stage = next(stage for stage in made["stages"] if stage["stage"] == "sweep")
    seconds = {part["part"]: part["seconds"] for part in stage["parts"]}
    assert seconds == {"start and end": speed.IDLE_SWEEP_SECONDS, "trials": 0.0}
    disk, weights = made["data"]["disk"], 5 * 4 * made["training"]["parameters"]
    assert (disk["checkpoints"], disk["models"]) == (3 * weights, weights)
    assert "none: no variant is trained; to train variants too, set sweep.method" in overview(made)


def test_a_sweep_row_by_row(project: Path) -> None:
    write(project, "wmt14-en-de-table3")
    made = plan(project, on="8 x H100")
    sweep = made["sweep"]
    rows = {row["variant"]: row for row in sweep["rows"]}
    assert list(rows)[:2] == ["base", "A-heads-1"]
    assert len(rows) == 19
    assert rows["base"]["parameters"] == made["training"]["parameters"]
    assert rows["C-d_model-1024"]["flops"] > 2 * rows["base"]["flops"]
    assert sweep["flops"] == pytest.approx(sum(row["flops"] for row in rows.values()))
    assert (sweep["slots"], sweep["at_most"], sweep["least_seconds"]) == (8, False, None)
    # One device each: eight at once, begun in turn.
    ends = sorted(row["seconds"] for row in rows.values())
    assert ends[-1] < sweep["seconds"] < sum(ends) / 8 + ends[-1]
    # Each row weighs as much as it takes.
    for side, end in enumerate(sweep["span"]):
        weighed = sum(row["seconds"] * row["span"][side] for row in rows.values())
        assert end == pytest.approx(weighed / sum(row["seconds"] for row in rows.values()))
    assert sweep["span"][0] == pytest.approx(1.0)  # graphs start all kernels of a GPU
    assert 2.5 < sweep["span"][1] < 3
    base = rows["base"]
    assert base["cost"] == pytest.approx(6.88 * base["seconds"] / 3600)
    shown = overview(made)
    assert "A-heads-1" in shown
    assert "19 training(s), 8 at once" in shown


def rows_of(project: Path, on: str | None, **changes: Any) -> dict[str, dict[str, Any]]:
    """What is planned of each variant."""
    write(project, "phrasebook", **{"sweep.space": {}} | changes)
    rows = plan(project, on=on)["sweep"]["rows"]
    return {row.pop("variant"): row for row in rows}


@pytest.mark.parametrize("recorded", [False, True])
def test_a_trial_is_planned_in_the_precision_that_it_is_trained_in(
    project: Path, recorded: bool
) -> None:
    """As if the main training were in that precision too, by the same runs."""
    if recorded:
        figures = {"device": "NVIDIA H100 80GB HBM3", "workers": 1, "flops": 1e6 * 2000}
        record_run(project / "runs/train-1", **figures, precision="float32")
    on, own, key = "8 x H100", preset("phrasebook").sweep.base, "train.precision"
    of_bf16 = rows_of(project, on, **{key: "bf16"})["base"]
    of_float32 = rows_of(project, on, **{key: "float32"})["base"]
    for name in ("precision", "seconds", "cost", "memory", "how"):
        assert of_float32[name] != of_bf16[name]
    assert of_float32["how"].startswith("from the run" if recorded else "predicted")
    assert of_bf16["how"].startswith("predicted")
    for precision in ("auto", "bf16"):
        based = {key: precision, "sweep.base": own | {key: "float32"}}
        assert rows_of(project, on, **based) == {"base": of_float32}
        assert "rate of base, in float32: " in overview(plan(project, on=on))
        varied = {key: precision, "sweep.space": {key: ["float32"]}}
        assert rows_of(project, on, **varied) == {
            "base": of_bf16,
            "precision=float32": of_float32,
        }
        assert "rate of base: " in overview(plan(project, on=on))


@pytest.mark.parametrize(("width", "precision"), [(32, "float32"), (128, "bf16")])
def test_auto_is_planned_as_the_sweep_resolves_it(
    project: Path, monkeypatch: pytest.MonkeyPatch, width: int, precision: str
) -> None:
    """By the base variant's width, on a processor on which it depends on the width."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    monkeypatch.setattr(speed, "_product_rate", {"float32": 1e11, "bf16": 2e11}.get)
    own = preset("phrasebook").sweep.base | {"model.d_model": width}
    swept = {"sweep.base": own, "sweep.space": {"model.d_model": [48, 96]}}
    planned = rows_of(project, None, **swept, **{"train.precision": "auto"})
    assert {row["precision"] for row in planned.values()} == {precision}
    assert planned == rows_of(project, None, **swept, **{"train.precision": precision})


def test_a_peak_that_is_not_known_is_told_of_a_trial(project: Path) -> None:
    write(project, "phrasebook", **{"sweep.space": {"train.precision": ["bf16"]}})
    with pytest.raises(UserError, match=r"bf16 peak of Tesla P100-SXM2-16GB is not known: set "):
        plan(project, on="8 x P100")


def test_the_longest_trainings_are_planned_first_as_they_are_begun() -> None:
    """In the order of their rows the last would train alone in the end."""
    config = preset("phrasebook", **{"sweep.space": {"train.steps": [100, 200, 1500]}})
    made = sweeps.sweep(config, load_of("phrasebook", 2000), HERE)
    seconds = {row.steps: row.seconds or 0.0 for row in made.rows}
    between = sweeps.BETWEEN_TRIALS
    assert sorted(seconds) == [100, 200, 700, 1500]
    assert seconds[1500] > seconds[700] + seconds[200] + seconds[100] + 2 * between
    assert made.seconds == pytest.approx(seconds[1500] + between)


def test_early_stopping_makes_it_an_upper_bound() -> None:
    config = preset("phrasebook", **{"sweep.seeds": 2, "sweep.space": {"model.heads": [1, 7, 8]}})
    config = configuration.with_changes(config, {"sweep.scheduler": "asha"})
    base = {"model.d_model": 64, "train.validate_every": 100}
    config = configuration.with_changes(config, {"sweep.base": base})
    load = load_of("phrasebook", 80_000)
    made = sweeps.sweep(config, load, HERE)
    assert made.at_most
    assert made.seconds is not None
    assert made.least_seconds is not None
    assert made.rows[0].seconds is not None
    assert made.rows[0].seconds < made.least_seconds < made.seconds
    assert all(row.trainings == 2 for row in made.rows)
    plain = configuration.with_changes(config, {"sweep.scheduler": "none"})
    all_of_it = sweeps.sweep(plain, load, HERE)
    assert (all_of_it.at_most, all_of_it.least_seconds) == (False, None)
    assert all_of_it.seconds == made.seconds
    # The rate is assumed: about half to twice as long, but for the checkpoints' copies.
    low, high = all_of_it.span
    assert (low, high) == (pytest.approx(0.5, abs=0.01), pytest.approx(2.0, abs=0.01))
    assert low > 0.5
    assert made.span == (pytest.approx(low * made.least_seconds / made.seconds), high)
    assert sweeps.sweep(config, load, replace(HERE, enough=False)).seconds is None


def test_trials_write_a_checkpoint_at_each_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever train.checkpoint_every says."""
    asked: list[int] = []
    copied = sweeps.training_parts

    def parts(config: Config, whole: Any, *rest: Any) -> Any:
        asked.append(whole.checkpoints)
        return copied(config, whole, *rest)

    monkeypatch.setattr(sweeps, "training_parts", parts)
    changes: dict[str, Any] = {
        "train.checkpoint_every": 350,
        "train.validate_every": 35,
        "train.steps": 700,
    }
    changes |= {"sweep.base": {}, "sweep.space": {}}
    config = configuration.with_changes(presets.load("phrasebook").config, changes)
    sweeps.sweep(config, load_of("phrasebook", 80_000), HERE)
    assert asked == [20]


@pytest.mark.parametrize(("validate_every", "kept"), [(100, 5), (300, 3), (700, 1)])
def test_a_trial_keeps_no_more_checkpoints_than_it_writes(validate_every: int, kept: int) -> None:
    """One at each validation of 700 steps, of which five are kept, with two moments a weight."""
    base = preset("phrasebook").sweep.base | {"train.validate_every": validate_every}
    config = preset("phrasebook", **{"sweep.base": base, "sweep.space": {}, "sweep.seeds": 2})
    (row,) = sweeps.sweep(config, load_of("phrasebook", 80_000), HERE).rows
    assert row.checkpoint_bytes == 2 * kept * 12 * row.parameters


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({}, 300),  # rungs 100 and 300, warm-up 200
        ({"train.warmup_steps": 300}, 300),
        ({"train.warmup_steps": 400}, None),
        ({"sweep.scheduler": "median"}, 200),
        ({"train.warmup_steps": 400, "sweep.scheduler": "median"}, 400),
        ({"train.validate_every": 250}, 500),
        ({"train.validate_every": 1000}, None),
    ],
)
def test_the_first_rung_that_counts(
    changes: dict[str, Any], steps: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 700 steps; None: no trial can be stopped. Those of the base never are."""
    monkeypatch.setattr(sweeps, "scored_seconds", lambda *_: 0.0)
    method = {"sweep.scheduler": "asha", "sweep.space": {"model.heads": [2]}}
    base = preset("phrasebook").sweep.base
    for key, value in changes.items():
        (method if key.startswith("sweep.") else base)[key] = value
    config = preset("phrasebook", **method, **{"sweep.base": base})
    made = sweeps.sweep(config, load_of("phrasebook", 80_000), HERE)
    assert made.at_most == (steps is not None)
    assert (made.least_seconds is None) == (steps is None)
    assert [row.variant for row in made.rows] == ["base", "heads=2"]
    for row, least in zip(made.rows, (700, steps or 700), strict=True):
        assert row.seconds is not None
        assert row.least_seconds == pytest.approx(row.seconds * least / 700)
    alone = configuration.with_changes(config, {"sweep.space": {}, "sweep.seeds": 3})
    assert not sweeps.sweep(alone, load_of("phrasebook", 80_000), HERE).at_most


def test_tries_of_a_learning_rate_are_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    config, load = preset("phrasebook-table2"), load_of("phrasebook", 80_000)

    def seconds() -> dict[str, float]:
        made = sweeps.sweep(config, load, HERE)
        return {row.variant: row.seconds for row in made.rows if row.seconds is not None}

    monkeypatch.setattr(sweeps, "scored_seconds", lambda *_: 0.0)
    without = seconds()
    monkeypatch.setattr(sweeps, "scored_seconds", lambda *_: 1000.0)
    added = {name: each - without[name] for name, each in seconds().items()}
    tries = {name: each for name, each in added.items() if "learning rate" in name}
    scored = {name: each for name, each in added.items() if name not in tries}
    assert set(tries.values()) == {0.0}
    assert list(scored.values()) == pytest.approx([1000.0] * 4)


@pytest.mark.parametrize(
    ("heads", "slots", "at_once"),
    [
        ([], 1, 1),  # one training, whose score takes one worker while the others idle
        ([1, 2], 2, 2),  # three trainings in two places
        ([1, 2, 8, 16], 1, 4),  # five, of which four are scored at once
    ],
)
def test_a_score_is_made_by_one_worker(
    heads: list[int], slots: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    base = {"model.d_model": 64, "model.heads": 4}
    changes = {"sweep.base": base, "sweep.space": {"model.heads": heads} if heads else {}}
    here = replace(HERE, slots=slots, trial_devices=4.0)

    def seconds(scored: float) -> float:
        def score(*given: Any) -> float:
            asked.append(given)
            return scored

        monkeypatch.setattr(sweeps, "scored_seconds", score)
        config = preset("phrasebook", **changes, **{"sweep.workers_per_trial": 4})
        return sweeps.sweep(config, load_of("phrasebook", 80_000), here).rows[0].seconds or 0.0

    assert seconds(1000.0) - seconds(0.0) == pytest.approx(1000 / at_once)
    config, load, _, of_one = asked[0]
    whole = here.trial_speed(config, load)
    assert whole is not None
    assert 4 * of_one.flops_per_second == pytest.approx(whole.flops_per_second)


def test_what_optuna_will_propose_counts_as_the_base_variant() -> None:
    config, load = preset("phrasebook-search"), load_of("phrasebook", 80_000)
    made = sweeps.sweep(config, load, HERE)
    base, proposals = made.rows
    assert proposals.trainings == config.sweep.samples
    assert proposals.flops == pytest.approx(config.sweep.samples * base.flops)
    assert proposals.checkpoint_bytes == config.sweep.samples * base.checkpoint_bytes
    assert "not known" in (made.note or "")


@pytest.mark.parametrize(
    ("slots", "at_once", "in_turn"),
    [
        (16, 10, 3),  # rounds of 4, 4 and 2 proposals, all at once
        (4, 4, 6),  # the base's 2 with 8 others take 3 in turn, the next 8 take 2, the last 4 one
        (1, 1, 22),
    ],
)
def test_a_round_of_optuna_waits_for_the_one_before(slots: int, at_once: int, in_turn: int) -> None:
    changes = {"sweep.samples": 10, "sweep.round": 4, "sweep.seeds": 2, "sweep.scheduler": "none"}
    config, load = preset("phrasebook-search", **changes), load_of("phrasebook", 80_000)
    made = sweeps.sweep(config, load, replace(HERE, slots=slots))
    (one, _) = (row.seconds for row in made.rows)
    assert one is not None
    assert made.slots == at_once
    assert made.seconds == pytest.approx(in_turn * (one + sweeps.BETWEEN_TRIALS))


def test_trainings_wait_for_all_tries_of_learning_rates() -> None:
    config, load = preset("phrasebook-table2"), load_of("phrasebook", 80_000)
    made = sweeps.sweep(config, load, replace(HERE, slots=1000))
    tries = [row.seconds or 0.0 for row in made.rows if "learning rate" in row.variant]
    trained = [row.seconds or 0.0 for row in made.rows if "learning rate" not in row.variant]
    assert made.slots == max(len(tries), len(trained))
    assert made.seconds == pytest.approx(max(tries) + max(trained) + 2 * sweeps.BETWEEN_TRIALS)


def test_the_last_of_several_works() -> None:
    pause = sweeps.BETWEEN_TRIALS
    assert sweeps.makespan([3, 1, 1, 1], 2) == pytest.approx(3 + 3 * pause)
    assert sweeps.makespan([2], 8) == pytest.approx(2 + pause)
    assert sweeps.makespan([1, 1], 1) == pytest.approx(2 + 2 * pause)


def test_trials_that_do_not_fit_are_named(project: Path) -> None:
    write(project, "wmt14-en-de-table3", **{"train.tokens_per_pass": 20_000})
    (note,) = plan(project, on="8 x P100")["notes"]
    assert "C-d_model-1024" in note
    assert "lower train.tokens_per_pass" in note
    assert "(base" not in note


def test_trials_of_which_too_many_share_a_machine_are_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_memory_bytes", lambda: 24 * 2.0**30)
    changes = {
        "cluster.gpus_per_worker": 0,
        "cluster.workers": 1,
        "sweep.method": "table3",
        "sweep.rows": ["C"],
        "sweep.gpus_per_trial": 0,
        "sweep.cpus_per_trial": 0.01,
        "train.tokens_per_pass": 20_000,
    }
    write(project, "wmt14-en-de-base", **changes)
    made = plan(project)
    (note,) = [note for note in made["notes"] if "need more memory" in note]
    assert "(base, " in note
    assert "lower train.tokens_per_pass or raise sweep.cpus_per_trial, so that fewer" in note
    write(project, "phrasebook")
    assert not [note for note in plan(project)["notes"] if "need more memory" in note]


@pytest.mark.parametrize(
    ("gpus", "advice"),
    [
        (0.25, "raise sweep.gpus_per_trial, so that fewer share it"),
        (0.6, "take devices with more"),
        (1, "take devices with more"),
    ],
)
def test_a_pass_that_is_chosen_is_not_to_be_lowered(
    project: Path, gpus: float, advice: str
) -> None:
    """It is the smallest already."""
    changes = {
        "sweep.method": "one_at_a_time",
        "sweep.gpus_per_trial": gpus,
        "sweep.space": {"model.d_ff": [4096 if gpus < 0.5 else 65536]},
        "train.tokens_per_pass": "auto",
    }
    write(project, "wmt14-en-de-big", **changes)
    (note,) = [n for n in plan(project, on="8 x T4")["notes"] if "need more memory" in n]
    assert note.endswith(f"): {advice}")
