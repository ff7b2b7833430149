"""The plan of training and sweep: FLOPs, memory, time and cost, by arithmetic done anew here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from seq2sweep import cli, presets
from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.sources import REGISTRY
from seq2sweep.errors import UserError
from seq2sweep.model.transformer import Transformer
from seq2sweep.planning import calibration, devices, memory, sweeps, workload
from seq2sweep.planning.calibration import Rate, Task
from seq2sweep.planning.plan import plan
from seq2sweep.planning.speed import Speed, decoding_seconds, training_parts, update_seconds
from seq2sweep.planning.stages import Stage
from seq2sweep.planning.text import overview
from seq2sweep.train.loss import smoothed_cross_entropy
from seq2sweep.train.step import autocast
from tests.conftest import Corpus

ROOT = Path(__file__).parents[2]
PRECISIONS: tuple[Any, ...] = ("float32", "bf16")


def preset(name: str, **changes: Any) -> Config:
    return configuration.with_changes(presets.load(name).config, changes)


def load_of(name: str, pairs: int) -> workload.Workload:
    config = preset(name)
    held_out = {"valid": 1000, "test": 1000} if name == "phrasebook" else {}
    return workload.workload(config, {"train": pairs} | held_out, None)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the table of devices, params.yaml of base, and no dvc.yaml."""
    (tmp_path / "infra").mkdir()
    shutil.copy(ROOT / "infra/prices.yaml", tmp_path / "infra")
    write(tmp_path, "base")
    monkeypatch.chdir(tmp_path)
    # Fewer made-up sentences are planned sooner, in updates with more padding.
    monkeypatch.setattr(workload, "MOST_PAIRS", 20_000)
    return tmp_path


def write(project: Path, name: str, **changes: Any) -> None:
    folder = {} if name.startswith("phrasebook") else {"data.folder": str(REGISTRY)}
    text = configuration.dump(preset(name, **folder | changes))
    (project / "params.yaml").write_text(text, encoding="utf-8")


# --- model ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "millions", "flops", "paper_days"),
    [("base", 63.05, 9.0e17, 0.5), ("big", 214.17, 9.1e18, 3.5)],
)
def test_what_the_papers_models_take(
    project: Path,
    name: str,
    millions: float,
    flops: float,
    paper_days: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workload, "MOST_PAIRS", 200_000)
    write(project, name)
    made = plan(project, on="8 x P100")
    training = made["training"]
    assert training["parameters"] / 1e6 == pytest.approx(millions, abs=0.01)
    assert training["flops"] == pytest.approx(flops, rel=0.02)
    # An update is a little less than the 25000 tokens of the paper on each side.
    for side in ("source", "target"):
        assert 22_000 < training[f"{side}_tokens"] / training["steps"] <= 25_000
    train = next(stage for stage in made["stages"] if stage["stage"] == "train")
    assert train["seconds"] / 86400 == pytest.approx(paper_days, rel=0.25)
    updates = next(part["seconds"] for part in train["parts"] if part["part"] == "updates")
    assert training["paper_rule_flops"] == pytest.approx(updates * 8 * 9.5e12)


def test_lengths_of_the_encoded_text_count_where_there_is_one(
    tiny_corpus: Corpus, tiny_config: Config
) -> None:
    load = workload.workload(tiny_config, {"train": 10**6}, tiny_corpus.encoded)
    assert (load.pairs, load.vocabulary_size) == (400, tiny_corpus.size)
    assert len(load.test[0]) == 40
    found = workload.training(tiny_config, load)
    tokens = found.source_tokens_per_update + found.target_tokens_per_update
    assert tokens <= 2 * tiny_config.train.tokens_per_update
    # 12 steps in thirds: three validations and three checkpoints.
    assert found.checkpoints == 3
    once = workload.decoding_flops(tiny_config, load.vocabulary_size, load.valid)
    assert found.validation_flops == pytest.approx(3 * once / tiny_config.evaluate.beam)


