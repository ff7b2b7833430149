"""Lines of text as groups of sentences that are decoded together."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from seq2sweep.config import EvaluateConfig
from seq2sweep.data.vocabulary import EOS, Vocabulary
from seq2sweep.model.architecture import Architecture


def longest_input(config: EvaluateConfig, model: Architecture) -> int:
    """Tokens of a line, EOS among them, beyond which it is cut or refused."""
    return min(config.max_input_tokens, model.max_length)


def cut(pieces: list[int], most: int) -> list[int]:
    """Token ids of a line, at most so many, the last of them EOS."""
    return pieces if len(pieces) <= most else [*pieces[: most - 1], EOS]


def prepare(
    model: Architecture,
    vocabulary: Vocabulary,
    lines: Sequence[str],
    config: EvaluateConfig,
    first: int = 1,
) -> tuple[dict[int, list[int]], list[list[int]]]:
    """Token ids of each line that is not empty, by its index, cut to what the model takes; and
    these indices in groups that are decoded together. first: the number of the first line."""
    full = [i for i, line in enumerate(lines) if line.strip()]
    encoded = dict(zip(full, vocabulary.encode([lines[i] for i in full]), strict=True))
    _cut_all(encoded, longest_input(config, model), first)
    return encoded, list(_groups({i: len(pieces) for i, pieces in encoded.items()}, config))


def _cut_all(encoded: dict[int, list[int]], limit: int, first: int) -> None:
    """Cut lines, by their index, to so many tokens, and say which."""
    longer = [i for i, pieces in encoded.items() if len(pieces) > limit]
    for i in longer:
        encoded[i] = cut(encoded[i], limit)
    if longer:
        shown = ", ".join(str(i + first) for i in longer[:5]) + (", ..." if len(longer) > 5 else "")
        # Standard output may be where the translations go.
        print(
            f"{len(longer)} input line(s) of more than {limit} tokens are cut there: line {shown}",
            file=sys.stderr,
            flush=True,
        )


def _groups(lengths: Mapping[int, int], config: EvaluateConfig) -> Iterator[list[int]]:
    """Indices in groups of similar length, longest first, each within the token budget."""
    group: list[int] = []
    for i in sorted(lengths, key=lambda i: -lengths[i]):
        longest = lengths[group[0]] if group else lengths[i]
        if group and (len(group) + 1) * longest * config.beam > config.tokens_per_batch:
            yield group
            group = []
        group.append(i)
    if group:
        yield group
