"""Whether what makes an update fast changes what is learned: `python -m benchmarks.curves`.

Trains the demo's model (preset phrasebook) on the demo's encoded text for 300 updates: by the
core's update with two seeds, and with the first seed by the plain one: padded batches, all logits
at once, PyTorch's dropout, and no bf16. Dropout falls differently in each, so the curves cannot be
the same; they must lie no further apart than those of the two seeds. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.data.batching import Batch
from seq2sweep.data.vocabulary import PAD
from seq2sweep.model import attention, layers
from seq2sweep.model.architecture import transformer
from seq2sweep.parallel import available_cpus
from seq2sweep.train import step
from seq2sweep.train.events import Logged
from seq2sweep.train.loop import train
from seq2sweep.train.loss import smoothed_cross_entropy


def main() -> None:
    """Train three times, print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--encoded", type=Path, default=Path("data/encoded"))
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    torch.set_num_threads(available_cpus())
    curves = {"fast": curve(options, 1), "another seed": curve(options, 2)}
    with (
        mock.patch.object(step, "sums_of", plain),
        mock.patch.object(attention, "dropout", F.dropout),
        mock.patch.object(layers, "dropout", F.dropout),
        mock.patch.object(transformer, "dropout", F.dropout),
    ):
        curves["plain"] = curve(options, 1, "float32")
    fast = np.array(curves["fast"])
    apart = {name: abs(np.array(other) - fast) for name, other in curves.items() if name != "fast"}
    result = {
        "steps": options.steps,
        "loss_at_the_end": {name: losses[-1] for name, losses in curves.items()},
        "mean_distance_from_fast": {name: float(each.mean()) for name, each in apart.items()},
        "greatest_distance_from_fast": {name: float(each.max()) for name, each in apart.items()},
        "curves": curves,
    }
    print(json.dumps(result, indent=2))


def curve(options: argparse.Namespace, seed: int, precision: str = "auto") -> list[float]:
    """The training loss of each ten updates, in nats a piece."""
    changes = {
        "train.seed": seed, "train.steps": options.steps, "train.log_every": 10,
        "train.validate_every": options.steps, "train.checkpoint_every": options.steps,
        "train.precision": precision,
    }  # fmt: skip
    config = configuration.with_changes(presets.load("phrasebook").config, changes)
    events = train(config, options.encoded, device=torch.device("cpu"))
    return [event.metrics["loss"] for event in events if isinstance(event, Logged)]


def plain(
    model: nn.Module,
    batch: Batch | step.Staged,
    smoothing: float,
    device: torch.device,
    compiled: bool = False,
) -> tuple[Tensor, Tensor]:
    """`sums_of` as it is first thought of, never compiled."""
    staged = batch if isinstance(batch, step.Staged) else step.Staged.of(batch, device)
    staged = staged.to(device)
    logits = model(staged.source, staged.target_in)
    target = torch.full_like(staged.target_in, PAD).flatten()
    target[staged.packings[1].places] = staged.target
    return smoothed_cross_entropy(logits.flatten(0, 1), target, smoothing)


if __name__ == "__main__":
    main()
