"""The layers of Table 1 as modules from x [B, n, d] to the same shape.

Those of `seq2sweep.model.mixer`, where they serve; here lies what is of Table 1 alone: attention
without its projections, as the paper's table counts it, and layers written out product by product,
since fused kernels tell a counter of operations nothing.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2sweep.config import TransformerConfig
from seq2sweep.model.mixer import convolutional, recurrent, restricted, self_attention, separable
from seq2sweep.model.packing import Packing

HEAD = 64
"""d_k = d_v of the paper's models. A width that is no multiple of it has one head."""


def settings(d: int, k: int, r: int, dilations: tuple[int, ...] = (1,)) -> TransformerConfig:
    """Of mixers of width d, kernel k and neighbourhood r; dilations: layer by layer."""
    heads = d // HEAD if d % HEAD == 0 else 1
    return TransformerConfig(
        layers=1,
        d_model=d,
        d_ff=d,
        heads=heads,
        d_k=d // heads,
        d_v=d // heads,
        attention="scaled_dot_product",
        norm="post",
        dropout=0.0,
        attention_dropout=0.0,
        feed_forward_dropout=0.0,
        positions="sinusoidal",
        tie_embeddings=True,
        mixer_kernel=k,
        mixer_neighbourhood=r,
        mixer_dilation=dilations,
    )


class _Alone(nn.Module):
    """Attention without W^Q, W^K, W^V and W^O: queries, keys and values are x itself."""

    def __init__(self, config: TransformerConfig, causal: bool, layer: int = 0) -> None:
        super().__init__(config, causal, layer)
        del self.projection, self.output
        # No weights: what it says is of which type numbers are, as `restricted` asks.
        self.register_buffer("projection", torch.empty(0), persistent=False)

    def reset_parameters(self) -> None:
        """There are none."""

    def project(self, x: Tensor, packing: Packing | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """x [B, n, d] by heads, three times [B, h, n, d / h]."""
        heads = x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        return heads, heads, heads

    def join(self, heads: Tensor, packing: Packing | None = None) -> Tensor:
        """Heads [B, h, n, d / h] beside each other: [B, n, d]."""
        return heads.transpose(1, 2).flatten(2)


class AttentionAlone(_Alone, self_attention.Mixer):
    """softmax(x x^T / sqrt(d_k)) x in each head."""


class RestrictedAlone(_Alone, restricted.Mixer):
    """The same over each position's neighbourhood, by blocks of queries."""


class Unfolded(restricted.Mixer):
    """Restricted attention as it is defined: each query by its own r keys, r n d_k products."""

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        causal: bool = False,
        packing: Packing | None = None,
    ) -> Tensor:
        """x [B, n, d_model] without padding."""
        queries, keys, values = self.project(x)
        n, r = queries.size(2), self.neighbourhood
        back = r - 1 if causal or self.causal else (r - 1) // 2
        ends = (0, 0, back, r - 1 - back)
        seen = torch.arange(n, device=x.device)[:, None] - back + torch.arange(r, device=x.device)
        outside = (seen < 0) | (seen >= n)
        near = F.pad(keys, ends).unfold(2, r, 1)  # [B, h, n, d_k, r]
        scores = ((queries * self.scale).unsqueeze(-2) @ near).squeeze(-2)
        weights = torch.softmax(scores.masked_fill(outside, -math.inf), dim=-1)
        near = F.pad(values, ends).unfold(2, r, 1)
        heads = (weights.unsqueeze(-2) @ near.transpose(-2, -1)).squeeze(-2)
        return self.join(heads)


class UnfoldedAlone(_Alone, Unfolded):
    """The same without projections."""


