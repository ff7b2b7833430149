"""CTranslate2's format, in float32 or smaller (`decode.ctranslate`), and the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from seq2sweep.data.vocabulary import MODEL_NAME
from seq2sweep.decode import ctranslate
from seq2sweep.decode.beam import Hypothesis
from seq2sweep.errors import UserError
from seq2sweep.evaluate.translator import Translator
from seq2sweep.export.protocol import Bounds, Format, Searched, of_one_length, other_architecture
from seq2sweep.parallel import available_cpus

ROUNDED = {"int8": 0.2, "int8_float32": 0.2, "bfloat16": 0.05}
"""`Bounds.logits` of smaller weights, by their kind."""
# BLEU and translations say too little: with positions that were one off, bfloat16 of the demo had
# 250 of 300 the same and BLEU 0.05 lower, but log-probabilities 0.70 apart (int8: 252, 0.4, 0.76).
# Right, they were 0.0067 apart (int8: 0.031), of random models of 6 layers 0.013 (int8: 0.026).


class Ctranslate2(Format):
    """Tokens are known to it as text, so that what SentencePiece cuts can be given to it."""

    def __init__(self, quantize: str | None = None) -> None:
        self.quantize = quantize
        self.title = f"CTranslate2 {quantize or 'float32'}"
        self.bounds = (
            Bounds(
                same=0.2,
                score=0.3,
                logits=ROUNDED[quantize],
                why=f"weights are rounded to {quantize}: words change, and must not get worse",
            )
            if quantize
            else Bounds(
                # Right weights had 955 of 1000 the same (docs/performance.md), and of 300 sentences
                # by chance fewer: whether weights are right, the log-probabilities say.
                same=0.8,
                score=0.3,
                logits=1e-4,
                why="its beam search ends earlier, when as many hypotheses have ended as the beam "
                "holds: 955 to 996 of 1000 translations were the same with a beam of 4, BLEU 0.12 "
                "lower; whether weights are right is seen by log-probabilities of tokens",
            )
        )

    def refuses(self, translator: Translator) -> str | None:
        if reason := other_architecture("CTranslate2", translator.model):
            return reason
        try:
            ctranslate.known(translator.model)
        except UserError as error:
            return str(error)
        return None

    def write(self, translator: Translator, folder: Path) -> None:
        vocabulary = translator.vocabulary
        tokens = vocabulary.tokens(range(len(vocabulary)))
        longest = ctranslate.most_tokens(translator.config)
        ctranslate.export(translator.model, folder, tokens, self.quantize, longest)
        (folder / MODEL_NAME).write_bytes(translator.vocabulary.model)

    def opened(self, folder: Path, translator: Translator) -> _Opened:
        vocabulary = translator.vocabulary
        engine = ctranslate.Search(
            folder,
            translator.config,
            available_cpus(),
            tokens=vocabulary.tokens(range(len(vocabulary))),
            compute_type="default" if self.quantize else "float32",
            max_length=min(ctranslate.most_tokens(translator.config), translator.model.max_length),
        )
        return _Opened(engine, translator)


class _Opened(Searched):
    def __init__(self, search: ctranslate.Search, translator: Translator) -> None:
        super().__init__(translator, self._found)
        self.search = search

    def log_probs(
        self, sources: list[list[int]], targets: list[list[int]]
    ) -> Iterator[Sequence[float]]:
        return self.search.log_probs(sources, targets)

    def _found(self, sentences: list[list[int]], *, n_best: int) -> list[list[Hypothesis]]:
        found: list[list[Hypothesis]] = [[] for _ in sentences]
        for group in of_one_length([*map(len, sentences)]):
            for i, best in zip(
                group, self.search([sentences[i] for i in group], n_best=n_best), strict=True
            ):
                found[i] = best
        return found
