"""A model folder with the code that loads it and a card, as MLflow keeps it.

code/               this program's modules that translate
requirements.txt    what they need, in the versions that are installed
README.md           the model card
and what decode.model_folder has
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import seq2sweep
from seq2sweep import code_fingerprint
from seq2sweep.evaluate.translator import Translator

LOADER = "seq2sweep.serving.pyfunc"
"""The module that MLflow loads the folder by; `tracking` names it in the MLmodel file."""
CODE = "code"
REQUIREMENTS = "requirements.txt"
NEEDED = ("mlflow", "numpy", "pyyaml", "safetensors", "sentencepiece", "torch", "tqdm")
"""By the modules that translate, and MLflow, which calls them."""


def write_package(folder: Path, translator: Translator, about: Mapping[str, Any]) -> None:
    """Fill a folder that is empty or not there. about: what else to note of the model."""
    translator.save(folder, about)
    source = Path(seq2sweep.__file__).parent
    modules = code_fingerprint.modules(LOADER, source.parent, whole=True)
    # Kinds of parts are imported by the names that params.yaml has.
    kinds = (source / "model").rglob("*.py")
    for path in {*modules.values(), *kinds}:
        target = folder / CODE / path.relative_to(source.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    # Of a build for some hardware, `2.13.0+cpu`, the release: it is on the package index.
    lines = [f"{name}=={metadata.version(name).partition('+')[0]}\n" for name in NEEDED]
    (folder / REQUIREMENTS).write_text("".join(lines), encoding="utf-8")


def flavor(translator: Translator) -> dict[str, Any]:
    """What MLflow needs to know to load it, as `Recorder.model` takes it."""
    return {"loader": LOADER, "beam": translator.config.beam, "alpha": translator.config.alpha}
