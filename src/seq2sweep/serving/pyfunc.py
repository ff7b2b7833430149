"""A model folder as MLflow loads it: `mlflow.pyfunc.load_model`, `mlflow models serve`.

MLflow finds this module by name in the folder's MLmodel file, with its code beside the weights:
nothing is unpickled. It needs torch, numpy, safetensors, sentencepiece, pyyaml and tqdm, and
pandas, which MLflow brings.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seq2sweep.errors import UserError
from seq2sweep.evaluate.translator import Translator
from seq2sweep.serving.limits import LARGEST_BEAM, check


def _load_pyfunc(folder: str) -> TranslationModel:
    """What MLflow calls, with the folder of the model."""
    return TranslationModel(Translator.open(Path(folder)))


class TranslationModel:
    """Translates the column `text` of a table."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator

    def predict(self, table: Any, params: Mapping[str, Any] | None = None) -> Any:
        """A data frame with a row for each translation: `line`, the row of `table` from 0; `rank`,
        from 0; `translation`; and `score`, its length-normalised log-probability in nats.

        params: `beam`, `alpha`, `stopping` and `n_best`, as the signature has them; those that are
        left out are as the model was evaluated. Raises ValueError, as MLflow's server answers 400
        to that, for what cannot be searched with, and for a text that `limits.check` refuses.
        """
        import pandas as pd  # type: ignore[import-untyped]

        texts = list(table["text"])
        if strange := [text for text in texts if not isinstance(text, str)]:
            raise ValueError(f"text must be a string, a row for each, not {str(strange[0])[:80]}")
        given = dict(params or {})
        n_best = int(given.pop("n_best", 1))
        try:
            searched = self.translator.searched(n_best, **given)
            if searched.beam > max(LARGEST_BEAM, self.translator.config.beam):
                raise UserError(f"beam is {searched.beam}: it must be at most {LARGEST_BEAM}")
            check(self.translator, texts)
            found = self.translator.translate(texts, n_best, config=searched)
        except UserError as error:
            raise ValueError(str(error)) from None
        rows = [
            (line, rank, one.text, one.score)
            for line, best in enumerate(found)
            for rank, one in enumerate(best)
        ]
        return pd.DataFrame(rows, columns=["line", "rank", "translation", "score"])
