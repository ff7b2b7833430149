"""What the exchange between GPUs adds to an update: a simulation of what training does.

In bf16 `train.loop` sums all gradients at once, when the last pass is done: passes are CUDA graphs
(`train.step.Passes`). Else it wraps the model in DistributedDataParallel (DDP), which puts
gradients into buckets, in the order in which the backward pass completes them, and sums a bucket
over all GPUs as soon as its last gradient is there, one bucket after the other, while the pass goes
on. All passes of an update but the last only add up gradients. With cluster.fsdp each layer's
weights are gathered before they are used, forward and backward in each pass, in bf16 where products
are, and gradients are summed in float32 in the last pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MACHINE = 8
"""GPUs of a machine."""
FIRST_BUCKET, BUCKET = 2**20, 25 * 2**20
"""Bytes from which DDP closes its first bucket and the others: PyTorch's defaults."""
LATENCY = 30e-6, 100e-6
"""Seconds of the sum of a small bucket, in a machine and between machines: assumed."""
COPIED = 8
"""Bytes read and written for a parameter: DDP copies gradients into buckets, where they stay."""


@dataclass(frozen=True)
class Links:
    """Bytes a second, each way: from a GPU to the others of its machine, and from a machine, all
    its GPUs together, to other machines."""

    inside: float
    network: float

    def gather(self, size: float, gpus: int) -> float:
        """Seconds until each of so many GPUs has `size` bytes, of which each had an equal part.

        By a ring in each machine, of which each GPU has its part from the other machines before.
        """
        if gpus == 1:
            return 0.0
        near, machines = min(gpus, MACHINE), -(-gpus // MACHINE)
        inside = (near - 1) / near * size / self.inside
        between = (machines - 1) / machines * size / self.network
        return inside + between + LATENCY[machines > 1] / 2

    def sum(self, size: float, gpus: int) -> float:
        """Seconds until each has the sum of such: each sums its part, then all gather the parts."""
        return 2 * self.gather(size, gpus)


@dataclass(frozen=True)
class Piece:
    """Some gradients, in the order of the backward pass: bytes, and seconds until they are complete
    from when those before were. gathered: bytes of their weights, as cluster.fsdp gathers them."""

    size: float
    seconds: float
    gathered: float = 0.0


def joined(group: Sequence[Piece]) -> Piece:
    """What is gathered at once."""
    return Piece(
        sum(piece.size for piece in group),
        sum(piece.seconds for piece in group),
        sum(piece.gathered for piece in group),
    )


def pipeline(first: Sequence[float], second: Sequence[float]) -> float:
    """Seconds of works of two stages: each stage does one at a time, in the order given.

    first, second: seconds of each work in the one and then in the other stage.
    """
    done = end = 0.0
    for before, after in zip(first, second, strict=True):
        done += before
        end = max(end, done) + after
    return end


def buckets(pieces: Iterable[Piece]) -> list[Piece]:
    """What DDP sums at once: the gradient that makes a bucket large enough closes it.

    The tied embedding's gradient is complete last and waits with the bucket that is open then.
    """
    found: list[Piece] = []
    size = seconds = 0.0
    for piece in pieces:
        size, seconds = size + piece.size, seconds + piece.seconds
        if size >= (BUCKET if found else FIRST_BUCKET):
            found.append(Piece(size, seconds))
            size = seconds = 0.0
    return [*found, Piece(size, seconds)] if size or seconds else found


def exposed(pieces: Sequence[Piece], gpus: int, links: Links) -> float:
    """Seconds from the end of the last backward pass to the end of the last sum."""
    computing = [bucket.seconds for bucket in buckets(pieces)]
    sending = [links.sum(bucket.size, gpus) for bucket in buckets(pieces)]
    return pipeline(computing, sending) - sum(computing)


def exposed_of_shards(pieces: Sequence[Piece], gpus: int, links: Links, passes: int) -> float:
    """Seconds that an update waits with cluster.fsdp.

    pieces: what is gathered at once, in the order of the backward pass, and the seconds of its
    backward; its forward is half of that.
    """
    backward = [piece.seconds for piece in pieces]
    gathers = [links.gather(piece.gathered, gpus) for piece in pieces]
    # Each GPU ends with the sum of its part: that takes as long as to gather such parts.
    sums = [links.gather(piece.size, gpus) for piece in pieces]
    forward = pipeline(gathers[::-1], [each / 2 for each in backward[::-1]])
    again = pipeline(gathers, backward)
    # Gathering the next ones and summing these take the same links.
    last = pipeline(backward, [sum(both) for both in zip(gathers, sums, strict=True)])
    computing = 1.5 * passes * sum(backward)
    return passes * forward + (passes - 1) * again + max(again, last) - computing
