"""The metrics by which trainings are compared, and what people call them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Score:
    """Of a task: the metric by which its trainings are compared, and those measured with it.

    All are in percent, and more is better. name: of that metric; metrics: what people call each of
    them, by its name; columns: those that tables have, that metric first; rule: by what it is
    counted, as in `BLEU is sacreBLEU's`.
    """

    name: str
    metrics: Mapping[str, str]
    columns: tuple[str, ...]
    rule: str

    @property
    def label(self) -> str:
        """What people call the metric."""
        return self.metrics[self.name]

    @property
    def beside(self) -> dict[str, str]:
        """Of further columns: metric and heading."""
        return {name: self.metrics[name] for name in self.columns[1:]}

    @property
    def mark(self) -> dict[str, str]:
        """What a record has that `of` reads."""
        return {} if self == BLEU else {"score": self.name}

    @staticmethod
    def of(record: Mapping[str, Any]) -> Score:
        """By which the trainings of a record are compared, such as reports/sweep.json.

        One that does not say is of translation: there was no other task once. Raises KeyError for a
        score that is not known.
        """
        return SCORES[record.get("score", BLEU.name)]


BLEU = Score(
    "bleu",
    {"bleu": "BLEU", "bleu_paper": "BLEU as in the paper", "chrf": "chrF"},
    ("bleu", "bleu_paper"),
    "sacreBLEU's",
)
F1 = Score(
    "f1",
    {"f1": "F1", "precision": "precision", "recall": "recall", "complete": "complete match"},
    ("f1",),
    "by EVALB's rules",
)
SCORES = {score.name: score for score in (BLEU, F1)}
"""By what `data.score` may be."""
