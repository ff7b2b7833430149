"""Devices by name, and those of this machine."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from seq2sweep import cli
from seq2sweep.cluster import session
from seq2sweep.errors import UserError
from seq2sweep.planning import machine, workload
from seq2sweep.planning.plan import plan
from seq2sweep.planning.render import overview
from tests.planning.conftest import load_of, preset, record_run, write


def test_devices_are_found_by_a_part_of_their_name(project: Path) -> None:
    config = preset("base")

    def found(text: str) -> machine.Device:
        return machine.parse(text, config, project)

    assert (found("8 x P100").name, found("8xp100").count) == ("Tesla P100-SXM2-16GB", 8)
    assert found("H100").name == "H100 80GB HBM3"
    assert found("2 X a100 40gb").name == found("2 × A100 40GB").name == "A100-SXM4-40GB"
    assert found("NVIDIA H100 PCIe").per_hour == 2.89
    assert (found("T4").precision, found("T4").peak) == ("float32", 8.1e12)
    with pytest.raises(UserError, match=r"no device K80; it has H100 80GB HBM3, "):
        found("8 x K80")
    assert found("64 x H100").network == 3200e9
    assert found("8 x H200").network == 1e9 * machine.NETWORK
    stated = found("64 x H100 PCIe, 40 Gbit/s")
    assert (stated.count, stated.name, stated.network) == (64, "H100 PCIe", 40e9)
    assert found("H100,12.5Gb/s").network == 12.5e9
    rates = found("2 x H200").rates(0.5)
    assert rates is not None
    assert rates.product == pytest.approx(365e12)
    assert (rates.bandwidth, rates.links.inside) == (0.45 * 4800e9, 360e9)
    assert rates.links.network == pytest.approx(10e9)
    odd = ["8 x -", "-", f"{'9' * 5000} x H100"]
    for text in ("0 x H100", "", "8 x ", "8 x H100, 0 Gbit/s", "8 x H100, fast", *odd):
        with pytest.raises(UserError, match=r"--on .*(write it as|has no device)"):
            found(text)
    write(project, "base", **{"train.precision": "bf16"})
    with pytest.raises(UserError, match=r"bf16 peak of Tesla P100-SXM2-16GB is not known: set "):
        plan(project, on="P100")


def test_memory_of_a_job_is_what_its_groups_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = machine._memory_bytes()
    groups = [(whole / 2, whole / 9), (whole / 4, whole / 8)]
    monkeypatch.setattr(machine, "own_groups", lambda: groups)
    assert machine._memory_bytes() == whole / 4


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("devices: [a]\ncurrency: USD", "must have `currency` and `devices`"),
        ("currency: USD\ndevices: {L4: {watts: -1}}", "L4: watts: -1"),
        ("currency: USD\ndevices: {L4: {price: 1}}", "known are link_gb_per_s, memory_gb, "),
        ("{", "must have"),
        ("currency: £\ndevices: {L4: {watts: 1}}", "must have"),
    ],
)
def test_a_wrong_table_is_one_line(project: Path, text: str, what: str) -> None:
    (project / "infra/prices.yaml").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=what) as error:
        plan(project, on="L4")
    assert "\n" not in str(error.value)
    (project / "infra/prices.yaml").unlink()
    with pytest.raises(UserError, match=r"infra/prices\.yaml is missing"):
        plan(project, on="L4")


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


def have_h200s(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this machine had so many."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    properties = SimpleNamespace(total_memory=140 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)


def test_gpus_of_this_machine_are_planned_for(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(project, "base", **{"cluster.workers": 2})
    have_h200s(2, monkeypatch)
    made = plan(project)
    device = made["device"]
    assert (device["name"], device["count"], device["memory"]) == ("H200", 2, 140 * 2**30)
    assert device["how"].startswith("predicted by a roofline of the model, ")
    assert device["network"] == 100e9
    assert made["total"]["cost"] == pytest.approx(3.99 * made["total"]["device_hours"])
    # Without the table all is there but what it says.
    (project / "infra/prices.yaml").unlink()
    without = plan(project)
    assert without["total"]["cost"] is None
    assert without["device"]["how"].startswith("assumed: 15 % of the peak")
    # One that no table has is planned for once there is a run.
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA Z1")
    with pytest.raises(UserError, match=r"bf16 peak of Z1 is not known: add the peak"):
        plan(project)
    training = made["training"]
    tokens = training["source_tokens"] + training["target_tokens"]
    record_run(
        project / "runs/train-1",
        device="NVIDIA Z1",
        precision="bf16",
        tokens_per_update=tokens / training["steps"],
        flops=training["flops"] / tokens * 2000,
        flops_per_second=3e14,
    )
    device = plan(project)["device"]
    assert (device["flops_per_second"], device["mfu"]) == (6e14, None)
    assert device["how"] == "from the run of 2025-11-20 on such GPUs"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert plan(project)["device"]["name"] == "CPU"


def test_trials_take_all_gpus_of_this_machine(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few the training takes; as many as Ray gives CPUs to as well."""
    have_h200s(8, monkeypatch)
    monkeypatch.setattr(machine, "available_cpus", lambda: 16)
    changes = {"sweep.method": "one_at_a_time", "sweep.space": {"model.d_ff": [512, 1024, 4096]}}
    changes |= {"cluster.workers": 1, "sweep.seeds": 4}
    changes |= {"sweep.cpus_per_trial": 1, "sweep.gpus_per_trial": 1.0}
    write(project, "base", **changes)
    made = plan(project)
    by_name = {stage["stage"]: stage["seconds"] for stage in made["stages"]}
    assert (made["device"]["count"], made["sweep"]["slots"]) == (1, 8)
    at_once = sum(row["trainings"] * row["seconds"] for row in made["sweep"]["rows"]) / 8
    assert at_once < by_name["sweep"] < 2 * at_once
    hours = (by_name["train"] + by_name["evaluate"] + 8 * by_name["sweep"]) / 3600
    assert made["total"]["device_hours"] == pytest.approx(hours)

    def planned(**more: float | str) -> tuple[int, list[str]]:
        of_sweep = {f"sweep.{key}": value for key, value in more.items()}
        found = machine.planned(preset("base", **changes | of_sweep), None, project, None)
        return found.slots, found.notes

    assert planned(gpus_per_trial=0.5) == (16, [])
    assert planned(cpus_per_trial=4) == (4, [])
    # More than the training takes is no more than there is.
    assert planned(workers_per_trial=4) == (2, [])
    said = "a trial of the sweep takes {}, more than there are: counted as if {} were enough"
    assert planned(workers_per_trial=9) == (1, [said.format("9 devices", 8)])
    assert planned(cpus_per_trial=20) == (1, [said.format("20 CPUs", 16)])
    without = {"method": "none", "gpus_per_trial": 0.0}
    assert planned(**without)[1] == planned(**without | {"workers_per_trial": 9})[1] == []
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    (elsewhere,) = planned()[1]
    assert "is not asked: this is for the machine here" in elsewhere
    assert not any("not asked" in note for note in plan(project, on="8 x H200")["notes"])
    # Of devices that are named all are held.
    named = plan(project, on="8 x H200")
    by_name = {stage["stage"]: stage["seconds"] for stage in named["stages"]}
    hours = 8 * sum(by_name[stage] for stage in ("train", "evaluate", "sweep")) / 3600
    assert named["total"]["device_hours"] == pytest.approx(hours)


