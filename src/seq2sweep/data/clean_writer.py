"""Cleaned training text on its way to disk: written, counted, and rid of duplicates at the end."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from seq2sweep.data.clean import SAMPLES, Cleaned, Sample, lowest, shortened
from seq2sweep.data.deduplicate import DigestFile, leave_out, lines_at


@dataclass
class _Corpus:
    """Counts of the pairs of one corpus."""

    name: str
    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


class CleanedText:
    """Writes both sides of the training text, one corpus after the other."""

    def __init__(self, source: Path, target: Path, reasons: Sequence[str]) -> None:
        """`reasons` are those that are switched on, in their order (`Cleaner.reasons`)."""
        self._paths = (source, target)
        self._reasons = tuple(reasons)
        self._corpora: list[_Corpus] = []
        self._changed: Counter[str] = Counter()
        self.samples: dict[str, list[Sample]] = {reason: [] for reason in reasons}
        """Dropped pairs to look at: up to SAMPLES for each reason, from all over the text."""
        self._open = contextlib.ExitStack()
        self._streams = [self._open.enter_context(path.open("wb")) for path in self._paths]
        self._digests = self._open.enter_context(DigestFile(source.parent))
        # In which line of its corpus each pair was: needed for the samples of duplicates only.
        lines = tempfile.TemporaryFile(dir=source.parent)  # noqa: SIM115 - closed with the others
        self._lines = self._open.enter_context(lines)

    def __enter__(self) -> CleanedText:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.close()

    def write(self, name: str, chunks: Iterable[Cleaned]) -> None:
        """Write a corpus, given as its chunks in order."""
        corpus = _Corpus(name)
        self._corpora.append(corpus)
        for chunk in chunks:
            for stream, block in zip(self._streams, (chunk.source, chunk.target), strict=True):
                stream.write(block)
            if "duplicate" in self._reasons:
                self._digests.add(chunk.digests)
                self._lines.write((chunk.lines + np.uint32(corpus.read + 1)).tobytes())
            for reason, found in chunk.samples.items():
                here = [
                    dataclasses.replace(sample, corpus=name, line=corpus.read + 1 + sample.line)
                    for sample in found
                ]
                self.samples[reason] = lowest([*self.samples[reason], *here])
            self._changed += chunk.changed
            corpus.dropped += chunk.dropped
            corpus.kept += len(chunk.lines)
            corpus.read += len(chunk.lines) + chunk.dropped.total()

    def leave_out_duplicates(self) -> None:
        """Take every pair out that came before; to be called once, when all is written."""
        for stream in self._streams:
            stream.flush()
        repeated = self._digests.repeated()
        if not repeated.any():
            return
        ends = list(itertools.accumulate(corpus.kept for corpus in self._corpora))
        self.samples["duplicate"] = self._duplicates(self._digests.lowest(repeated, SAMPLES), ends)
        for corpus, end in zip(self._corpora, ends, strict=True):
            duplicates = int(np.count_nonzero(repeated[end - corpus.kept : end]))
            corpus.dropped["duplicate"] = duplicates
            corpus.kept -= duplicates
        for path in self._paths:
            leave_out(path, repeated)

    def metrics(self, normalisers: Sequence[str]) -> dict[str, Any]:
        """Counts of all pairs and of each corpus; `normalisers` says which changes to list."""
        return {
            "read": sum(corpus.read for corpus in self._corpora),
            "kept": sum(corpus.kept for corpus in self._corpora),
            "dropped": {
                reason: sum(corpus.dropped[reason] for corpus in self._corpora)
                for reason in self._reasons
            },
            "changed": {name: self._changed[name] for name in normalisers},
            "corpora": {
                corpus.name: {
                    "read": corpus.read,
                    "kept": corpus.kept,
                    "dropped": {reason: corpus.dropped[reason] for reason in self._reasons},
                }
                for corpus in self._corpora
            },
        }

    def _duplicates(self, found: Sequence[tuple[int, int]], ends: Sequence[int]) -> list[Sample]:
        """Samples of (digest, position) pairs; `ends` are the positions where corpora end."""
        self._lines.flush()
        lines = np.memmap(self._lines, np.uint32, "r")
        positions = sorted(position for _, position in found)
        source, target = (
            dict(zip(positions, map(shortened, lines_at(path, positions)), strict=True))
            for path in self._paths
        )
        return [
            Sample(
                digest,
                int(lines[position]),
                source[position],
                target[position],
                self._corpora[bisect.bisect_right(ends, position)].name,
            )
            for digest, position in found
        ]


def as_table(samples: dict[str, list[Sample]]) -> str:
    """The samples as tab-separated values: reason, corpus, line (from 1), source, target."""
    rows = [["reason", "corpus", "line", "source", "target"]]
    for reason, found in samples.items():
        for sample in sorted(found, key=lambda sample: (sample.corpus, sample.line)):
            texts = (" ".join(text.split()) for text in (sample.source, sample.target))
            rows.append([reason, sample.corpus, str(sample.line), *texts])
    return "".join("\t".join(row) + "\n" for row in rows)
