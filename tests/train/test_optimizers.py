"""Optimizers of section 5.3 and of the papers behind Table 2, against loops written out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.train import checkpointing, loop, optimizers, step
from seq2sweep.train.events import Finished, Logged, Validated
from seq2sweep.train.metrics import Progress

from ..conftest import Corpus
from .test_loop import run

NAMES = [*optimizers.OPTIMIZERS]
ARCHITECTURES = {
    "transformer": "adam",
    "recurrent": "adam_then_sgd",
    "convolutional": "nesterov",
    "bytenet": "adam_constant",
}


class Two(nn.Module):
    """Weights whose gradients a test sets."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.a = nn.Parameter(torch.randn(3, 4, generator=generator))
        self.b = nn.Parameter(torch.randn(5, generator=generator))


def gradients(update: int, norm: float) -> list[Tensor]:
    """Of this norm together, other ones at each update."""
    generator = torch.Generator().manual_seed(100 + update)
    found = [torch.randn(3, 4, generator=generator), torch.randn(5, generator=generator)]
    whole = math.sqrt(sum(float(g.double().square().sum()) for g in found))
    return [g * (norm / whole) for g in found]


def asked(config: Config, name: str, **train: object) -> Config:
    changes = {"train.optimizer": name} | {f"train.{key}": value for key, value in train.items()}
    return configuration.with_changes(config, changes)


def trained(config: Config, norms: list[float], stalls: list[int]) -> list[Tensor]:
    model = Two()
    schedule = optimizers.make(model, config)
    for update, norm in enumerate(norms):
        for parameter, gradient in zip(model.parameters(), gradients(update, norm), strict=True):
            parameter.grad = gradient
        rate = schedule.learning_rate(update + 1, stalls[update])
        told, skipped = step.apply(
            model, schedule.optimizer_of(update + 1), rate, schedule.clip_norm
        )
        assert float(told) == pytest.approx(norm, rel=1e-5)  # before it is clipped
        assert not skipped
        assert all(parameter.grad is None for parameter in model.parameters())
    return [parameter.detach() for parameter in model.parameters()]


def written_out(config: Config, norms: list[float], stalls: list[int]) -> list[Tensor]:
    """The definitions, in float64."""
    name, steps, scale = (
        config.train.optimizer,
        config.train.steps,
        config.train.learning_rate_scale,
    )
    weights = [parameter.detach().double() for parameter in Two().parameters()]
    first = [torch.zeros_like(w) for w in weights]
    second = [torch.zeros_like(w) for w in weights]
    most = {"adam_then_sgd": 5.0, "nesterov": 0.1}.get(name, math.inf)
    for update, norm in enumerate(norms):
        t = update + 1
        for i, gradient in enumerate(g.double() for g in gradients(update, norm)):
            g = gradient * min(1.0, most / norm)
            if name == "nesterov":
                rate = max(0.25 / 10 ** stalls[update], 0.25 / 10**4)
                first[i] = 0.99 * first[i] + g
                weights[i] = weights[i] - scale * rate * (g + 0.99 * first[i])
                continue
            if name == "adam_then_sgd" and t > 0.03 * steps:
                halvings = sum(t >= share * steps for share in (0.6, 0.7, 0.8, 0.9, 1.0))
                weights[i] = weights[i] - scale * 0.5 / 2**halvings * g
                continue
            if name == "adam":
                beta1, beta2, epsilon = 0.9, 0.98, 1e-9
                rate = config.model.d_model**-0.5 * min(
                    t**-0.5, t * config.train.warmup_steps**-1.5
                )
            else:
                beta1, beta2, epsilon = 0.9, 0.999, 1e-8
                rate = 2e-4 if name == "adam_then_sgd" else 3e-4
            first[i] = beta1 * first[i] + (1 - beta1) * g
            second[i] = beta2 * second[i] + (1 - beta2) * g * g
            mean, square = first[i] / (1 - beta1**t), second[i] / (1 - beta2**t)
            weights[i] = weights[i] - scale * rate * mean / (square.sqrt() + epsilon)
    return weights