# --- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model.attention": "additive"},
        {"model.feed_forward_dropout": 0.1},
        {"model.dropout": 0},
        {"model.feed_forward": "swiglu"},
        {"model.feed_forward": "swiglu", "model.feed_forward_dropout": 0.1},
        {"model.norm_kind": "rmsnorm"},
    ],
    ids=str,
)
def test_activations_are_what_the_backward_pass_keeps(
    changes: dict[str, Any], precision: Any
) -> None:
    """Of one pass of the real model on a CPU, counted as autograd saves them."""
    config, pairs, length = preset("phrasebook", **changes), 16, 20
    size = config.vocabulary.size
    model = Transformer(config.model, size)
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    pieces = torch.randint(4, size, (pairs, length))
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        autocast(precision, torch.device("cpu")),
    ):
        smoothed_cross_entropy(model(pieces, pieces), pieces, 0.1)
    saved = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    saved -= pairs * length * size * 4  # the probabilities, which are counted with the logits
    saved -= 2 * sum(w.numel() for w in model.parameters()) * (precision == "bf16")
    lengths = np.full(pairs, length, np.int32)
    bitext = workload._bitext(lengths, lengths, {"size": size})
    load = workload.Workload(bitext, (lengths, lengths), (lengths, lengths), pairs, "")
    per_pair = memory.bytes_per_token(config, load, precision, gpu=False)
    assert pairs * length * sum(per_pair) == pytest.approx(saved, rel=0.12)


def test_kernels_in_bf16_take_memory_on_a_cpu_alone(project: Path) -> None:
    """oneDNN keeps one for each shape of a product."""
    config, load = preset("phrasebook"), load_of("phrasebook", 80_000)

    def libraries(precision: Any, gpu: bool) -> float:
        found = memory.memory(config, load, workers=2, precision=precision, gpu=gpu)
        fragments = memory.FRAGMENTS["gpu" if gpu else "cpu"]
        return found.other - fragments * (found.activations + found.logits)

    kernels = libraries("bf16", gpu=False) - libraries("float32", gpu=False)
    assert kernels == pytest.approx(0.08e9)
    assert libraries("bf16", gpu=True) == pytest.approx(libraries("float32", gpu=True))


def test_what_does_not_fit_says_what_to_change(project: Path) -> None:
    big = preset("big", **{"train.tokens_per_pass": 25_000})
    load = load_of("big", 4_500_000)

    def found(workers: int, config: Config = big) -> memory.Memory:
        return memory.memory(config, load, workers=workers, precision="bf16", gpu=True)

    alone, eight = found(1), found(8)
    assert (alone.tokens, eight.tokens) == (25_000, 3125)
    assert alone.optimizer == 2 * alone.weights == 8 * 214_171_648
    # One worker exchanges nothing.
    assert (alone.exchange, eight.exchange) == (0, eight.gradients)
    said = memory.advice(alone, 16e9, big, 1)
    tokens = int(said.split()[3])
    less = configuration.with_changes(big, {"train.tokens_per_pass": tokens})
    assert found(1, less).needed <= 16e9 < alone.needed
    assert tokens > 500
    assert "cluster.fsdp" in memory.advice(eight, 4.5e9, big, 8)
    assert "too large" in memory.advice(alone, 1e9, big, 1)
    write(project, "big", **{"train.tokens_per_pass": 25_000})
    made = plan(project, on="P100")
    assert made["memory"]["fits"] is False
    assert "DOES NOT FIT" in overview(made)
    assert plan(project, on="1 x H200")["memory"]["fits"] is True


