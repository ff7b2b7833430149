"""The runs of a sweep's trials in MLflow."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pipeline import tracking
from seq2sweep import console
from seq2sweep.cluster.search import INTERRUPTED
from seq2sweep.cluster.variants import Variant
from seq2sweep.model import flops
from seq2sweep.tracking.writer import Writer
from seq2sweep.train import devices


class Recorder:
    """A child run in MLflow for each trial, and a console line for what happens to it."""

    def __init__(self, parent: Writer, lineage: dict[str, str], header: dict[str, Any]) -> None:
        self.parent, self.lineage, self.header = parent, lineage, header
        self.vocabulary_size = int(header["vocabulary"]["size"])
        self.runs: dict[str, Writer] = {}
        self.steps: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End what has no end yet; scores may come after a trial's end."""
        for run in self.runs.values():
            run.__exit__(kind, error, traceback)

    def hear(self, event: str, variant: Variant, figures: dict[str, Any]) -> None:
        """What run_sweep tells of a trial; see seq2sweep.cluster.search.run_sweep."""
        if event != "started" and variant.name not in self.runs:
            self._start(variant)
        if event == "started":
            self._start(variant)
            done = " (trained before)" if figures["done_before"] else ""
            console.say(f"{variant.name}: started{done}")
        elif event == "result":
            console.say(
                f"{variant.name}: step {figures['step']}/{variant.config.train.steps}  "
                f"valid perplexity {figures['valid_perplexity']:.2f}"
            )
        elif event == "scored":
            run = self.runs[variant.name]
            scores = known(figures, ("bleu", "bleu_paper", "chrf"))
            scores = {f"valid_{name}": score for name, score in scores.items()}
            run.log(scores, step=self.steps[variant.name])
            run.tag({"bleu.signature": figures["signature"]})
            console.say(f"{variant.name}: BLEU {figures['bleu']:.2f} on the validation set")
        else:
            self._end(event, variant, figures)
            cause = f" ({figures['cause']})" if figures["cause"] else ""
            console.say(f"{variant.name}: {event}{cause}")

    def _start(self, variant: Variant) -> None:
        run = Writer(
            self.parent.folder.parent,
            variant.name,
            kind="trial",
            parent=self.parent.name,
            params=tracking.logged_params(variant.config),
            tags=self.lineage | {"variant": variant.variant, "seed": str(variant.seed)},
        )
        self.runs[variant.name] = run
        tracking.name_dataset(run, variant.config, self.header, "train")

    def _end(self, outcome: str, variant: Variant, figures: dict[str, Any]) -> None:
        """Store the curve and the cost, and end the run with a true status at a true time."""
        run = self.runs[variant.name]
        # A later sweep may train the variant again, from the beginning.
        run.curves(Path(figures["journal"]), copy=True)
        cost = known(figures, ("target_tokens", "wall_seconds", *devices.COSTS))
        cost["parameters"] = flops.parameter_count(variant.config.model, self.vocabulary_size)
        self.steps[variant.name] = int(figures.get("step", 0))
        run.log(cost, step=self.steps[variant.name])
        run.tag({"outcome": outcome})
        if figures["cause"] == INTERRUPTED:
            run.finish("KILLED", figures["cause"])
        else:
            run.finish("FAILED" if outcome == "failed" else "FINISHED", figures["cause"])


def known(figures: dict[str, Any], names: tuple[str, ...]) -> dict[str, float]:
    """The named figures that are there and not null."""
    return {name: figures[name] for name in names if figures.get(name) is not None}
