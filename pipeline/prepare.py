"""Stage prepare: clean text in data/clean, and what was dropped in metrics/prepare.json.

    python -m pipeline.prepare

Text is read where the download stage found it, and checked against the sums taken there.
Validation and test text is normalised only, never dropped: a test set keeps its size and order.
Of trees nothing is normalised: they lose traces and function labels, and those without a word go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from seq2sweep import config as configuration
from seq2sweep import console, parallel, project_files
from seq2sweep.data import files, reading
from seq2sweep.data.archives import Text
from seq2sweep.data.clean import Cleaned, Cleaner, Pair
from seq2sweep.data.clean_writer import as_table, write_training
from seq2sweep.data.filters import is_empty
from seq2sweep.data.treebank import corpora
from seq2sweep.errors import UserError
from seq2sweep.paths import read_json
from seq2sweep.stages import stage
from seq2sweep.storage import atomic

PAIRS_WORTH_PROCESSES = 100_000
"""Fewer of one text, which may be one of a thousand shards, are clean before other processes have
started."""


def work(config: configuration.Config) -> None:
    """Write data/clean, metrics/prepare.json and reports/dropped.tsv."""
    provenance = read_json(project_files.RAW / "provenance.json")
    if config.data.task == "parsing":
        prepare_trees(config, provenance)
        return
    prepare(config, provenance, parallel.Processes())


def prepare(
    config: configuration.Config, provenance: dict[str, Any], mapper: parallel.Mapper
) -> None:
    """Clean the text that `provenance` describes; `mapper` shares out long training texts."""
    texts = {
        split: [
            _Corpus(described, _root(config, described["name"]))
            for described in provenance["splits"][split]
        ]
        for split in files.SPLITS
    }
    languages = config.data.source, config.data.target
    # As `data.own.hold_out` has it of pairs of the training text.
    cleaner = Cleaner(config.prepare, *languages, in_any_case=config.data.holds_out)
    metrics: dict[str, Any] = {}
    with atomic.whole_folder(project_files.CLEAN) as folder:
        for split in ("valid", "test"):
            metrics[split] = _hold_out(folder, split, texts[split], cleaner)
        if (project_files.RAW / files.PHENOMENA).exists():
            _copy_phenomena(folder, metrics["test"]["kept"])
        metrics["train"], samples = write_training(
            files.text_paths(folder, "train"),
            ((corpus.name, corpus.cleaned(cleaner, mapper)) for corpus in texts["train"]),
            cleaner,
        )
        read, kept, dropped = (metrics["train"][key] for key in ("read", "kept", "dropped"))
        assert read == kept + sum(dropped.values())
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in dropped.items())
        for split in files.SPLITS:
            files.write_header(folder, split, metrics[split]["kept"])
        if kept == 0:
            raise UserError(
                f"none of {read:,} training pairs is left ({reasons}): "
                "look at the section prepare of params.yaml, or at the text"
            )
    stage.write_metrics(
        "prepare", {split: metrics[split] for split in files.SPLITS}, {"pairs": kept}
    )
    atomic.write_whole(project_files.REPORTS / "dropped.tsv", as_table(samples))
    console.say(f"kept {kept:,} of {read:,} training pairs; dropped: {reasons or 'none'}")


def prepare_trees(config: configuration.Config, provenance: dict[str, Any]) -> None:
    """Write words and cleaned trees of the trees that `provenance` describes, a sentence a line."""
    root, metrics = _root(config, "trees"), {}
    with atomic.whole_folder(project_files.CLEAN) as folder:
        for split in files.SPLITS:
            entries = provenance["splits"][split]
            read = sum(described["lines"] for described in entries)
            trees = (t for described in entries for t in corpora.read_again(described, root))
            pairs = (
                (" ".join(tree.words), str(tree))
                for tree in console.progress(trees, f"clean {split}", "trees", read)
                if tree.words
            )
            kept = files.write_pairs(*files.text_paths(folder, split), pairs)
            dropped = {"empty": read - kept} if read > kept else {}
            metrics[split] = {"read": read, "kept": kept, "dropped": dropped, "changed": {}}
            if kept == 0:
                raise UserError(f"no tree of {split} has a word: look at the section data")
        if (project_files.RAW / files.PHENOMENA).exists():
            _copy_phenomena(folder, metrics["test"]["kept"])
        for split in files.SPLITS:
            files.write_header(folder, split, metrics[split]["kept"])
        for split, count in _in_training(folder).items():
            metrics[split]["in_training"] = count
    kept, test = metrics["train"]["kept"], metrics["test"]
    stage.write_metrics("prepare", metrics, {"pairs": kept})
    atomic.write_whole(project_files.REPORTS / "dropped.tsv", as_table({}))
    console.say(
        f"kept {kept:,} of {metrics['train']['read']:,} training trees; {test['in_training']:,} of "
        f"{test['kept']:,} test sentences are among them"
    )


def _in_training(folder: Path) -> dict[str, int]:
    """How many sentences of valid and test the training trees have too."""
    train, *held_out = (
        reading.read_lines(files.text_paths(folder, split)[0]) for split in files.SPLITS
    )
    waiting, found = [*map(Counter, held_out)], Counter[str]()
    for sentence in train:
        for split, sentences in zip(files.SPLITS[1:], waiting, strict=True):
            found[split] += sentences.pop(sentence, 0)
    return dict(found)


class _Corpus:
    """Two aligned texts, as provenance.json describes them."""

    def __init__(self, described: dict[str, Any], root: Path) -> None:
        self.name: str = described["name"]
        sides = [described[side] for side in files.SIDES]
        self.texts = [Text(root / side["file"], side["member"]) for side in sides]
        for text in self.texts:
            if not text.path.exists():
                raise UserError(
                    f"{text.path} is missing: run `dvc repro --force download`, which fetches it"
                )
        self._lines: int = described["lines"]
        self._sha256: list[str] = [side["sha256"] for side in sides]

    def cleaned(self, cleaner: Cleaner, mapper: parallel.Mapper) -> Iterator[Cleaned]:
        """What is left of it for training, chunk by chunk."""
        shared_out = mapper if self._lines > PAIRS_WORTH_PROCESSES else parallel.serial
        return shared_out(cleaner, reading.chunks(self.pairs("train")))

    def pairs(self, split: str) -> Iterator[Pair]:
        """The pairs; at their end a UserError if they are not those that were described."""
        sums = reading.TextSum(), reading.TextSum()
        pairs = reading.summed(reading.read_pairs(*self.texts), sums)
        yield from console.progress(pairs, f"clean {split}: {self.name}", "pairs", self._lines)
        for text, expected, found in zip(self.texts, self._sha256, sums, strict=True):
            if (found.lines, found.sha256()) != (self._lines, expected):
                raise UserError(
                    f"{text} is not what the download stage read: "
                    "run `dvc repro --force download`, which reads it again"
                )


def _root(config: configuration.Config, name: str) -> Path:
    """The folder in which provenance.json names the files of a corpus."""
    made = (config.data.dataset, name) == ("files", files.HELD_OUT)
    if made or config.data.dataset == "phrasebook":
        return project_files.RAW
    return Path(config.download.folder if config.data.registered else config.data.folder)


def _hold_out(
    folder: Path, split: str, corpora: Sequence[_Corpus], cleaner: Cleaner
) -> dict[str, Any]:
    """Write valid or test, normalised; returns its metrics."""
    changed: Counter[str] = Counter()

    def normalised() -> Iterator[Pair]:
        for corpus in corpora:
            for number, raw in enumerate(corpus.pairs(split), start=1):
                pair = cleaner.hold_out(*raw, changed)
                for text, sentence in zip(corpus.texts, pair, strict=True):
                    if is_empty(sentence):
                        raise UserError(
                            f"{text}: sentence {number} is empty: {split} sentences are never "
                            "dropped, so fill it in, or remove it from both sides"
                        )
                yield pair

    pairs = files.write_pairs(*files.text_paths(folder, split), normalised())
    counts = {name: changed[name] for name in cleaner.normaliser.names}
    return {"read": pairs, "kept": pairs, "dropped": {}, "changed": counts}


def _copy_phenomena(folder: Path, sentences: int) -> None:
    origin = project_files.RAW / files.PHENOMENA
    lines = files.write_lines(folder / files.PHENOMENA, reading.read_lines(origin))
    if lines != sentences:
        raise UserError(
            f"{origin} has {lines} lines but the test set {sentences} sentences: "
            f"remove {project_files.RAW} and run `dvc repro`"
        )


if __name__ == "__main__":
    stage.run("prepare", "clean text, and counts of what was dropped", work)