def test_shards_hold_a_part_of_the_model() -> None:
    whole, load = preset("big"), load_of("big", 4_500_000)
    options: dict[str, Any] = {"precision": "bf16", "gpu": True}
    sharded = configuration.with_changes(whole, {"cluster.fsdp": True})
    plain = memory.memory(whole, load, workers=8, **options)
    found = memory.memory(sharded, load, workers=8, **options)
    assert (8 * found.weights, 8 * found.optimizer) == (plain.weights, plain.optimizer)
    assert found.gradients == plain.gradients / 8
    assert found.needed < plain.needed
    # With several passes an update the gradients stay whole in between.
    passes = configuration.with_changes(sharded, {"train.tokens_per_pass": 1000})
    assert memory.memory(passes, load, workers=8, **options).gradients == plain.gradients
    alone = memory.memory(sharded, load, workers=1, **options)
    assert alone == memory.memory(whole, load, workers=1, **options)


# --- time and cost -------------------------------------------------------------------------------


def test_devices_are_found_by_a_part_of_their_name(project: Path) -> None:
    config = preset("base")

    def found(text: str) -> devices.Device:
        return devices.parse(text, config, project)

    assert (found("8 x P100").name, found("8xp100").count) == ("Tesla P100-SXM2-16GB", 8)
    assert found("H100").name == "H100 80GB HBM3"
    assert found("2 × A100 40GB").name == "A100-SXM4-40GB"
    assert found("NVIDIA H100 PCIe").per_hour == 2.89
    assert (found("T4").precision, found("T4").peak) == ("float32", 8.1e12)
    with pytest.raises(UserError, match=r"no device K80; it has H100 80GB HBM3, "):
        found("8 x K80")
    for text in ("0 x H100", "", "8 x "):
        with pytest.raises(UserError, match=r"--on .*(write it as|has no device)"):
            found(text)
    with pytest.raises(UserError, match=r"bf16 peak of Tesla P100-SXM2-16GB is not known"):
        devices.parse("P100", preset("base", **{"train.precision": "bf16"}), project)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("devices: [a]\ncurrency: USD", "must have `currency` and `devices`"),
        ("currency: USD\ndevices: {L4: {watts: -1}}", "L4: watts: -1"),
        ("currency: USD\ndevices: {L4: {price: 1}}", "known are memory_gb, per_hour, watts"),
        ("{", "must have"),
    ],
)
def test_a_wrong_table_is_one_line(project: Path, text: str, what: str) -> None:
    (project / "infra/prices.yaml").write_text(text)
    with pytest.raises(UserError, match=what) as error:
        plan(project, on="L4")
    assert "\n" not in str(error.value)
    (project / "infra/prices.yaml").unlink()
    with pytest.raises(UserError, match=r"infra/prices\.yaml is missing"):
        plan(project, on="L4")


def test_time_cost_and_energy_by_hand(project: Path) -> None:
    made = plan(project, on="8 x H100", mfu=0.4)
    device, training = made["device"], made["training"]
    rate = 8 * 0.4 * 1979e12 / 2
    assert (device["flops_per_second"], device["mfu"]) == (rate, pytest.approx(0.4))
    train, evaluate, sweep = (
        next(stage for stage in made["stages"] if stage["stage"] == name)
        for name in ("train", "evaluate", "sweep")
    )
    parts = {part["part"]: part["seconds"] for part in train["parts"]}
    # Twelve layers, a millisecond each: eight such devices wait for the kernels to be started.
    assert training["flops"] / rate < parts["updates"] == pytest.approx(100_000 * 12e-3)
    assert train["seconds"] == pytest.approx(sum(parts.values()))
    total = made["total"]
    hours = 8 * (train["seconds"] + evaluate["seconds"] + sweep["seconds"]) / 3600
    assert total["device_hours"] == pytest.approx(hours)
    assert total["cost"] == pytest.approx(6.88 * hours)
    assert total["energy_kwh"] == pytest.approx(0.7 * hours)
    assert total["currency"] == "USD"
    assert total["seconds"] == pytest.approx(sum(stage["seconds"] for stage in made["stages"]))
    assert not total["at_most"]


