"""This project's own format: a model in one folder, with a card (`decode.model_folder`)."""

from __future__ import annotations

import copy
from pathlib import Path

from seq2sweep.config import without_places
from seq2sweep.evaluate.translator import Translator
from seq2sweep.export import card
from seq2sweep.export.protocol import Bounds, Format, Searched
from seq2sweep.storage.atomic import disk_errors


class Safetensors(Format):
    """Holds every model that there is."""

    title = "safetensors"
    PENALTIES = ("paper", "power")
    bounds = Bounds(
        same=1.0, score=0.0, logits=None, why="the same program with the same numbers, saved"
    )

    def refuses(self, translator: Translator) -> str | None:
        return None

    def write(self, translator: Translator, folder: Path) -> None:
        found = card.facts(translator)
        handed_on = copy.copy(translator)
        handed_on.settings = without_places(translator.settings)
        with disk_errors():
            handed_on.save(folder, found)
        (folder / card.NAME).write_text(card.render(translator, found), encoding="utf-8")

    def opened(self, folder: Path, translator: Translator) -> Searched:
        return Searched(Translator.open(folder))
