"""How well each grammatical phenomenon of a tagged test set comes out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seq2sweep.evaluate.bleu import corpus_bleu, exact_match


def accuracy_by_phenomenon(
    hypotheses: Sequence[str],
    references: Sequence[str],
    tags: Sequence[Sequence[str]],
) -> dict[str, dict[str, Any]]:
    """Scores over the sentences that carry each tag.

    Args:
        hypotheses: translations, one sentence each.
        references: the same number of references.
        tags: for each sentence its tags; none, one or several.

    Returns:
        For each tag, in alphabetical order: `sentences` that carry it, `exact_match` (percent)
        and `bleu` (sacreBLEU, 0 to 100) over them. A sentence counts once under each of its tags.

    Raises:
        ValueError: the three sequences differ in length.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    for hypothesis, reference, labels in zip(hypotheses, references, tags, strict=True):
        for label in set(labels):
            groups.setdefault(label, []).append((hypothesis, reference))
    result = {}
    for label, pairs in sorted(groups.items()):
        some_hypotheses, some_references = zip(*pairs, strict=True)
        result[label] = {
            "sentences": len(pairs),
            "exact_match": exact_match(some_hypotheses, some_references),
            "bleu": corpus_bleu(some_hypotheses, some_references),
        }
    return result
