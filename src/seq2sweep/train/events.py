"""What the training loop says of itself; adapters listen and act."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from seq2sweep.train.checkpointing import Snapshot


@dataclass(frozen=True)
class Logged:
    """Curves since the last one: loss (smoothed, as optimised) and perplexity per token,
    gradient_norm, learning_rate, tokens_per_second (real target tokens), seconds_left, epoch,
    skipped_updates (of the whole run), the memory of the first worker's process
    (devices.memory_of_process), and mfu where the devices' peak is known. Updates that were
    skipped count for none of the means; they are NaN where all were."""

    step: int
    metrics: dict[str, float]
    kind: str = "logged"


@dataclass(frozen=True)
class Validated:
    """On the validation set, without smoothing or dropout: valid_loss, valid_perplexity."""

    step: int
    metrics: dict[str, float]
    kind: str = "validated"


@dataclass(frozen=True)
class CheckpointDue:
    """Now is the time to keep a checkpoint: `capture()` on the first worker, before the next event.

    With `cluster.fsdp` all workers must call it at once, and the others get nothing.
    metrics: the newest value of each metric, the step, and devices.ORIGIN; None as of Finished.
    """

    step: int
    metrics: dict[str, float | str | None]
    capture: Callable[[], Snapshot]
    kind: str = "checkpoint"


@dataclass(frozen=True)
class Interrupted:
    """Training ends here because it was asked to: `capture()`, called as of CheckpointDue, has all
    of it; it has been called where that was of the same step.

    A run that resumes from there is the run that was never asked.
    """

    step: int
    capture: Callable[[], Snapshot]
    kind: str = "interrupted"


@dataclass(frozen=True)
class Finished:
    """Totals of the whole run, resumed parts included, and devices.ORIGIN of the last.

    None: a metric that is not known, such as the energy that a CPU used.
    """

    step: int
    summary: dict[str, float | str | None]
    kind: str = "finished"


@dataclass(frozen=True)
class Sized:
    """What `train.tokens_per_pass: auto` is, at the start, and where a resumed run has too many:
    tokens_per_pass of the whole run, fitting_tokens, which fit now, free_bytes of a worker."""

    step: int
    metrics: dict[str, float]
    kind: str = "sized"


Event = Sized | Logged | Validated | CheckpointDue | Interrupted | Finished
