"""What an update asks of a GPU, counted on a machine without one: `python -m benchmarks.count`.

Runs the training loop's own update on made-up pieces in sentences of WMT14's lengths, in bf16, with
tensors that say they are on a GPU and hold nothing (`fake_cuda`), and counts each operation that
PyTorch dispatches: kernels to launch, bytes, products, and what makes the CPU wait for the GPU.

The time is a roofline, not a measurement: an operation takes the longest of its products at 730
TFLOP/s, its bytes at 4.2 TB/s, times what `planning.roofline.SLOWER` has for their part, and its
launches at 2 us each: rates of an H200. An operation
counts as one launch, those over lists of tensors as one for each 30; views and allocations as none.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from benchmarks import fake_cuda
from benchmarks.gpu_run import VOCABULARY, each_update, made_up
from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext
from seq2sweep.model.building import build
from seq2sweep.planning.roofline import SLOWER
from seq2sweep.presets import table3
from seq2sweep.train import loop
from seq2sweep.train.metrics import Meter
from seq2sweep.train.updates import Update

PRODUCTS = 730e12
BYTES = 4.2e12
LAUNCH = 2e-6
LIST = 30
"""Tensors that a kernel over lists takes at least."""
WARM_UP = 2
"""Updates before those that count: the first makes moments and tables of positions."""

ALLOCATIONS = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}
VIEWS = {"_unsafe_view", "lift_fresh", "_reshape_alias"}
ROWS_ONLY = {"index_select", "embedding", "gather", "index"}
"""Of whose first argument only as much is read as comes out."""
SIZE_FROM_DATA = {"nonzero", "masked_select", "_unique2", "unique_dim"}
SLICES = {"slice_backward", "select_backward"}
PARTS = {
    "products": ("mm", "addmm", "bmm", "baddbmm"),
    "attention": (
        "_scaled_dot_product",
        "_flash_attention",
        "_efficient_attention",
        "seq2sweep::packed_attention",
    ),
    "optimizer": ("_fused", "_foreach"),
    "norms": ("native_layer_norm", "_fused_rms_norm", "seq2sweep::residual_norm"),
    "dropout": ("native_dropout", "bernoulli", "rand"),
    "rows": ("index", "embedding", "gather", "scatter"),
    "copies": ("_to_copy", "copy_", "clone", "cat", "zero", "new_zero", "fill", "full", "stack"),
}
"""By how the names of operations begin; what else there is is element by element."""


@dataclass
class Part:
    """What operations of one kind ask for."""

    launches: float = 0.0
    read: float = 0.0
    written: float = 0.0
    flops: float = 0.0
    seconds: float = 0.0


@dataclass
class Counts:
    """Of some updates, together. The parts, and how often what should not be was.

    copies_in, pageable: copies to the GPU, and those not from pinned memory. waits: numbers and
    tensors that the CPU reads back. wide: float32 tensors [rows, vocabulary] that are made.
    """

    updates: int = 0
    parts: dict[str, Part] = field(default_factory=lambda: defaultdict(Part))
    copies_in: int = 0
    pageable: int = 0
    waits: int = 0
    size_from_data: int = 0
    wide: int = 0
    slices: int = 0
    target_tokens: int = 0

    def per_update(self) -> dict[str, Any]:
        """All of it for one update, and the roofline's time and rate."""
        total = Part(*(
            sum(getattr(part, name.name) for part in self.parts.values())
            for name in dataclasses.fields(Part)
        ))  # fmt: skip
        each = {
            name: {key: value / self.updates for key, value in vars(part).items()}
            for name, part in sorted(self.parts.items(), key=lambda item: -item[1].seconds)
        }
        counted = ("copies_in", "pageable", "waits", "size_from_data", "wide", "slices")
        return {
            "updates": self.updates,
            "parts": each,
            "total": {key: value / self.updates for key, value in vars(total).items()},
            **{name: getattr(self, name) / self.updates for name in counted},
            "target_tokens": self.target_tokens / self.updates,
            "target_tokens_per_second": self.target_tokens / total.seconds,
            "flops_per_second": total.flops / total.seconds,
        }