class Elman(nn.Module):
    """h_i = tanh(W x_i + U h_{i-1}) by PyTorch's kernel, without biases (Elman 1990)."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.rnn = nn.RNN(d, d, bias=False, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.rnn(x)[0]
        return out


class Cells(nn.Module):
    """A recurrence written out: the inputs' product of all positions at once, then cell by cell.

    A state is a tuple of tensors [..., d], of which the first is the output.
    """

    states: int
    """Tensors of a state."""

    def __init__(self, recurrence: nn.RNNBase) -> None:
        super().__init__()
        self.recurrence = recurrence

    def weight(self, name: str) -> Tensor:
        """One of PyTorch's names, such as `weight_hh_l0`."""
        return self.recurrence.get_parameter(name)

    def inputs(self, x: Tensor) -> Tensor:
        """W x of all positions, with biases where there are any: [..., gates * d]."""
        product = F.linear(x, self.weight("weight_ih_l0"))
        if not self.recurrence.bias:
            return product
        return product + self.weight("bias_ih_l0") + self.weight("bias_hh_l0")

    def start(self, like: Tensor) -> tuple[Tensor, ...]:
        """The state before the first position, [B, d] each: zeros."""
        return tuple(like.new_zeros(len(like), like.size(-1)) for _ in range(self.states))

    def cell(self, inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The state after a position, from its `inputs` and the state before it."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        inputs, state, out = self.inputs(x), self.start(x), []
        for position in inputs.unbind(1):
            state = self.cell(position, state)
            out.append(state[0])
        return torch.stack(out, dim=1)


class ElmanCells(Cells):
    """Of `Elman`."""

    states = 1

    def cell(self, inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (torch.tanh(inputs + F.linear(state[0], self.weight("weight_hh_l0"))),)


class LstmCells(Cells):
    """Of `recurrent.Mixer`, gates i, f, g, o."""

    states = 2

    def cell(self, inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        out, memory = state
        gates = inputs + F.linear(out, self.weight("weight_hh_l0"))
        add, keep, new, show = gates.chunk(4, dim=-1)
        memory = torch.sigmoid(keep) * memory + torch.sigmoid(add) * torch.tanh(new)
        return torch.sigmoid(show) * torch.tanh(memory), memory


STACKED = {
    "self_attention": AttentionAlone,
    "restricted": RestrictedAlone,
    "convolutional": convolutional.Mixer,
    "dilated": convolutional.Mixer,
    "separable": separable.Mixer,
    "multi_head": self_attention.Mixer,
    "multi_head_restricted": restricted.Mixer,
}
"""Rows whose layers connect a few positions at a time, as mixers."""
RECURRENT = ("recurrent", "lstm")


def build(
    name: str,
    d: int,
    k: int,
    r: int,
    *,
    causal: bool = False,
    dilations: tuple[int, ...] | None = None,
    layer: int = 0,
) -> nn.Module:
    """The layer of a row as it is timed; recurrent ones have one direction, left to right.

    dilations: of a stack, layer by layer; without them a dilated layer has dilation k. layer: its
    number in a stack, from 0.
    """
    if name == "recurrent":
        return Elman(d)
    if dilations is None:
        dilations = (k,) if name == "dilated" else (1,)
    config = settings(d, k, r, dilations)
    if name == "lstm":
        return recurrent.Mixer(config, causal=True)
    made: nn.Module = STACKED[name](config, causal, layer)
    return made


def written_out(name: str, d: int, k: int, r: int) -> nn.Module:
    """The layer of a row product by product, as its operations are counted."""
    if name == "restricted":
        return UnfoldedAlone(settings(d, k, r), causal=False)
    if name == "multi_head_restricted":
        return Unfolded(settings(d, k, r), causal=False)
    made: Any = build(name, d, k, r)
    if name in RECURRENT:
        return cells_of(name, made)
    if name in ("self_attention", "multi_head"):
        made.keep_weights = True  # plain products, not the fused kernel
    return made  # type: ignore[no-any-return]


def cells_of(name: str, layer: nn.Module) -> Cells:
    """A recurrent layer cell by cell, with the same weights."""
    if isinstance(layer, Elman):
        return ElmanCells(layer.rnn)
    if isinstance(layer, recurrent.Mixer):
        return LstmCells(layer.rightwards)
    raise ValueError(f"{name} is no recurrent layer")
