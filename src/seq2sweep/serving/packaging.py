"""A model folder with the code that loads it and a card, as MLflow keeps it.

code/               this program's modules that translate
requirements.txt    what they need, in the versions that are installed
and what an export to safetensors has: weights, vocabulary, sums and a card
"""

from __future__ import annotations

import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import seq2sweep
from seq2sweep import code_fingerprint
from seq2sweep.errors import NO_ROOM
from seq2sweep.evaluate.translator import Translator
from seq2sweep.export.to_safetensors import Safetensors
from seq2sweep.storage.atomic import naming, share_weights

LOADER = "seq2sweep.serving.pyfunc"
"""The module that MLflow loads the folder by; `tracking` names it in the MLmodel file."""
CODE = "code"
REQUIREMENTS = "requirements.txt"
NEEDED = ("mlflow", "numpy", "pyyaml", "safetensors", "sentencepiece", "torch", "tqdm")
"""By the modules that translate, and MLflow, which calls them."""


def write_package(folder: Path, translator: Translator) -> None:
    """Fill a folder that is empty or not there. An OSError of a full disk names it."""
    with naming(folder, NO_ROOM):
        _write(folder, translator)


def _write(folder: Path, translator: Translator) -> None:
    Safetensors().write(translator, folder)
    share_weights(folder)
    source = Path(seq2sweep.__file__).parent
    modules = code_fingerprint.modules(LOADER, source.parent, whole=True)
    # Kinds of parts are imported by the names that params.yaml has. Those of this model, which are
    # loaded, may import what nothing else does.
    files = (source / "model").rglob("*.py")
    kinds = [path for path in files if not path.name.startswith(".")]  # no editor's
    for path in kinds:
        kind = ".".join(path.relative_to(source.parent).with_suffix("").parts)
        if kind in sys.modules:
            modules |= code_fingerprint.modules(kind, source.parent, whole=True, without=modules)
    for path in {*modules.values(), *kinds}:
        target = folder / CODE / path.relative_to(source.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    # Of a build for some hardware, `2.13.0+cpu`, the release: it is on the package index.
    lines = [f"{name}=={metadata.version(name).partition('+')[0]}\n" for name in NEEDED]
    (folder / REQUIREMENTS).write_text("".join(lines), encoding="utf-8")


def flavor(translator: Translator) -> dict[str, Any]:
    """What MLflow needs to know to load it, as `Recorder.model` takes it."""
    search = {key: getattr(translator.config, key) for key in ("beam", "alpha", "stopping")}
    return {"loader": LOADER, **search}