@pytest.mark.parametrize("name", NAMES)
def test_updates_are_those_of_the_definition(tiny_config: Config, name: str) -> None:
    config = asked(tiny_config, name, steps=100, warmup_steps=7, learning_rate_scale=1.5)
    # Above and below what each clips to, and once just there.
    norms = [(0.02, 0.1, 3.0, 5.0, 40.0)[i % 5] for i in range(100)]
    stalls = [max(0, i // 12 - 2) for i in range(100)]
    torch.testing.assert_close(
        [w.double() for w in trained(config, norms, stalls)],
        written_out(config, norms, stalls),
        rtol=2e-4,
        atol=2e-5,
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_first_update_without_a_finite_gradient_changes_nothing(
    tiny_config: Config, name: str
) -> None:
    config = asked(tiny_config, name, steps=100)
    model, untouched = Two(), Two()
    schedule, other = (optimizers.make(m, config) for m in (model, untouched))
    junk = [torch.full((12,), math.nan) for _ in range(64)]  # for whoever takes memory as it is
    del junk
    for of, how, spoil in (
        (model, schedule, True),
        (model, schedule, False),
        (untouched, other, 0),
    ):
        for parameter, gradient in zip(of.parameters(), gradients(1, 0.05), strict=True):
            parameter.grad = gradient * math.inf if spoil else gradient
        before = [parameter.detach().clone() for parameter in of.parameters()]
        _, skipped = step.apply(of, how.optimizer_of(1), 0.1, how.clip_norm)
        assert bool(skipped) == spoil
        same = all(map(torch.equal, before, of.parameters()))
        assert same == spoil
    assert all(map(torch.equal, model.parameters(), untouched.parameters()))


def test_gnmt_is_trained_as_its_paper_says_in_two_million_steps(tiny_config: Config) -> None:
    schedule = optimizers.make(Two(), asked(tiny_config, "adam_then_sgd", steps=2_000_000))
    rates = {
        1: 2e-4, 60_000: 2e-4, 60_001: 0.5, 1_199_999: 0.5, 1_200_000: 0.25, 1_399_999: 0.25,
        1_400_000: 0.125, 1_600_000: 0.0625, 1_800_000: 0.03125, 1_999_999: 0.03125,
    }  # fmt: skip
    assert {at: schedule.learning_rate(at, 0) for at in rates} == rates
    assert schedule.optimizer_of(60_000) is schedule.optimizer
    assert isinstance(schedule.optimizer_of(60_001), torch.optim.SGD)


def test_convs2s_goes_down_by_tens_until_below_its_lowest_rate(tiny_config: Config) -> None:
    schedule = optimizers.make(Two(), asked(tiny_config, "nesterov", learning_rate_scale=2.0))
    rates = [schedule.learning_rate(9, stalls) for stalls in (0, 1, 2, 3, 4, 5, 99)]
    assert rates == pytest.approx([0.5, 0.05, 0.005, 5e-4, 5e-5, 5e-5, 5e-5], rel=1e-12)


def test_a_stall_is_a_validation_that_is_no_better_and_each_one_after_it() -> None:
    progress, seen = Progress(), []
    for loss in (math.nan, 3.0):  # a loss that is not finite is no better
        progress.add_validation({"valid_loss": loss})
    assert (progress.stalls, progress.lowest_valid_loss) == (2, 3.0)
    progress = Progress()
    for loss in (3.0, 2.5, 2.5, 2.0, 1.5):
        progress.add_validation({"valid_loss": loss})
        seen.append(progress.stalls)
    assert seen == [0, 0, 1, 2, 3]
    assert progress.newest == {"valid_loss": 1.5}


@pytest.mark.parametrize(("architecture", "name"), ARCHITECTURES.items())
def test_as_published_is_what_the_architecture_names(
    tiny_config: Config, architecture: str, name: str
) -> None:
    layers = {"model.layers": 2} if architecture == "recurrent" else {}
    config = configuration.with_changes(
        tiny_config,
        {"model.architecture": architecture, "train.optimizer": "as_published"} | layers,
    )
    assert config.optimizer == name
    assert type(optimizers.make(Two(), config)) is optimizers.OPTIMIZERS[name]
    assert config.warmup_steps == (config.train.warmup_steps if name == "adam" else 0)


def test_params_name_each_optimizer(tiny_config: Config) -> None:
    for name in NAMES:
        config = asked(tiny_config, name)
        assert config.optimizer == name
        assert configuration.parse(configuration.dump(config)) == config
    # The default enters no identity: what was trained before there was the key stays current.
    assert "train.optimizer" not in configuration.identity(tiny_config)
    assert configuration.identity(asked(tiny_config, "nesterov"))["train.optimizer"] == "nesterov"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("at", [4, 8])
def test_a_resumed_training_is_bitwise_the_same(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, name: str, at: int
) -> None:
    # 150 steps, of which 12 are run: adam_then_sgd changes after the fourth.
    config = asked(tiny_config, name, steps=150, learning_rate_scale=3.0)
    whole = run(config, tiny_corpus, tmp_path / "whole", until=12)
    resumed = run(
        config, tiny_corpus, tmp_path / "resumed", until=12, resume=tmp_path / f"whole/step-{at}"
    )
    for file in ("model", "optimizer"):
        first, second = (
            load_file(tmp_path / folder / "step-12" / f"{file}.safetensors")
            for folder in ("whole", "resumed")
        )
        assert first.keys() == second.keys()
        assert all(torch.equal(first[key], second[key]) for key in first)
    rates = [
        [e.metrics["learning_rate"] for e in events if isinstance(e, Logged) and e.step > at]
        for events in (whole, resumed)
    ]
    assert rates[0] == rates[1]
    kept = load_file(tmp_path / "whole/step-12/optimizer.safetensors")
    moments = {key.partition("|")[2] for key in kept}
    assert moments == {
        "adam_then_sgd": set(), "nesterov": {"momentum_buffer"}
    }.get(name, {"exp_avg", "exp_avg_sq", "step"})  # fmt: skip


@pytest.mark.parametrize("groups", [((0, 2, 4), (1, 3)), ((3, 1), (4, 0, 2)), ((4, 3, 2, 1, 0),)])
def test_one_of_several_groups_is_resumed_bitwise(
    tmp_path: Path, groups: tuple[tuple[int, ...], ...]
) -> None:
    """In another order than the model's; of one shape, or torch would end the process instead."""

    def made() -> tuple[nn.ParameterList, torch.optim.Optimizer]:
        model = nn.ParameterList(torch.ones(3) for _ in range(5))
        named = [
            {"params": [model[i] for i in group], "weight_decay": 0.1 * number}
            for number, group in enumerate(groups)
        ]
        return model, torch.optim.AdamW(named, lr=0.0, fused=True)

    def update(model: nn.Module, optimizer: torch.optim.Optimizer, at: int) -> None:
        generator = torch.Generator().manual_seed(at)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        step.apply(model, optimizer, 0.1)

    whole, resumed = made(), made()
    for at in range(3):
        update(*whole, at)
    checkpointing.capture(*whole, Progress(), {}).write(tmp_path / "step-3")
    checkpointing.load(tmp_path / "step-3", *resumed, {})
    for at in range(3, 6):
        update(*whole, at)
        update(*resumed, at)
    first, second = (checkpointing.capture(*of, Progress(), {}) for of in (whole, resumed))
    for one, other in ((first.model, second.model), (first.optimizer, second.optimizer)):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[key], other[key]) for key in one)


def test_a_training_whose_loss_stalls_goes_on_at_a_tenth_and_resumes_so(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path
) -> None:
    config = asked(
        tiny_config, "nesterov", steps=16, learning_rate_scale=40.0, log_every=1,
        validate_every=2,
    )  # fmt: skip
    used: list[float] = []

    def noting(model: nn.Module, optimizer: Any, rate: float, *options: Any) -> Any:
        used.append(rate)
        return step.apply(model, optimizer, rate, *options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "apply", noting)
        events = run(config, tiny_corpus, tmp_path / "whole")
    losses = {e.step: e.metrics["valid_loss"] for e in events if isinstance(e, Validated)}
    rates = {e.step: e.metrics["learning_rate"] for e in events if isinstance(e, Logged)}
    assert used == [*rates.values()]  # what is logged is what was used
    stalls, lowest = 0, math.inf
    for at in range(1, 17):
        # A step's own line comes before its validation.
        assert rates[at] == pytest.approx(max(10.0 / 10**stalls, 1e-3), rel=1e-9)
        if at in losses:
            stalls += bool(stalls) or not losses[at] < lowest
            lowest = min(lowest, losses[at])
    assert stalls >= 2  # or this shows nothing
    resumed = run(config, tiny_corpus, tmp_path / "on", resume=tmp_path / "whole/step-12")
    assert {e.step: e.metrics["learning_rate"] for e in resumed if isinstance(e, Logged)} == {
        at: rate for at, rate in rates.items() if at > 12
    }
    assert isinstance(resumed[-1], Finished)


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_counts_what_the_optimizer_keeps(tiny_config: Config, name: str) -> None:
    config = asked(tiny_config, name, steps=100)
    model = Two()
    schedule = optimizers.make(model, config)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    step.apply(model, schedule.optimizer_of(1), 0.1)
    kept = [
        value
        for entry in schedule.optimizer.state.values()
        for value in entry.values()
        if value.numel() > 1
    ]
    assert len(kept) == config.moments * len(list(model.parameters()))
