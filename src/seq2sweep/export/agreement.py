"""Whether an exported model says what ours says: in its own engine, on sentences of a test set."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from seq2sweep.config.datasets import TREES
from seq2sweep.data import files
from seq2sweep.data.reading import read_lines, read_pairs
from seq2sweep.data.treebank.trees import clean as cleaned
from seq2sweep.data.treebank.trees import parse_tree
from seq2sweep.data.vocabulary import BOS, EOS, PAD
from seq2sweep.decode.grouping import cut
from seq2sweep.errors import UserError
from seq2sweep.evaluate.brackets import parse_gold
from seq2sweep.evaluate.scorers import scorer
from seq2sweep.evaluate.translator import Translator
from seq2sweep.export.protocol import Format, Opened, ShowsLogits, ShowsLogProbs

SENTENCES = 300
"""Of a test set, evenly spaced: a few seconds."""
SENTENCES_OF_LOGITS = 16


@dataclass(frozen=True)
class Agreement:
    """Of `sentences`, how many translations are `same`; scores of both, by `metric`; the greatest
    difference as `Bounds.logits`, None where they are not compared, and of what it is."""

    sentences: int
    same: int
    metric: str
    own: float
    theirs: float
    logits: float | None
    compared: str = "logits"

    def __str__(self) -> str:
        equal = "=" if round(self.own, 2) == round(self.theirs, 2) else "and"
        said = f"{self.same} of {self.sentences} the same, {self.metric.upper()} {self.own:.2f} "
        return f"{said}{equal} {self.theirs:.2f}" + (
            f", {self.compared} within {self.logits:.1e}" if self.logits is not None else ""
        )


def sentences(
    check: Sequence[Path] | None, clean: Path, kind: str = ""
) -> tuple[list[str], list[str]]:
    """At most SENTENCES sources and their references: of `check`, two files, or of the test set.

    kind: `data.target`, trees or a language. Raises UserError where there are none, and for what
    is to be a tree and is none.
    """
    if check is None:
        if not (clean / files.header_name("test")).exists():
            raise UserError(
                f"{clean} has no test set to check the export with: run it in the project's "
                "folder, or name sentences and their translations by --check SOURCE TARGET"
            )
        files.verify(clean, "test")
    source, target = check or files.text_paths(clean, "test")
    pairs = sum(1 for _ in _pairs(source, target))
    if kind == TREES:
        parse_gold(read_lines(target), str(target))
    if not pairs:
        raise UserError(f"{source} and {target} hold no sentence to check the export with")
    count = min(SENTENCES, pairs)
    wanted = {i * pairs // count for i in range(count)}
    chosen = [pair for i, pair in enumerate(_pairs(source, target)) if i in wanted]
    return [pair[0] for pair in chosen], [pair[1] for pair in chosen]


def _pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """Those with text on both sides."""
    return (pair for pair in read_pairs(source, target) if all(map(str.strip, pair)))


def searching(translator: Translator, form: Format) -> Translator:
    """The same model, its search as near to its own as the engine of a format knows one; in
    float32 where other sums are compared, whose bounds are against that."""
    asked = translator.config
    changes: dict[str, Any] = {}
    if asked.length_penalty not in form.PENALTIES:
        changes["length_penalty"] = form.PENALTIES[0]
    if asked.beam > 1 and asked.stopping not in form.STOPPINGS:  # a beam of 1 ends with its first
        changes["stopping"] = form.STOPPINGS[0]
    if form.bounds.logits is not None:
        changes["precision"] = "float32"
    config = dataclasses.replace(asked, **changes)
    if config == asked:
        return translator
    found = copy.copy(translator)
    found.config = config
    return found


def compare(
    translator: Translator,
    opened: Opened,
    form: Format,
    sources: Sequence[str],
    references: Sequence[str],
    on_done: Callable[[int], object] = lambda sentences: None,
) -> Agreement:
    """Translate by both, with the same settings. `on_done` hears of each sentence twice."""
    data = translator.settings["data"]
    lowercase = translator.settings["prepare"]["lowercase"]
    by = scorer(references, data["target"], lowercase=lowercase)
    best = [found[0] for found in translator.translate(sources, on_done=on_done)]
    ours = [translation.text for translation in best]
    theirs = opened.translate(translator.clean(sources), on_done)
    scored = [ours, theirs]
    if data["target"] == TREES:
        scored = [[*map(_tagged, said, references)] for said in scored]
    own, other = (by.score(by.counts(said).sum(axis=0)) for said in scored)
    logits, compared = None, "logits"
    if form.bounds.logits is not None:
        assert isinstance(opened, ShowsLogits | ShowsLogProbs), f"{form.title} shows no logits"
        if not isinstance(opened, ShowsLogits):
            compared = "log-probabilities"
        few = slice(SENTENCES_OF_LOGITS)
        logits = _difference(translator, opened, sources[few], [one.pieces for one in best[few]])
    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    return Agreement(len(ours), same, by.name, own, other, logits, compared)


def _tagged(said: str, gold: str) -> str:
    """A tree with gold's tags, by which EVALB tells punctuation; as it is where gold has another
    number of words."""
    tree, tags = parse_tree(said), cleaned(parse_tree(gold)).tags
    return str(tree._replace(tags=tags)) if len(tags) == len(tree.words) else said


@torch.no_grad()
def _difference(
    translator: Translator,
    opened: ShowsLogits | ShowsLogProbs,
    sources: Sequence[str],
    said: Sequence[Sequence[int]],
) -> float:
    """Of logits after each token of what was said, or of that token's log-probability, padding
    left out."""
    # Cut as both searches cut them.
    rows = translator.vocabulary.encode(translator.clean(sources))
    encoded = [cut(row, translator.longest_input) for row in rows]
    # One that was cut at the model's longest has a token before it here, BOS.
    most = translator.model.max_length - 1
    kept = [[piece for piece in pieces if piece != EOS][:most] for pieces in said]
    source, target_in = (
        torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(row) for row in rows], batch_first=True, padding_value=PAD
        )
        for rows in (encoded, [[BOS, *pieces] for pieces in kept])
    )
    device = next(translator.model.parameters()).device
    ours = translator.model(source.to(device), target_in.to(device)).cpu()[target_in.ne(PAD)]
    if isinstance(opened, ShowsLogits):
        theirs = opened.logits(source, target_in)[target_in.ne(PAD)]
    else:
        token = torch.tensor([piece for pieces in kept for piece in (*pieces, EOS)])
        ours = ours.log_softmax(dim=-1).gather(-1, token[:, None]).squeeze(-1)
        theirs = torch.tensor([*itertools.chain(*opened.log_probs(encoded, kept))])
    # What is no number is not within any bound.
    return float((theirs - ours).abs().max() / ours.abs().max())


def problem(found: Agreement, form: Format) -> str | None:
    """What of it is outside of the format's bounds, in words."""
    bounds = form.bounds
    if bounds.logits is not None and not (found.logits or 0.0) <= bounds.logits:
        return f"{found.compared} may differ by {bounds.logits:.0e} of the greatest"
    if found.same < bounds.same * found.sentences:
        return f"at least {bounds.same:.0%} must be the same"
    # The two are rounded to be shown, and a difference of 0 must be one.
    if not abs(found.own - found.theirs) <= bounds.score + 1e-9:
        return f"{found.metric.upper()} may differ by {bounds.score}"
    return None
