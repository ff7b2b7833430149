"""The main scores of a test set as the console, the report and MLflow say them. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seq2sweep import console
from seq2sweep.evaluate.brackets import left_out


def in_words(scores: Mapping[str, Any]) -> str:
    """scores: as in metrics/evaluate.json."""
    main = _of_translations(scores) if "bleu" in scores else _of_trees(scores)
    return f"{main}, perplexity {console.perplexity(scores['perplexity'], 3)}"


def _of_translations(scores: Mapping[str, Any]) -> str:
    sacrebleu, paper = scores["bleu"]["sacrebleu"], scores["bleu"]["paper"]
    # Of the three only the first is shown with its signature.
    cased = " (both of lower-cased text)" * ("case:lc" in paper["signature"])
    return (
        f"BLEU {sacrebleu['score']:.2f} ({sacrebleu['signature']})\n"
        f"paper's tokenised BLEU {paper['score']:.2f}, chrF {scores['chrf']['score']:.2f}{cased}"
    )


def _of_trees(scores: Mapping[str, Any]) -> str:
    """Loud where F1 leaves sentences out."""
    free, floors, lost = scores["unconstrained"], scores["floors"], left_out(scores)
    warning = f"WARNING: {lost} of {scores['sentences']} sentences are not in F1\n"
    return (
        f"F1 {scores['f1']:.2f} ± {scores['confidence']['margin']:.2f} ({scores['signature']})\n"
        f"{warning if lost else ''}"
        f"precision {scores['precision']:.2f}, recall {scores['recall']:.2f}, complete match "
        f"{scores['complete']:.2f} %; {scores['errors']} errors, {scores['skipped']} skipped\n"
        f"search among all symbols: F1 {free['f1']:.2f}, {free['malformed']} of "
        f"{scores['sentences']} malformed and repaired\n"
        f"floors: flat {floors['flat']['f1']:.2f}, right-branching "
        f"{floors['right_branching']['f1']:.2f}"
    )
