"""Checkpoints: a folder of safetensors and JSON, complete under its final name or absent.

model.safetensors      weights, float32
optimizer.safetensors  Adam's moments and step, by parameter name
state.json             where training stands (`Progress`) and what it trains (fingerprints)
manifest.json          sha256 of the other files; written last
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seq2sweep.data.files import sha256

FORMAT = 1
FILES = ["model.safetensors", "optimizer.safetensors", "state.json"]


class CheckpointError(Exception):
    """A checkpoint is incomplete, damaged or of another model; the message says which."""


@dataclass
class Window:
    """Sums since the last console line: see the loop's.

    sums: of each worker. flops_before: the run's total when the window was opened.
    """

    sums: list[list[float]] = field(default_factory=list)
    updates: int = 0
    seconds: float = 0.0
    flops_before: float = 0.0


@dataclass
class Progress:
    """Where training stands: `epoch` and `update` name the next update's place in the data.

    Totals count from the very first step, over all resumed parts, each with its own workers.
    `skipped_updates` had no finite gradient and changed nothing. `newest` is the last value of each
    figure of the curves.
    `flops` are those of the real pieces; `padded_tokens` (both sides) and `padded_flops` count
    what was computed, padding and all. `train_seconds` is time spent on updates,
    `device_seconds` the same summed over workers; `wall_seconds` and `energy_joules` have
    validation and checkpoints in them. `peak_flops` is what the devices could have done in
    that time at their peak, `paper_rule_flops` what they did by the paper's rule. None: unknown
    of some part.
    """

    step: int = 0
    epoch: int = 0
    update: int = 0
    skipped_updates: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    padded_tokens: int = 0
    flops: float = 0.0
    padded_flops: float = 0.0
    peak_flops: float | None = 0.0
    paper_rule_flops: float | None = 0.0
    train_seconds: float = 0.0
    device_seconds: float = 0.0
    wall_seconds: float = 0.0
    energy_joules: float | None = 0.0
    newest: dict[str, float] = field(default_factory=dict)
    window: Window = field(default_factory=Window)


def weights(model: nn.Module) -> dict[str, Tensor]:
    """The model's parameters by name, each shared matrix once, on the CPU."""
    return {
        name: parameter.detach().cpu().contiguous() for name, parameter in model.named_parameters()
    }


def load_weights(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copy tensors into the model's parameters; names and shapes must agree."""
    parameters = dict(model.named_parameters())
    if parameters.keys() != tensors.keys():
        odd = sorted(parameters.keys() ^ tensors.keys())
        raise CheckpointError(
            f"these weights are of another model: {odd[0]} is in one of them only"
        )
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != tensors[name].shape:
                raise CheckpointError(
                    f"these weights are of another model: {name} has shape "
                    f"{list(tensors[name].shape)}, not {list(parameter.shape)}"
                )
            parameter.copy_(tensors[name])


def save(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    identity: dict[str, Any],
) -> None:
    """Write a checkpoint to `folder`, whole or not at all.

    identity: fingerprints of what is trained on what, compared by `load`. Raises OSError, and
    leaves nothing behind, when the disk is full or fails.
    """
    beside = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    try:
        _save_tensors(weights(model), beside / "model.safetensors")
        _save_tensors(_optimizer_tensors(model, optimizer), beside / "optimizer.safetensors")
        _write_json(
            beside / "state.json",
            {"format": FORMAT, "progress": dataclasses.asdict(progress), "identity": identity},
        )
        _write_json(
            beside / "manifest.json",
            {"format": FORMAT, "sha256": {name: sha256(beside / name) for name in FILES}},
        )
        _flush(beside)
    except BaseException:
        # What lies there would take the room that the next try needs.
        shutil.rmtree(beside, ignore_errors=True)
        raise
    if folder.exists():
        shutil.rmtree(folder)
    beside.replace(folder)


def _flush(folder: Path) -> None:
    """Have a folder's files on the disk itself before it gets its name."""
    for path in folder.iterdir():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())


def _save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    try:
        save_file(tensors, path)
    except SafetensorError as error:
        # It has no errors of its own for the disk's.
        found = re.search(r"os error (\d+)", str(error))
        if found is None:
            raise
        raise OSError(int(found.group(1)), os.strerror(int(found.group(1))), str(path)) from None


def verify(folder: Path) -> None:
    """Raise CheckpointError unless every file is there, as it was written to the last byte."""
    try:
        content = (folder / "manifest.json").read_text(encoding="utf-8")
        manifest = json.loads(content)
        sums = manifest["sha256"]
        # The manifest has no sum of its own, but there is only one way to write it.
        whole = content == _as_json(manifest) and manifest == {"format": FORMAT, "sha256": sums}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder} has no readable manifest ({error})") from None
    if not whole or sorted(sums) != FILES:
        raise CheckpointError(f"{folder / 'manifest.json'} is torn or was changed")
    for name in FILES:
        path = folder / name
        if not path.is_file():
            raise CheckpointError(f"{folder} lacks {name}")
        if sha256(path) != sums[name]:
            raise CheckpointError(f"{path} differs from its manifest: it is torn or was changed")


def load(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    identity: dict[str, Any],
) -> Progress:
    """Verify a checkpoint, fill model and optimizer from it and say where training stands."""
    verify(folder)
    state = json.loads((folder / "state.json").read_text())
    if state["format"] != FORMAT:
        raise CheckpointError(f"{folder} has format {state['format']}, this program reads {FORMAT}")
    for key, value in identity.items():
        if state["identity"].get(key) != value:
            raise CheckpointError(
                f"{folder} was trained with another {key} ({state['identity'].get(key)}, "
                f"now {value})"
            )
    odd = sorted(state["progress"].keys() ^ {field.name for field in dataclasses.fields(Progress)})
    if odd:
        raise CheckpointError(
            f"{folder} is of another version of this program: its progress and this program's "
            f"differ in {', '.join(odd)}"
        )
    load_weights(model, load_file(folder / "model.safetensors"))
    _load_optimizer(model, optimizer, load_file(folder / "optimizer.safetensors"))
    return Progress(**state["progress"] | {"window": Window(**state["progress"]["window"])})


def _optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            tensors[f"{name}|{key}"] = value.detach().cpu().contiguous()
    return tensors


def _load_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    by_parameter: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        name, _, moment = key.partition("|")
        by_parameter.setdefault(name, {})[moment] = value
    state = optimizer.state_dict()
    names = [name for name, _ in model.named_parameters()]
    state["state"] = {index: by_parameter[name] for index, name in enumerate(names)}
    optimizer.load_state_dict(state)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(_as_json(value), encoding="utf-8")


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
