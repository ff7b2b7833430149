"""Whether a GPU computes rightly: the part `check` of `benchmarks.gpu`."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from benchmarks.gpu_run import WINDOW, Run, each_update, training
from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.data.batching import Batch
from seq2sweep.data.vocabulary import BOS, EOS, PAD
from seq2sweep.decode.beam import BeamSearch
from seq2sweep.model.architecture.transformer import STEPS_TO_DROP
from seq2sweep.model.building import build
from seq2sweep.train import loop, step
from seq2sweep.train.events import CheckpointDue, Logged

TOLERANCE = {"loss": 1e-2, "gradients": 5e-2}
"""Of bf16 against float64: of the loss, and of all gradients, by their length."""


def check(run: Run) -> dict[str, Any]:
    """All that must hold; raises AssertionError with what does not, after all of it was tried."""
    found: dict[str, Any] = {}
    parts: dict[str, Callable[[Run], Any]] = {
        f"bf16 against float64: {kind}, d_k {d_k}, d_v {d_v}": partial(
            _exact, kind=kind, d_k=d_k, d_v=d_v
        )
        for kind in ("scaled_dot_product", "dot_product", "additive")
        for d_k, d_v in ((64, 64), (13, 15), (64, 13))
    } | {"the loss falls": _falls, "resume": _resumes, "no waits": _waits_for_nothing}
    parts["CUDA graphs"] = _graphs
    parts["a wait a step of a search"] = _search_waits
    for name, part in parts.items():
        try:
            found[name] = part(run)
        except Exception as error:  # whatever it is, the others are tried
            found[name] = f"failed: {type(error).__name__}: {str(error)[:300]}"
        run.write(found)
    wrong = [f"{name}: {said}" for name, said in found.items() if str(said).startswith("failed")]
    if wrong:
        raise AssertionError("\n".join(wrong))
    return found


def _exact(run: Run, kind: str, d_k: int, d_v: int) -> dict[str, float]:
    """Loss and gradients in bf16 on the device, beside those in float64 on the CPU."""
    changes: dict[str, Any] = {
        "layers": 2,
        "d_model": 128,
        "d_ff": 256,
        "heads": 2,
        "d_k": d_k,
        "d_v": d_v,
    }
    changes |= {"attention": kind, "dropout": 0.0}
    config = presets.load("wmt14-en-de-base").config
    config = configuration.with_changes(config, {f"model.{k}": v for k, v in changes.items()})
    torch.manual_seed(3)
    exact = build(config.model, 500).double()
    if kind == "dot_product":
        # Scores as large as scaled ones: of larger ones bf16 cannot tell the softmax.
        with torch.no_grad():
            for name, parameter in exact.named_parameters():
                if name.endswith("attention.projection"):
                    parameter.mul_(d_k**-0.25)
    near = build(config.model, 500)
    near.load_state_dict(exact.state_dict())
    batch = _padded_batch()
    sums: dict[str, Tensor] = {}
    for name, model, device, precision in (
        ("exact", exact, torch.device("cpu"), "float32"),
        ("near", near.to(run.device), run.device, "bf16"),
    ):
        loss, _ = step.accumulate(
            model.train(),
            [batch],
            update_target_tokens=int(batch.target_out.ne(PAD).sum()),
            smoothing=0.1,
            world_size=1,
            precision=precision,  # type: ignore[arg-type]
            device=device,
        )
        gradients = [p.grad.double().flatten().cpu() for p in model.parameters()]  # type: ignore[union-attr]
        sums[name], sums[f"{name} gradients"] = loss.double().cpu(), torch.cat(gradients)
    off = {
        "loss": float((sums["near"] / sums["exact"] - 1).abs()),
        "gradients": float(
            (sums["near gradients"] - sums["exact gradients"]).norm()
            / sums["exact gradients"].norm()
        ),
    }
    for what, most in TOLERANCE.items():
        assert off[what] < most, f"{what} off by {off[what]:.2g}, more than {most:g}"
    return off


def _padded_batch() -> Batch:
    """Sentences of 3 to 90 pieces, so that most of the batch is PAD."""
    lengths = (90, 41, 3, 17, 64)

    def side() -> Tensor:
        rows = [torch.cat((torch.randint(4, 500, (n - 1,)), torch.tensor([EOS]))) for n in lengths]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)

    source, target_out = side(), side()
    target_in = target_out.roll(1, 1).masked_fill(target_out.eq(PAD), PAD)
    target_in[:, 0] = BOS
    return Batch(source, target_in, target_out)


def _falls(run: Run) -> dict[str, float]:
    """Of 60 updates of a small model on 1200 pairs, from the first line of the log to the last."""
    small = Run(run.device, True, run.until, run.write)
    config = configuration.with_changes(
        small.config("base"), {"train.warmup_steps": 30, "train.log_every": 10}
    )
    with training(small, config, 60) as events:
        losses = [event.metrics["loss"] for event in events if isinstance(event, Logged)]
    assert losses[-1] < losses[0] - 0.05, f"from {losses[0]:.3f} to {losses[-1]:.3f}"
    return {"first": losses[0], "last": losses[-1]}


def _resumes(run: Run) -> str:
    """Six updates at once and by two runs of three, in deterministic mode: the same bits."""
    small = Run(run.device, True, run.until, run.write)
    config = configuration.with_changes(
        small.config("base"), {"train.deterministic": True, "train.checkpoint_every": 3}
    )

    def states(**options: Any) -> dict[int, Any]:
        with training(small, config, 6, **options) as events:
            return {e.step: e.capture() for e in events if isinstance(e, CheckpointDue)}

    try:
        whole = states()
        with tempfile.TemporaryDirectory() as folder:
            middle = Path(folder) / "step-3"
            whole[3].write(middle)
            resumed = states(resume=middle)
    finally:
        torch.use_deterministic_algorithms(False)
    for group in ("model", "optimizer"):
        for name, tensor in getattr(whole[6], group).items():
            assert torch.equal(tensor, getattr(resumed[6], group)[name]), f"{name} differs"
    return "the same bits"


def _graphs(run: Run) -> dict[str, Any]:
    """The losses of 60 updates with passes as CUDA graphs, and kernel by kernel."""
    if not run.on_gpu:
        return {"of a GPU only": 0}
    small = Run(run.device, True, run.until, run.write)
    config = configuration.with_changes(small.config("base"), {"train.log_every": 10})
    replay, replays = torch.cuda.CUDAGraph.replay, 0

    def counted(graph: torch.cuda.CUDAGraph) -> None:
        nonlocal replays
        replays += 1
        replay(graph)

    def losses() -> list[float]:
        with training(small, config, 60) as events:
            return [event.metrics["loss"] for event in events if isinstance(event, Logged)]

    with mock.patch.object(torch.cuda.CUDAGraph, "replay", counted):
        found = losses()
    with mock.patch.object(loop, "Passes", return_value=None):
        expected = losses()
    assert replays > 20, f"{replays} replays"
    # Sums of gradients of the embedding come in any order.
    off = max(abs(a / b - 1) for a, b in zip(found, expected, strict=True))
    assert off < 1e-4, f"losses off by {off:.2g}"
    return {"replays": replays, "losses off by": off}


def _waits_for_nothing(run: Run) -> str:
    """Three updates in which PyTorch raises where the CPU would wait for the GPU."""
    if not run.on_gpu:
        return "of a GPU only"
    small = Run(run.device, True, run.until, run.write)
    seen = 0

    def watched(update: Callable[[], Tensor], _: Any) -> Tensor:
        nonlocal seen
        seen += 1
        torch.cuda.set_sync_debug_mode("error" if seen > WINDOW else "default")
        try:
            return update()
        finally:
            torch.cuda.set_sync_debug_mode("default")

    config = configuration.with_changes(small.config("base"), {"train.log_every": WINDOW + 3})
    with each_update(watched), training(small, config, WINDOW + 3) as events:
        next(event for event in events if isinstance(event, Logged))
    return "none in three updates"


def _search_waits(run: Run) -> str:
    """How often a beam search waits for the GPU: once a step, but where sentences leave or the
    cache drops pieces."""
    if not run.on_gpu:
        return "of a GPU only"
    model = build(Run(run.device, True, run.until, run.write).config("base").model, 500)
    source = _padded_batch().source.to(run.device)
    with torch.inference_mode():
        running = BeamSearch(
            model.to(run.device), source, beam=4, alpha=0.6, max_extra_tokens=9, early_stop=False
        )
        for number in range(9):  # none can be done: an output may have 11 tokens or more
            torch.cuda.set_sync_debug_mode("warn")
            try:
                with warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("always")
                    running.step()
            finally:
                torch.cuda.set_sync_debug_mode("default")
            expected = 1 + (number == STEPS_TO_DROP)
            assert len(seen) == expected, (
                f"{len(seen)} waits: {[str(each.message) for each in seen]}"
            )
    return "one in each of nine steps, and one more in the ninth"