def test_cpus_train_with_the_workers_of_params(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2sweep.planning.machine.available_cpus", lambda: 4)
    write(project, "phrasebook", **{"sweep.scheduler": "asha"})
    training = plan(project)["training"]
    sizes = [(training["source_tokens"] + training["target_tokens"]) / training["steps"]]
    sizes.append(sizes[0] / 4)  # sweep.base
    record_run(project / "runs/train-1", threads=2, tokens_per_update=sizes[0])
    of_trial = {"flops": 1e6 * 2000, "workers": 1, "tokens_per_update": sizes[1]}
    record_run(project / "runs/sweep-1/trials/base-1", **of_trial)
    made = plan(project)
    parts = {
        p["part"]: p["seconds"] for s in made["stages"] if s["stage"] == "train" for p in s["parts"]
    }
    assert parts["updates"] == pytest.approx(made["training"]["flops"] / 2e10)
    assert made["device"]["how"] == "from the run of 2025-11-20 on such CPUs"
    assert made["device"]["about"] is False
    assert made["sweep"]["slots"] == 4
    base = made["sweep"]["rows"][0]
    assert base["seconds"] > base["flops"] / 1e10
    assert base["about"] is False
    assert made["total"]["at_most"]
    assert made["total"]["least_seconds"] < made["total"]["seconds"]
    assert made["total"]["cost"] is None
    # The variant of half the width is none that a run was recorded of.
    assert made["total"]["about"]
    assert ", from " in overview(made).splitlines()[-1]
    # Half a CPU a trial: twice as many at once, each half as fast as a training of one CPU.
    record_run(project / "runs/train-2", **of_trial)
    half = {"flops_per_second": 0.5e10, "time": 1_763_700_000.0}
    record_run(project / "runs/sweep-1/trials/base-2", **of_trial | half)
    write(project, "phrasebook", **{"sweep.scheduler": "asha", "sweep.cpus_per_trial": 0.5})
    halves = plan(project)["sweep"]
    assert halves["slots"] == 8
    of_half = halves["rows"][0]
    assert of_half["seconds"] > of_half["flops"] / 0.5e10 > base["seconds"]
    assert of_half["seconds"] < of_half["flops"] / 0.3e10
    assert of_half["device_hours"] == pytest.approx(base["device_hours"], rel=0.3)
    # More than there is for a trial.
    write(project, "phrasebook", **{"sweep.cpus_per_trial": 5, "sweep.gpus_per_trial": 1})
    large = plan(project)
    assert large["sweep"]["slots"] == 1
    assert large["notes"] == [
        "a trial of the sweep takes 5 CPUs, more than there are: counted as if 4 were enough",
        "a trial of the sweep takes 1 GPUs, of which there are 0 here: "
        "counted on CPUs; --on plans for GPUs",
    ]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert "of which there are 2 here: counted on CPUs" in plan(project)["notes"][1]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    none = {"sweep.cpus_per_trial": 5, "sweep.method": "none"}
    write(project, "phrasebook", **none)
    assert plan(project)["notes"] == []
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert "is not asked" in plan(project)["notes"][0]
    monkeypatch.delenv("RAY_ADDRESS")
    write(project, "phrasebook", **{"cluster.workers": 8})
    assert "do not fit 4 CPUs" in plan(project)["notes"][0]
    # What is not set, or at its least, cannot be lowered.
    for each, less in ((None, ""), (1, ""), (2, " or cluster.cpus_per_worker")):
        write(project, "phrasebook", **{"cluster.workers": 8, "cluster.cpus_per_worker": each})
        assert plan(project)["notes"][0].endswith(f": lower cluster.workers{less}")


@pytest.mark.parametrize(
    ("workers", "fewest", "each", "cpus"),
    [(8, 1, None, 2), (8, 3, None, 5), (4, 1, 2, 6), (4, 2, None, 8), (2, 1, 3, 3)],
)
def test_as_many_workers_are_counted_as_a_run_starts(
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    fewest: int,
    each: int | None,
    cpus: int,
) -> None:
    monkeypatch.setattr(machine, "available_cpus", lambda: cpus)
    changes = {"cluster.workers": workers, "cluster.min_workers": fewest}
    config = preset("phrasebook", **changes, **{"cluster.cpus_per_worker": each})
    node = [session.Node(cpus, 0)]
    threads = session.cpus_per_worker(config.cluster, node)
    started = min(workers, session.places(node, threads, 0))
    here = machine.planned(config, None, project, None)
    assert (here.enough, here.workers, here.each) == (True, started, threads)
    said = [f"of {workers} workers {started} have room here: counted is a run of these, which "]
    assert [note.split("cluster.")[0] for note in here.notes] == said * (started < workers)


def test_fewer_workers_than_must_be_there_are_not_counted(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "available_cpus", lambda: 2)

    def planned(fewest: int, **more: int | str) -> machine.Machine:
        changes = {"workers": 8, "min_workers": fewest, **more}
        named = {f"cluster.{key}": value for key, value in changes.items()}
        return machine.planned(preset("phrasebook", **named), None, project, None)

    for fewest, each, less in (
        (3, 1, "min_workers"),
        (2, 2, "min_workers or cluster.cpus_per_worker"),
        (1, 3, "cpus_per_worker"),
    ):
        here = planned(fewest, cpus_per_worker=each)
        assert not here.enough
        said = f"{fewest} workers of {each} CPU each do not fit 2 CPUs: lower cluster.{less}"
        assert here.notes == [said]
    # On a cluster, which is not asked, all may have room.
    elsewhere = planned(1, cpus_per_worker=1, address="10.0.0.1:6379")
    assert not elsewhere.enough
    assert "8 workers of 1 CPU each do not fit 2 CPUs here" in elsewhere.notes
    # Of GPUs alike.
    have_h200s(4, monkeypatch)
    assert not planned(3, gpus_per_worker=1, address="10.0.0.1:6379").enough
    some = planned(3, gpus_per_worker=1)
    assert (some.device.name, some.device.count, some.workers) == ("H200", 4, 4)
    assert some.notes[0].startswith("of 8 workers 4 have room here: ")
    assert not planned(5, gpus_per_worker=1).enough


@pytest.mark.parametrize("trained", [False, True])
def test_all_cpus_translate_however_few_have_trained(
    project: Path, monkeypatch: pytest.MonkeyPatch, trained: bool
) -> None:
    """What a rate is from: an assumption, or a run of one worker of one thread."""
    monkeypatch.setattr(machine, "available_cpus", lambda: 8)
    config = preset("phrasebook", **{"cluster.workers": 1, "cluster.cpus_per_worker": 1})
    load = load_of("phrasebook", 2000)
    size = workload.training(config, load).tokens_per_update
    if trained:
        record_run(project / "runs/train-1", workers=1, tokens_per_update=size)
    here = machine.planned(config, None, project, None)
    one, all_of_them = here.training_speed(config, load), here.decoding_speed(config, load)
    assert one is not None
    assert all_of_them is not None
    assert all_of_them.flops_per_second == pytest.approx(8 * one.flops_per_second)
    assert (one.about, all_of_them.about) == (not trained, True)
    # All CPUs have trained: as exact as that.
    config = preset("phrasebook", **{"cluster.workers": 4})
    record_run(project / "runs/train-2", workers=4, threads=2, tokens_per_update=size)
    again = machine.planned(config, None, project, None).decoding_speed(config, load)
    assert again is not None
    assert not again.about


@pytest.mark.parametrize(("share", "slots"), [(0.6, 8), (0.4, 16), (0.25, 32), (1.0, 8)])
def test_a_share_of_a_gpu_is_of_one_gpu(project: Path, share: float, slots: int) -> None:
    """And what no other trial can have of it is the trial's too."""
    config = preset("base", **{"sweep.gpus_per_trial": share})
    device = machine.parse("8 x H100", config, project)
    here = machine.planned(config, device, project, None)
    assert (here.slots, here.trial_devices) == (slots, 8 / slots)
    assert device.memory is not None
    assert here.trial_memory(config) == device.memory * 8 / slots


def test_runs_on_gpus_count_before_an_assumed_mfu(project: Path) -> None:
    flops = plan(project, on="8 x H100")["training"]
    tokens = flops["source_tokens"] + flops["target_tokens"]
    figures = {
        "device": "NVIDIA H100 80GB HBM3",
        "precision": "bf16",
        "threads": 16,
        "workers": 8,
        "tokens_per_update": tokens / flops["steps"],
        "flops": flops["flops"] / tokens * 2000,
        "flops_per_second": 2e14,
    }
    record_run(project / "runs/train-1", **figures)
    # What share of a GPU a trial had is not known.
    record_run(project / "runs/sweep-1/trials/base-1", **figures | {"flops_per_second": 1e14})
    made = plan(project, on="8 x H100")
    assert made["device"]["flops_per_second"] == 16e14
    assert made["device"]["how"] == "from the run of 2025-11-20 on such GPUs"
    # It has started its kernels in that time too.
    assert made["stages"][4]["parts"][1]["seconds"] == pytest.approx(flops["flops"] / 16e14)
    # By how much better a roofline says that one does which exchanges nothing.
    alone = plan(project, on="H100")["device"]
    assert 2e14 < alone["flops_per_second"] < 8e14
    assert alone["about"]
    assert alone["how"].endswith("such GPUs with 8 worker(s), scaled by a roofline")
    given = plan(project, on="8 x H100", mfu=0.4)["device"]
    assert given["mfu"] == pytest.approx(0.4)
    assert given["how"] == "40 % of the peak, as --mfu says"
    assert plan(project, on="8 x H200")["device"]["how"].startswith("predicted by a roofline")