class Counter(TorchDispatchMode):
    """Counts what is dispatched within, to `counts`."""

    def __init__(self, vocabulary_size: int, counts: Counts) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.vocabulary_size, self.counts = vocabulary_size, counts

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Let it run, or answer for it where the answer is in numbers that nobody has."""
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        if func.namespace == "prim":  # Python asks a tensor for its device
            return func(*args, **kwargs)
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        gpu = any(x.is_cuda for x in inputs)
        if gpu and name in ("_local_scalar_dense", "equal", "is_nonzero"):
            self.counts.waits += 1
            return 1
        if gpu and name in SIZE_FROM_DATA:
            self.counts.size_from_data += 1
            self.counts.waits += 1
            return inputs[0].new_zeros((inputs[0].numel(), inputs[0].dim()), dtype=torch.int64)
        out = func(*args, **kwargs)
        outputs = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
        if name == "empty" and kwargs.get("pin_memory"):
            out.made_pinned = True  # a fake tensor does not know
        if name in ("_to_copy", "copy_"):
            to = outputs[0] if name == "_to_copy" else inputs[0]
            self._note_move(inputs[-1], to, (*args[2:], *kwargs.values()))
        if any(x.is_cuda for x in (*inputs, *outputs)) and not _is_free(func, name):
            self._add(func, name, inputs, outputs, args, kwargs, out)
        return out

    def _note_move(self, source: Tensor, to: Tensor, options: Sequence[Any]) -> None:
        if to.is_cuda and not source.is_cuda:
            self.counts.copies_in += 1
            with _disable_current_modes():
                self.counts.pageable += not _is_pinned(source)
        elif source.is_cuda and not to.is_cuda:
            with _disable_current_modes():
                # The one option of a copy that can be true is `non_blocking`.
                self.counts.waits += not (True in options and _is_pinned(to))

    def _add(
        self,
        func: Any,
        name: str,
        inputs: list[Tensor],
        outputs: list[Tensor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
    ) -> None:
        size = self.vocabulary_size
        self.counts.slices += name in SLICES
        self.counts.wide += sum(
            x.dtype == torch.float32 and x.dim() > 1 and x.size(-1) == size and x.numel() > size
            for x in outputs
            if not any(x is given for given in inputs)
        )
        written = _written(func, args, kwargs, outputs)
        read = sum(map(_bytes, inputs))
        if name.startswith(tuple(ROWS_ONLY)) and not name.startswith("index_copy"):
            read = sum(map(_bytes, inputs[1:])) + sum(map(_bytes, outputs))
        elif name in ("index_copy_", "scatter_"):
            read = written = sum(map(_bytes, inputs[1:]))
        elif "zero" in name or "fill" in name:
            read = 0
        elif name == fake_cuda.FUSED_LOSS:
            read *= 2  # it goes over the logits twice
        registered = flop_registry.get(func._overloadpacket)
        flops = registered(*args, **kwargs, out_val=out) if registered else 0
        launches = -(-len(inputs) // LIST) if name.startswith(PARTS["optimizer"]) else 1
        kind = self._part(name, inputs, outputs)
        part, slower = self.counts.parts[kind], SLOWER.get(kind, 1.0)
        part.launches += launches
        part.read += read
        part.written += written
        part.flops += flops
        moving = slower * (read + written) / BYTES
        part.seconds += max(flops / PRODUCTS, moving, launches * LAUNCH)

    def _part(self, name: str, inputs: list[Tensor], outputs: list[Tensor]) -> str:
        wide = any(x.dim() > 0 and x.size(-1) == self.vocabulary_size for x in (*inputs, *outputs))
        if wide and not name.startswith(PARTS["optimizer"]):
            return "vocabulary: products" if name in PARTS["products"] else "vocabulary: loss"
        for part, beginnings in PARTS.items():
            if name in beginnings or (part != "products" and name.startswith(beginnings)):
                return part
        return "element by element"


def _is_pinned(x: Tensor) -> bool:
    return getattr(x, "made_pinned", False) or x.is_pinned()


def _is_free(func: Any, name: str) -> bool:
    """Whether it launches nothing: a view, or memory."""
    views = [r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns]
    return name in ALLOCATIONS | VIEWS or (bool(views) and all(views))


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> int:
    """Bytes of what it makes and of what it changes."""
    changed = []
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[number] if number < len(args) else kwargs.get(argument.name)
            changed += [x for x in tree_leaves(given) if isinstance(x, Tensor)]
    made = [x for x in outputs if not any(x is other for other in changed)]
    return sum(map(_bytes, changed)) + sum(map(_bytes, made))


def _bytes(x: Tensor) -> int:
    """Of the numbers that are really there: an expanded tensor has them once."""
    count = 1
    for size, stride in zip(x.shape, x.stride(), strict=True):
        count *= size if stride else 1
    return count * x.element_size() if x.is_cuda else 0


class EnoughError(Exception):
    """The updates are counted."""


def count(config: Config, updates: int, warm_up: int = WARM_UP) -> Counts:
    """Of so many updates of the training loop, after some more; within `fake_cuda.gpu`."""
    data = made_up(tiny=False)
    counts, seen = Counts(), 0
    steps = warm_up + updates + 1
    config = configuration.with_changes(
        config, {f"train.{k}": steps for k in ("steps", "log_every", "validate_every")}
    )

    def counted(update: Callable[[], Tensor], given: Update) -> Tensor:
        nonlocal seen
        if seen == warm_up + updates:
            raise EnoughError
        seen += 1
        into = counts if seen > warm_up else Counts()
        into.updates += 1
        into.target_tokens += given.target_tokens
        with Counter(VOCABULARY, into):
            return update()

    def built(*arguments: Any) -> Any:
        with torch.device("cuda"):
            model: Any = build(*arguments)
        model.to = lambda device: model  # weights that are fake and tied cannot move
        return model

    with (
        each_update(counted),
        mock.patch.object(loop, "build", built),
        mock.patch.object(Bitext, "open", return_value=data),
        mock.patch.object(Meter, "_sum", lambda _, value: value),
    ):
        try:
            for _ in loop.train(config, Path(), device=torch.device("cuda", 0)):
                pass
        except EnoughError:
            return counts
    raise AssertionError("training ended before")


def configurations(names: Iterable[str]) -> Iterator[tuple[str, Config]]:
    """`base`, `big`, or `rows`: all of Table 3."""
    for name in names:
        if name == "rows":
            base = presets.load("wmt14-en-de-base").config
            for row in table3.read().rows:
                yield f"row {row.name}", configuration.with_changes(base, row.changes)
        else:
            yield name, presets.load(f"wmt14-en-de-{name}").config


def table(name: str, found: dict[str, Any]) -> str:
    """For a reader."""
    lines = [
        f"{name}: an update of {found['target_tokens']:,.0f} target tokens, mean of "
        f"{found['updates']}",
        f"{'':22}{'launches':>9}{'GB':>8}{'TFLOP':>8}{'ms':>8}",
    ]
    for part, values in (found["parts"] | {"together": found["total"]}).items():
        moved = (values["read"] + values["written"]) / 1e9
        lines.append(
            f"{part:22}{values['launches']:9,.0f}{moved:8.2f}{values['flops'] / 1e12:8.2f}"
            f"{1000 * values['seconds']:8.2f}"
        )
    lines += [
        f"{found['copies_in']:g} copies to the GPU, {found['pageable']:g} of them pageable; "
        f"{found['waits']:g} waits; {found['size_from_data']:g} sizes from data; "
        f"{found['wide']:g} float32 tensors of the vocabulary's width; "
        f"{found['slices']:g} backward slices",
        f"roofline: {found['target_tokens_per_second']:,.0f} target tokens/s, "
        f"{found['flops_per_second'] / 989.5e12:.0%} of an H200's peak",
    ]
    return "\n".join(lines)


def main() -> int:
    """Count, print a table of each model, and write all of it as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", nargs="*", default=["base", "big"], help="base, big, rows")
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=WARM_UP)
    parser.add_argument("--json", type=Path, help="where to write the counts as well")
    options = parser.parse_args()
    if not fake_cuda.is_loaded():
        try:
            return fake_cuda.run_with_it("benchmarks.count", sys.argv[1:])
        except fake_cuda.UnavailableError as why:
            parser.error(f"no tensors of a GPU without one: {why}")
    result = {}
    for name, config in configurations(options.models):
        with fake_cuda.gpu():
            result[name] = count(config, options.updates, options.warm_up).per_update()
        print(table(name, result[name]), end="\n\n", flush=True)
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
