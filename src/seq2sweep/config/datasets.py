"""Typed sections of params.yaml: which text there is, how it is cleaned and cut into tokens."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from seq2sweep.config.fields import (
    NOT_EMPTY,
    PATH,
    SEED,
    Rule,
    field,
    is_address,
    is_language,
    must,
)
from seq2sweep.redaction import secrets_in

LANGUAGE: Rule = ("a code of two letters, such as de or pt-BR", is_language)
TREES = "trees"
"""As `data.target`: constituency trees of the sentences, not another language."""
PHRASEBOOK_LANGUAGES = (("en", "de"), ("de", "en"), ("en", TREES))
TARGET: Rule = (
    f"a code of two letters, such as de or pt-BR, or {TREES}",
    lambda target: target == TREES or is_language(target),
)
SECTIONS: Rule = (
    "sections from 0 to 24, each once",
    lambda sections: (
        bool(sections)
        and len(set(sections)) == len(sections)
        and all(0 <= section <= 24 for section in sections)
    ),
)
PLACES = ("data.folder", "data.files.train", "data.files.valid", "data.files.test")
"""Where a text lies on a machine, which a model that is handed on does not tell."""
BYTES = 260
"""Tokens of a vocabulary of all bytes and the special tokens."""


def without_places(sections: Mapping[str, Any]) -> dict[str, Any]:
    """Sections of params.yaml, `data` among them, without PLACES; they may be a stranger's."""
    data = dict(sections["data"])
    if isinstance(files := data.get("files"), Mapping):
        data["files"] = {k: v for k, v in files.items() if f"data.files.{k}" not in PLACES}
    data.pop("folder", None)
    return {**sections, "data": data}


@dataclass(frozen=True)
class PhrasebookConfig:
    train: int = field("sentence pairs to generate for training", at_least=1)
    valid: int = field("pairs for validation", at_least=1)
    test: int = field("pairs for the final score", at_least=1)
    seed: int = field("another seed, other sentences", at_least=0, rule=SEED)


@dataclass(frozen=True)
class FilesConfig:
    train: tuple[str, ...] = field(
        "[source, target]: aligned text, plain or .gz, or TABLE:COLUMN of Parquet or of datasets, "
        "inside data.folder"
    )
    valid: tuple[str, ...] = field("the same for validation")
    test: tuple[str, ...] = field("the same for the final score")
    valid_pairs: int = field(
        "pairs of train that are held out for validation, where valid is []", at_least=0, default=0
    )
    test_pairs: int = field("the same for the final score, where test is []", at_least=0, default=0)

    @property
    def held_out(self) -> dict[str, int]:
        """The pairs of train that another split gets, by split."""
        asked = {"valid": self.valid_pairs, "test": self.test_pairs}
        return {split: pairs for split, pairs in asked.items() if pairs}

    def problems(self, trees: bool) -> Iterator[str]:
        """Asked of dataset `files` alone: two texts a split, or any number of files of trees; each
        of them named once."""
        named: dict[str, str] = {}
        for split in ("train", "valid", "test"):
            key, files = f"data.files.{split}", getattr(self, split)
            if split in self.held_out:
                if files or trees:
                    rule = "0 for data.target trees" if trees else f"0, or {key} []"
                    yield must(f"{key}_pairs", rule, self.held_out[split])
                continue
            if trees and not files:
                yield must(key, "files of trees", list(files))
            elif not trees and len(files) != 2:
                yield must(key, "two files, [source, target]", list(files))
            for file in files:
                first = named.get(os.path.normpath(file))
                named[os.path.normpath(file)] = key
                if first is not None:
                    yield (
                        f"{key} names {file}, which "
                        + (f"{first} names too" if first != key else "it names twice")
                        + ": each side of each split needs a text of its own"
                    )


@dataclass(frozen=True)
class DataConfig:
    dataset: str = field(
        "phrasebook (built in), files (your own), ptb (the Penn Treebank, yours), or one that "
        "data.folder's registry describes: wmt14-en-de, wmt14-en-fr, multi30k, craft",
        rule=NOT_EMPTY,
    )
    source: str = field("language translated from, a code such as en", rule=LANGUAGE)
    target: str = field(
        "language translated into, a code such as de; or trees, for parsing", rule=TARGET
    )
    folder: str = field("what the data is made from; DVC runs again when it changes", rule=PATH)
    phrasebook: PhrasebookConfig = field("read when dataset is phrasebook")
    files: FilesConfig = field("read when dataset is files")
    private: bool = field(
        "true: no sentence of it is recorded in MLflow, as for text under a licence; ptb never is",
        result=False,
        default=False,
    )

    @property
    def task(self) -> Literal["translation", "parsing"]:
        """What a model is trained for: how text becomes sequences, and how they are scored."""
        return "parsing" if self.target == TREES else "translation"

    @property
    def score(self) -> Literal["bleu", "f1"]:
        """The metric by which trainings are compared."""
        return "f1" if self.task == "parsing" else "bleu"

    @property
    def registered(self) -> bool:
        """Whether data.folder's registry says where the data set is."""
        return self.dataset not in ("phrasebook", "files", "ptb")

    @property
    def holds_out(self) -> bool:
        """Whether pairs of the training text are validation's or the test set's."""
        return self.dataset == "files" and bool(self.files.held_out)

    @property
    def kept_back(self) -> bool:
        """Whether nothing of the text may be published: its licence is the user's own."""
        return self.private or self.dataset == "ptb"

    def problems(self) -> Iterator[str]:
        """What is recorded of the data must be able to be true of them."""
        languages = tuple(code.lower().replace("_", "-") for code in (self.source, self.target))
        if languages[0] == languages[1]:
            yield must("data.target", f"another than data.source, {self.source}", self.target)
        if self.dataset == "phrasebook" and languages not in PHRASEBOOK_LANGUAGES:
            pairs = " or ".join(map(" to ".join, PHRASEBOOK_LANGUAGES))
            yield (
                f"data.source and data.target must be {pairs} for data.dataset phrasebook, "
                f"not {self.source} to {self.target}: it holds English, German and trees of English"
            )
        if self.dataset == "ptb" and languages != ("en", TREES):
            found = f"{self.source} to {self.target}"
            yield must("data.source and data.target", f"en to {TREES} for dataset ptb", found)
        if self.dataset == "files":
            yield from self.files.problems(trees=self.task == "parsing")


