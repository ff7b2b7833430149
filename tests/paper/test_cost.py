"""What a training cost (sections 5.2 and 6.1, Table 2): operations, utilisation, energy."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from seq2sweep import config as configuration
from seq2sweep import hardware
from seq2sweep.config import Config
from seq2sweep.data import vocabulary
from seq2sweep.data.batching import plan_epoch
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.vocabulary import PAD
from seq2sweep.errors import UserError
from seq2sweep.hardware import paper_rule
from seq2sweep.train import loop
from seq2sweep.train.events import CheckpointDue, Event, Finished, Logged
from seq2sweep.train.loop import train
from seq2sweep.train.metrics import Progress

from ..conftest import Corpus, write_encoded
from ..processes import run_together

CPU = torch.device("cpu")


def test_paper_rule_gives_the_papers_figures() -> None:
    base = paper_rule(12 * 3600, 8, "Tesla P100-SXM2-16GB")
    big = paper_rule(3.5 * 86400, 8, "P100")
    assert f"{base:.1e}" == "3.3e+18"
    assert f"{big:.1e}" == "2.3e+19"
    rates = {name: paper_rule(1, 1, name) for name in ("K80", "Tesla K40c", "M40")}
    assert rates == {"K80": 2.8e12, "Tesla K40c": 3.7e12, "M40": 6.0e12}
    assert paper_rule(1, 1, "CPU") is None
    assert paper_rule(1, 1, "NVIDIA A40") is None


def run(config: Config, encoded: Path, folder: Path, **options: Any) -> list[Event]:
    folder.mkdir(exist_ok=True)
    events = []
    for event in train(config, encoded, device=CPU, **options):
        if isinstance(event, CheckpointDue):
            event.capture().write(folder / f"step-{event.step}")
        events.append(event)
    return events


def summary(events: list[Event]) -> dict[str, Any]:
    assert isinstance(events[-1], Finished)
    return events[-1].summary


def same_device(name: str, patch: pytest.MonkeyPatch) -> None:
    """Let the CPU pass for a device of this name."""
    patch.setattr(hardware, "device_name", lambda device: name)


def steady_meter(joules: float) -> Callable[[torch.device], Callable[[], float]]:
    """An energy counter that is so many joules further at each reading."""

    def counter(device: torch.device) -> Callable[[], float]:
        readings = iter(np.arange(1000.0, 1e9, joules))
        return lambda: float(next(readings))

    return counter


# --- what is computed ----------------------------------------------------------------------------


def _count_while_training(
    rank: int, world: int, folder: Path, config: Config, encoded: Path
) -> None:
    """Train as one of several workers; writes what its batches held and what torch counted."""
    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder / 'meeting'}",
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=300),
        )
    found = {"cells": 0, "pieces": 0, "counted": 0, "blanks": 0}
    accumulate = loop.accumulate

    def watched(model: Any, batches: Any, **options: Any) -> Any:
        queue = list(batches)
        for batch in queue:
            blank = not bool((batch.target != PAD).any())
            found["blanks"] += blank
            found["cells"] += batch.source.numel() + batch.target_in.numel()
            if not blank:
                found["pieces"] += int((batch.source != PAD).sum() + (batch.target_in != PAD).sum())
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            result = accumulate(model, queue, **options)
        found["counted"] += counter.get_total_flops()
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "accumulate", watched)
        same_device(("NVIDIA L4", "NVIDIA L40")[rank % 2], patch)
        # The last of four workers cannot tell its energy.
        counter = steady_meter(10.0 * (rank + 1)) if rank < 3 else lambda device: lambda: None
        patch.setattr(hardware, "energy_counter", counter)
        events = list(train(config, encoded, rank=rank, world_size=world, device=CPU))
    found["summary"] = summary(events)
    (folder / f"{rank}.json").write_text(json.dumps(found))
    if world > 1:
        dist.destroy_process_group()


@pytest.mark.parametrize("world", [1, 2, 4])
def test_costs_are_those_of_what_all_workers_computed(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, world: int
) -> None:
    """Against the batches themselves and torch's own counter of operations."""
    config = configuration.with_changes(
        tiny_config,
        {
            "train.steps": 5,
            # With four workers some have no sentence and compute a blank.
            "train.tokens_per_update": 60,
            "train.tokens_per_pass": 25,
            "train.precision": "float32",
        },
    )
    if world == 1:
        _count_while_training(0, 1, tmp_path, config, tiny_corpus.encoded)
    else:
        run_together(
            _count_while_training,
            [(rank, world, tmp_path, config, tiny_corpus.encoded) for rank in range(world)],
        )
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(world)]
    cost = found[0]["summary"]
    pieces = sum(each["pieces"] for each in found)
    cells = sum(each["cells"] for each in found)
    assert cost["source_tokens"] + cost["target_tokens"] == pieces < cells
    assert cost["padded_flops"] == sum(each["counted"] for each in found)
    assert cost["padding_share"] == pytest.approx(1 - cost["flops"] / cost["padded_flops"])
    assert 0 < cost["flops"] < cost["padded_flops"]
    if world == 4:
        assert sum(each["blanks"] for each in found) > 0

    # Marks of the wall clock: logs at 2, 4 and 5, a validation at 4 and 5, the end.
    joules = 4 * 10 * sum(range(1, world + 1))
    assert cost["energy_kwh"] == (None if world == 4 else pytest.approx(joules / 3.6e6))
    assert cost["device_hours"] == pytest.approx(world * cost["train_seconds"] / 3600)
    peak = {1: 30.3e12, 2: 30.3e12 + 90.5e12, 4: 2 * (30.3e12 + 90.5e12)}[world]
    assert cost["mfu"] == pytest.approx(cost["flops"] / (cost["train_seconds"] * peak))
    assert cost["flops_per_second"] == pytest.approx(cost["flops"] / cost["train_seconds"] / world)
    assert cost["tokens_per_second"] == pytest.approx(cost["target_tokens"] / cost["train_seconds"])


