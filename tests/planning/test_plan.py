"""The whole plan: FLOPs, time and cost, by arithmetic done anew here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seq2sweep.config import TransformerConfig
from seq2sweep.planning import speed, workload
from seq2sweep.planning.exchange import Links
from seq2sweep.planning.plan import plan
from seq2sweep.planning.render import as_time, overview
from seq2sweep.planning.roofline import Rates, Share, predicted
from seq2sweep.planning.stages import Stage
from tests.planning.conftest import preset, write


@pytest.mark.parametrize(
    ("name", "millions", "flops", "paper_days", "of_roofline"),
    [("base", 63.05, 9.0e17, 0.5, 2.8), ("big", 214.17, 9.1e18, 3.5, 2.1)],
)
def test_what_the_papers_models_take(
    project: Path,
    name: str,
    millions: float,
    flops: float,
    paper_days: float,
    of_roofline: float,
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
    # Within the span that is said of a roofline, of which the paper's own runs are the reason.
    assert 86400 * paper_days / train["seconds"] == pytest.approx(of_roofline, abs=0.1)
    assert spans(made) == {(1.0, 3.0)}
    updates = next(part["seconds"] for part in train["parts"] if part["part"] == "updates")
    assert training["paper_rule_flops"] == pytest.approx(updates * 8 * 9.5e12)


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
    # Hours that may be more are no upper bound of the energy.
    assert f"  about {0.7 * hours:,.1f} kWh at full power, of the devices alone" in overview(made)
    assert total["currency"] == "USD"
    assert total["seconds"] == pytest.approx(sum(stage["seconds"] for stage in made["stages"]))
    assert not total["at_most"]


def test_gpus_are_predicted_by_a_roofline(project: Path) -> None:
    config = preset("base")
    assert isinstance(config.model, TransformerConfig)
    made = {on: plan(project, on=on) for on in ("1 x H100", "8 x H100", "64 x H100, 40 Gb/s")}
    for gpus, each in zip((1, 8, 64), made.values(), strict=True):
        device, training = each["device"], each["training"]
        steps = training["steps"]
        of_one = [training[key] / steps for key in ("source_tokens", "target_tokens", "flops")]
        share = Share(*(number / gpus for number in of_one), 1)
        rates = Rates(730e12, 0.9 * 3350e9, Links(360e9, 0.8 * (5e9 if gpus > 8 else 400e9)))
        update = predicted(config.model, 37_000, share, rates, "bf16", gpus)
        parts = next(s["parts"] for s in each["stages"] if s["stage"] == "train")
        assert parts[1]["seconds"] == pytest.approx(steps * update.seconds)
        assert device["how"].startswith("predicted by a roofline of the model, ")
        assert device["about"]
        low = update.busy + update.exchange
        spread = pytest.approx(low / update.seconds), 3.0
        assert parts[1]["span"] == spread
        # What is stated is neither shorter nor longer.
        known, stated = parts_by_rate(each)
        assert each["total"]["least_seconds"] == pytest.approx(
            sum(stated) + sum(seconds * least for seconds, (least, _) in known)
        )
        assert each["total"]["most_seconds"] == pytest.approx(
            sum(stated) + sum(3 * seconds for seconds, _ in known)
        )
        assert len(device["detail"]) == 2 + (gpus > 1)
    shown = overview(each)
    assert "exchange of 252 MB of gradients: " in shown
    assert "at 360 GB/s in a machine and 32 Gbit/s between 8 machines" in shown
    least, most = (as_time(each["total"][f"{end}_seconds"]) for end in ("least", "most"))
    assert f", from {least} to {most}: rates were not measured with these models" in shown
    assert "together about" in shown
    assert f"{100 * made['1 x H100']['device']['mfu']:.0f}% of the peak" in overview(
        made["1 x H100"]
    )


def test_an_update_may_take_what_the_gpu_alone_takes(project: Path) -> None:
    """Where the CPU that starts kernels is what takes so long: a faster one makes it shorter."""
    write(project, "base", **{"cluster.fsdp": True})
    made = plan(project, on="8 x H100")
    training, model = made["training"], preset("base").model
    assert isinstance(model, TransformerConfig)
    of_one = [training[key] / training["steps"] / 8 for key in (
        "source_tokens", "target_tokens", "flops"
    )]  # fmt: skip
    rates = Rates(730e12, 0.9 * 3350e9, Links(360e9, 0.8 * 400e9))
    update = predicted(model, 37_000, Share(*of_one, 1), rates, "bf16", 8, True)
    parts = next(stage["parts"] for stage in made["stages"] if stage["stage"] == "train")
    low, high = next(part["span"] for part in parts if part["part"] == "updates")
    assert low == pytest.approx((update.busy + update.exchange) / update.seconds)
    assert low < 0.7
    assert high == 3.0


def test_other_models_are_assumed_to_reach_a_share_of_the_peak(project: Path) -> None:
    write(project, "wmt14-en-de-gnmt")
    made = plan(project, on="8 x H100")
    assert made["device"]["how"].startswith("assumed: 15 % of the peak")
    assert spans(made) == {(0.5, 2.0)}
    assert any("what the devices send to each other is not counted" in n for n in made["notes"])
    # In float32, which is all that some GPUs know, that of any other kind of GPU.
    assert plan(project, on="8 x V100")["device"]["how"].startswith("assumed: 30 % of the peak")


def parts_by_rate(made: dict[str, Any]) -> tuple[list[tuple[float, Any]], list[float]]:
    """Of what runs: seconds and span of the parts that a rate gives, and seconds of the others."""
    parts = [part for stage in made["stages"] if stage["runs"] for part in stage["parts"]]
    names = {"updates", "validation", "decoding and scores", "heads"}
    assert {part["part"] for part in parts} == {
        *names, "start and end", "checkpoints", "work", "trials", "timings"
    }  # fmt: skip
    assert next(part["seconds"] for part in parts if part["part"] == "trials") == 0  # no sweep
    by_rate = [(part["seconds"], part["span"]) for part in parts if part["part"] in names]
    stated = [part for part in parts if part["part"] not in names]
    assert {part["span"] for part in stated} == {(1.0, 1.0)}
    return by_rate, [part["seconds"] for part in stated]


def spans(made: dict[str, Any]) -> set[tuple[float, float]]:
    """How many times as long parts may take that a rate gives."""
    return {span for _, span in parts_by_rate(made)[0]}


def test_what_does_not_run_is_not_summed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    by_name = {stage["stage"]: stage for stage in made["stages"]}
    assert by_name["train"]["seconds"] > 25
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


def test_what_trials_leave_in_a_bucket_is_not_on_this_disk(project: Path) -> None:
    def checkpoints(**changes: Any) -> float:
        write(project, "phrasebook", **changes)
        return float(plan(project)["data"]["disk"]["checkpoints"])

    alone = checkpoints(**{"sweep.method": "none"})
    assert checkpoints() > alone
    assert checkpoints(**{"cluster.storage": "s3://bucket/runs"}) == alone


def test_the_parts_of_the_disk_are_all_of_it(project: Path) -> None:
    made = plan(project, on="8 x H100")
    disk = made["data"]["disk"]
    parts = [name for name in disk if name not in ("needed", "free", "short")]
    assert disk["needed"] == pytest.approx(sum(disk[name] for name in parts))
    (line,) = [line for line in overview(made).splitlines() if "    downloads " in line]
    for name in parts:
        disk[name] = 123_456_789
    (again,) = [line for line in overview(made).splitlines() if "    downloads " in line]
    assert again.count("123MB") == len(parts) == line.count(",") + 1


def parameters_kept(made: dict[str, Any]) -> float:
    """Parameters in the checkpoints that the trials keep."""
    keep = preset("phrasebook").train.keep_checkpoints
    return sum(keep * row["trainings"] * row["parameters"] for row in made["sweep"]["rows"])


def test_heads_are_left_out_one_by_one(project: Path) -> None:
    def seconds(**changes: Any) -> Any:
        write(project, "phrasebook", **changes)
        made = plan(project, on="1 x H100", mfu=0.4)
        (parts,) = (s["parts"] for s in made["stages"] if s["stage"] == "attention")
        return [part["seconds"] for part in parts if part["part"] == "heads"]

    (whole,) = seconds()
    # Two layers of an encoder, a decoder and its memory, four heads each: and one pass with all.
    assert seconds(**{"model.heads": 8, "model.d_k": 16, "model.d_v": 16}) == [
        pytest.approx(whole * (1 + 48) / (1 + 24))
    ]
    assert seconds(**{"attention.measured": 100}) == [pytest.approx(whole / 2)]
    assert seconds(**{"attention.measured": 10**9}) == [pytest.approx(whole * 5)]
    assert seconds(**{"attention.sentences": 0}) == [0.0]


def test_what_is_not_scored_takes_no_time_for_scores(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sentences that teach a parser are only parsed; of the test set both searches are scored."""
    write(project, "parsing", **{"self_training.sentences": 5000, "data.phrasebook.test": 700})
    taught = ("teacher", "silver", "student", "evaluate")

    def seconds() -> list[float]:
        made = plan(project, on="1 x H100")
        return [stage["seconds"] for stage in made["stages"] if stage["stage"] in taught]

    before = seconds()
    monkeypatch.setattr(speed, "SCORING_SECONDS", speed.SCORING_SECONDS + 1)
    added = [after - each for after, each in zip(seconds(), before, strict=True)]
    by_stage = {"evaluate": 2 * 700, "teacher": 0, "silver": 0, "student": 2 * 700}
    assert added == pytest.approx([*by_stage.values()])
