"""The longest way that a token has to another position of its sentence, found in two ways.

An operation is one attention layer, one convolution or one step of a recurrent cell. The path from
position j to position i is the fewest operations that bring anything of input j to output i; of a
layer type it is the longest over all pairs that it is to connect: all, or j <= i if it is causal.

`by_graph` searches the graph that the definitions draw: windows, dilations, steps. `by_jacobian`
asks the layers themselves: it computes in float64 for how many operations in a row the derivative
of each output after each input is not zero. Neither knows of the other.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from seq2sweep.table1.layer_types import RECURRENT, build, cells_of

WIDTH = 4
"""d of the layers whose derivatives are looked at."""
DRAWS = 3
"""Random inputs at most: what one of them shows connected is."""


def dilations_below(n: int, k: int) -> tuple[int, ...]:
    """1, k, k^2, ... below n: what a dilated stack goes through over and over."""
    return tuple(itertools.takewhile(lambda step: step < n, (k**level for level in range(n))))


# --- by the graph --------------------------------------------------------------------------------


def by_graph(
    name: str,
    n: int,
    k: int,
    r: int,
    *,
    causal: bool,
    dilations: tuple[int, ...] | None = None,
    most: int | None = None,
) -> int | None:
    """The longest of all shortest paths; None where some pair is not connected by `most`.

    dilations: of a dilated stack, over and over; without them 1, k, k^2, ... below n. most:
    operations after which the search ends; without it 2 n, more than any pair needs.
    """
    dilations = dilations or _usual(name, n, k)
    longest = 0
    for start in range(n):
        wanted = (1 << n) - (1 << start) if causal else (1 << n) - 1
        sets = itertools.islice(_reached(name, n, k, r, causal, dilations, start), most or 2 * n)
        enough = (number for number, found in enumerate(sets, 1) if found & wanted == wanted)
        if (needed := next(enough, None)) is None:
            return None
        longest = max(longest, needed)
    return longest


def _reached(
    name: str, n: int, k: int, r: int, causal: bool, dilations: tuple[int, ...], start: int
) -> Iterator[int]:
    """The positions that 1, 2, 3, ... operations reach from one, as the bits of a whole number.

    What is reached stays so, as each position sees itself.
    """
    positions = 1 << start
    for operation in itertools.count():
        if name in ("self_attention", "multi_head"):
            positions = (1 << n) - (1 << start if causal else 1)
        elif name not in RECURRENT:
            step = dilations[operation % len(dilations)]
            width = r if name in ("restricted", "multi_head_restricted") else k
            positions = _window(positions, n, width, step, causal)
        elif operation:
            # The first step reads the input; each later one carries the state on, to the right and,
            # of a second direction, to the left.
            positions = _window(positions, n, 2 if causal else 3, 1, causal)
        yield positions


def _window(positions: int, n: int, width: int, step: int, causal: bool) -> int:
    """The positions whose windows hold one of `positions`; ends of the sentence clip them."""
    behind = width - 1 if causal else (width - 1) // 2
    found = 0
    for place in range(width):
        offset = (place - behind) * step  # where the seen one stands from who sees it
        found |= positions >> offset if offset >= 0 else positions << -offset
    return found & (1 << n) - 1


def _usual(name: str, n: int, k: int) -> tuple[int, ...]:
    return dilations_below(n, k) if name == "dilated" else (1,)


# --- by derivatives ------------------------------------------------------------------------------


def by_jacobian(
    name: str,
    n: int,
    k: int,
    r: int,
    *,
    causal: bool,
    dilations: tuple[int, ...] | None = None,
    most: int | None = None,
) -> int | None:
    """As `by_graph`, by the derivatives of layers with random weights on random inputs.

    What is connected stays so with more layers, as each position sees itself in all of them.
    """
    dilations = dilations or _usual(name, n, k)
    generator = torch.Generator().manual_seed(n)
    draws = [_Draw(name, n, k, r, causal, dilations, generator) for _ in range(DRAWS)]
    unwanted = torch.full((n, n), causal).triu(1)

    def connects(depth: int) -> bool:
        found = unwanted
        for draw in draws:
            found = found | draw.support(depth)
            if bool(found.all()):
                return True
        return False

    most = most or 2 * n
    high = 1
    while not connects(high):
        if high == most:
            return None
        high = min(2 * high, most)
    depths = range(high // 2 + 1, high + 1)
    return depths[bisect.bisect_left(depths, True, key=connects)]


class _Draw:
    """A stack with random weights on a random sentence, as deep as it has been asked for."""

    def __init__(
        self,
        name: str,
        n: int,
        k: int,
        r: int,
        causal: bool,
        dilations: tuple[int, ...],
        generator: torch.Generator,
    ) -> None:
        self.generator = generator
        x = torch.randn(n, WIDTH, dtype=torch.float64, generator=generator)
        # One copy of the sentence for each output that is differentiated.
        self.x = x.expand(n, n, WIDTH).clone().requires_grad_()
        self.deeper = (
            _states(name, self.x, causal)
            if name in RECURRENT
            else _stack(name, self.x, k, r, causal, dilations)
        )
        self.outputs: list[Tensor] = []

    def support(self, depth: int) -> Tensor:
        """Whether output i depends on input j after so many operations: bool [n, n]."""
        while len(self.outputs) < depth:
            self.outputs.append(next(self.deeper))
        out = self.outputs[depth - 1]
        n = len(out)
        weights = torch.randn(n, out.size(-1), dtype=out.dtype, generator=self.generator)
        own = out[torch.arange(n), torch.arange(n)]
        (gradient,) = torch.autograd.grad((own * weights).sum(), self.x, retain_graph=True)
        # Where no path leads, autograd gives zeros exactly.
        return gradient.ne(0).any(dim=-1)


def _stack(
    name: str, x: Tensor, k: int, r: int, causal: bool, dilations: tuple[int, ...]
) -> Iterator[Tensor]:
    """Outputs of 1, 2, 3, ... layers on top of each other."""
    out = x
    for layer in itertools.count():
        made = build(name, WIDTH, k, r, causal=causal, dilations=dilations, layer=layer)
        out = made.double()(out)
        yield out


def _states(name: str, x: Tensor, causal: bool) -> Iterator[Tensor]:
    """Outputs after 1, 2, 3, ... steps that every position takes at once.

    A step makes each position's state anew, from its input and from the state that the position
    before it has had so far: after s steps exactly what s cells in a row bring has arrived.
    """
    right = _stepper(name, x)
    left = None if causal else _stepper(name, x.flip(1))
    while True:
        out = right()
        yield out if left is None else out + left().flip(1)


def _stepper(name: str, x: Tensor) -> Callable[[], Tensor]:
    cells = cells_of(name, build(name, WIDTH, 1, 1)).double()
    inputs = cells.inputs(x)
    state = tuple(torch.zeros_like(x) for _ in range(cells.states))

    def step() -> Tensor:
        nonlocal state
        before = tuple(torch.cat((s.new_zeros(s[:, :1].shape), s[:, :-1]), dim=1) for s in state)
        state = cells.cell(inputs, before)
        return state[0]

    return step
