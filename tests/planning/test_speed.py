"""FLOPs a second of recorded runs and assumed ones, and the times that follow."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.planning import machine, memory, speed, workload
from seq2sweep.planning.recorded_runs import Run, recorded_runs
from seq2sweep.planning.speed import (
    EXACT,
    Speed,
    assumed_of_cpus,
    decoding_seconds,
    recorded,
    scored_seconds,
    training_parts,
    update_of,
    update_seconds,
)
from seq2sweep.planning.workload import kind_of
from seq2sweep.runs.journal import Journal
from seq2sweep.train.loop import train
from tests.conftest import Corpus
from tests.planning.conftest import load_of, preset, record_run

ROOT = Path(__file__).parents[2]


def test_a_half_of_the_mfu_takes_twice_the_time() -> None:
    config, load = preset("big"), load_of("big", 4_500_000)
    found = workload.training(config, load)
    slow, fast = (Speed(rate, "", 1e-3) for rate in (1e13, 2e13))
    seconds = [update_seconds(config, found, speed, 8)[0] for speed in (slow, fast)]
    assert seconds[0] == pytest.approx(2 * seconds[1]) == found.flops_per_update / 1e13
    # In small passes it is the kernels that are waited for.
    small = configuration.with_changes(config, {"train.tokens_per_pass": 100})
    assert update_seconds(small, found, Speed(1e20, "", 1e-3), 8) == (
        pytest.approx(32 * 12e-3),
        True,
    )
    on_cpus = scored_seconds(config, load, load.test, Speed(1e20, ""))
    assert on_cpus == pytest.approx(3003 * 3e-3, rel=1e-3)
    # Steps of a search wait for their kernels too.
    assert scored_seconds(config, load, load.test, Speed(1e20, "", gpu=True)) > 1 + on_cpus
    # What is searched for without a score is only searched for.
    searched = decoding_seconds(config, load, load.test, Speed(1e13, ""))
    scored = scored_seconds(config, load, load.test, Speed(1e13, ""))
    assert scored == pytest.approx(searched + 3003 * 3e-3)
    parts = training_parts(config, found, fast, 8)
    assert [part.part for part in parts] == ["updates", "validation", "checkpoints"]
    assert parts[1].seconds == pytest.approx(found.validation_flops / 2e13)


@pytest.mark.parametrize("workers", [2, 8, 64])
def test_only_a_pass_of_the_largest_share_is_the_only_one(workers: int) -> None:
    """Of an equal share a worker that has a sentence more computes that one alone."""
    load = load_of("big", 4_500_000)
    auto, _ = memory.sized(
        preset("big", **{"train.tokens_per_pass": "auto"}),
        load,
        machine.Device("H200", workers, "bf16"),
        workers,
        None,
    )
    equal = preset("big", **{"train.tokens_per_pass": -(-25_000 // workers)})
    rates = machine.parse("8 x H200", auto, ROOT).rates()
    assert rates is not None
    found = workload.training(auto, load)
    for config, passes in ((auto, 1), (equal, 2)):
        size = load.vocabulary_size
        predicted = speed.predicted(config, found, size, rates, "bf16", workers)
        assert f"each GPU, in {passes} pass" in predicted.detail[0]
        launching = update_seconds(config, found, Speed(1e20, "", 1e-3), workers)[0]
        assert launching == pytest.approx(passes * 12e-3)


def of_model(flops_per_token: float) -> workload.Training:
    return workload.Training(100, 50.0, 50.0, 100 * flops_per_token, 0.0, 1, 10**6, 50)


def test_the_nearest_recorded_run_counts(tmp_path: Path) -> None:
    """The same model, then the same workers, then the newest."""
    later = {"time": 1_763_640_000.0 + 86400}
    record_run(tmp_path / "a")
    record_run(tmp_path / "b", flops_per_second=2e10, **later)
    record_run(tmp_path / "c", flops_per_second=3e10, workers=1, threads=2, time=later["time"] + 1)
    record_run(tmp_path / "d", flops_per_second=4e10, flops=2e6 * 2000)
    record_run(tmp_path / "sweep/trials/e", flops_per_second=5e10, flops=1e6 * 2000, workers=1)
    runs = recorded_runs(tmp_path, trials=True)
    assert len(runs) == 5
    assert len(recorded_runs(tmp_path, trials=False)) == 4

    def found(flops_per_token: float, workers: int, each: int, **values: Any) -> Speed | None:
        wanted = of_model(flops_per_token)
        values = {"device": "CPU", "precision": "float32"} | values
        return recorded(runs, wanted=wanted, workers=workers, each=each, **values)

    on = "from the run of 2025-11-21 on such CPUs"
    assert found(4.1e6, 2, 1) == Speed(4e10, on, span=EXACT)
    assert found(4e6, 1, 2) == Speed(3e10, on, span=EXACT)
    how = f"{on} with 1 worker(s) of 2 thread(s)"
    # Of each thread, as many as are wanted, where nobody trained like that.
    assert found(4e6, 3, 4) == Speed(3e10 / 2 * 12, how)
    near = found(3e6, 2, 1)
    assert near is not None
    assert near.about
    assert near.how.endswith(", whose model takes 1.3 x the FLOPs a token")
    assert found(0.7e6, 1, 1) is not None
    assert found(13e6, 2, 1) is None
    assert found(0.3e6, 2, 1) is None
    assert found(4e6, 2, 1, precision="bf16") is None
    assert found(4e6, 2, 1, device="H200") is None


OTHERS: list[dict[str, Any]] = [
    {"model.architecture": "recurrent"},
    {"model.encoder_mixer": "separable"},
    {"model.decoder_mixer": "convolutional"},
    {"model.attention": "additive"},
    {"model.attention_dropout": 0.1},
    {"train.compile": True},
    {"train.deterministic": True},
]


@pytest.mark.parametrize("changes", OTHERS)
def test_a_run_of_another_kind_is_no_more_than_about_right(changes: dict[str, Any]) -> None:
    """However new it is, and as many FLOPs a token as it takes."""
    base = kind_of(configuration.flatten(preset("base")))
    wanted = dataclasses.replace(of_model(4e6), kind=base)
    other = base | kind_of(changes)
    assert other != base
    same, newer = (
        Run("H200", "bf16", 8, 1, rate, 4e6, 100.0, ended, kind)
        for rate, ended, kind in ((2e14, 0.0, base), (3e13, 86400.0, other))
    )
    unknown = dataclasses.replace(newer, kind={})

    def found(*runs: Run) -> Speed | None:
        return recorded(runs, "H200", "bf16", wanted, 8, 1)

    on = "from the run of 1970-01-0{} on such GPUs"
    exact = Speed(16e14, on.format(1), 1e-3, EXACT, gpu=True)
    assert found(same, newer) == exact
    # Of another size as well.
    larger = dataclasses.replace(same, flops_per_token=8e6)
    near = found(larger, newer)
    assert near is not None
    assert near.flops_per_second == 16e14
    [(key, value)] = changes.items()
    told = {True: "true", 0.1: "above_0"}.get(value, value)
    how = f"{on.format(2)}, whose {key} is {told}"
    assert found(newer) == Speed(24e13, how, 1e-3, gpu=True)
    assert found(same, unknown) == Speed(24e13, on.format(2), 1e-3, EXACT, gpu=True)


def test_how_much_dropout_attention_has_is_no_other_kind() -> None:
    kinds = [kind_of({"model.attention_dropout": share}) for share in (0.1, 0.2, 0.0)]
    assert kinds[0] == kinds[1] != kinds[2]


def test_other_workers_are_scaled_by_a_roofline(tmp_path: Path) -> None:
    """Of which only the ratio counts: eight GPUs reached 8e14, and three times two should."""
    record_run(tmp_path / "a", device="NVIDIA H200", workers=8, threads=16, flops_per_second=1e14)
    runs = recorded_runs(tmp_path, trials=False)
    rates = {8: 5e15, 64: 15e15}

    def found(workers: int) -> Speed | None:
        return recorded(
            runs, "H200", "float32", of_model(4e6), workers, 1,
            lambda workers, each, times: Speed(rates[workers], ""),
        )  # fmt: skip

    on = "from the run of 2025-11-20 on such GPUs"
    assert found(8) == Speed(8e14, on, span=EXACT, gpu=True)
    how = f"{on} with 8 worker(s), scaled by a roofline"
    assert found(64) == Speed(24e14, how, gpu=True)


def test_updates_of_another_size_are_scaled_by_a_roofline_and_about_right(tmp_path: Path) -> None:
    """Small ones wait for kernels and exchange, which large ones do not."""
    record_run(tmp_path / "a", device="NVIDIA H200", tokens_per_update=50, flops_per_second=1e14)
    [run] = recorded_runs(tmp_path, trials=False)
    assert run.tokens_per_update == 50

    def found(times: float) -> Speed | None:
        wanted = workload.Training(10, 25 * times, 25 * times, 2e8 * times, 0.0, 1, 10**6, 50)
        return recorded(
            [run], "H200", "float32", wanted, 2, 1,
            lambda workers, each, size: Speed(1e15 * size, ""),
        )  # fmt: skip

    on = "from the run of 2025-11-20 on such GPUs"
    assert found(1.05) == Speed(2e14, on, span=EXACT, gpu=True)
    how = f"{on}, whose updates have 50 tokens of both sides, scaled by a roofline"
    assert found(4) == Speed(8e14, how, gpu=True)
    # On CPUs there is no roofline.
    cpus = Run("CPU", "float32", 2, 1, 1e10, 4e6, 50.0, run.ended)
    near = recorded([cpus], "CPU", "float32", of_model(4e6), 2, 1)
    assert near == Speed(
        2e10, "from the run of 2025-11-20 on such CPUs, whose updates have 50 tokens of both sides"
    )


def test_a_plan_predicts_the_updates_of_the_run_that_it_scales() -> None:
    """A run of base with small updates says more of large ones than its own rate."""
    config, load = preset("base"), load_of("base", 4_500_000)
    wanted = workload.training(config, load)
    small = workload.training(workload.with_updates(config, 1 / 8), load)
    assert 8 * small.tokens_per_update == pytest.approx(wanted.tokens_per_update, rel=0.02)
    device = machine.parse("8 x H200", config, ROOT)
    run = Run("H200", "bf16", 8, 1, 1e14, wanted.flops_per_token, small.tokens_per_update, 0.0)
    same = dataclasses.replace(run, tokens_per_update=wanted.tokens_per_update)
    rates = [
        machine.Machine(device, 8, runs=[one]).training_speed(config, load) for one in (run, same)
    ]
    assert rates[0] is not None
    assert rates[1] is not None
    assert (rates[0].about, rates[1].about) == (True, False)
    assert rates[0].flops_per_second > 1.5 * rates[1].flops_per_second == pytest.approx(1.5 * 8e14)


@pytest.mark.parametrize(
    ("changes", "graphs"),
    [
        ({}, True),
        ({"model.d_k": 256, "model.d_v": 256}, True),
        ({"model.d_k": 512, "model.d_v": 512, "model.heads": 1}, False),
        ({"model.attention_dropout": 0.1}, False),
        ({"train.deterministic": True}, False),
    ],
)
def test_kernels_are_started_together_where_training_records_its_passes(
    changes: dict[str, Any], graphs: bool
) -> None:
    config = configuration.with_changes(preset("base"), changes)
    load = load_of("base", 4_500_000)
    rates = machine.parse("8 x H200", config, ROOT).rates()
    assert rates is not None
    found = workload.training(config, load)
    update = update_of(config, found, load.vocabulary_size, rates, "bf16", 8)
    assert update.started != graphs


def test_a_training_says_all_that_the_next_plan_needs(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    (tmp_path / "train-1").mkdir()
    with contextlib.closing(Journal(tmp_path / "train-1/journal.jsonl")) as journal:
        for event in train(tiny_config, tiny_corpus.encoded, device=torch.device("cpu")):
            journal.append(event)
    (run,) = recorded_runs(tmp_path, trials=False)
    load = workload.workload(tiny_config, {"train": 400}, tiny_corpus.encoded)
    wanted = workload.training(tiny_config, load)
    assert run.flops_per_token == pytest.approx(wanted.flops_per_token, rel=0.05)
    found = recorded([run], "CPU", "float32", wanted, 1, torch.get_num_threads())
    assert found is not None
    assert (found.flops_per_second, found.about) == (run.flops_per_second, False)


def test_cpus_that_never_trained_are_assumed_by_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = torch.get_num_threads()
    # On a machine of whatever speed.
    assert 1e8 < speed._product_rate("float32") < 1e13
    assert torch.get_num_threads() == threads
    monkeypatch.setattr(speed, "_product_rate", lambda _: 1e11)
    narrow, wide = assumed_of_cpus("float32", 128, 2), assumed_of_cpus("float32", 512, 2)
    # What is beside the products takes as long as 94 % of them at this width.
    assert narrow.flops_per_second == pytest.approx(2e11 / 1.9375)
    assert narrow.flops_per_second < wide.flops_per_second < 2e11
    assert narrow.about
    assert narrow.how.startswith("assumed: 52 % of the 100 GFLOP/s that a CPU here reaches")