def by_hand(config: Config, size: int, n: int, m: int) -> int:
    """Operations of one training pass over one pair, product by product."""
    c = config.model
    assert (c.layers, c.heads) == (1, 2)

    def product(rows: int, inner: int, columns: int) -> int:
        return 2 * rows * inner * columns

    def attention(queries: int, keys: int) -> int:
        heads = c.heads * (product(queries, c.d_k, keys) + product(queries, keys, c.d_v))
        query = product(queries, c.d_model, c.heads * c.d_k)
        key_and_value = product(keys, c.d_model, c.heads * (c.d_k + c.d_v))
        return heads + query + key_and_value + product(queries, c.heads * c.d_v, c.d_model)

    def feed_forward(rows: int) -> int:
        return product(rows, c.d_model, c.d_ff) + product(rows, c.d_ff, c.d_model)

    encoder = attention(n, n) + feed_forward(n)
    decoder = attention(m, m) + attention(m, n) + feed_forward(m)
    return 3 * (encoder + decoder + product(m, c.d_model, size))


def test_model_flops_are_those_of_each_pair_alone(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    """Over one epoch, which sees every pair once."""
    data = Bitext.open(tiny_corpus.encoded, "train")
    per_epoch = len(
        plan_epoch(
            data.source_lengths,
            data.target_lengths,
            tokens_per_update=tiny_config.train.tokens_per_update,
            seed=tiny_config.train.seed,
            epoch=0,
        )
    )
    config = configuration.with_changes(tiny_config, {"train.steps": per_epoch})
    events = run(config, tiny_corpus.encoded, tmp_path)
    expected = sum(
        by_hand(config, tiny_corpus.size, int(n), int(m))
        for n, m in zip(data.source_lengths, data.target_lengths, strict=True)
    )
    assert summary(events)["flops"] == expected


def test_without_padding_both_counts_agree(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    pieces = vocabulary.Vocabulary.open(tiny_corpus.vocabulary)
    for split in ("train", "valid"):
        write_encoded(tmp_path, split, ["alpha beta gamma"] * 50, ["ALPHA"] * 50, pieces)
    cost = summary(run(tiny_config, tmp_path, tmp_path / "run"))
    assert cost["padding_share"] == 0
    assert cost["padded_flops"] == cost["flops"] > 0


# --- on what devices -----------------------------------------------------------------------------


def test_utilisation_of_a_known_device_by_hand(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same_device("Tesla P100-PCIE-16GB", monkeypatch)
    changes = {"train.precision": "float32", "train.log_every": 12, "train.validate_every": 12}
    config = configuration.with_changes(tiny_config, changes)
    events = run(config, tiny_corpus.encoded, tmp_path)
    cost = summary(events)
    seconds = cost["train_seconds"]
    # The checkpoints at 4 and 8 stop the clock of training, but not the window of the log.
    assert cost["mfu"] == pytest.approx(cost["flops"] / (seconds * 9.3e12))
    (logged,) = [event for event in events if isinstance(event, Logged)]
    assert logged.metrics["mfu"] == pytest.approx(cost["mfu"])
    assert cost["paper_rule_flops"] == pytest.approx(seconds * 9.5e12)
    assert cost["flops_per_second"] == pytest.approx(cost["flops"] / seconds)
    assert hardware.no_peak_warning(cost["device"], cost["precision"]) is None


def test_an_unknown_device_has_no_utilisation_and_a_warning(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    same_device("NVIDIA Z9", monkeypatch)
    events = run(tiny_config, tiny_corpus.encoded, tmp_path)
    cost = summary(events)
    assert cost["mfu"] is None
    assert cost["paper_rule_flops"] is None
    assert cost["flops_per_second"] > 0
    assert "NVIDIA Z9" in str(hardware.no_peak_warning(cost["device"], cost["precision"]))
    kept = [event for event in events if isinstance(event, Logged | CheckpointDue)]
    assert all(event.metrics.get("mfu") is None for event in kept)


def test_metrics_say_all_of_it(tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path) -> None:
    """metrics/train.json, of a run on the CPU."""
    # Not above: Ray and MLflow take seconds to import, in each worker of this file too.
    from seq2sweep.stages.training import training_metrics

    cost = summary(run(tiny_config, tiny_corpus.encoded, tmp_path))
    header = Bitext.open(tiny_corpus.encoded, "train").header
    metrics = training_metrics(header, cost, {}, 1, "run")
    assert metrics["flops"] == {
        "model": cost["flops"],
        "padded": cost["padded_flops"],
        "paper_rule": None,
    }
    assert metrics["flops"]["padded"] > metrics["flops"]["model"]
    assert metrics["device_hours"] == pytest.approx(cost["train_seconds"] / 3600)
    assert metrics["flops_per_second"] == pytest.approx(cost["flops"] / cost["train_seconds"])
    assert metrics["mfu"] is None
    assert metrics["energy_kwh"] is None
    assert set(hardware.COSTS) <= cost.keys()


# --- over resumed parts --------------------------------------------------------------------------


def test_a_resumed_run_adds_its_parts(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first four steps on one device, the others on another."""
    config = configuration.with_changes(tiny_config, {"train.precision": "float32"})
    same_device("NVIDIA L4", monkeypatch)
    monkeypatch.setattr(hardware, "energy_counter", steady_meter(100.0))
    whole = summary(run(config, tiny_corpus.encoded, tmp_path))
    # Marks: six logs (of which three with a validation and a checkpoint) and the end.
    assert whole["energy_kwh"] == pytest.approx(700 / 3.6e6)
    first = json.loads((tmp_path / "step-4" / "state.json").read_text())["progress"]
    assert first["energy_joules"] == 200

    same_device("NVIDIA L40", monkeypatch)
    monkeypatch.setattr(hardware, "energy_counter", steady_meter(1000.0))
    resumed = summary(run(config, tiny_corpus.encoded, tmp_path / "b", resume=tmp_path / "step-4"))
    assert resumed["energy_kwh"] == pytest.approx((200 + 5 * 1000) / 3.6e6)
    later = resumed["train_seconds"] - first["train_seconds"]
    possible = first["train_seconds"] * 30.3e12 + later * 90.5e12
    assert resumed["mfu"] == pytest.approx(resumed["flops"] / possible)
    for key in ("flops", "padded_flops", "padding_share"):
        assert resumed[key] == whole[key]

    same_device("CPU", monkeypatch)
    monkeypatch.setattr(hardware, "energy_counter", lambda device: lambda: None)
    unknown = summary(run(config, tiny_corpus.encoded, tmp_path / "c", resume=tmp_path / "step-8"))
    assert unknown["mfu"] is None
    assert unknown["energy_kwh"] is None


@pytest.mark.parametrize("change", ["lacks", "has one more"])
def test_a_checkpoint_of_another_version_is_refused(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, change: str
) -> None:
    config = configuration.with_changes(tiny_config, {"train.steps": 4})
    run(config, tiny_corpus.encoded, tmp_path)
    folder = tmp_path / "step-4"
    content = json.loads((folder / "state.json").read_text())
    assert content["progress"].keys() == {f.name for f in dataclasses.fields(Progress)}
    if change == "lacks":
        del content["progress"]["padded_flops"]
    else:
        content["progress"]["padded_flops_too"] = 1.0
    (folder / "state.json").write_text(json.dumps(content))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"]["state.json"] = hashlib.sha256(
        (folder / "state.json").read_bytes()
    ).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    with pytest.raises(UserError, match=r"another version .* padded_flops"):
        run(config, tiny_corpus.encoded, tmp_path / "x", resume=folder)
