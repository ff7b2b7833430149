"""Typed sections of params.yaml: what is trained on what, and how it is scored.

A section has its checks beside its fields: of one value the field's rules, of several together
`problems`, which yields what is wrong of values that keep all rules.
"""

from __future__ import annotations

import dataclasses
import os.path
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seq2sweep import project_files
from seq2sweep.config.architectures import ModelConfig
from seq2sweep.config.datasets import (
    DataConfig,
    DownloadConfig,
    ParsingConfig,
    PrepareConfig,
    SelfTrainingConfig,
    VocabularyConfig,
)
from seq2sweep.config.execution import (
    AttentionConfig,
    ClusterConfig,
    SweepConfig,
    Table1Config,
    TrackingConfig,
)
from seq2sweep.config.fields import ABOVE_0, SEED, SHARE, field, is_address, must
from seq2sweep.config.scores import SCORES

MADE = (
    *(project_files.RAW, project_files.CLEAN, project_files.VOCABULARY, project_files.ENCODED),
    *(project_files.MODEL, project_files.TEACHER, project_files.SILVER, project_files.STUDENT),
    *(project_files.EVALUATED, project_files.TRANSLATIONS),
)
"""By DVC's stages, of metrics and reports one each."""
SHOWN_STEPS = 20
MOST_RUNGS = 10_000
"""Of scheduler median, which are all kept in memory."""
OptimizerName = Literal["adam", "adam_constant", "adam_then_sgd", "nesterov", "as_published"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    seed: int = field("fixes initial weights, order of the data and dropout", at_least=0, rule=SEED)
    # What is counted from it is exact up to here, and fits the integers of the machine.
    steps: int = field(
        "updates in all", at_least=1, rule=("at most 1000000000000000", lambda n: n <= 10**15)
    )
    tokens_per_update: int = field(
        "source tokens, and target tokens, an update (paper: 25000)", at_least=1
    )
    tokens_per_pass: int | Literal["auto"] = field(
        "tokens a worker computes at once; more is done by accumulation; auto: what its memory "
        "allows",
        rule=("at least 1, or auto", lambda tokens: tokens == "auto" or tokens >= 1),
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
    compile: bool = field(
        "layers by torch.compile: faster updates for long runs, after a start of a minute or two",
        default=False,
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

    @property
    def pass_tokens(self) -> int:
        """`tokens_per_pass`, where it is a number or has become one (`Config.sized`)."""
        if self.tokens_per_pass == "auto":
            raise ValueError("train.tokens_per_pass is auto, and nobody has said how many that is")
        return self.tokens_per_pass

    def kept_steps(self) -> tuple[range, range]:
        """Steps whose checkpoints may be left when training ends, besides the last: the newest,
        and others. Ranges, as there may be billions of them."""
        regular = range(self.checkpoint_every, self.steps, self.checkpoint_every)
        newest = regular[max(0, len(regular) - self.keep_checkpoints + 1) :]
        if self.keep_best:  # it might be any; the one that is named is kept for that
            return newest, regular
        often = self.keep_every
        return newest, range(often, self.steps, often) if often else range(0)


KEEPING = tuple(
    f"train.{key}" for key in ("checkpoint_every", "keep_checkpoints", "keep_best", "keep_every")
)
"""Which checkpoints of a training there are, and none of its weights."""


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
    stopping: Literal["exact", "own_length"] = field(
        "exact: until no open hypothesis can win; own_length: until none would if it ended now",
        default="exact",
    )
    precision: Literal["float32", "bf16"] = field(
        "of the search: bf16 is faster on GPUs and on CPUs that multiply it, and not as exact",
        default="float32",
    )


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
    attention: AttentionConfig = field(
        "ATTENTION MAPS (figures 3 to 5), and each head in numbers", default=AttentionConfig()
    )
    cluster: ClusterConfig = field("WHERE IT RUNS; a change retrains nothing")
    tracking: TrackingConfig = field("WHERE RESULTS ARE RECORDED; a change retrains nothing")
    parsing: ParsingConfig = field(
        "CONSTITUENCY PARSING (section 6.3), read when data.target is trees",
        default=ParsingConfig(),
    )
    self_training: SelfTrainingConfig = field(
        "A THIRD PARSER, TAUGHT BY TWO (semi-supervised, section 6.3), when data.target is trees",
        default=SelfTrainingConfig(),
    )

    def sized(self, tokens_per_pass: int | None) -> Config:
        """With so many tokens a pass where train.tokens_per_pass is auto; None: not known."""
        if self.train.tokens_per_pass != "auto" or tokens_per_pass is None:
            return self
        train = dataclasses.replace(self.train, tokens_per_pass=tokens_per_pass)
        return dataclasses.replace(self, train=train)

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
        yield from self._problems_of_held_out()
        yield from self._problems_of_folders()
        yield from self._problems_of_trees()
        yield from self._problems_of_self_training()
        yield from self._problems_of_objectives()
        yield from self.problems_of_rungs()
        if self.train.compile and (self.train.deterministic or self.cluster.fsdp):
            other = "train.deterministic" if self.train.deterministic else "cluster.fsdp"
            yield must("train.compile", f"false with {other}", self.train.compile)
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
        several = self.sweep.method != "none" and self.sweep.workers_per_trial > 1
        if several and is_address(self.cluster.storage):
            rule = (
                f"1 with cluster.storage {self.cluster.storage}: trials of several workers need a "
                "folder that all nodes see"
            )
            yield must("sweep.workers_per_trial", rule, self.sweep.workers_per_trial)
        if self.train.seed + self.sweep.seeds > 2**31:
            rule = "so few that all seeds are below 2147483648"
            yield must("sweep.seeds", rule, self.sweep.seeds)

    def problems_of_rungs(self) -> Iterator[str]:
        """Memory and time are for so many rungs of early stopping only; those of asha are few.

        Of a variant once more, whose steps follow from sweep.budget.
        """
        sweep, steps = self.sweep, self.train.steps
        fewest = -(-steps // MOST_RUNGS)
        if sweep.method != "none" and sweep.scheduler == "median" and sweep.grace_steps < fewest:
            rule = f"at least {fewest} with sweep.scheduler median and train.steps {steps}"
            yield must("sweep.grace_steps", rule, sweep.grace_steps)

    def _problems_of_objectives(self) -> Iterator[str]:
        """A search looks for what its task is scored by."""
        others = {
            name for key, one in SCORES.items() if key != self.data.score for name in one.metrics
        }
        foreign = [name for name in self.sweep.objectives if name in others]
        if foreign and self.sweep.method == "optuna":
            yield (
                f"sweep.objectives names {', '.join(foreign)}, by which data.target "
                f"{self.data.target} is not scored: it is by {self.data.score}"
            )

    def _problems_of_folders(self) -> Iterator[str]:
        """DVC watches all of data.folder, so that nothing that changes later may lie there; and
        what a stage makes goes when it runs again, with all that lies in it."""
        folder = Path(os.path.abspath(self.data.folder))
        kept = {"cluster.storage": self.cluster.folder}
        if self.data.registered:
            kept["download.folder"] = self.download.folder
        for made in MADE:
            path = Path(os.path.abspath(made))
            if path.is_relative_to(folder) or folder.is_relative_to(path):
                rule = f"a folder apart from {made}, which stages make, such as corpora/mine"
                yield must("data.folder", rule, self.data.folder)
            for key, name in kept.items():
                if Path(os.path.abspath(name)).is_relative_to(path):
                    yield must(key, f"outside of {made}, which a stage makes anew", name)
        for key, name in kept.items():
            if Path(os.path.abspath(name)).is_relative_to(folder):
                rule = f"outside of data.folder, {self.data.folder}, which DVC watches for changes"
                yield must(key, rule, name)

    def _problems_of_held_out(self) -> Iterator[str]:
        """What is held out of training must not be trained on."""
        if self.data.holds_out and "contamination" not in self.prepare.drop:
            rule = "with contamination, as data.files holds some of train out"
            yield must("prepare.drop", rule, list(self.prepare.drop))

    def _problems_of_self_training(self) -> Iterator[str]:
        """Two parsers that are the same agree on everything."""
        asked = self.self_training
        if not asked.sentences:
            return
        if self.data.task != "parsing":
            yield must("self_training.sentences", "0 unless data.target is trees", asked.sentences)
        if asked.seed == self.train.seed:
            yield must("self_training.seed", "another than train.seed", asked.seed)
        generated = self.data.dataset == "phrasebook"
        if generated and asked.files:
            rule = "[] for data.dataset phrasebook, which makes its own"
            yield must("self_training.files", rule, list(asked.files))
        if not generated and not asked.files:
            yield must("self_training.files", "files of sentences in data.folder", [])

    def _problems_of_trees(self) -> Iterator[str]:
        """They have a vocabulary of their own, which is no part of one matrix for both."""
        trees, symbols = self.data.task == "parsing", self.model.target_symbols
        if trees and not symbols:
            rule = "the number of symbols of the trees, such as 64, for data.target trees"
            yield must("model.target_symbols", rule, symbols)
        if symbols and not trees:
            yield must("model.target_symbols", "0 unless data.target is trees", symbols)
        if trees and self.attention.alignments is not None:
            yield must("attention.alignments", "null for data.target trees", "a file")
        if symbols and self.model.tie_embeddings:
            yield must("model.tie_embeddings", "false for data.target trees", True)
