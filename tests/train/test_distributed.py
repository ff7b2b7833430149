"""A model that is shared out: each worker holds its part, before, between and after passes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.tensor import DTensor

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import Config
from seq2sweep.data.batching import Batch
from seq2sweep.model.architecture import Architecture
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.model.building import build
from seq2sweep.train import checkpointing
from seq2sweep.train.distributed import give_back, same_on_all, shard, whole
from seq2sweep.train.metrics import Progress
from seq2sweep.train.optimizers import Schedule, make
from seq2sweep.train.step import accumulate, apply
from tests.processes import run_together

CPU = torch.device("cpu")
PIECES = 101
RIVALS = "recurrent", "convolutional", "bytenet"


def held(model: Transformer) -> int:
    """Numbers that this worker holds."""
    return sum((p.to_local() if isinstance(p, DTensor) else p).numel() for p in model.parameters())


def batch(label: int) -> Batch:
    return Batch(torch.full((2, 3), 7), torch.full((2, 4), 8), torch.full((2, 4), label))


def update(model: Transformer, schedule: Schedule, spoil: bool) -> float:
    """One update of two passes; gives its gradient's norm."""
    accumulate(
        model,
        [batch(9), batch(10)],
        update_target_tokens=32,
        smoothing=0.1,
        world_size=2,
        precision="float32",
        device=CPU,
    )
    if spoil:
        gradient = next(model.parameters()).grad
        assert isinstance(gradient, DTensor)
        if dist.get_rank() == 1:
            gradient.to_local().fill_(torch.nan)
    norm, skipped = apply(model, schedule.optimizer_of(1), 0.01, schedule.clip_norm)
    assert bool(skipped) == spoil
    return float(norm)


def weights(model: Transformer) -> dict[str, Tensor]:
    return {name: whole(p.detach()).clone() for name, p in model.named_parameters()}


def check_update(
    plain: Transformer, alone: Schedule, norm: float, after: dict[str, Tensor]
) -> None:
    """The same update, with the model whole, gives the same norm and weights."""
    plain.train()
    # Not random here: `tiny_config` asks for no dropout, see the test.
    accumulate(
        plain,
        [batch(9), batch(10)] * 2,
        update_target_tokens=32,
        smoothing=0.1,
        world_size=1,
        precision="float32",
        device=CPU,
    )
    found, _ = apply(plain, alone.optimizer_of(1), 0.01, alone.clip_norm)
    assert norm == pytest.approx(float(found), rel=1e-4)
    assert alone.clip_norm is None or norm > alone.clip_norm
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(after[name], parameter.detach(), rtol=1e-3, atol=1e-4)


def work(rank: int, folder: Path, configs: list[Config]) -> None:
    meet(rank, folder)
    for config in configs:
        print(f"worker {rank}: {config.model} by {config.train.optimizer}", flush=True)
        hold_half(rank, config)
    dist.destroy_process_group()


def hold_half(rank: int, config: Config) -> None:
    torch.manual_seed(rank + 1)
    given = Transformer(config.model, PIECES)
    same_on_all(given)
    torch.manual_seed(1)
    plain = Transformer(config.model, PIECES)
    assert all(torch.equal(weights(given)[k], p) for k, p in plain.named_parameters())
    torch.manual_seed(1)
    model = shard(Transformer(config.model, PIECES), CPU, 2, "float32")
    total = sum(p.numel() for p in plain.parameters())
    assert all(torch.equal(weights(model)[k], p) for k, p in plain.named_parameters())
    assert held(model) <= 0.51 * total

    with torch.no_grad():
        model.eval()(torch.full((2, 3), 7), torch.full((2, 4), 8))
    give_back(model)
    assert held(model) <= 0.51 * total

    schedule, alone = make(model, config), make(plain, config)
    before = weights(model)
    update(model, schedule, spoil=True)
    assert all(torch.equal(before[k], v) for k, v in weights(model).items())
    norm = update(model, schedule, spoil=False)
    after = weights(model)
    check_update(plain, alone, norm, after)
    assert not all(torch.equal(before[k], v) for k, v in after.items())
    assert all(bool(v.isfinite().all()) for v in after.values())
    plain.load_state_dict(after, strict=False)  # one matrix has three names
    words = torch.arange(7, 19).view(2, 6)
    with torch.no_grad():  # what is computed with are the new weights
        torch.testing.assert_close(model.eval()(words, words), plain.eval()(words, words))
    # While weights are whole, their moments cannot be told: not to be saved without a word.
    progress = Progress()
    with pytest.raises(RuntimeError, match="not those that the optimizer trains"):
        checkpointing.capture(model, schedule.optimizer, progress, {})
    give_back(model)
    assert held(model) <= 0.51 * total
    saved = checkpointing.capture(model, schedule.optimizer, progress, {}).optimizer
    assert {key.partition("|")[0] for key in saved} == {k for k, _ in model.named_parameters()}
    moments = [v for entry in schedule.optimizer.state.values() for v in entry.values() if v.ndim]
    local = [v.to_local() for v in moments if isinstance(v, DTensor)]
    assert len(local) == len(moments)
    assert sum(v.numel() for v in local) <= 2 * 0.51 * total


