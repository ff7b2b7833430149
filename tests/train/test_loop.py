"""Section 5: the loop's events, checkpoints, the journal."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from seq2sweep import config as configuration
from seq2sweep import hardware
from seq2sweep.config import Config
from seq2sweep.data.batching import plan_epoch
from seq2sweep.data.bitext import Bitext
from seq2sweep.errors import UserError
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.model.building import build
from seq2sweep.runs import journal
from seq2sweep.train import checkpointing, loop, optimizers
from seq2sweep.train.events import CheckpointDue, Event, Finished, Interrupted, Logged, Validated
from seq2sweep.train.loop import train
from seq2sweep.train.updates import Update, capacity, updates

from ..conftest import Corpus

CPU = torch.device("cpu")


def run(config: Config, corpus: Corpus, folder: Path, **options: object) -> list[Event]:
    folder.mkdir(exist_ok=True)
    events = []
    for event in train(config, corpus.encoded, device=CPU, **options):  # type: ignore[arg-type]
        if isinstance(event, CheckpointDue):
            event.capture().write(folder / f"step-{event.step}")
        events.append(event)
    return events


def test_events_come_when_the_parameters_say(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    config = configuration.with_changes(tiny_config, {"train.steps": 10})
    events = run(config, tiny_corpus, tmp_path)
    steps = {kind: [e.step for e in events if isinstance(e, kind)] for kind in
             (Logged, Validated, CheckpointDue, Finished)}  # fmt: skip
    assert steps[Logged] == [2, 4, 6, 8, 10]
    assert steps[Validated] == [4, 8, 10]
    assert steps[CheckpointDue] == [4, 8, 10]
    assert steps[Finished] == [10]
    assert isinstance(events[-1], Finished)
    told = [e.metrics for e in events if isinstance(e, Logged)] + [events[-1].summary]
    assert all(
        0 < float(of["rss_bytes"] or 0) <= 1.01 * float(of["peak_rss_bytes"] or 0) for of in told
    )
    summary = events[-1].summary
    assert 0 <= summary["padding_share"] < 0.5  # type: ignore[operator]
    assert summary["flops"] > 0  # type: ignore[operator]
    # Also of a training that is stopped before its end.
    kept = [e.metrics for e in events if isinstance(e, CheckpointDue)]
    seconds = [float(figures["wall_seconds"] or 0) for figures in kept]
    assert 0 < seconds[0] < seconds[1] < seconds[2] <= summary["wall_seconds"]  # type: ignore[operator]
    for figures in (summary, *kept):
        # Nor may an older part, of a device that knew it, be taken for the whole.
        assert figures["energy_kwh"] is figures["mfu"] is None
        assert {key: figures[key] for key in hardware.ORIGIN} == {
            "precision": "float32",
            "workers": 1,
            "threads": torch.get_num_threads(),
            "device": "CPU",
            "cpu_features": hardware.cpu_features(),
            "tokens_per_pass": 300,
        }


def test_two_runs_are_bitwise_equal_and_a_resumed_one_too(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    whole = run(tiny_config, tiny_corpus, tmp_path / "a")
    run(tiny_config, tiny_corpus, tmp_path / "b")
    resumed = run(tiny_config, tiny_corpus, tmp_path / "c", resume=tmp_path / "a" / "step-4")
    for name in ("model", "optimizer"):
        expected = load_file(tmp_path / "a" / "step-12" / f"{name}.safetensors")
        for other in ("b", "c"):
            actual = load_file(tmp_path / other / "step-12" / f"{name}.safetensors")
            assert actual.keys() == expected.keys()
            assert all(torch.equal(actual[key], expected[key]) for key in expected)
    assert resumed[0].step == 6
    first, last = whole[-1], resumed[-1]
    assert isinstance(first, Finished)
    assert isinstance(last, Finished)
    for key in ("target_tokens", "flops", "padding_share"):
        assert first.summary[key] == last.summary[key]
    assert [e.kind for e in run(tiny_config, tiny_corpus, tmp_path / "d",
            resume=tmp_path / "a" / "step-12")] == ["finished"]  # fmt: skip


def test_it_learns(tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path) -> None:
    config = configuration.with_changes(
        tiny_config, {"train.steps": 120, "train.validate_every": 60, "train.checkpoint_every": 120}
    )
    losses = [e.metrics["valid_loss"] for e in run(config, tiny_corpus, tmp_path)
              if isinstance(e, Validated)]  # fmt: skip
    uniform = math.log(tiny_corpus.size)
    assert losses[-1] < 0.6 * uniform
    assert losses[-1] < losses[0]


def test_it_says_that_it_is_alive_after_each_update_and_batch_of_a_validation(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    """Else a long validation would be taken for a hang."""
    valid = Bitext.open(tiny_corpus.encoded, "valid")
    sides = valid.source_lengths, valid.target_lengths
    batches = len(plan_epoch(*sides, tokens_per_update=300, seed=0, epoch=0))
    assert batches > 1
    calls = itertools.count()
    config = configuration.with_changes(tiny_config, {"train.steps": 10})  # 3 validations
    run(config, tiny_corpus, tmp_path, alive=lambda: next(calls))
    assert next(calls) == 10 + 3 * batches


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_resumed_training_needs_the_files_of_its_checkpoint_no_more(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    """They may be removed, which a network file system puts off while one is mapped."""
    run(tiny_config, tiny_corpus, tmp_path)
    model = build(tiny_config.model, tiny_corpus.size)
    optimizer = optimizers.make(model, tiny_config).optimizer
    state = json.loads((tmp_path / "step-4" / "state.json").read_text())
    checkpointing.load(tmp_path / "step-4", model, optimizer, state["identity"])
    assert any(len(moments) > 1 for moments in optimizer.state.values())
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("size", [0, 100])
def test_a_manifest_that_is_cut_is_named(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, size: int
) -> None:
    run(tiny_config, tiny_corpus, tmp_path)
    manifest = tmp_path / "step-4" / "manifest.json"
    os.truncate(manifest, size)
    with pytest.raises(checkpointing.CheckpointError, match=r"manifest\.json is truncated"):
        checkpointing.verify(manifest.parent)


def test_damaged_checkpoint_is_refused_by_name(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    run(tiny_config, tiny_corpus, tmp_path)
    folder = tmp_path / "step-4"
    assert not list(tmp_path.glob(".*"))  # nothing half-written is left beside
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(checkpointing.CheckpointError, match=r"model\.safetensors differs"):
        run(tiny_config, tiny_corpus, tmp_path / "x", resume=folder)
    os.truncate(weights, 10)
    with pytest.raises(checkpointing.CheckpointError, match="differs"):
        checkpointing.verify(folder)
    weights.unlink()
    with pytest.raises(checkpointing.CheckpointError, match=r"lacks model\.safetensors"):
        checkpointing.verify(folder)
    with pytest.raises(checkpointing.CheckpointError, match="manifest"):
        checkpointing.verify(tmp_path / "nowhere")


def test_going_on_from_another_run_is_refused_with_the_difference(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    run(tiny_config, tiny_corpus, tmp_path)
    checkpoint = tmp_path / "step-4"
    changes = {"model.d_ff": 65, "train.precision": "bf16", "model.positions": "learned"}
    other = configuration.with_changes(tiny_config, changes)
    with pytest.raises(UserError) as caught:
        run(other, tiny_corpus, tmp_path / "x", resume=checkpoint)
    message = str(caught.value)
    assert message.startswith(f"{checkpoint} is of another run: ")
    assert "model.d_ff was 64 and is 65 now" in message
    assert "model.positions was sinusoidal and is learned now" in message
    assert "train.precision was float32 and is bf16 now" in message
    assert "data" not in message

    identity = json.loads((checkpoint / "state.json").read_text())["identity"]
    assert checkpointing.differences(identity, identity) == []
    found = checkpointing.differences(
        identity, identity | {"data": "0" * 64, "vocabulary": "1" * 64}
    )
    assert found == [
        f"data was {identity['data'][:8]} and is 00000000 now",
        f"vocabulary was {identity['vocabulary'][:8]} and is 11111111 now",
    ]


def test_more_steps_may_be_asked_for_and_change_nothing_before(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    longer = configuration.with_changes(tiny_config, {"train.steps": 16})
    run(tiny_config, tiny_corpus, tmp_path / "parts")
    run(longer, tiny_corpus, tmp_path / "parts", resume=tmp_path / "parts" / "step-12")
    run(longer, tiny_corpus, tmp_path / "whole")
    for name in ("model.safetensors", "optimizer.safetensors"):
        found, expected = (tmp_path / run / "step-16" / name for run in ("parts", "whole"))
        assert found.read_bytes() == expected.read_bytes()


def test_divergence_is_said_with_the_step(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    wild = configuration.with_changes(
        tiny_config, {"train.learning_rate_scale": 1e30, "train.warmup_steps": 1}
    )
    with pytest.raises(
        UserError, match=r"the run diverged: .* Last good checkpoint: none\."
    ) as caught:
        run(wild, tiny_corpus, tmp_path)
    scale = "Lower train.learning_rate_scale"
    assert str(caught.value).endswith(f"{scale} or raise train.warmup_steps")
    # Of the optimizers only the paper's reads it.
    constant = configuration.with_changes(wild, {"train.optimizer": "adam_constant"})
    with pytest.raises(UserError) as caught:
        run(constant, tiny_corpus, tmp_path)
    assert str(caught.value).endswith(scale)


def test_passes_are_filled_up_to_a_part_of_a_workers_share(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not of `train.tokens_per_pass`, which may be many times as large."""
    changes = {"train.tokens_per_pass": 25_000, "train.precision": "bf16", "train.steps": 4}
    config = configuration.with_changes(tiny_config, changes)
    made: list[Update] = []
    monkeypatch.setattr(loop, "updates", lambda *given: watched(updates(*given), made))
    run(config, tiny_corpus, tmp_path)
    share = config.train.tokens_per_update
    assert share <= 25_000 / 32
    packings = [p for update in made for batch in update.batches for p in batch.packings]
    assert {len(packing.places) % capacity(share) for packing in packings} == {0}
    # Some are blank, beside less than a step a side.
    computed, given = (
        sum(len(p.places) for p in packings),
        sum(update.source_tokens + update.target_tokens for update in made),
    )
    assert given < computed < given + 2 * len(packings) * capacity(share)


