"""Checkpoints: a folder of safetensors and JSON, complete under its final name or absent.

model.safetensors      weights, float32
optimizer.safetensors  the optimizer's moments and step, by parameter name
state.json             where training stands (`Progress`) and what it trains (fingerprints)
manifest.json          sha256 of the other files; written last
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seq2sweep import config as configuration
from seq2sweep.errors import UserError
from seq2sweep.storage.atomic import disk_errors, sha256, whole_folder
from seq2sweep.train.distributed import like, whole
from seq2sweep.train.metrics import Progress, Window

FORMAT = 1
FILES = ["model.safetensors", "optimizer.safetensors", "state.json"]
MANIFEST = "manifest.json"


class CheckpointError(Exception):
    """A checkpoint is incomplete or damaged, or weights are of another model; it says which."""


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
            parameter.copy_(like(tensors[name], parameter))


@dataclass(frozen=True)
class Snapshot:
    """All that the future of a run depends on, at one step, in memory of its own.

    model: weights; optimizer: its moments and step, as `name|moment`; state: the content of
    state.json. Training may continue while it is written.
    """

    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]

    def write(self, folder: Path) -> None:
        """Make a checkpoint of it, whole or not at all, in a folder that exists.

        Raises OSError, and leaves nothing behind, when the disk is full or fails.
        """
        # A folder above that is missing was moved away for a while: it must not be in the way then.
        with whole_folder(folder, parents=False) as beside:
            _save_tensors(self.model, beside / "model.safetensors")
            _save_tensors(self.optimizer, beside / "optimizer.safetensors")
            (beside / "state.json").write_text(_as_json(self.state), encoding="utf-8")
            manifest = _manifest({name: sha256(beside / name) for name in FILES})
            (beside / MANIFEST).write_text(manifest, encoding="utf-8")


def capture(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    identity: dict[str, Any],
) -> Snapshot:
    """Copy where training stands. identity: what is trained on what, compared by `load`.

    Where tensors are shared out, all other workers must `take_part` meanwhile.
    """
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not all(id(p) in trained for p in model.parameters()):
        # As FSDP's are while a layer has its weights whole. Saved so, moments would be lost.
        raise RuntimeError("the model's parameters are not those that the optimizer trains")
    weights = {name: _copy(parameter) for name, parameter in model.named_parameters()}
    moments = {
        f"{name}|{key}": _copy(value)
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state[parameter].items()
    }
    for device in {parameter.device for parameter in model.parameters() if parameter.is_cuda}:
        torch.cuda.synchronize(device)
    state = {"format": FORMAT, "progress": dataclasses.asdict(progress), "identity": identity}
    return Snapshot(weights, moments, state)


def take_part(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Send this worker's parts to the one that calls `capture`, and keep nothing."""
    for parameter in model.parameters():
        whole(parameter.detach())
    for parameter in model.parameters():
        for value in optimizer.state[parameter].values():
            whole(value)


def _copy(tensor: Tensor) -> Tensor:
    """On the CPU; of a GPU's tensor only under way, into pinned memory, at the full rate of the
    bus."""
    full = whole(tensor.detach())
    if not full.is_cuda:
        return full.to("cpu", copy=True).contiguous()
    return torch.empty(full.shape, dtype=full.dtype, pin_memory=True).copy_(full, non_blocking=True)


def _save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    with disk_errors(path):
        save_file(tensors, path)


def verify(folder: Path) -> None:
    """Raise CheckpointError unless every file is there, as it was written to the last byte.

    OSError, when the storage does not let it be read, says nothing of the checkpoint.
    """
    try:
        manifest = (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{folder} has no manifest") from None
    if len(manifest) != len(_manifest(dict.fromkeys(FILES, 64 * "0"))):
        raise CheckpointError(f"{folder / MANIFEST} is truncated or was changed")
    sums = {}
    for name in FILES:
        try:
            sums[name] = sha256(folder / name)
        except FileNotFoundError:
            raise CheckpointError(f"{folder} lacks {name}") from None
        if sums[name].encode() not in manifest:
            raise CheckpointError(
                f"{folder / name} differs from its manifest: it is truncated or was changed"
            )
    # The manifest has no sum of its own, but there is only one way to write it.
    if manifest != _manifest(sums).encode():
        raise CheckpointError(f"{folder / MANIFEST} is truncated or was changed")


def load(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    identity: dict[str, Any],
) -> Progress:
    """Verify a checkpoint, fill model and optimizer from it and say where training stands.

    Raises CheckpointError when it is damaged, UserError naming the difference when it is of another
    run than `identity` says.
    """
    verify(folder)
    state, progress = parse_state((folder / "state.json").read_bytes(), folder)
    found = differences(state["identity"], identity)
    if found:
        raise UserError(f"{folder} is of another run: {'; '.join(found)}")
    load_weights(model, load_file(folder / "model.safetensors"))
    _load_optimizer(model, optimizer, load_file(folder / "optimizer.safetensors"))
    return progress


def read_progress(folder: Path) -> Progress:
    """Where training stood at a checkpoint, of which nothing else is looked at.

    Raises CheckpointError when state.json is damaged, UserError when another version of this
    program wrote it, OSError when the storage does not let it be read.
    """
    try:
        return parse_state((folder / "state.json").read_bytes(), folder)[1]
    except FileNotFoundError:
        raise CheckpointError(f"{folder} lacks state.json") from None


def parse_state(content: bytes, folder: Path) -> tuple[dict[str, Any], Progress]:
    """What a checkpoint's state.json holds, and its progress; raises as `read_progress`.

    folder: of the checkpoint, for messages.
    """
    try:
        state = json.loads(content)
        found, values = state["format"], dict(state["progress"])
        window = Window(**values["window"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder / 'state.json'} is damaged ({error})") from None
    if found != FORMAT:
        raise UserError(f"{folder} has format {found}, this program reads {FORMAT}")
    odd = sorted(values.keys() ^ {field.name for field in dataclasses.fields(Progress)})
    if odd:
        raise UserError(
            f"{folder} is of another version of this program: its progress and this program's "
            f"differ in {', '.join(odd)}"
        )
    return state, Progress(**values | {"window": window})


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two identities, a text each: `model.heads was 4 and is 8 now`."""
    found = []
    for key in sorted({*before, *now}):
        # A key that has its default is in no identity.
        default = configuration.DEFAULTS.get(key, "missing")
        was, is_now = before.get(key, default), now.get(key, default)
        if was != is_now:
            found.append(f"{key} was {_short(was)} and is {_short(is_now)} now")
    return found


def _short(value: Any) -> str:
    """A fingerprint by its beginning, as git shows one."""
    text = str(value)
    return text[:8] if re.fullmatch("[0-9a-f]{64}", text) else text


def _load_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]
) -> None:
    by_parameter: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        name, _, moment = key.partition("|")
        by_parameter.setdefault(name, {})[moment] = value
    # torch counts parameters group by group, whatever the order of the model's.
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    state = optimizer.state_dict()
    state["state"] = {
        index: {
            # A copy, as these are the file itself, which may be removed. Adam's count of steps is
            # one number, and never shared out.
            moment: (like(value, parameter) if value.shape == parameter.shape else value).to(
                parameter.device, copy=True
            )
            for moment, value in by_parameter.get(names[id(parameter)], {}).items()
        }
        for index, parameter in enumerate(parameters)
    }
    optimizer.load_state_dict(state)


def _manifest(sums: dict[str, str]) -> str:
    return _as_json({"format": FORMAT, "sha256": sums})


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"
