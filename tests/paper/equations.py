"""The paper's equations as they stand, in loops over heads, queries and keys and in float64.

One sentence at a time: there is no batch, no padding and no mask. A query's sum runs over the keys
that it may see and over nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from seq2sweep.config import TransformerConfig
from seq2sweep.model.architecture.transformer import Transformer
from seq2sweep.model.attention import MultiHeadAttention
from seq2sweep.model.layers import Residual

Array = NDArray[np.float64]


def array(tensor: Tensor) -> Array:
    """The same numbers in float64."""
    return tensor.detach().double().numpy()


def everything(queries: int, keys: int) -> list[range]:
    """Each query sees all keys."""
    return [range(keys)] * queries


def the_past(queries: int) -> list[range]:
    """Query i sees keys 0 ... i."""
    return [range(i + 1) for i in range(queries)]


def around(positions: int, r: int) -> list[range]:
    """Query i sees r keys, itself in the middle, as far as there are any."""
    return [range(max(0, i - r // 2), min(positions, i + r // 2 + 1)) for i in range(positions)]


def the_last(positions: int, r: int) -> list[range]:
    """Query i sees itself and the r - 1 keys before it, as far as there are any."""
    return [range(max(0, i - r + 1), i + 1) for i in range(positions)]


def head_matrices(module: MultiHeadAttention, head: int) -> tuple[Array, Array, Array]:
    """W_i^Q, W_i^K [d_model, d_k] and W_i^V [d_model, d_v] of one head."""
    h, d_k, d_v = module.heads, module.d_k, module.d_v
    rows = array(module.projection)
    assert len(rows) == h * (2 * d_k + d_v)
    at_key, at_value = h * d_k, 2 * h * d_k
    return (
        rows[head * d_k : (head + 1) * d_k].T,
        rows[at_key + head * d_k : at_key + (head + 1) * d_k].T,
        rows[at_value + head * d_v : at_value + (head + 1) * d_v].T,
    )


def score(module: MultiHeadAttention, head: int, query: Array, key: Array) -> float:
    """How well a key fits a query (section 3.2.1)."""
    if module.kind == "additive":
        u = array(module.hidden)[head].ravel()
        return sum(u[c] * math.tanh(query[c] + key[c]) for c in range(module.d_k))
    product = sum(float(query[c] * key[c]) for c in range(module.d_k))
    return product / math.sqrt(module.d_k) if module.kind == "scaled_dot_product" else product


def attention(
    module: MultiHeadAttention, x: Array, memory: Array, visible: Sequence[Sequence[int]]
) -> tuple[Array, Array]:
    """Section 3.2.2: outputs [n, d_model] of x [n, d_model] and weights [h, n, m] over memory."""
    heads = np.zeros((len(x), module.heads * module.d_v))
    weights = np.zeros((module.heads, len(x), len(memory)))
    for head in range(module.heads):
        w_q, w_k, w_v = head_matrices(module, head)
        columns = slice(head * module.d_v, (head + 1) * module.d_v)
        for i in range(len(x)):
            query = x[i] @ w_q
            powers = {j: math.exp(score(module, head, query, memory[j] @ w_k)) for j in visible[i]}
            for j, power in powers.items():
                weights[head, i, j] = power / sum(powers.values())
                heads[i, columns] += weights[head, i, j] * (memory[j] @ w_v)
    return heads @ array(module.output.weight).T, weights


def convolution(taps: Array, x: Array, dilation: int, causal: bool) -> Array:
    """Output i is the sum over t of taps[t] times input i + (t - own) dilation, where own is the
    tap of the output's own position: the last, or the middle one. taps: [k, d, d]; x: [n, d]."""
    own = len(taps) - 1 if causal else (len(taps) - 1) // 2
    out = np.zeros_like(x)
    for i in range(len(x)):
        for t, tap in enumerate(taps):
            j = i + (t - own) * dilation
            if 0 <= j < len(x):
                out[i] += tap @ x[j]
    return out


def lstm(module: nn.LSTM, x: Array) -> Array:
    """Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000, as nn.LSTM orders
    the gates: c = sigmoid(f) c + sigmoid(i) tanh(g), h = sigmoid(o) tanh(c)."""
    weight, again = array(module.weight_ih_l0), array(module.weight_hh_l0)
    bias = array(module.bias_ih_l0) + array(module.bias_hh_l0)
    width = len(bias) // 4
    output, cell, outputs = np.zeros(width), np.zeros(width), []
    for row in x:
        gates = weight @ row + again @ output + bias
        i, f, g, o = (gates[part * width : (part + 1) * width] for part in range(4))
        cell = cell / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        output = np.tanh(cell) / (1 + np.exp(-o))
        outputs.append(output)
    return np.stack(outputs)


