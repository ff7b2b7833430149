"""Memory of one update at the paper's size: `python -m benchmarks.memory`.

The base model with 37 000 pieces, and 25 000 source and 25 000 target tokens in one pass, forward,
backward and Adam, on the CPU: by the core's update, and with `--plain` by one that pads and has all
logits at once. Sentences have made-up lengths around the 27 pieces of WMT14's. Each in a process of
its own. Prints JSON: the peak of its memory, what of that was there before the update (libraries,
weights), and the bytes that all logits alone would take.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any
from unittest import mock

from benchmarks import contenders

PIECES, TOKENS = 37_000, 25_000
MEAN_LENGTH = 27


def main() -> None:
    """Measure in a process of its own for each way, print one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--preset", default="base", choices=("base", "big"))
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32")
    parser.add_argument("--plain", action="store_true", help="the plain update as well")
    parser.add_argument("--turn", choices=("ours", "plain"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        print(json.dumps(turn(options)))
        return
    command = [sys.executable, "-m", "benchmarks.memory", *sys.argv[1:]]
    ways = ["ours", "plain"] if options.plain else ["ours"]
    found: dict[str, Any] = {way: contenders.told_by([*command, "--turn", way]) for way in ways}
    found["all_logits_megabytes"] = PIECES * TOKENS * 4 / 1e6
    print(json.dumps(found, indent=2))


def turn(options: argparse.Namespace) -> dict[str, float]:
    """Megabytes: the peak, and before the update."""
    import torch

    from benchmarks import curves
    from seq2sweep import presets
    from seq2sweep.model.transformer import Transformer
    from seq2sweep.train import step
    from seq2sweep.train.allocator import keep_memory

    keep_memory()
    torch.manual_seed(1)
    config = presets.load(options.preset).config
    model = Transformer(config.model, PIECES).train()
    optimizer = step.make_optimizer(model)
    batch = made_up()
    before = contenders.peak_megabytes()
    with mock.patch.object(
        step, "sums_of", curves.plain if options.turn == "plain" else step.sums_of
    ):
        step.accumulate(
            model, [batch], update_target_tokens=TOKENS, smoothing=0.1, world_size=1,
            precision=options.precision, device=torch.device("cpu"),
        )  # fmt: skip
    step.apply(model, optimizer, 1e-4)
    return {"peak_megabytes": contenders.peak_megabytes(), "before_the_update_megabytes": before}


def made_up() -> Any:
    """A batch of 25 000 real tokens a side, sentences of similar length."""
    import torch

    from seq2sweep.data.batching import Batch

    count = TOKENS // MEAN_LENGTH
    lengths = torch.full((count,), MEAN_LENGTH)
    lengths[: TOKENS - count * MEAN_LENGTH] += 1
    real = torch.arange(int(lengths.max())) < lengths[:, None]
    pieces = torch.randint(4, PIECES, (3, *real.shape)) * real
    return Batch(*pieces)


if __name__ == "__main__":
    main()
