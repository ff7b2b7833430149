"""The rows of Table 1 (section 4): the paper's entries, and each one's costs in closed form.

n tokens of one sentence, d numbers a token, k width of kernels, r of a neighbourhood. A
multiply-add counts as two operations, as in `seq2sweep.model.flops`, and only products are counted.
The neighbourhood of a position counts that position: r = 3 is itself and one on each side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seq2sweep.config import Table1Config

ALL = "all"
FORWARD, BOTH = "forward", "forward_backward"
"""What is timed of a layer."""

Cost = Callable[[int, int, int, int], int]
"""Of n, d, k and r."""
Length = Callable[[int, int, int], int | None]
"""Of n, k and r: operations on the longest path; None where there is no closed form."""


@dataclass(frozen=True)
class Row:
    """A type of layer.

    complexity, sequential, path: as the paper prints them, a dash for a layer that its table has
    not. exponents: of n and d in the paper's complexity; None where it is a sum of two terms.
    order: what the paper's path comes to in numbers, without its O. path_both, path_causal: the
    exact maximum, where every position is to see every other one, and all up to itself.
    timed: the kernels whose time is taken; counted: the form whose operations are counted.
    """

    name: str
    title: str
    complexity: str
    sequential: str
    path: str
    exponents: tuple[int, int] | None
    flops: Cost
    flops_text: str
    parameters: Cost
    order: Callable[[int, int, int], float]
    path_both: Length
    path_causal: Length
    timed: str
    counted: str


def layers_needed(distance: int, reach: int) -> int:
    """Layers that carry a token over a distance, each by `reach` positions; one at least."""
    return max(1, -(-distance // reach))


def causal_dilated(n: int, k: int) -> int:
    """ceil(log_k n) in whole numbers: dilations 1, k, k^2, ... reach back k^L - 1 positions."""
    depth = 1
    while k**depth < n:
        depth += 1
    return depth


def _products(n: int, d: int, k: int, r: int) -> int:
    """The four projections of multi-head attention with h d_k = h d_v = d."""
    return 8 * n * d**2


PLAIN = "plain products"
HEADS = "heads of 64, or one where d is no multiple of that"
ROWS: tuple[Row, ...] = (
    Row(
        name="self_attention",
        title="Self-attention",
        complexity="O(n² · d)",
        sequential="O(1)",
        path="O(1)",
        exponents=(2, 1),
        flops=lambda n, d, k, r: 4 * n**2 * d,
        flops_text="4n²d",
        parameters=lambda n, d, k, r: 0,
        order=lambda n, k, r: 1,
        path_both=lambda n, k, r: 1,
        path_causal=lambda n, k, r: 1,
        timed=f"as the Transformer computes it, {HEADS}",
        counted=PLAIN,
    ),
    Row(
        name="recurrent",
        title="Recurrent (Elman)",
        complexity="O(n · d²)",
        sequential="O(n)",
        path="O(n)",
        exponents=(1, 2),
        flops=lambda n, d, k, r: 4 * n * d**2,
        flops_text="4nd²",
        parameters=lambda n, d, k, r: 2 * d**2,
        order=lambda n, k, r: n,
        path_both=lambda n, k, r: n,
        path_causal=lambda n, k, r: n,
        timed="torch.nn.RNN, one direction",
        counted="cell by cell",
    ),
    Row(
        name="convolutional",
        title="Convolutional, contiguous",
        complexity="O(k · n · d²)",
        sequential="O(1)",
        path="O(n/k)",
        exponents=(1, 2),
        flops=lambda n, d, k, r: 2 * k * n * d**2,
        flops_text="2knd²",
        parameters=lambda n, d, k, r: k * d**2,
        order=lambda n, k, r: n / k,
        path_both=lambda n, k, r: layers_needed(2 * (n - 1), k - 1),
        path_causal=lambda n, k, r: layers_needed(n - 1, k - 1),
        timed="one product whose k parts are shifted and added",
        counted="the same",
    ),
    Row(
        name="dilated",
        title="Convolutional, dilated",
        complexity="O(k · n · d²)",
        sequential="O(1)",
        path="O(log_k n)",
        exponents=(1, 2),
        flops=lambda n, d, k, r: 2 * k * n * d**2,
        flops_text="2knd²",
        parameters=lambda n, d, k, r: k * d**2,
        order=lambda n, k, r: math.log(n, k),
        path_both=lambda n, k, r: None,
        path_causal=lambda n, k, r: causal_dilated(n, k),
        timed="one product whose k parts are shifted by k and added",
        counted="the same",
    ),
    Row(
        name="restricted",
        title="Self-attention, restricted",
        complexity="O(r · n · d)",
        sequential="O(1)",
        path="O(n/r)",
        exponents=(1, 1),
        flops=lambda n, d, k, r: 4 * r * n * d,
        flops_text="4rnd",
        parameters=lambda n, d, k, r: 0,
        order=lambda n, k, r: n / r,
        path_both=lambda n, k, r: layers_needed(2 * (n - 1), r - 1),
        path_causal=lambda n, k, r: layers_needed(n - 1, r - 1),
        timed=f"blocks of queries, {HEADS}",
        counted="r keys a query",
    ),
    Row(
        name="separable",
        title="Separable convolution",
        complexity="O(k · n · d + n · d²)",
        sequential="O(1)",
        path="O(n/k)",
        exponents=None,
        flops=lambda n, d, k, r: 2 * k * n * d + 2 * n * d**2,
        flops_text="2knd + 2nd²",
        parameters=lambda n, d, k, r: k * d + d**2,
        order=lambda n, k, r: n / k,
        path_both=lambda n, k, r: layers_needed(2 * (n - 1), k - 1),
        path_causal=lambda n, k, r: layers_needed(n - 1, k - 1),
        timed="torch.conv1d by dimension, then a product",
        counted="the same",
    ),
    Row(
        name="multi_head",
        title="Multi-head attention, whole",
        complexity="–",
        sequential="O(1)",
        path="O(1)",
        exponents=None,
        flops=lambda n, d, k, r: _products(n, d, k, r) + 4 * n**2 * d,
        flops_text="8nd² + 4n²d",
        parameters=lambda n, d, k, r: 4 * d**2,
        order=lambda n, k, r: 1,
        path_both=lambda n, k, r: 1,
        path_causal=lambda n, k, r: 1,
        timed=f"as the Transformer computes it, {HEADS}",
        counted=PLAIN,
    ),
    Row(
        name="multi_head_restricted",
        title="Multi-head restricted, whole",
        complexity="–",
        sequential="O(1)",
        path="O(n/r)",
        exponents=None,
        flops=lambda n, d, k, r: _products(n, d, k, r) + 4 * r * n * d,
        flops_text="8nd² + 4rnd",
        parameters=lambda n, d, k, r: 4 * d**2,
        order=lambda n, k, r: n / r,
        path_both=lambda n, k, r: layers_needed(2 * (n - 1), r - 1),
        path_causal=lambda n, k, r: layers_needed(n - 1, r - 1),
        timed=f"blocks of queries, {HEADS}",
        counted="r keys a query",
    ),
    Row(
        name="lstm",
        title="LSTM",
        complexity="–",
        sequential="O(n)",
        path="O(n)",
        exponents=None,
        flops=lambda n, d, k, r: 16 * n * d**2,
        flops_text="16nd²",
        parameters=lambda n, d, k, r: 8 * d**2 + 8 * d,  # torch.nn.LSTM has two biases a unit
        order=lambda n, k, r: n,
        path_both=lambda n, k, r: n,
        path_causal=lambda n, k, r: n,
        timed="torch.nn.LSTM, one direction",
        counted="cell by cell",
    ),
)
"""Those of the paper's table first, as it lists them."""
BY_NAME = {row.name: row for row in ROWS}