def meet(rank: int, folder: Path) -> None:
    """Join the other of two processes, each with one thread."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'meeting'}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=300),
    )


def learn(rank: int, folder: Path, configs: list[Config]) -> None:
    """Gradients of models that are shared out are those of whole ones."""
    meet(rank, folder)
    for config in configs:
        found = []
        for world_size in (1, 2):
            torch.manual_seed(1)
            model = build(config.model, PIECES)
            model = shard(model, CPU, 2, "float32") if world_size == 2 else model
            batches = [batch(9), batch(10)] * (2 // world_size)
            accumulate(
                model.train(),
                batches,
                update_target_tokens=32,
                smoothing=0.1,
                world_size=world_size,
                precision="float32",
                device=CPU,
            )
            found.append([whole(p.grad) for p in model.parameters() if p.grad is not None])
        assert len(found[0]) == len(found[1]) > 0
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    dist.destroy_process_group()


def test_other_architectures_are_shared_out_as_well(tmp_path: Path) -> None:
    small = {"model.d_model": 16, "model.dropout": 0.0}
    rivals = (presets.load(f"phrasebook-{name}").config for name in RIVALS)
    configs = [configuration.with_changes(config, small) for config in rivals]
    run_together(learn, [(rank, tmp_path, configs) for rank in (0, 1)])


BF16: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"model.norm": "pre", "model.dropout": 0.1, "model.feed_forward": "swiglu"}, True),
    ({"model.norm_kind": "rmsnorm", "model.attention": "additive"}, True),
    # Its mask has the type of its weights.
    ({"model.encoder_mixer": "restricted", "model.decoder_mixer": "restricted"}, False),
    ({"model.encoder_mixer": "recurrent", "model.decoder_mixer": "convolutional"}, False),
]
"""What to train in bf16, and whether its layers are gathered in it."""


def gradients(model: Architecture, world_size: int) -> dict[str, Tensor]:
    """Of an update of two passes a worker, in bf16."""
    torch.manual_seed(2)
    accumulate(
        model.train(),
        [batch(9), batch(10)] * (2 // world_size),
        update_target_tokens=32,
        smoothing=0.1,
        world_size=world_size,
        precision="bf16",
        device=CPU,
    )
    every = {name: p.grad for name, p in model.named_parameters()}
    return {name: whole(gradient) for name, gradient in every.items() if gradient is not None}


def learn_in_bf16(rank: int, folder: Path, configs: list[tuple[Config, bool]]) -> None:
    """What is gathered in bf16 gives the gradients of what is gathered in float32, and of whole
    models, for half the bytes."""
    meet(rank, folder)
    gathered: list[int] = []
    gather = dist.all_gather_single

    def counting(out: Tensor, *rest: Any, **options: Any) -> Any:
        gathered.append(out.nbytes)
        return gather(out, *rest, **options)

    for config, narrows in configs:
        found, sent = [], []
        for precision in ("float32", "bf16"):
            torch.manual_seed(1)
            model = shard(build(config.model, PIECES), CPU, 2, precision)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(dist, "all_gather_single", counting)
                gathered.clear()
                found.append(gradients(model, 2))
                sent.append(sum(gathered))
            assert all(p.dtype == p.grad.dtype == torch.float32 for p in model.parameters())
        assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])
        torch.manual_seed(1)
        alone = build(config.model, PIECES)
        if not config.model.dropout:  # of which each worker has its own
            for name, gradient in gradients(alone, 1).items():
                torch.testing.assert_close(found[1][name], gradient, rtol=1e-5, atol=1e-7)
        products = [p.numel() for layer in alone.blocks() for p in layer.parameters() if p.ndim > 1]
        products += [
            p.numel()
            for layer in alone.blocks()
            for name, p in layer.named_parameters()
            if p.ndim == 1 and "norm" not in name
        ]
        # Two bytes less of each, forward and backward, in two passes.
        assert sent[0] - sent[1] == 2 * 2 * 2 * sum(products) * narrows
    dist.destroy_process_group()


def test_in_bf16_what_products_round_is_gathered_so(tiny_config: Config, tmp_path: Path) -> None:
    dry = configuration.with_changes(tiny_config, {"model.dropout": 0.0})
    configs = [(configuration.with_changes(dry, changes), narrows) for changes, narrows in BF16]
    run_together(learn_in_bf16, [(rank, tmp_path, configs) for rank in (0, 1)])


HALVES: list[dict[str, Any]] = [
    {},
    {"model.encoder_mixer": "recurrent", "model.decoder_mixer": "separable"},
    {"model.encoder_mixer": "convolutional", "model.decoder_mixer": "recurrent"},
    {"train.optimizer": "nesterov"},
]


def test_each_worker_holds_its_half_and_skips_what_another_cannot_take(
    tiny_config: Config, tmp_path: Path
) -> None:
    dry = configuration.with_changes(tiny_config, {"model.dropout": 0.0})
    configs = [configuration.with_changes(dry, changes) for changes in HALVES]
    run_together(work, [(rank, tmp_path, configs) for rank in (0, 1)])