def test_a_half_of_the_mfu_takes_twice_the_time() -> None:
    config, load = preset("big"), load_of("big", 4_500_000)
    found = workload.training(config, load)
    slow, fast = (Speed(rate, 1e-3, "") for rate in (1e13, 2e13))
    seconds = [update_seconds(config, found, speed, 8) for speed in (slow, fast)]
    assert seconds[0] == pytest.approx(2 * seconds[1]) == found.flops_per_update / 1e13
    # In small passes it is the kernels that are waited for.
    small = configuration.with_changes(config, {"train.tokens_per_pass": 100})
    assert update_seconds(small, found, Speed(1e20, 1e-3, ""), 8) == pytest.approx(32 * 12e-3)
    assert decoding_seconds(config, load, load.test, slow) > 3003 * 3e-3
    parts = training_parts(config, found, fast, 8, 10**6)
    assert [part.part for part in parts] == ["updates", "validation", "checkpoints"]
    assert parts[1].seconds == pytest.approx(found.validation_flops / 2e13)


def test_without_a_sweep_no_trial_is_counted(project: Path) -> None:
    made = plan(project, on="8 x H100")
    sweep = made["sweep"]
    assert (sweep["method"], sweep["rows"], sweep["refused"]) == ("none", [], [])
    assert (sweep["flops"], sweep["seconds"], sweep["at_most"]) == (0, 0.0, False)
    stage = next(stage for stage in made["stages"] if stage["stage"] == "sweep")
    assert {part["part"]: part["seconds"] for part in stage["parts"]}["trials"] == 0.0
    checkpoints = made["data"]["disk"]["checkpoints"]
    assert checkpoints == 5 * 20 * made["training"]["parameters"]
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
    base = rows["base"]
    assert base["cost"] == pytest.approx(6.88 * base["seconds"] / 3600)
    shown = overview(made)
    assert "A-heads-1" in shown
    assert "19 training(s), 8 at once" in shown


def test_early_stopping_makes_it_an_upper_bound() -> None:
    config = preset("phrasebook", **{"sweep.seeds": 2, "sweep.space": {"model.heads": [1, 7, 8]}})
    config = configuration.with_changes(config, {"sweep.scheduler": "asha"})
    config = configuration.with_changes(config, {"sweep.base": {"model.d_model": 63}})
    config = configuration.with_changes(config, {"sweep.base": {"model.d_model": 64}})
    load = load_of("phrasebook", 80_000)
    device = devices.Device("CPU", 2, "float32")
    made = sweeps.sweep(config, load, Speed(1e10, 0.0, ""), 2, device)
    assert made.at_most
    assert made.seconds is not None
    assert made.least_seconds is not None
    assert made.least_seconds < made.seconds
    assert all(row.trainings == 2 for row in made.rows)
    plain = configuration.with_changes(config, {"sweep.scheduler": "none"})
    all_of_it = sweeps.sweep(plain, load, Speed(1e10, 0.0, ""), 2, device)
    assert (all_of_it.at_most, all_of_it.least_seconds) == (False, None)
    assert all_of_it.seconds == made.seconds
    assert sweeps.sweep(config, load, None, 2, device).seconds is None


def test_what_optuna_will_propose_counts_as_the_base_variant() -> None:
    config, load = preset("phrasebook-search"), load_of("phrasebook", 80_000)
    device = devices.Device("CPU", 2, "float32")
    made = sweeps.sweep(config, load, Speed(1e10, 0.0, ""), 2, device)
    base, proposals = made.rows
    assert proposals.trainings == config.sweep.samples
    assert proposals.flops == pytest.approx(config.sweep.samples * base.flops)
    assert sweeps.count(config, load) == 1 + config.sweep.samples
    assert "not known" in (made.note or "")


def test_the_last_of_several_works() -> None:
    pause = sweeps.BETWEEN_TRIALS
    assert sweeps.makespan([3, 1, 1, 1], 2) == pytest.approx(3 + 3 * pause)
    assert sweeps.makespan([2], 8) == pytest.approx(2 + pause)
    assert sweeps.makespan([1, 1], 1) == pytest.approx(2 + 2 * pause)


