"""A run of parsing that never was: trees made by hand, scored as a parser's are."""

from __future__ import annotations

import dataclasses
from typing import Any

from seq2sweep.data.treebank.trees import parse_tree
from seq2sweep.evaluate.brackets import score_trees
from seq2sweep.report import page, samples
from seq2sweep.report.paper_tables.table4 import Parser
from tests.report.made_up_results import undrawn

MODEL = {"layers": 4, "d_model": 1024, "positions": "learned", "target_symbols": 59}
PAIRS = [
    # One prepositional phrase is attached to the noun, not to the verb.
    (
        "(TOP (S (NP (DT The) (NN gardener)) (VP (VBD cut) (NP (DT the) (NN branch)) "
        "(PP (IN with) (NP (DT a) (NN saw)))) (. .)))",
        "(TOP (S (NP (DT The) (NN gardener)) (VP (VBD cut) (NP (NP (DT the) (NN branch)) "
        "(PP (IN with) (NP (DT a) (NN saw))))) (. .)))",
        ("pp_attachment",),
    ),
    # The full stop hangs elsewhere, which does not count.
    (
        "(TOP (S (NP (PRP She)) (VP (VBZ sleeps)) (. .)))",
        "(TOP (S (NP (PRP She)) (VP (VBZ sleeps) (. .))))",
        ("short",),
    ),
    (
        "(TOP (S (SBAR (WHADVP (WRB When)) (S (NP (DT the) (NNS guests)) (VP (VBD came)))) (, ,) "
        "(NP (NP (DT the) (NN cook)) (PP (IN of) (NP (NNP Bremen)))) (VP (VBD put) "
        "(PRT (RP away)) (NP (PRP$ his) (ADJP (RB very) (JJ old)) (NN knife))) (. .)))",
        "(TOP (S (SBAR (WHADVP (WRB When)) (S (NP (DT the) (NNS guests)) (VP (VBD came)))) (, ,) "
        "(NP (DT the) (NN cook) (PP (IN of) (NP (NNP Bremen)))) (VP (VBD put) "
        "(ADVP (RP away)) (NP (PRP$ his) (RB very) (JJ old) (NN knife))) (. .)))",
        ("subordinate_clause", "particle"),
    ),
    (
        "(TOP (SQ (VBZ Does) (NP (DT the) (NN dog)) (VP (VB see) (NP (PRP him))) (. ?)))",
        "(TOP (SQ (VBZ Does) (NP (DT the) (NN dog)) (VP (VB see) (NP (PRP him))) (. ?)))",
        ("question",),
    ),
]


def parses() -> list[samples.Translation]:
    """As reports/translations.tsv has them."""
    return [
        samples.Translation(" ".join(parse_tree(gold).words), gold, found, tags)
        for gold, found, tags in PAIRS * 5
    ]


def evaluate(**changed: Any) -> dict[str, Any]:
    """metrics/evaluate.json."""
    rows = parses()
    gold = [parse_tree(row.reference) for row in rows]
    found = [parse_tree(row.translation) for row in rows]
    scores = score_trees(found, gold)
    return {
        **scores,
        "confidence": {"mean": scores["f1"], "margin": 0.44, "samples": 1000, "seed": "12345"},
        "signature": "EVALB, COLLINS.prm",
        "phenomena": {
            "particle": {"sentences": 5, "f1": 81.5, "complete": 0.0},
            "pp_attachment": {"sentences": 5, "f1": 72.7, "complete": 12.5},
            "question": {"sentences": 5, "f1": 100.0, "complete": 100.0},
        },
        "by_length": [
            {"shortest": 5, "longest": 8, "sentences": 12, "f1": 98.76},
            {"shortest": 9, "longest": 19, "sentences": 8, "f1": 80.04},
        ],
        "well_formed": {"malformed": 0, "cut": 0, "repairs": {}},
        "unconstrained": {
            "f1": 80.25,
            "precision": 80.5,
            "recall": 80.0,
            "complete": 45.0,
            "difference": scores["f1"] - 80.25,
            "malformed": 3,
            "cut": 1,
            "repairs": {"mislabelled": 2, "unopened": 0, "missing_words": 4},
        },
        "floors": {
            "flat": {"f1": 9.55, "precision": 94.29, "recall": 5.03},
            "right_branching": {"f1": 17.86, "precision": 15.0, "recall": 22.06},
        },
        "perplexity": 1.07,
        "beam": 21,
        "alpha": 0.3,
        "length_penalty": "paper",
        "decode_seconds": 3.2,
        "decode_tokens_per_second": 842.7,
        "split": "test",
        "averaged_checkpoints": [900, 1000],
        "mlflow_run_id": "5f0c1c9e6f5d4a5db4c2a7f2d1c7a002",
        "training": "own",
    } | changed


def parser(standard: bool = False, **changed: Any) -> Parser:
    dataset = "ptb" if standard else "craft"
    return Parser(evaluate(**changed), MODEL, 58_000_000, dataset, standard)


def parsing_results(**changed: Any) -> page.Results:
    """changed: of metrics/evaluate.json."""
    made = parser(**changed)
    return dataclasses.replace(
        undrawn(),
        dataset="en → trees, craft",
        evaluate=made.evaluate,
        translations=parses(),
        sweep=None,
        model=made.model,
        parser=made,
    )
