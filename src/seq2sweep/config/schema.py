"""Typed sections of params.yaml: what is trained on what, and how it is scored.

A section has its checks beside its fields: of one value the field's rules, of several together
`problems`, which yields what is wrong of values that keep all rules.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from seq2sweep.config.architectures import ModelConfig
from seq2sweep.config.execution import (
    ClusterConfig,
    SweepConfig,
    Table1Config,
    TrackingConfig,
)
from seq2sweep.config.fields import (
    ABOVE_0,
    NOT_EMPTY,
    SEED,
    SHARE,
    Rule,
    field,
    is_address,
    is_language,
    must,
)
from seq2sweep.redaction import secrets_in

LANGUAGE: Rule = ("a code of two letters, such as de or pt-BR", is_language)
PHRASEBOOK_LANGUAGES = (("en", "de"), ("de", "en"))
SHOWN_STEPS = 20
BYTES = 260
"""Tokens of a vocabulary of all bytes and the special tokens."""


@dataclass(frozen=True)
class PhrasebookConfig:
    train: int = field("sentence pairs to generate for training", at_least=1)
    valid: int = field("pairs for validation", at_least=1)
    test: int = field("pairs for the final score", at_least=1)
    seed: int = field("another seed, other sentences", at_least=0, rule=SEED)


@dataclass(frozen=True)
class FilesConfig:
    train: tuple[str, ...] = field(
        "[source, target]: aligned text, plain or .gz, inside data.folder"
    )
    valid: tuple[str, ...] = field("the same for validation")
    test: tuple[str, ...] = field("the same for the final score")

    def problems(self) -> Iterator[str]:
        """Asked of dataset `files` alone: two texts a split, each of them named once."""
        named: dict[str, str] = {}
        for split in ("train", "valid", "test"):
            key, files = f"data.files.{split}", getattr(self, split)
            if len(files) != 2:
                yield must(key, "two files, [source, target]", list(files))
            for file in files:
                first = named.get(os.path.normpath(file))
                named[os.path.normpath(file)] = key
                if first is not None:
                    yield (
                        f"{key} names {file}, which "
                        + (f"{first} names too" if first != key else "is its other side too")
                        + ": each side of each split needs a text of its own"
                    )


@dataclass(frozen=True)
class DataConfig:
    dataset: str = field(
        "phrasebook (built in), files (your own), or one that data.folder's registry describes: "
        "wmt14-en-de, wmt14-en-fr, multi30k",
        rule=NOT_EMPTY,
    )
    source: str = field("language translated from, a code such as en", rule=LANGUAGE)
    target: str = field("language translated into, a code such as de", rule=LANGUAGE)
    folder: str = field(
        "what the data is made from; DVC runs again when it changes", rule=NOT_EMPTY
    )
    phrasebook: PhrasebookConfig = field("read when dataset is phrasebook")
    files: FilesConfig = field("read when dataset is files")

    def problems(self) -> Iterator[str]:
        """What is recorded of the data must be able to be true of them."""
        languages = tuple(code.lower().replace("_", "-") for code in (self.source, self.target))
        if languages[0] == languages[1]:
            yield must("data.target", f"another than data.source, {self.source}", self.target)
        if self.dataset == "phrasebook" and languages not in PHRASEBOOK_LANGUAGES:
            pairs = " or ".join(map(" to ".join, PHRASEBOOK_LANGUAGES))
            yield (
                f"data.source and data.target must be {pairs} for data.dataset phrasebook, "
                f"not {self.source} to {self.target}: it holds English and German only"
            )
        if self.dataset == "files":
            yield from self.files.problems()


@dataclass(frozen=True)
class DownloadConfig:
    folder: str = field(
        "where archives are kept; one put there by hand is taken as well", rule=NOT_EMPTY
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


OptimizerName = Literal["adam", "adam_constant", "adam_then_sgd", "nesterov", "as_published"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    seed: int = field("fixes initial weights, order of the data and dropout", at_least=0, rule=SEED)
    steps: int = field("updates in all", at_least=1)
    tokens_per_update: int = field(
        "source tokens, and target tokens, an update (paper: 25000)", at_least=1
    )
    tokens_per_pass: int = field(
        "tokens a worker computes at once; more is done by accumulation", at_least=1
    )
    optimizer: OptimizerName = field(
        "adam (section 5.3), adam_constant (ByteNet), adam_then_sgd (GNMT), nesterov (ConvS2S) or "
        "as_published: that of the architecture's own paper",
        default="adam",
    )
    warmup_steps: int = field("steps of rising learning rate (paper: 4000)", at_least=1)
    learning_rate_scale: float = field("factor on the paper's schedule (paper: 1.0)", rule=ABOVE_0)
    label_smoothing: float = field("epsilon_ls of section 5.4 (paper: 0.1)", rule=SHARE)
    precision: Literal["float32", "bf16", "auto"] = field(
        "auto: bf16 where the device is good at it"
    )
    deterministic: bool = field(
        "ask a GPU for bitwise the same result again, at a cost in speed; a CPU always gives it"
    )
    log_every: int = field(
        "steps between console lines and points of the curves", at_least=1, result=False
    )
    validate_every: int = field("steps between losses on the validation set", at_least=1)
    checkpoint_every: int = field("steps between checkpoints", at_least=1)
    keep_checkpoints: int = field("newest checkpoints kept", at_least=1)
    keep_best: int = field(
        "checkpoints of lowest validation loss kept besides; 0: none", at_least=0
    )
    keep_every: int = field(
        "every checkpoint at a multiple of these steps is kept; 0: none", at_least=0
    )

    def problems(self) -> Iterator[str]:
        if self.checkpoint_every % self.validate_every and self.keep_best:
            yield must(
                "train.checkpoint_every",
                f"a multiple of train.validate_every ({self.validate_every}) for train.keep_best",
                self.checkpoint_every,
            )
        if self.keep_every % self.checkpoint_every:
            yield must(
                "train.keep_every",
                f"0 or a multiple of train.checkpoint_every ({self.checkpoint_every})",
                self.keep_every,
            )

    def kept_steps(self) -> tuple[range, range]:
        """Steps whose checkpoints may be left when training ends, besides the last: the newest,
        and others. Ranges, as there may be billions of them."""
        regular = range(self.checkpoint_every, self.steps, self.checkpoint_every)
        newest = regular[max(0, len(regular) - self.keep_checkpoints + 1) :]
        if self.keep_best:  # it might be any; the one that is named is kept for that
            return newest, regular
        often = self.keep_every
        return newest, range(often, self.steps, often) if often else range(0)


@dataclass(frozen=True)
class EvaluateConfig:
    average_checkpoints: int = field(
        "checkpoints averaged (paper: 5 for base, 20 for big)", at_least=1
    )
    checkpoints: Literal["newest", "best"] = field(
        "which: the newest (paper), or those of lowest validation loss"
    )
    checkpoint_steps: tuple[int, ...] = field(
        "average those of these steps instead; []: as above",
        rule=("steps that are not repeated", lambda steps: len(set(steps)) == len(steps)),
    )
    beam: int = field("hypotheses kept (paper: 4)", at_least=1)
    length_penalty: Literal["paper", "power"] = field(
        "paper: ((5 + n) / 6) ** alpha (Wu et al. 2016); power: n ** alpha, as fairseq"
    )
    alpha: float = field(
        "exponent of the length penalty (paper: 0.6)",
        at_least=0,
        rule=("at most 10", lambda alpha: alpha <= 10),
    )
    max_extra_tokens: int = field(
        "longest output is the input's length plus this (paper: 50)", at_least=0
    )
    max_input_tokens: int = field("a longer input is cut here, with a warning", at_least=1)
    tokens_per_batch: int = field("source tokens times beam decoded at once", at_least=1)


@dataclass(frozen=True, kw_only=True)
class Config:
    """All of params.yaml."""

    data: DataConfig = field("WHAT TO TRANSLATE")
    download: DownloadConfig = field("WHERE IT COMES FROM; a change runs nothing again")
    prepare: PrepareConfig = field("CLEANING")
    vocabulary: VocabularyConfig = field("WORD PIECES")
    model: ModelConfig = field("THE TRANSFORMER (section 3 and Table 3 of the paper)")
    train: TrainConfig = field("TRAINING (section 5)")
    evaluate: EvaluateConfig = field(
        "DECODING AND SCORING (section 6.1); a change retrains nothing"
    )
    sweep: SweepConfig = field("VARIANTS TO COMPARE")
    table1: Table1Config = field(
        "TYPES OF LAYER TO MEASURE (section 4 and Table 1 of the paper)", default=Table1Config()
    )
    cluster: ClusterConfig = field("WHERE IT RUNS; a change retrains nothing")
    tracking: TrackingConfig = field("WHERE RESULTS ARE RECORDED; a change retrains nothing")

    @property
    def optimizer(self) -> str:
        """`train.optimizer` by its own name."""
        named = self.train.optimizer
        return self.model.PUBLISHED_OPTIMIZER if named == "as_published" else named

    @property
    def moments(self) -> int:
        """Numbers that the optimizer keeps for each weight, at most."""
        return 1 if self.optimizer == "nesterov" else 2

    @property
    def warmup_steps(self) -> int:
        """Steps of rising learning rate, which only adam has."""
        return self.train.warmup_steps if self.optimizer == "adam" else 0

    def problems(self) -> Iterator[str]:
        """What sections ask of each other."""
        kept = "keep_best" if self.evaluate.checkpoints == "best" else "keep_checkpoints"
        most, averaged = getattr(self.train, kept), self.evaluate.average_checkpoints
        if averaged > most:
            yield must("evaluate.average_checkpoints", f"at most train.{kept} ({most})", averaged)
        newest, further = self.train.kept_steps()
        steps, last = self.evaluate.checkpoint_steps, self.train.steps
        if not all(step == last or step in newest or step in further for step in steps):
            first = [*map(str, newest[:SHOWN_STEPS]), "..."][: len(newest[: SHOWN_STEPS + 1])]
            others = f"; multiples of {further.step}" * bool(further)
            rule = f"among the steps that training keeps ({', '.join([*first, str(last)])}{others})"
            yield must("evaluate.checkpoint_steps", rule, list(steps))
        if self.train.seed + self.sweep.seeds > 2**31:
            rule = "so few that all seeds are below 2147483648"
            yield must("sweep.seeds", rule, self.sweep.seeds)