# --- the machine here ----------------------------------------------------------------------------


def test_gpus_that_are_not_here_leave_time_open(project: Path) -> None:
    made = plan(project)
    train = next(stage for stage in made["stages"] if stage["stage"] == "train")
    assert train["seconds"] is None
    assert made["total"]["seconds"] is None
    assert "--on '8 x H100'" in made["notes"][0]
    shown = overview(made)
    assert "unknown" in shown
    assert "63.05M parameters" in shown
    with pytest.raises(UserError, match="--mfu is a share of a GPU's peak"):
        plan(project, mfu=0.3)
    with pytest.raises(UserError, match=r"--mfu is 1\.5: it must be above 0"):
        plan(project, on="H100", mfu=1.5)
    assert cli.main(["plan", "--on", "8 x Z80"]) == 2


def test_gpus_of_this_machine_are_planned_for(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, "base", **{"cluster.workers": 2})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    properties = SimpleNamespace(total_memory=140 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    made = plan(project)
    device = made["device"]
    assert (device["name"], device["count"], device["memory"]) == ("H200", 2, 140 * 2**30)
    assert device["mfu"] == pytest.approx(0.15)
    assert made["total"]["cost"] == pytest.approx(3.99 * made["total"]["device_hours"])
    # Without the table all is there but what it says.
    (project / "infra/prices.yaml").unlink()
    assert plan(project)["total"]["cost"] is None
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert plan(project)["device"]["name"] == "CPU"


def test_what_does_not_run_is_not_tried_and_not_summed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Task] = []

    def tried(tasks: list[Task], _: object) -> list[Rate]:
        asked.extend(tasks)
        return [Rate(2e10, 2500, busy=False) for _ in tasks]

    monkeypatch.setattr("seq2sweep.planning.machine.calibrate", tried)
    names = ("download", "prepare", "vocabulary", "train", "evaluate", "sweep", "report")
    # As long as encode runs, which is after all of them here, no encoded text is looked for.
    running = [Stage(name, name == "sweep", "") for name in names] + [Stage("encode", True, "")]
    monkeypatch.setattr("seq2sweep.planning.stages.stages", lambda _: running)
    write(project, "phrasebook")
    (project / "data/raw").mkdir(parents=True)
    splits = {"train": [{"lines": 71_234}], "valid": [{"lines": 900}], "test": [{"lines": 800}]}
    (project / "data/raw/provenance.json").write_text(json.dumps({"splits": splits}))
    made = plan(project)
    assert made["data"]["pairs"] == 71_234  # as download says, which is not to run
    assert [task.config.model.layers for task in asked] == [1]
    by_name = {stage["stage"]: stage for stage in made["stages"]}
    assert by_name["train"]["seconds"] is None
    assert made["total"]["seconds"] == pytest.approx(
        by_name["sweep"]["seconds"] + by_name["encode"]["seconds"]
    )
    disk = made["data"]["disk"]
    assert disk["clean"] == 0 < disk["encoded"]
    kept = 12 * parameters_kept(made)
    assert disk["checkpoints"] == pytest.approx(kept)
    shown = overview(made)
    assert "nothing to do" in shown
    assert "en to de: 71,234 training pairs" in shown
    assert "updates  " not in shown
    monkeypatch.setattr("seq2sweep.planning.stages.stages", lambda _: running[:5] + running[7:])
    asked.clear()
    plan(project)
    assert not asked


def parameters_kept(made: dict[str, Any]) -> float:
    """Parameters in the checkpoints that the trials keep."""
    keep = preset("phrasebook").train.keep_checkpoints
    return sum(keep * row["trainings"] * row["parameters"] for row in made["sweep"]["rows"])


def test_trials_that_do_not_fit_are_named(project: Path) -> None:
    write(project, "wmt14-en-de-table3", **{"train.tokens_per_pass": 20_000})
    (note,) = plan(project, on="8 x P100")["notes"]
    assert "C-d_model-1024" in note
    assert "lower train.tokens_per_pass" in note
    assert "(base" not in note


