"""Files of trees, as data/raw/provenance.json describes them: found, counted and read again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2sweep.config import Config, ParsingConfig
from seq2sweep.data.archives import Text
from seq2sweep.data.files import SPLITS
from seq2sweep.data.reading import TextSum, read_lines
from seq2sweep.data.sources import Dataset, check_inside
from seq2sweep.data.treebank.trees import Tree, TreeError, clean, trees_of
from seq2sweep.errors import UserError

PTB = "ptb"


@dataclass(frozen=True)
class Corpus:
    """A file of trees, and the name under which it is counted."""

    name: str
    text: Text


def of_registry(dataset: Dataset, folder: Path) -> dict[str, list[Corpus]]:
    """Of each split, in archives that lie in the folder."""
    return {
        split: [Corpus(corpus.name, corpus.texts(folder)[1]) for corpus in corpora]
        for split, corpora in dataset.splits.items()
    }


def of_own(config: Config) -> dict[str, list[Corpus]]:
    """Of each split, in data.folder, of datasets files and ptb."""
    if config.data.dataset == PTB:
        return _of_penn(Path(config.data.folder), config.parsing)
    return _of_files(config)


def _of_files(config: Config) -> dict[str, list[Corpus]]:
    """Those that params.yaml names."""
    folder = Path(config.data.folder)
    found: dict[str, list[Corpus]] = {}
    for split in SPLITS:
        names = getattr(config.data.files, split)
        check_inside(f"data.files.{split}", names)
        found[split] = [Corpus(name, Text(folder / name)) for name in names]
    return found


def _of_penn(folder: Path, sections: ParsingConfig) -> dict[str, list[Corpus]]:
    """The files wsj/NN/*.mrg of its sections (section 6.3: 2 to 21, 22, 23).

    Raises UserError for a section without files.
    """
    found: dict[str, list[Corpus]] = {}
    for split in SPLITS:
        for section in getattr(sections, f"{split}_sections"):
            place = folder / "wsj" / f"{section:02}"
            files = sorted(place.glob("*.mrg"))
            if not files:
                raise UserError(
                    f"{place} holds no *.mrg files: data.folder must be the folder that wsj/ of "
                    "the Penn Treebank lies in (the treebank is LDC's, and yours to get)"
                )
            found.setdefault(split, []).extend(
                Corpus(file.relative_to(folder).as_posix(), Text(file)) for file in files
            )
    return found


def read_trees(text: Path | Text) -> Iterator[Tree]:
    """The trees of a file (plain, .gz or in an archive), each on as many lines as it likes.

    Raises UserError, naming file and line, for what is no tree, and as `read_lines`.
    """
    try:
        yield from trees_of(read_lines(text))
    except TreeError as error:
        raise UserError(f"{text} line {error.line}: {error}") from None


def describe(corpus: Corpus, root: Path, trees: Iterable[Tree]) -> dict[str, Any]:
    """What provenance.json says of a corpus whose trees these are. root: the folder it is in."""
    total = TextSum()
    for _ in _summed(trees, total):
        pass
    return {
        "name": corpus.name,
        "lines": total.lines,
        "trees": {
            "file": corpus.text.path.relative_to(root).as_posix(),
            "member": corpus.text.member,
            "sha256": total.sha256(),
        },
    }


def check_apart(splits: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
    """Raises UserError where two splits have a file of the same trees. splits: as described."""
    known: dict[str, tuple[str, str]] = {}
    for split, entries in splits.items():
        for entry in entries:
            here = split, entry["name"]
            first, name = known.setdefault(entry["trees"]["sha256"], here)
            if first != split and entry["lines"]:
                raise UserError(
                    f"{entry['name']} ({split}) holds the same trees as {name} ({first}): give "
                    "each split trees of its own, or its score means nothing"
                )


def _summed(trees: Iterable[Tree], total: TextSum) -> Iterator[Tree]:
    """The trees, each added to the sum as a line as it passes."""
    for tree in trees:
        total.add(str(tree))
        yield tree


def read_again(described: Mapping[str, Any], root: Path) -> Iterator[Tree]:
    """The cleaned trees of a corpus that provenance.json describes; at their end a UserError if
    they are not those."""
    about, total = described["trees"], TextSum()
    text = Text(root / about["file"], about["member"])
    if not text.path.exists():
        raise UserError(
            f"{text.path} is missing: run `dvc repro --force download`, which fetches it"
        )
    for tree in _summed(read_trees(text), total):
        yield clean(tree)
    if (total.lines, total.sha256()) != (described["lines"], about["sha256"]):
        raise UserError(
            f"{text} is not what the download stage read: run `dvc repro --force download`, which "
            "reads it again"
        )
