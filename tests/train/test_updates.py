"""What updates are made of, made ready ahead."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import Config
from seq2sweep.data.batching import Batch, passes, plan_epoch
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.vocabulary import PAD
from seq2sweep.model import varlen_attention
from seq2sweep.model.attention import pads_nothing
from seq2sweep.train import loop
from seq2sweep.train import updates as updates_module
from seq2sweep.train.events import CheckpointDue
from seq2sweep.train.metrics import Progress
from seq2sweep.train.step import Staged
from seq2sweep.train.updates import CAPACITIES, Update, ahead, capacity, filled, updates

from ..conftest import Corpus
from ..paper.models import padded, small

CPU, GPU, BF16 = torch.device("cpu"), torch.device("cuda"), torch.bfloat16


@pytest.fixture
def config(tiny_config: Config) -> Config:
    """Several passes an update, and more updates than an epoch has."""
    return configuration.with_changes(
        tiny_config,
        {"train.steps": 12, "train.tokens_per_update": 300, "train.tokens_per_pass": 100},
    )


# --- a step ahead --------------------------------------------------------------------------------


def test_the_next_is_made_while_one_is_in_use() -> None:
    begun = [threading.Event() for _ in range(4)]

    def items() -> Iterator[int]:
        for number, event in enumerate(begun):
            event.set()
            yield number

    coming = ahead(items())
    for number in range(3):
        assert next(coming) == number
        assert begun[number + 1].wait(10)  # though nobody has asked for it
        assert not any(event.is_set() for event in begun[number + 2 :])
    assert list(coming) == [3]


def test_an_error_is_raised_in_its_turn() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("disk")

    coming = ahead(items())
    assert next(coming) == 1
    with pytest.raises(OSError, match="disk"):
        next(coming)


def test_who_stops_leaves_no_thread() -> None:
    coming = ahead(iter(range(10)))
    next(coming)
    coming.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("batches")]


def weights(config: Config, encoded: Path) -> dict[str, torch.Tensor]:
    events = loop.train(config, encoded, device=CPU)
    return [e.capture().model for e in events if isinstance(e, CheckpointDue)][-1]


def test_made_ahead_or_not_the_bits_are_the_same(
    config: Config, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = weights(config, tiny_corpus.encoded)
    made: list[int] = []

    def threaded(*arguments: Any) -> Iterator[Any]:
        for update in ahead(updates(*arguments)):
            made.append(len(update.ids))
            yield update

    monkeypatch.setattr(loop, "updates", threaded)
    actual = weights(config, tiny_corpus.encoded)
    assert len(made) == 12
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


# --- which updates -------------------------------------------------------------------------------


def test_they_are_the_plans_from_anywhere_to_the_last_step(
    config: Config, tiny_corpus: Corpus
) -> None:
    config = configuration.with_changes(config, {"train.steps": 50})
    bitext = Bitext.open(tiny_corpus.encoded, "train")
    lengths = bitext.source_lengths, bitext.target_lengths
    budget, seed = config.train.tokens_per_update, config.train.seed
    every = list(updates(config, bitext, Progress(), 0, 1, CPU))
    assert len(every) == 50
    epoch = number = 0
    for step, update in enumerate(every):
        plan = plan_epoch(*lengths, tokens_per_update=budget, seed=seed, epoch=epoch)
        assert update.ids.tolist() == plan[number].tolist()
        assert update.source_tokens == lengths[0][update.ids].sum()
        assert update.target_tokens == lengths[1][update.ids].sum()
        expected = (epoch, number + 1) if number + 1 < len(plan) else (epoch + 1, 0)
        assert update.after == expected
        epoch, number = expected
        if step in (0, 5, len(plan) - 1):
            there = Progress(step=step + 1, epoch=epoch, update=number)
            rest = list(updates(config, bitext, there, 0, 1, CPU))
            assert [u.ids.tolist() for u in rest] == [u.ids.tolist() for u in every[step + 1 :]]
    assert epoch > 1


def test_workers_that_share_the_weights_have_as_many_passes(
    config: Config, tiny_corpus: Corpus
) -> None:
    """More for some are made up for by blank ones: all take part in each."""
    bitext = Bitext.open(tiny_corpus.encoded, "train")
    shared = configuration.with_changes(config, {"cluster.fsdp": True})

    def made(config: Config) -> list[tuple[Update, ...]]:
        each = (updates(config, bitext, Progress(), rank, 3, CPU) for rank in range(3))
        return list(zip(*each, strict=True))

    uneven = 0
    for alone, together in zip(made(config), made(shared), strict=True):
        counts = [len(update.batches) for update in alone]
        assert [len(update.batches) for update in together] == [max(counts)] * 3
        for one, other, count in zip(alone, together, counts, strict=True):
            targets = [int(batch.target.ne(PAD).sum()) for batch in other.batches]
            assert targets[count:] == [0] * (max(counts) - count)
            for batch, same in zip(one.batches, other.batches, strict=False):
                assert torch.equal(batch.numbers, same.numbers)
        uneven += len(set(counts)) > 1
    assert uneven > 1


def test_a_worker_plans_its_own_passes_alone(
    config: Config, tiny_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[list[int]] = []

    def noting(ids: np.ndarray, *rest: Any) -> Any:
        planned.append(ids.tolist())
        return passes(ids, *rest)

    monkeypatch.setattr(updates_module, "passes", noting)
    bitext = Bitext.open(tiny_corpus.encoded, "train")
    of_workers = [
        [u.ids.tolist() for u in updates(config, bitext, Progress(), rank, 2, CPU)]
        for rank in (0, 1)
    ]
    assert of_workers[0] == of_workers[1]
    assert planned == [ids[rank::2] or ids[:1] for rank in (0, 1) for ids in of_workers[rank]]


@pytest.mark.parametrize("stays_packed", [True, False])
def test_padding_of_attention_is_no_cost_where_sentences_stay_packed(
    config: Config, tiny_corpus: Corpus, stays_packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bf16 = configuration.with_changes(config, {"train.precision": "bf16"})
    monkeypatch.setattr(varlen_attention, "serves", lambda device, *_: stays_packed)
    bitext = Bitext.open(tiny_corpus.encoded, "train")
    update = next(updates(config, bitext, Progress(), 0, 1, CPU))
    assert update.flops < update.padded_flops
    size = bitext.header["vocabulary"]["size"]
    found = updates_module._computed_flops(bf16, size, update.batches, GPU)
    assert found == (update.flops if stays_packed else update.padded_flops)


def test_nothing_is_padded_where_all_attention_stays_packed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(varlen_attention, "serves", lambda *given: given == (GPU, BF16, 9))

    def nothing(**changes: Any) -> bool:
        return pads_nothing(small(d_k=5, d_v=9, **changes), GPU, BF16)

    assert nothing()
    assert not pads_nothing(small(d_k=5, d_v=9), GPU, torch.float32)
    assert nothing(attention="dot_product")
    assert not nothing(attention="additive")
    assert not nothing(attention_dropout=0.1)
    assert not nothing(encoder_mixer="restricted")
    assert not nothing(decoder_mixer="recurrent")
    assert not pads_nothing(presets.load("phrasebook-bytenet").config.model, GPU, BF16)


# --- few shapes on a GPU -------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 8, 16, 24, 100])
def test_tokens_of_each_side_are_a_multiple(rows: int) -> None:
    random = np.random.default_rng(rows)
    for count in (1, 2, 7, 30):
        lengths = random.integers(1, 9, (2, count)).tolist()
        given = Batch(padded(lengths[0]), padded(lengths[1]), padded(lengths[1]))
        batch = filled(given, rows)
        for mine, before in zip(vars(batch).values(), vars(given).values(), strict=True):
            assert torch.equal(mine[:count], before)
        assert not batch.target_out[count:].any()
        for side, own in zip((batch.source, batch.target_in), lengths, strict=True):
            found = side.ne(PAD).sum(1)
            assert int(found.sum()) % rows == 0
            assert int(found.min()) >= 1
            assert found.tolist() == (side.ne(PAD) * (torch.arange(max(own)) + 1)).amax(1).tolist()
            # A step more where one side lacks fewer tokens than the other needs sentences.
            assert int(found.sum()) - sum(own) < 3 * rows


def test_what_is_full_stays_as_it_is() -> None:
    given = Batch(padded([3, 5]), padded([6, 2]), padded([6, 2]))
    assert filled(given, 8) is given


@pytest.mark.parametrize("device", [CPU, GPU])
def test_updates_in_bf16_are_filled(
    config: Config, tiny_corpus: Corpus, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Staged, "of", functools.partial(staged_here, Staged.of))
    monkeypatch.setattr(updates_module, "pads_nothing", lambda *_: True)
    monkeypatch.setattr(updates_module, "ahead", lambda made: made)
    bf16 = configuration.with_changes(config, {"train.precision": "bf16"})
    bitext = Bitext.open(tiny_corpus.encoded, "train")
    plain = updates(config, bitext, Progress(), 0, 1, CPU)
    filling = updates(bf16, bitext, Progress(), 0, 1, device)
    step = capacity(config.train.tokens_per_pass)
    assert step == 8
    more = 0
    for one, other in zip(plain, filling, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert (one.flops, one.target_tokens) == (other.flops, other.target_tokens)
        assert other.padded_flops >= other.flops
        for before, after in zip(one.batches, other.batches, strict=True):
            for side in (0, 1):
                assert len(after.packings[side].places) % step == 0
            more += len(after.target) - len(before.target)
            assert int(after.target.ne(PAD).sum()) == len(before.target)
    assert more > 0


def staged_here(of: Any, batch: Batch, device: torch.device, room: int | None) -> Staged:
    """On the CPU, whichever device it is for."""
    assert (room is None) == (device == CPU)
    staged: Staged = of(batch, CPU, room)
    return staged


@pytest.mark.parametrize("tokens", [1, 100, 4000, 12_500, 25_000])
def test_a_full_pass_has_few_sizes(tokens: int) -> None:
    step = capacity(tokens)
    assert step % 8 == 0
    assert -(-tokens // step) <= CAPACITIES
    assert step < tokens / CAPACITIES + 8


# --- on their way to a device --------------------------------------------------------------------


class Copies(TorchDispatchMode):
    """Counts what moves from the CPU to another device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten._to_copy.default:
            self.count += args[0].device != out.device
        return out


