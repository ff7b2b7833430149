"""A separable convolution (section 4): over positions for each dimension by itself, then over the
dimensions of each position. Kernel, dilation and ends as `convolutional` has them; no biases."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from seq2sweep.config import TransformerConfig
from seq2sweep.model.caching import StateCache
from seq2sweep.model.packing import Packing, zeroed
from seq2sweep.model.products import Linear


class Mixer(nn.Module):
    """W (sum_t w_t * x[i + offset_t]), with w_t in R^{d_model} and W in R^{d_model x d_model}."""

    def __init__(self, config: TransformerConfig, causal: bool, layer: int = 0) -> None:
        super().__init__()
        self.causal, self.kernel = causal, config.mixer_kernel
        self.dilation = config.mixer_dilation[layer % len(config.mixer_dilation)]
        self.depthwise = nn.Parameter(torch.empty(config.d_model, 1, self.kernel))
        self.pointwise = Linear(config.d_model, config.d_model, bias=False)
        # Sums of k products keep the variance of what goes in.
        bound = math.sqrt(3 / self.kernel)
        nn.init.uniform_(self.depthwise, -bound, bound)
        nn.init.xavier_uniform_(self.pointwise.weight)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, packing: Packing | None = None
    ) -> Tensor:
        """x [B, n, d_model] or packed; mask [B, 1, 1, n] as in `MultiHeadAttention.attend`."""
        x = zeroed(x, mask, packing)
        if packing is not None:
            x = packing.pad(x)
        around = (self.kernel - 1) * self.dilation
        back = around if self.causal else around // 2
        columns = F.pad(x.transpose(1, 2), (back, around - back))
        mixed = F.conv1d(columns, self.depthwise, dilation=self.dilation, groups=x.size(-1))
        out = mixed.transpose(1, 2)
        made: Tensor = self.pointwise(out if packing is None else packing.pack(out))
        return made

    def start(self, memory: Tensor) -> StateCache:
        """The last (k - 1) s inputs, [B, (k - 1) s, d_model]: zeros."""
        back = (self.kernel - 1) * self.dilation
        return StateCache((memory.new_zeros(len(memory), back, memory.size(-1)),))

    def step(self, x: Tensor, cache: StateCache, past: Tensor) -> Tensor:
        """One position of each hypothesis, x [B, K, d_model]."""
        (before,) = cache.states
        inputs = torch.cat((before, x.flatten(0, 1).unsqueeze(1)), dim=1)
        cache.states = (inputs[:, 1:],)
        mixed = (inputs[:, :: self.dilation] * self.depthwise[:, 0].t()).sum(dim=1)
        out: Tensor = self.pointwise(mixed.view(x.shape))
        return out

    @staticmethod
    def reach(config: TransformerConfig) -> int:
        """Of how many of the last positions a step needs keys and values: it has a state."""
        return 0

    @staticmethod
    def parameter_count(config: TransformerConfig, causal: bool) -> int:
        """Trainable numbers."""
        return config.mixer_kernel * config.d_model + config.d_model**2

    @staticmethod
    def kept_bytes(
        config: TransformerConfig, causal: bool, length: float, size: int, plain: bool
    ) -> float:
        """What the backward pass needs for each piece: the inputs of both parts."""
        return 2 * size * config.d_model

    @staticmethod
    def flops(
        config: TransformerConfig,
        causal: bool,
        lengths: NDArray[np.float64],
        widths: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]:
        """Operations of a forward pass for each sentence; the part over positions computes padding
        up to `widths` too, and zeros around the sentence count."""
        d = config.d_model
        over = lengths if widths is None else widths
        return over * (2 * config.mixer_kernel * d) + lengths * (2 * d * d)
