"""A model written in a format and checked there: `seq2sweep export`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from seq2sweep.errors import OperationalError, UserError
from seq2sweep.evaluate.translator import Translator
from seq2sweep.export import agreement
from seq2sweep.export.agreement import Agreement
from seq2sweep.export.protocol import Format
from seq2sweep.export.to_ctranslate2 import Ctranslate2
from seq2sweep.export.to_marian import Marian
from seq2sweep.export.to_onnx import Onnx
from seq2sweep.export.to_safetensors import Safetensors
from seq2sweep.storage.atomic import whole_folder
from seq2sweep.storage.locks import only_export

FORMATS: dict[str, Callable[[], Format]] = {
    "ctranslate2": Ctranslate2,
    "marian": Marian,
    "onnx": Onnx,
    "safetensors": Safetensors,
}


def chosen(name: str, quantize: str | None) -> Format:
    """A format by its name. Raises UserError where it has no such weights."""
    if quantize is None:
        return FORMATS[name]()
    if name != "ctranslate2":
        raise UserError(f"--quantize goes with --format ctranslate2, not with {name}")
    return Ctranslate2(quantize)


def export(
    translator: Translator,
    form: Format,
    folder: Path,
    sources: Sequence[str],
    references: Sequence[str],
    on_done: Callable[[int], object] = lambda sentences: None,
) -> Agreement:
    """Write the model into a folder that is not there yet, and see that it says what ours says.

    Raises UserError where the folder exists, another process writes it, or the format cannot hold
    the model, and OperationalError where the two do not agree: then there is no folder.
    """
    if reason := form.refuses(translator):
        raise UserError(reason)
    with only_export(folder):
        _check_new(folder)
        with whole_folder(folder) as beside:
            form.write(translator, beside)
            ours = agreement.searching(translator, form)
            opened = form.opened(beside, ours)
            found = agreement.compare(ours, opened, form, sources, references, on_done)
            if problem := agreement.problem(found, form):
                raise OperationalError(
                    f"{form.title} does not say what the model says ({found}; {problem}): {folder} "
                    "is not written"
                )
            _check_new(folder)  # it has taken minutes
    return found


def _check_new(folder: Path) -> None:
    if folder.exists() or folder.is_symlink():
        raise UserError(f"{folder} exists: name a folder that does not, or remove it")
