"""Optimizers with their schedules: the paper's, and those of the papers behind Table 2.

One of your own: a class here, its name in `OPTIMIZERS` and in `train.optimizer` of
`seq2sweep.config`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import nn
from torch.optim.sgd import sgd

from seq2sweep.config import Config
from seq2sweep.train.distributed import own_part

ADAM_BETAS = (0.9, 0.98)
ADAM_EPSILON = 1e-9


class Sgd(torch.optim.SGD):
    """Fused SGD of a sharded model as well, for which torch 2.13 has no kernel but of Adam."""

    def __init__(self, model: nn.Module, momentum: float = 0.0) -> None:
        super().__init__(
            model.parameters(), lr=0.0, momentum=momentum, nesterov=momentum > 0, fused=True
        )
        # Or a first update that is skipped would leave what is in memory just then.
        for parameter in model.parameters() if momentum else ():
            self.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """torch's, on this worker's part of each tensor."""
        (group,) = self.param_groups
        parameters = [p for p in group["params"] if p.grad is not None]
        buffers = [self.state[p].get("momentum_buffer") for p in parameters]
        sgd(
            [own_part(p) for p in parameters],
            [own_part(p.grad) for p in parameters],
            [None if buffer is None else own_part(buffer) for buffer in buffers],
            fused=True,
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
            weight_decay=0.0,
            momentum=group["momentum"],
            lr=group["lr"],
            dampening=0.0,
            nesterov=group["nesterov"],
            maximize=False,
        )


class Schedule(ABC):
    """An optimizer of a model's parameters, and the learning rate of each update.

    optimizer: the one whose state checkpoints keep. clip_norm: a gradient with a larger norm is
    scaled down to this one; None: never.
    """

    optimizer: torch.optim.Optimizer
    clip_norm: float | None = None

    @abstractmethod
    def __init__(self, model: nn.Module, config: Config) -> None:
        self.config = config

    def optimizer_of(self, step: int) -> torch.optim.Optimizer:
        """The one that takes a step, counted from 1. Fused: `step.apply` scales its gradients."""
        return self.optimizer

    @abstractmethod
    def learning_rate(self, step: int, stalls: int) -> float:
        """The rate of a step, `train.learning_rate_scale` times the published one.

        stalls: validations since the loss stopped falling, that one among them.
        """


class Adam(Schedule):
    """Adam with rising, then falling rate (section 5.3)."""

    def __init__(self, model: nn.Module, config: Config) -> None:
        super().__init__(model, config)
        self.optimizer = make_adam(model)

    def learning_rate(self, step: int, stalls: int) -> float:
        train = self.config.train
        scale = train.learning_rate_scale
        return learning_rate(step, self.config.model.d_model, train.warmup_steps, scale)


class AdamConstant(Schedule):
    """Adam at one rate, with what are its defaults everywhere (ByteNet, section 5)."""

    RATE = 3e-4

    def __init__(self, model: nn.Module, config: Config) -> None:
        super().__init__(model, config)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.0, fused=True)

    def learning_rate(self, step: int, stalls: int) -> float:
        return self.RATE * self.config.train.learning_rate_scale


class AdamThenSgd(Schedule):
    """Adam at one rate, then SGD whose rate is halved again and again (GNMT, section 8).

    The paper's 60 000 steps of Adam, and a halving every 200 000 from step 1 200 000 on, are these
    hundredths of its 2 000 000 steps.
    """

    clip_norm = 5.0
    ADAM_RATE, SGD_RATE = 2e-4, 0.5
    OF_ADAM, UNHALVED, HALVING_EVERY = 3, 60, 10

    def __init__(self, model: nn.Module, config: Config) -> None:
        super().__init__(model, config)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.0, fused=True)
        self.sgd = Sgd(model)  # has no state

    def optimizer_of(self, step: int) -> torch.optim.Optimizer:
        if 100 * step <= self.OF_ADAM * self.config.train.steps:
            return self.optimizer
        self.optimizer.state.clear()  # of no more use, and twice as large as the weights
        return self.sgd

    def learning_rate(self, step: int, stalls: int) -> float:
        scale, steps = self.config.train.learning_rate_scale, self.config.train.steps
        if 100 * step <= self.OF_ADAM * steps:
            return scale * self.ADAM_RATE
        late = 100 * step - self.UNHALVED * steps
        halvings = 0 if late < 0 else 1 + late // (self.HALVING_EVERY * steps)
        return scale * self.SGD_RATE * 0.5**halvings


class Nesterov(Schedule):
    """SGD with Nesterov's momentum, small gradients, and a rate that is divided by ten at each
    validation from the first one on whose loss is no lower, until below 1e-4 (ConvS2S, section
    4.2; the paper validates once an epoch, and ends there)."""

    clip_norm = 0.1
    RATE, MOMENTUM, LOWEST = 0.25, 0.99, 1e-4

    def __init__(self, model: nn.Module, config: Config) -> None:
        super().__init__(model, config)
        self.optimizer = Sgd(model, self.MOMENTUM)

    def learning_rate(self, step: int, stalls: int) -> float:
        rate = self.RATE
        while stalls > 0 and rate >= self.LOWEST:
            stalls, rate = stalls - 1, rate / 10
        return rate * self.config.train.learning_rate_scale


OPTIMIZERS: dict[str, type[Schedule]] = {
    "adam": Adam,
    "adam_constant": AdamConstant,
    "adam_then_sgd": AdamThenSgd,
    "nesterov": Nesterov,
}


def make(model: nn.Module, config: Config) -> Schedule:
    """What `train.optimizer` names, of the model's own paper where it says so."""
    return OPTIMIZERS[config.optimizer](model, config)


def make_adam(model: nn.Module) -> torch.optim.Adam:
    """Adam with the constants of section 5.3; the schedule sets the rate before each update."""
    return torch.optim.Adam(
        model.parameters(), lr=0.0, betas=ADAM_BETAS, eps=ADAM_EPSILON, fused=True
    )


def learning_rate(step: int, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """scale * d_model^-0.5 * min(step^-0.5, step * warmup^-1.5) (section 5.3, equation 3),
    step from 1."""
    return float(scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))