def mixer(module: Any, config: TransformerConfig, x: Array, causal: bool, layer: int = 0) -> Array:
    """A layer of Table 1, of x [n, d]: the kind that the encoder's or the decoder's key names."""
    kind, n = config.decoder_mixer if causal else config.encoder_mixer, len(x)
    dilation = config.mixer_dilation[layer % len(config.mixer_dilation)]
    if kind == "self_attention":
        return attention(module, x, x, the_past(n) if causal else everything(n, n))[0]
    if kind == "restricted":
        r = config.mixer_neighbourhood
        return attention(module, x, x, the_last(n, r) if causal else around(n, r))[0]
    if kind == "recurrent":
        rightwards = lstm(module.rightwards, x)
        if causal:
            return rightwards
        return np.concatenate((rightwards, lstm(module.leftwards, x[::-1])[::-1]), axis=1)
    if kind == "convolutional":
        taps = array(module.taps).reshape(config.mixer_kernel, x.shape[1], x.shape[1])
        return convolution(taps, x, dilation, causal)
    taps = np.stack([np.diag(weights) for weights in array(module.depthwise)[:, 0].T])
    return convolution(taps, x, dilation, causal) @ array(module.pointwise.weight).T


def normalised(module: nn.LayerNorm | nn.RMSNorm, x: Array) -> Array:
    """Each row brought to mean 0 and variance 1, then gain and bias (Ba et al. 2016); or divided
    by the root of its mean square, then gain (Zhang and Sennrich 2019)."""
    if isinstance(module, nn.RMSNorm):
        rows = [row / math.sqrt(sum(v * v for v in row) / len(row) + 1e-6) for row in x]
        return np.stack(rows) * array(module.weight)
    rows = [(row - row.mean()) / math.sqrt(row.var() + module.eps) for row in x]
    return np.stack(rows) * array(module.weight) + array(module.bias)


def feed_forward(module: nn.Module, x: Array, kind: str = "relu") -> Array:
    """Equation 2; or FFN_SwiGLU of Shazeer 2020 (equation 6): (Swish(x W) * x V) W2."""
    if kind == "swiglu":
        gate = x @ array(module.gate.weight).T
        gated = gate / (1 + np.exp(-gate)) * (x @ array(module.inner.weight).T)
        return gated @ array(module.outer.weight).T
    inner = x @ array(module.inner.weight).T + array(module.inner.bias)
    return np.where(inner > 0, inner, 0.0) @ array(module.outer.weight).T + array(module.outer.bias)


def residual(module: Residual, norm: str, x: Array, sublayer: Callable[[Array], Array]) -> Array:
    """LayerNorm(x + Sublayer(x)) (section 3.1), or x + Sublayer(LayerNorm(x))."""
    if norm == "pre":
        return x + sublayer(normalised(module.norm, x))
    return normalised(module.norm, x + sublayer(x))


def sinusoid(position: int, dimension: int, d_model: int) -> float:
    """PE(position, dimension) of section 3.5."""
    angle = position / 10000 ** (2 * (dimension // 2) / d_model)
    return math.cos(angle) if dimension % 2 else math.sin(angle)


def embedded(model: Transformer, side: str, pieces: Sequence[int]) -> Array:
    """Embeddings times sqrt(d_model) (section 3.4) and positions (3.5): [n, d_model]."""
    d = model.config.d_model
    embedding = model.source_embedding if side == "source" else model.target_embedding
    positions = model.source_positions if side == "source" else model.target_positions
    x = math.sqrt(d) * array(embedding.weight)[list(pieces)]
    if model.config.positions == "learned":
        return x + array(positions.table)[: len(pieces)]
    return x + [[sinusoid(i, c, d) for c in range(d)] for i in range(len(pieces))]


def transformer(model: Transformer, source: Sequence[int], target_in: Sequence[int]) -> Array:
    """Figure 1: logits [m, V] of one sentence pair, without dropout."""
    norm, kind = model.config.norm, model.config.feed_forward
    n, m = len(source), len(target_in)
    memory = embedded(model, "source", source)
    for number, layer in enumerate(model.encoder):
        memory = residual(
            layer.attention_residual,
            norm,
            memory,
            lambda x, a=layer.attention, i=number: mixer(a, model.config, x, False, i),
        )
        memory = residual(
            layer.feed_forward_residual,
            norm,
            memory,
            lambda x, f=layer.feed_forward: feed_forward(f, x, kind),
        )
    if norm == "pre":
        memory = normalised(model.encoder_norm, memory)
    out = embedded(model, "target", target_in)
    for number, layer in enumerate(model.decoder):
        out = residual(
            layer.attention_residual,
            norm,
            out,
            lambda x, a=layer.attention, i=number: mixer(a, model.config, x, True, i),
        )
        out = residual(
            layer.memory_residual,
            norm,
            out,
            lambda x, a=layer.memory_attention: attention(a, x, memory, everything(m, n))[0],
        )
        out = residual(
            layer.feed_forward_residual,
            norm,
            out,
            lambda x, f=layer.feed_forward: feed_forward(f, x, kind),
        )
    if norm == "pre":
        out = normalised(model.decoder_norm, out)
    return out @ array(model.projection.weight).T
