"""Translate by the two graphs beside this file, with onnxruntime and numpy alone.

    python translate.py < lines > translations

Text is UTF-8. A line is a sentence, as clean text was that the model is trained on. Where
vocabulary.model is no SentencePiece model, a line is token ids with blanks between, and so is what
comes out, both without the end. Beam search as in section 6.1 of "Attention Is All You Need", with
what search.json says.

encoder.onnx   source [B, n] int64, padded with 0 -> keys_i, values_i [B, h, n, d] of each layer i
decoder.onnx   token [R], step [1], source [R, n] int64, keys_i and values_i [R, h, n, d] as above,
               past_keys_i and past_values_i [R, h, step, d] -> logits [R, V], and now_keys_i and
               now_values_i [R, h, step + 1, d] for the next step; R = B * hypotheses

Shapes: B sentences, n source tokens, V tokens in the vocabulary.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAD, BOS, EOS = 0, 1, 2
AT_ONCE = 32
Arrays = dict[str, NDArray[Any]]


class Search:
    """The graphs of a folder, and beam search by them."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        """settings: instead of those of search.json."""
        import onnxruntime

        self.settings = json.loads((folder / "search.json").read_text("utf-8")) | settings
        self.encoder, self.decoder = (
            onnxruntime.InferenceSession(
                str(folder / f"{name}.onnx"), providers=["CPUExecutionProvider"]
            )
            for name in ("encoder", "decoder")
        )

    def encode(self, source: NDArray[np.int64]) -> Arrays:
        """What steps read of source [B, n]: it, and keys and values by their names."""
        names = [output.name for output in self.encoder.get_outputs()]
        found = self.encoder.run(names, {"source": source})
        return {"source": source, **dict(zip(names, found, strict=True))}

    def start(self, memory: Arrays) -> Arrays:
        """An empty past of each row of `encode`."""
        return {
            f"past_{name}": np.zeros((len(one), one.shape[1], 0, one.shape[3]), one.dtype)
            for name, one in memory.items()
            if name != "source"
        }

    def step(
        self, token: NDArray[np.int64], step: int, memory: Arrays, past: Arrays
    ) -> tuple[NDArray[np.float32], Arrays]:
        """Logits [R, V] after one token more, and the past with it."""
        names = [output.name for output in self.decoder.get_outputs()]
        given = {"token": token, "step": np.array([step]), **memory, **past}
        logits, *found = self.decoder.run(names, given)
        grown = (name.replace("now_", "past_") for name in names[1:])
        return logits, dict(zip(grown, found, strict=True))

    def __call__(self, sentences: list[list[int]]) -> list[tuple[list[int], float]]:
        """The best translation of each sentence of token ids, which end with EOS, and its score.

        The K best continuations survive each step; one that ends is finished if it ranks among the
        first K. It scores log P / penalty. A sentence is done when no open hypothesis can come
        before its best finished one any more (`stopping` own_length: when none would if it ended
        now), or when it is as long as it may be.
        """
        beam, size = self.settings["beam"], len(sentences)
        longest = [self._longest(len(sentence) - 1) for sentence in sentences]
        source = np.zeros((size, max(map(len, sentences))), np.int64)
        for row, sentence in zip(source, sentences, strict=True):
            row[: len(sentence)] = sentence
        memory = self.encode(source)
        past = self.start(memory)
        said = np.full((size, 1, 1), BOS)
        scores = np.zeros((size, 1), np.float32)
        best: list[tuple[list[int], float]] = [([], -np.inf)] * size
        is_open = np.ones(size, bool)
        for length in range(1, max(longest) + 1):
            logits, past = self.step(said[:, :, -1].ravel(), length - 1, memory, past)
            kept, vocabulary = said.shape[1], logits.shape[1]
            total = scores[:, :, None] + log_probabilities(logits).reshape(size, kept, vocabulary)
            total = total.reshape(size, -1)
            order = highest(total, 2 * beam)
            rows, tokens = order // vocabulary, order % vocabulary
            values = np.take_along_axis(total, order, axis=1)
            # The K best, or all there are while those are fewer: one of each row ends.
            most = min(beam, order.shape[1] - kept)
            going = np.argsort(tokens == EOS, axis=1, kind="stable")[:, :most]
            for b in np.flatnonzero(is_open):
                for rank in np.flatnonzero(tokens[b, :beam] == EOS):
                    score = float(values[b, rank]) / self._penalty(length)
                    if score > best[b][1]:
                        best[b] = [*said[b, rows[b, rank], 1:].tolist(), EOS], score
                hope = float(values[b, going[b, 0]])
                finished = best[b][1] > -np.inf
                if length >= longest[b] and not finished:  # cut, it counts as it stands
                    row, token = rows[b, going[b, 0]], int(tokens[b, going[b, 0]])
                    best[b] = [*said[b, row, 1:].tolist(), token], hope / self._penalty(length)
                may_end = length if self.settings["stopping"] == "own_length" else longest[b]
                enough = best[b][1] >= hope / self._penalty(may_end)
                is_open[b] = length < longest[b] and not (finished and (enough or beam == 1))
            if not is_open.any():
                break
            scores = np.take_along_axis(values, going, axis=1)
            rows = np.take_along_axis(rows, going, axis=1)
            chosen = np.take_along_axis(said, rows[:, :, None], axis=1)
            ends = np.take_along_axis(tokens, going, axis=1)[:, :, None]
            said = np.concatenate((chosen, ends), axis=2)
            places = (np.arange(size)[:, None] * kept + rows).ravel()
            past = {name: one[places] for name, one in past.items()}
            if most != kept:  # a sentence's rows of it are the same
                memory = {name: one[places] for name, one in memory.items()}
        return best

    def _longest(self, length: int) -> int:
        most = max(length + self.settings["max_extra_tokens"], 1)
        return int(min(most, self.settings["max_length"]))

    def _penalty(self, length: int) -> float:
        paper = self.settings["length_penalty"] == "paper"
        return float(((5 + length) / 6 if paper else length) ** self.settings["alpha"])


def highest(scores: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Where the highest of scores [B, N] are, best first and of equal ones the first: [B, count],
    or [B, N] if that is less. Only those are sorted."""
    last = min(count, scores.shape[1]) - 1
    found = []
    for row in -scores:
        places = np.flatnonzero(~(row > np.partition(row, last)[last]))  # with all that are equal
        found.append(places[np.argsort(row[places], kind="stable")[: last + 1]])
    return np.array(found)