def watched(items: Iterator[Update], seen: list[Update]) -> Iterator[Update]:
    for item in items:
        seen.append(item)
        yield item


def test_an_optimizer_that_would_not_skip_an_update_is_refused(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Plain(optimizers.Adam):
        def __init__(self, model: torch.nn.Module, config: Config) -> None:
            super().__init__(model, config)
            self.optimizer = torch.optim.NAdam(model.parameters(), lr=0.0)

    monkeypatch.setitem(optimizers.OPTIMIZERS, "adam", Plain)
    with pytest.raises(UserError, match=r"^train\.optimizer adam: .* made with fused=True"):
        run(tiny_config, tiny_corpus, tmp_path)


def poison(monkeypatch: pytest.MonkeyPatch, steps: set[int], value: float) -> None:
    """Make one number of the gradient `value` in these steps (from 1)."""
    true_apply, step = loop.apply, itertools.count(1)

    def apply(model: Any, *arguments: Any) -> Any:
        if next(step) in steps:
            next(model.parameters()).grad[0] = value
        return true_apply(model, *arguments)

    monkeypatch.setattr(loop, "apply", apply)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_an_update_that_is_not_finite_changes_nothing_and_is_counted(
    tiny_config: Config,
    tiny_corpus: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    value: float,
) -> None:
    every = configuration.with_changes(
        tiny_config, {"train.log_every": 1, "train.checkpoint_every": 1}
    )
    poison(monkeypatch, {5, 6}, value)
    events = run(every, tiny_corpus, tmp_path)
    before, after, later = (
        {
            name: load_file(tmp_path / f"step-{step}" / f"{name}.safetensors")
            for name in ("model", "optimizer")
        }
        for step in (4, 6, 7)
    )
    for name in before:
        assert before[name].keys() == after[name].keys()
        for key in before[name]:
            assert torch.equal(before[name][key], after[name][key]), key
    assert not all(torch.equal(after["model"][key], later["model"][key]) for key in after["model"])
    logged = {event.step: event.metrics for event in events if isinstance(event, Logged)}
    assert math.isnan(logged[5]["loss"])
    assert math.isnan(logged[6]["gradient_norm"])
    assert math.isfinite(logged[7]["loss"])
    assert [logged[step]["skipped_updates"] for step in (4, 5, 6, 12)] == [0, 1, 2, 2]
    assert isinstance(events[-1], Finished)
    assert events[-1].summary["skipped_updates"] == 2


def test_means_are_of_the_updates_that_counted(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = configuration.with_changes(tiny_config, {"train.log_every": 4, "train.steps": 4})
    each = configuration.with_changes(tiny_config, {"train.log_every": 1, "train.steps": 4})
    found = []
    for name, config in (("wide", wide), ("each", each)):
        with monkeypatch.context() as patch:
            poison(patch, {3}, math.nan)
            events = run(config, tiny_corpus, tmp_path / name)
            found.append([e.metrics for e in events if isinstance(e, Logged)])
    (over_all,), alone = found
    norms = [m["gradient_norm"] for m in alone if not math.isnan(m["gradient_norm"])]
    assert len(norms) == 3
    assert over_all["gradient_norm"] == pytest.approx(sum(norms) / 3, rel=1e-6)
    losses = [m["loss"] for m in alone if not math.isnan(m["loss"])]
    assert min(losses) <= over_all["loss"] <= max(losses)


def test_too_many_in_a_row_end_the_run_with_all_one_needs_to_know(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = configuration.with_changes(tiny_config, {"train.steps": 30})
    poison(monkeypatch, {5, *range(7, 17)}, math.nan)
    with pytest.raises(UserError) as caught:
        run(longer, tiny_corpus, tmp_path)
    message = str(caught.value)
    assert "not finite in 10 updates in a row, steps 7 to 16" in message
    assert re.search(r"of lines \d+, \d+.* of train\.\*\.txt in data/clean", message)
    # Training does not know which: workers may read a copy of what is encoded.
    assert "of the stage student in models/silver. Last" in message
    assert "Last good checkpoint: that of step 4." in message
    assert "\n" not in message


def test_a_row_that_is_interrupted_is_counted_on(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longer = configuration.with_changes(tiny_config, {"train.steps": 30})
    asked = itertools.count(1)
    with monkeypatch.context() as patch:
        poison(patch, {*range(7, 20)}, math.nan)
        events = run(longer, tiny_corpus, tmp_path, stop=lambda: next(asked) == 11)
    assert isinstance(events[-1], Interrupted)
    saved = tmp_path / "interrupted-11"
    events[-1].capture().write(saved)
    poison(monkeypatch, {*range(1, 30)}, math.nan)  # counted from the first update after it
    said = r"10 updates in a row, steps 7 to 16; .* Last good checkpoint: that of step 11\."
    with pytest.raises(UserError, match=said):
        run(longer, tiny_corpus, tmp_path, resume=saved)


def test_weights_that_are_not_finite_are_never_kept(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_apply, step = loop.apply, itertools.count(1)

    def overflow(model: Any, *arguments: Any) -> Any:
        result = true_apply(model, *arguments)
        if next(step) == 7:
            next(model.parameters()).data[0] = math.inf
        return result

    monkeypatch.setattr(loop, "apply", overflow)
    with pytest.raises(UserError, match=r"weights are not finite after step 8.*that of step 4"):
        run(tiny_config, tiny_corpus, tmp_path)
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-4"]


def test_longer_sentences_than_any_before_change_nothing(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tiny_config, tiny_corpus, tmp_path / "a")
    monkeypatch.setattr("seq2sweep.model.layers.FIRST_POSITIONS", 2)
    run(tiny_config, tiny_corpus, tmp_path / "b")
    expected, actual = (
        load_file(tmp_path / name / "step-12" / "model.safetensors") for name in ("a", "b")
    )
    assert all(torch.equal(actual[key], expected[key]) for key in expected)


def test_learned_positions_refuse_longer_text(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Transformer, "max_length", property(lambda model: 5))
    config = configuration.with_changes(tiny_config, {"model.positions": "learned"})
    with pytest.raises(
        UserError, match=r"^line \d+ of the train set .* are for 5: leave it out \(prep"
    ):
        run(config, tiny_corpus, tmp_path)


LONG_JOURNAL = """
import json, re, sys, types
from pathlib import Path
# It loads Ray and MLflow, of which writing curves needs nothing.
sys.modules["seq2sweep.stages.training"] = types.SimpleNamespace(train_on=None)
from pipeline.train import write_curves
from seq2sweep.runs import journal
from seq2sweep.runs.run_store import read_summary
path, lines = Path(sys.argv[1]), int(sys.argv[2])
line = '{"kind": "logged", "step": %d, "time": 1.5, "loss": 2.5, "gradient_norm": 1.25}\\n'
with path.open("w") as stream:
    stream.writelines(line % step for step in range(1, lines))
    stream.write('{"kind": "finished", "step": %d, "time": 2.5}\\n' % lines)

def peak():  # in KiB, of this program alone: ru_maxrss begins at that of who started it
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

before = peak()
assert journal.Journal(path)._last == {"logged": lines - 1, "finished": lines}
assert read_summary(path.parent) == {"step": lines}
assert journal.end(path) == path.stat().st_size
assert sum(1 for _ in journal.follow(path)) == lines
write_curves(path, path.with_suffix(".csv"))
rows = path.with_suffix(".csv").read_text().splitlines()
assert 5_000 < len(rows) < 10_003, len(rows)
assert rows[-1].startswith(f"{lines - 1},")
print((peak() - before) // 1024)
"""


def test_a_long_journal_is_never_in_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LONG_JOURNAL, str(tmp_path / "journal.jsonl"), "100000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40  # MiB, where all of it was more than 60


def test_what_is_thinned_is_evenly_spaced_and_has_both_ends() -> None:
    for count in range(40):
        kept = journal.thinned(range(count), 8)
        assert len(kept) <= 9
        assert kept[:1] + kept[-1:] == [0, count - 1] * bool(count)
        assert len({after - before for before, after in itertools.pairwise(kept[:-1])}) <= 1


def test_journal_reads_on_where_it_stopped_and_cuts_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    writer = journal.Journal(path)
    writer.append(Logged(1, {"loss": 2.5}))
    ((first, offset),) = journal.follow(path)
    assert (first["kind"], first["step"], first["loss"]) == ("logged", 1, 2.5)
    writer.append(Validated(2, {"valid_loss": math.inf}))
    writer.close()
    with path.open("ab") as stream:
        stream.write(b'{"kind": "logged", "st')
    ((later, end),) = journal.follow(path, offset)
    assert (later["step"], later["valid_loss"]) == (2, None)
    assert list(journal.follow(path, end)) == []
    again = journal.Journal(path)
    again.append(Logged(3, {"loss": 1.0}))
    again.close()
    assert [e["step"] for e in journal.entries(path)] == [1, 2, 3]
    assert all(json.loads(line) for line in path.read_text().splitlines())