@dataclass(frozen=True)
class ParsingConfig:
    """Of `data.target: trees`."""

    tags: bool = field(
        "write each word as its tag (tensor2tensor), not as XX (Vinyals et al. 2015): from tags a "
        "small model learns sooner which word it is at",
        default=False,
    )
    words: int = field(
        "write so many of the most frequent words as themselves (Choe and Charniak 2016: all): "
        "they say which word a model is at",
        at_least=0,
        default=0,
    )
    train_sections: tuple[int, ...] = field(
        "of wsj/ for training, read when data.dataset is ptb",
        rule=SECTIONS,
        default=tuple(range(2, 22)),
    )
    valid_sections: tuple[int, ...] = field("for validation", rule=SECTIONS, default=(22,))
    test_sections: tuple[int, ...] = field("for the final score", rule=SECTIONS, default=(23,))

    def problems(self) -> Iterator[str]:
        seen: dict[int, str] = {}
        for key in ("train_sections", "valid_sections", "test_sections"):
            for section in getattr(self, key):
                if (first := seen.setdefault(section, key)) != key:
                    yield f"parsing.{key} names section {section}, which parsing.{first} names too"


@dataclass(frozen=True)
class SelfTrainingConfig:
    """Of `data.target: trees` too."""

    sentences: int = field(
        "sentences without trees that two parsers parse; what they agree on teaches a third. "
        "0: no self-training",
        at_least=0,
        default=0,
    )
    files: tuple[str, ...] = field(
        "their text inside data.folder, a sentence a line, words separated by spaces; [] for the "
        "phrasebook, which makes its own",
        default=(),
    )
    seed: int = field(
        "train.seed of the second parser; the first is that of the stage train",
        at_least=0,
        rule=SEED,
        default=1001,
    )
    beam: int = field("hypotheses kept when they parse", at_least=1, default=4)


@dataclass(frozen=True)
class DownloadConfig:
    folder: str = field(
        "where archives are kept; one put there by hand is taken as well", rule=PATH
    )
    mirrors: dict[str, Any] = field(
        "beginning of an address: what stands there instead (https:, file: or s3:)",
        rule=(
            "a mapping of addresses such as https://host/folder/",
            lambda mirrors: all(
                isinstance(mirror, str) and is_address(mirror) and is_address(prefix)
                for prefix, mirror in mirrors.items()
            ),
        ),
    )
    parallel: int = field("files downloaded at once", at_least=1)

    def problems(self) -> Iterator[str]:
        for prefix, mirror in self.mirrors.items():
            if prefix.endswith("/") and not mirror.endswith("/"):
                yield f"download.mirrors: {mirror} must end in / as {prefix} does"
            if any(secret.certain for secret in secrets_in(mirror)):
                yield (
                    "download.mirrors holds a user or password, which would be recorded with the "
                    "experiment: put it into ~/.netrc (or the environment, for s3) instead"
                )


@dataclass(frozen=True)
class PrepareConfig:
    normalise: tuple[Literal["invisible", "unicode", "whitespace"], ...] = field(
        "how every text is normalised: of invisible, unicode, whitespace"
    )
    lowercase: bool = field("lower-case all text, both sides and every split")
    drop: tuple[
        Literal["empty", "too_long", "ratio", "copied", "script", "contamination", "duplicate"], ...
    ] = field(
        "why a training pair is dropped: of empty, too_long, ratio, copied, script, "
        "contamination, duplicate"
    )
    max_words: int = field("too_long: more words than this on a side", at_least=1)
    max_ratio: float = field(
        "ratio: one side has more than this many times the other's words", at_least=1
    )


@dataclass(frozen=True)
class VocabularyConfig:
    kind: Literal["bpe", "unigram", "word_piece", "characters", "bytes"] = field(
        "bpe (paper, English-German), unigram, word_piece (paper, English-French), characters or "
        "bytes"
    )
    size: int = field(
        "word pieces shared by both languages",
        rule=("from 16 to 1000000", lambda size: 16 <= size <= 1_000_000),
    )
    character_coverage: float = field(
        "share of characters covered; the rest becomes <unk>",
        rule=("from 0.98 to 1", lambda share: 0.98 <= share <= 1),
    )
    byte_fallback: bool = field("write characters that are not covered as bytes, not as <unk>")
    sentences: int = field("at most this many are learned from, evenly spaced", at_least=1)

    def problems(self) -> Iterator[str]:
        if self.kind in ("word_piece", "bytes") and self.byte_fallback:
            yield f"vocabulary.byte_fallback must be false for kind {self.kind}"
        if self.kind == "bytes" and self.size < BYTES:
            rule = f"at least {BYTES} for kind bytes: 256 and 4 special tokens"
            yield must("vocabulary.size", rule, self.size)
        if self.kind == "characters" and self.byte_fallback and self.size <= BYTES:
            rule = f"more than {BYTES} for kind characters with vocabulary.byte_fallback"
            yield must("vocabulary.size", rule, self.size)