def log_probabilities(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of each token [R, V]; padding and the beginning are never said."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    found: NDArray[np.float32] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    found[:, [PAD, BOS]] = -np.inf
    return found


def _ids(line: str, number: int, size: int) -> list[int]:
    """Of a line that has nothing else; size: of the vocabulary."""
    words = line.split()
    # A longer number int() does not read.
    known = (word.isascii() and word.isdecimal() and len(word) < 20 for word in words)
    if not all(known) or not all(int(word) < size for word in words):
        sys.exit(
            f"line {number} must be token ids below {size}, with blanks between: vocabulary.model "
            "is no SentencePiece model"
        )
    return [*map(int, words)]


def main() -> None:
    """Translate standard input."""
    folder = Path(__file__).parent
    search = Search(folder)
    pieces: Any = None
    if not (folder / "vocabulary.model").read_bytes().startswith(b"{"):
        import sentencepiece

        pieces = sentencepiece.SentencePieceProcessor(
            model_file=str(folder / "vocabulary.model"), add_eos=True
        )
    # As bytes: whatever the locale, and a line ends at a line feed alone.
    try:
        text = sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        sys.exit(f"standard input is not UTF-8: {error}")
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n") if text]
    full = [i for i, line in enumerate(lines) if line.strip()]
    most = search.settings["max_input_tokens"]
    size = search.decoder.get_outputs()[0].shape[1]
    encoded = {
        i: pieces.encode(lines[i]) if pieces else [*_ids(lines[i], i + 1, size), EOS] for i in full
    }
    longer = [i for i in full if len(encoded[i]) > most]
    for i in longer:
        encoded[i] = [*encoded[i][: most - 1], EOS]
    if longer:
        first = f"the first is line {longer[0] + 1}"
        print(
            f"{len(longer)} line(s) of more than {most} tokens are cut there: {first}",
            file=sys.stderr,
        )
    said = [""] * len(lines)
    full.sort(key=lambda i: len(encoded[i]))
    for group in (full[i : i + AT_ONCE] for i in range(0, len(full), AT_ONCE)):
        found = search([encoded[i] for i in group])
        for i, (tokens, _) in zip(group, found, strict=True):
            ids = [token for token in tokens if token != EOS]
            said[i] = " ".join((pieces.decode(ids) if pieces else " ".join(map(str, ids))).split())
    sys.stdout.buffer.write("".join(line + "\n" for line in said).encode())


if __name__ == "__main__":
    main()
