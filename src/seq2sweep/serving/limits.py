"""What a text may be that a stranger sends, over HTTP or to MLflow's server."""

from __future__ import annotations

import math
from collections.abc import Sequence

from seq2sweep.errors import UserError
from seq2sweep.evaluate.translator import Translator

MOST_TOKENS = 1024
"""In one text, where the model takes that many."""
MOST_CHARACTERS = 16 * MOST_TOKENS
LARGEST_BEAM = 16
LONGEST_MAP = 128
"""Tokens of a sentence whose attention is drawn."""


def check(translator: Translator, texts: Sequence[str], enough: float = math.inf) -> int:
    """Tokens of all texts, or of the first that have more than `enough`. Raises UserError for one
    that cannot be translated as it is."""
    for number, text in enumerate(texts, start=1):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UserError(
                f"text {number} has an unpaired surrogate (U+D800 to U+DFFF): send whole characters"
            ) from None
        if len(text) > MOST_CHARACTERS:
            raise UserError(
                f"text {number} has {len(text)} characters: send at most {MOST_CHARACTERS}"
            )
        if len(text.splitlines()) > 1:
            raise UserError(f"text {number} has a line break: send each sentence by itself")
    most = min(MOST_TOKENS, translator.longest_input)
    total = 0
    # To cut a long text into word pieces takes long: none after the first that is refused.
    for number, text in enumerate(texts, start=1):
        [tokens] = translator.vocabulary.encode(translator.clean([text]))
        if len(tokens) > most:
            raise UserError(f"text {number} has {len(tokens)} tokens: send at most {most}")
        total += len(tokens)
        if total > enough:
            break
    return total


def check_drawn(tokens: Sequence[int], *, translated: bool = False) -> None:
    """Raises UserError for more tokens than are drawn; translated: the model said them."""
    if len(tokens) <= LONGEST_MAP:
        return
    if translated:
        raise UserError(
            f"the translation has {len(tokens)} tokens, too many to draw: send a shorter text"
        )
    raise UserError(f"{len(tokens)} tokens are too many to draw: send at most {LONGEST_MAP}")