def test_cpus_are_tried_with_the_workers_of_params(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Task] = []

    def tried(tasks: list[Task], _: object) -> list[Rate]:
        asked.extend(tasks)
        return [Rate(5e10, 2500, busy=True), Rate(2e10, 2500, busy=False)]

    monkeypatch.setattr("seq2sweep.planning.machine.calibrate", tried)
    monkeypatch.setattr("seq2sweep.planning.machine.available_cpus", lambda: 4)
    write(project, "phrasebook", **{"sweep.scheduler": "asha"})
    made = plan(project)
    assert [(task.copies, task.workers, task.threads) for task in asked] == [(1, 2, 2), (4, 1, 1)]
    assert asked[1].config.model.layers == 1
    parts = {
        p["part"]: p["seconds"] for s in made["stages"] if s["stage"] == "train" for p in s["parts"]
    }
    assert parts["updates"] == pytest.approx(made["training"]["flops"] / 5e10)
    base = made["sweep"]["rows"][0]
    assert base["seconds"] > base["flops"] / 2e10
    assert any("other work held the CPUs" in note for note in made["notes"])
    assert made["total"]["at_most"]
    assert made["total"]["least_seconds"] < made["total"]["seconds"]
    assert made["total"]["cost"] is None
    write(project, "phrasebook", **{"cluster.workers": 8})
    assert "do not fit 4 CPUs" in plan(project)["notes"][0]


def test_the_best_window_counts_unless_others_hold_the_cpus() -> None:
    config = preset("phrasebook")
    # FLOPs, seconds, seconds of CPU, seconds of waiting for one.
    quiet = [(1e9, 1.0, 0.9, 0.0), (1e9, 0.5, 0.45, 0.0), (1e9, 0.5, 0.45, 0.0)]
    rate = calibration._rate(Task(config, 1, 1, 1), [quiet])
    assert (rate.busy, rate.flops_per_second) == (False, pytest.approx(2e9))
    busy = [(1e9, 3.0, 0.5, 2.0)] * 3
    rate = calibration._rate(Task(config, 1, 1, 1), [busy])
    assert (rate.busy, rate.flops_per_second) == (True, pytest.approx(1e9 / (1.1 * 0.5)))
    # The slower of two workers holds up the other; of two copies the mean counts.
    slower = [(1e9, 3.0, 1.0, 2.0)] * 3
    rate = calibration._rate(Task(config, 1, 2, 1), [busy, slower])
    assert rate.flops_per_second == pytest.approx(1e9 / 1.1)
    rate = calibration._rate(Task(config, 2, 1, 1), [busy, slower])
    assert rate.flops_per_second == pytest.approx(1.5e9 / 1.1)


def test_a_calibration_trains_for_real_and_leaves_nothing(
    tiny_corpus: Corpus, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "SECONDS", 0.1)
    monkeypatch.setattr(calibration.tempfile, "tempdir", str(tmp_path))
    load = workload.workload(tiny_config, {"train": 7}, tiny_corpus.encoded)
    sharded = configuration.with_changes(tiny_config, {"cluster.fsdp": True})
    tasks = [Task(tiny_config, 1, 2, 1), Task(tiny_config, 2, 1, 1), Task(sharded, 1, 2, 1)]
    found = calibration.calibrate(tasks, load)
    assert len(found) == 3
    # A tiny model, on a machine of whatever speed.
    assert all(1e6 < rate.flops_per_second < 1e13 for rate in found)
    assert all(rate.tokens_per_update == 300 for rate in found)
    assert not list(tmp_path.iterdir())


def test_a_large_model_is_tried_with_fewer_tokens() -> None:
    config, load = preset("base"), load_of("base", 4_500_000)
    short = calibration._shortened(Task(config, 1, 2, 1), load)
    assert short.train.tokens_per_update == calibration.FEWEST_TOKENS
    assert short.model == config.model