def chosen(layers: Sequence[str]) -> list[Row]:
    """The rows that `table1.layers` names, in the order of ROWS."""
    return [row for row in ROWS if ALL in layers or row.name in layers]


OPERATIONS_PER_SECOND, CALL_SECONDS = 2e10, 0.004
"""Of one thread of 2.4 GHz, and what a timing takes whose operations are few."""


def timing_seconds(settings: Table1Config) -> float:
    """What measuring takes, about: for `seq2sweep plan`."""
    k, r = settings.kernel, settings.neighbourhood
    rounds = settings.repeats + 2
    # Forward; and forward and backward, which is about four times as much on a CPU.
    return sum(
        rounds * (2 * CALL_SECONDS + 5 * row.flops(n, d, k, r) / OPERATIONS_PER_SECOND)
        for row in chosen(settings.layers)
        for n in settings.lengths
        for d in settings.widths
    )


@dataclass(frozen=True)
class Crossover:
    """Two layers and the n at which they cost the same, as a multiple of d; below it `first` is
    cheaper."""

    first: str
    second: str
    multiple: int


CROSSOVERS = (Crossover("self_attention", "recurrent", 1), Crossover("multi_head", "lstm", 2))
"""The paper's statement (attention is cheaper than recurrence while n < d) for what its table
compares, and the same for the layers that Table 2 compares."""