def test_a_batch_is_moved_by_one_copy() -> None:
    source = torch.tensor([[7, 8, 2], [9, 2, PAD]])
    target = torch.tensor([[5, 2, PAD, PAD], [6, 5, 4, 2]])
    target_in = torch.tensor([[1, 5, PAD, PAD], [1, 6, 5, 4]])
    staged = Staged.of(Batch(source, target_in, target), CPU)
    assert torch.equal(staged.source, source)
    assert torch.equal(staged.target_in, target_in)
    assert staged.target.tolist() == [5, 2, 6, 5, 4, 2]
    first, second = staged.packings
    assert (first.places.tolist(), first.sentences, first.width) == ([0, 1, 2, 3, 4], 2, 3)
    assert (second.places.tolist(), second.sentences, second.width) == ([0, 1, 4, 5, 6, 7], 2, 4)
    assert first.offsets is not None
    assert second.offsets is not None
    assert (first.offsets.tolist(), second.offsets.tolist()) == ([0, 3, 5], [0, 2, 6])
    parts = [staged.source, staged.target_in, staged.target, first.places, second.places]
    assert len({part.untyped_storage().data_ptr() for part in parts}) == 1
    with Copies() as copies:
        moved = staged.to(torch.device("meta"))
    assert copies.count == 1
    assert moved.packings[1].places.shape == (6,)
    assert {moved.source.device.type, moved.target.device.type} == {"meta"}
