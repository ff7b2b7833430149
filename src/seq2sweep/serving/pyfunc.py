"""A model folder as MLflow loads it: `mlflow.pyfunc.load_model`, `mlflow models serve`.

MLflow finds this module by name in the folder's MLmodel file, with its code beside the weights:
nothing is unpickled. It needs torch, numpy, safetensors, sentencepiece, pyyaml and tqdm, and
pandas, which MLflow brings.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from seq2sweep.config import EvaluateConfig
from seq2sweep.decode.beam import OurSearch, Translation
from seq2sweep.errors import UserError
from seq2sweep.evaluate.translator import Translator
from seq2sweep.model.products import laid_out
from seq2sweep.serving.cpu_quota import keep_to_quota
from seq2sweep.serving.limits import LARGEST_BEAM, check

TIMEOUT = "MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT"
"""In the environment, where MLflow's server has it: seconds after which it answers 504."""


def _load_pyfunc(folder: str) -> TranslationModel:
    """What MLflow calls, with the folder of the model."""
    keep_to_quota()
    return TranslationModel(Translator.open(Path(folder)))


class TranslationModel:
    """Translates the column `text` of a table, one call at a time, so that it has all cores.

    MLflow's server calls from many threads, and leaves one running whose client has had its 504.
    """

    def __init__(self, translator: Translator) -> None:
        self.translator = translator
        self._turn = threading.Lock()
        # No search makes its own copies of the weights, which do not change here.
        self._model = translator.model
        if translator.config.precision == "bf16":
            self._model = copy.deepcopy(translator.model).to(torch.bfloat16)
        self._laid_out: dict[Any, Any] = {}

    def predict(self, table: Any, params: Mapping[str, Any] | None = None) -> Any:
        """A data frame with a row for each translation: `line`, the row of `table` from 0; `rank`,
        from 0; `translation`; and `score`, its length-normalised log-probability in nats.

        params: `beam`, `alpha`, `stopping` and `n_best`, as the signature has them; those that are
        left out are as the model was evaluated. Raises ValueError, as MLflow's server answers 400
        to that, for what cannot be searched with, and for a text that `limits.check` refuses;
        TimeoutError after the seconds of TIMEOUT, if it is set.
        """
        import pandas as pd  # type: ignore[import-untyped]

        ends = time.monotonic() + float(os.environ.get(TIMEOUT) or "inf")
        texts = list(table["text"])
        if strange := [text for text in texts if not isinstance(text, str)]:
            raise ValueError(f"text must be a string, a row for each, not {str(strange[0])[:80]}")
        given = dict(params or {})
        n_best = int(given.pop("n_best", 1))
        try:
            searched = self.translator.searched(n_best, **given)
            most = max(LARGEST_BEAM, self.translator.config.beam)
            if searched.beam > most:
                raise UserError(f"beam is {searched.beam}: it must be at most {most}")
            check(self.translator, texts)
            found = self._translate(texts, n_best, searched, ends)
        except UserError as error:
            raise ValueError(str(error)) from None
        rows = [
            (line, rank, one.text, one.score)
            for line, best in enumerate(found)
            for rank, one in enumerate(best)
        ]
        return pd.DataFrame(rows, columns=["line", "rank", "translation", "score"])

    def _translate(
        self, texts: Sequence[str], n_best: int, config: EvaluateConfig, ends: float
    ) -> list[list[Translation]]:
        """In its turn. ends: by time.monotonic, when nobody waits for it any more."""
        late = TimeoutError(f"not done in the seconds of {TIMEOUT}: send less text")

        def give_up_late() -> None:
            if time.monotonic() >= ends:
                raise late

        left = max(0.0, ends - time.monotonic())
        if not self._turn.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
            raise late
        try:
            engine = OurSearch(
                self._model, config, on_step=give_up_late, mend=("send less text",) * 2
            )
            with laid_out(self._laid_out):
                return self.translator.translate(texts, n_best, engine=engine, config=config)
        finally:
            self._turn.release()
