"""Typed sections of params.yaml.

Every value of an experiment stands in params.yaml: nothing is filled in silently, so the file
(and its hash) says all that was chosen. An unknown or missing key, or a value of the wrong type
or range, is a `UserError` that names the dotted key and how to mend it.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
import os.path
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import yaml

from seq2sweep import yaml_text
from seq2sweep.errors import UserError
from seq2sweep.paths import read_text
from seq2sweep.redaction import secrets_in

CHANGES_NO_RESULT = "how parameters are read: their values are compared themselves"

DECISIVE = ("src", "pipeline", "params.yaml", "dvc.yaml", "constraints.txt", "pyproject.toml")
"""The project's files that determine a result. One elsewhere (documentation, tests, infrastructure,
dvc.lock, which stages write) leaves the tree of a run clean."""


def _field(help_text: str, at_least: int | None = None, *, result: bool = True) -> Any:
    """A required field; the help text becomes the comment beside it in params.yaml.

    result: whether another value can change what comes out.
    """
    metadata = {"help": help_text, "at_least": at_least, "result": result}
    return dataclasses.field(metadata=metadata)


@dataclass(frozen=True)
class PhrasebookConfig:
    train: int = _field("sentence pairs to generate for training", at_least=1)
    valid: int = _field("pairs for validation", at_least=1)
    test: int = _field("pairs for the final score", at_least=1)
    seed: int = _field("another seed, other sentences", at_least=0)


@dataclass(frozen=True)
class FilesConfig:
    train: tuple[str, ...] = _field(
        "[source, target]: aligned text, plain or .gz, inside data.folder"
    )
    valid: tuple[str, ...] = _field("the same for validation")
    test: tuple[str, ...] = _field("the same for the final score")


@dataclass(frozen=True)
class DataConfig:
    dataset: str = _field(
        "phrasebook (built in), files (your own), or one that data.folder's registry describes: "
        "wmt14-en-de, wmt14-en-fr, multi30k"
    )
    source: str = _field("language translated from, a code such as en")
    target: str = _field("language translated into, a code such as de")
    folder: str = _field("what the data is made from; DVC runs again when it changes")
    phrasebook: PhrasebookConfig = _field("read when dataset is phrasebook")
    files: FilesConfig = _field("read when dataset is files")


@dataclass(frozen=True)
class DownloadConfig:
    folder: str = _field("where archives are kept; one put there by hand is taken as well")
    mirrors: dict[str, Any] = _field(
        "beginning of an address: what stands there instead (https:, file: or s3:)"
    )
    parallel: int = _field("files downloaded at once", at_least=1)


@dataclass(frozen=True)
class PrepareConfig:
    normalise: tuple[Literal["invisible", "unicode", "whitespace"], ...] = _field(
        "how every text is written anew: of invisible, unicode, whitespace"
    )
    lowercase: bool = _field("lower-case all text, both sides and every split")
    drop: tuple[
        Literal["empty", "too_long", "ratio", "copied", "script", "contamination", "duplicate"], ...
    ] = _field(
        "why a training pair is dropped: of empty, too_long, ratio, copied, script, "
        "contamination, duplicate"
    )
    max_words: int = _field("too_long: more words than this on a side", at_least=1)
    max_ratio: float = _field("ratio: one side has more than this many times the other's words")


@dataclass(frozen=True)
class VocabularyConfig:
    kind: Literal["bpe", "unigram", "word_piece"] = _field(
        "bpe (paper, English-German), unigram or word_piece (paper, English-French)"
    )
    size: int = _field("word pieces shared by both languages")
    character_coverage: float = _field("share of characters covered; the rest becomes <unk>")
    byte_fallback: bool = _field("write characters that are not covered as bytes, not as <unk>")
    sentences: int = _field("at most this many are learned from, evenly spaced", at_least=1)


PHRASEBOOK_LANGUAGES = (("en", "de"), ("de", "en"))

LONGEST_SHOWN, SHOWN_VALUES = 200, 100
"""Characters, and values of a list, of what error messages show of a value."""
SHOWN_STEPS = 20

LEARNED_POSITIONS = 1024
"""Pieces a side for which `model.positions: learned` has a position."""


@dataclass(frozen=True)
class ModelConfig:
    layers: int = _field("N: layers of the encoder, and of the decoder", at_least=1)
    d_model: int = _field("width of the residual stream", at_least=1)
    d_ff: int = _field("inner width of the feed-forward sub-layer", at_least=1)
    heads: int = _field("h: attention heads", at_least=1)
    d_k: int = _field("width of a query and a key in each head", at_least=1)
    d_v: int = _field("width of a value in each head", at_least=1)
    attention: Literal["scaled_dot_product", "dot_product", "additive"] = _field(
        "scaled_dot_product (equation 1), dot_product (unscaled) or additive (section 3.2.1)"
    )
    norm: Literal["post", "pre"] = _field("post: after each sub-layer, as the paper; or pre")
    dropout: float = _field("on sub-layer outputs and embedding sums (section 5.4)")
    attention_dropout: float = _field("on attention weights (paper: 0.0)")
    feed_forward_dropout: float = _field("inside the feed-forward sub-layer (paper: 0.0)")
    positions: Literal["sinusoidal", "learned"] = _field(
        "sinusoidal (section 3.5) or learned (row E)"
    )
    tie_embeddings: bool = _field("one matrix for both embeddings and the projection (section 3.4)")


@dataclass(frozen=True)
class TrainConfig:
    seed: int = _field("fixes initial weights, order of the data and dropout", at_least=0)
    steps: int = _field("updates in all", at_least=1)
    tokens_per_update: int = _field(
        "source tokens, and target tokens, an update (paper: 25000)", at_least=1
    )
    tokens_per_pass: int = _field(
        "tokens a worker computes at once; more is done by accumulation", at_least=1
    )
    warmup_steps: int = _field("steps of rising learning rate (paper: 4000)", at_least=1)
    learning_rate_scale: float = _field("factor on the paper's schedule (paper: 1.0)")
    label_smoothing: float = _field("epsilon_ls of section 5.4 (paper: 0.1)")
    precision: Literal["float32", "bf16", "auto"] = _field(
        "auto: bf16 where the device is good at it"
    )
    deterministic: bool = _field(
        "ask a GPU for bitwise the same result again, at a cost in speed; a CPU always gives it"
    )
    log_every: int = _field(
        "steps between console lines and points of the curves", at_least=1, result=False
    )
    validate_every: int = _field("steps between losses on the validation set", at_least=1)
    checkpoint_every: int = _field("steps between checkpoints", at_least=1)
    keep_checkpoints: int = _field("newest checkpoints kept", at_least=1)
    keep_best: int = _field(
        "checkpoints of lowest validation loss kept besides; 0: none", at_least=0
    )
    keep_every: int = _field(
        "every checkpoint at a multiple of these steps is kept; 0: none", at_least=0
    )


@dataclass(frozen=True)
class EvaluateConfig:
    average_checkpoints: int = _field(
        "checkpoints averaged (paper: 5 for base, 20 for big)", at_least=1
    )
    checkpoints: Literal["newest", "best"] = _field(
        "which: the newest (paper), or those of lowest validation loss"
    )
    checkpoint_steps: tuple[int, ...] = _field("average those of these steps instead; []: as above")
    beam: int = _field("hypotheses kept (paper: 4)", at_least=1)
    length_penalty: Literal["paper", "power"] = _field(
        "paper: ((5 + n) / 6) ** alpha (Wu et al. 2016); power: n ** alpha, as fairseq"
    )
    alpha: float = _field("exponent of the length penalty (paper: 0.6)", at_least=0)
    max_extra_tokens: int = _field(
        "longest output is the input's length plus this (paper: 50)", at_least=0
    )
    max_input_tokens: int = _field("a longer input is cut here, with a warning", at_least=1)
    tokens_per_batch: int = _field("source tokens times beam decoded at once", at_least=1)


@dataclass(frozen=True)
class SweepConfig:
    method: Literal["none", "table3", "one_at_a_time", "grid", "random", "optuna"] = _field(
        "none (trains no variants), table3 (the paper's rows), one_at_a_time, grid (all "
        "combinations), random or optuna (which learns from the trials before)"
    )
    rows: tuple[str, ...] = _field(
        "of table3: rows (A-heads-1), groups (base, A to E, big) or all; sized to the base variant"
    )
    base: dict[str, Any] = _field("dotted keys that differ from above in every trial")
    space: dict[str, Any] = _field(
        "dotted key: list of values, or {low:, high:, log:} for random and optuna"
    )
    samples: int = _field("variants drawn when method is random or optuna", at_least=1)
    seed: int = _field("for random and optuna", at_least=0)
    objectives: tuple[
        Literal["bleu", "bleu_paper", "chrf", "perplexity", "flops", "parameters"], ...
    ] = _field(
        "what optuna looks for, one or several of bleu, bleu_paper, chrf (high), perplexity, "
        "flops, parameters (low)"
    )
    round: int = _field(
        "variants that optuna proposes together; it sees their figures before the next", at_least=1
    )
    seeds: int = _field(
        "trainings of each variant: with train.seed and the seeds after it", at_least=1
    )
    budget: Literal["steps", "tokens", "flops"] = _field(
        "what all get alike: their own train.steps, or the tokens or flops of the base variant"
    )
    scheduler: Literal["asha", "median", "none"] = _field(
        "asha or median stop bad trials early; none runs all to the end"
    )
    grace_steps: int = _field(
        "no trial is stopped before this step, nor before its warm-up has ended", at_least=1
    )
    reduction_factor: int = _field("asha keeps one in this many at each rung")
    workers_per_trial: int = _field("processes that train a trial together", at_least=1)
    cpus_per_trial: float = _field(
        "CPUs each of them gets; how many trials run at once follows from the cluster"
    )
    gpus_per_trial: float = _field(
        "GPUs each of them gets; a fraction lets several trials share one", at_least=0
    )
    max_failures: int = _field("times a failed trial is tried again", at_least=0)


HOME = "runs"
"""Folder of the project for runs that train with a bucket, when they have ended."""
BUCKETS = ("s3", "gs")


@dataclass(frozen=True)
class ClusterConfig:
    address: str | None = _field(
        "null starts Ray on this machine; else a running cluster's address"
    )
    job_server: str | None = _field(
        "http://host:8265 of a cluster: train and sweep run there as jobs; null: here"
    )
    job_environment: tuple[str, ...] = _field(
        "names of environment variables that a job gets from here, such as [MLFLOW_TRACKING_URI]"
    )
    workers: int = _field("processes that train together", at_least=1)
    min_workers: int | None = _field(
        "fewest to go on with while nodes are missing; null: all of them", at_least=1
    )
    cpus_per_worker: int | None = _field("null shares out the CPUs of this machine", at_least=1)
    gpus_per_worker: int = _field("0 trains on the CPU", at_least=0)
    fsdp: bool = _field(
        "share out weights, gradients and moments: for a model that does not fit a device"
    )
    storage: str = _field(
        "folder of checkpoints, which all nodes see; or s3://bucket/prefix, gs://bucket/prefix"
    )
    max_failures: int = _field(
        "times in a row that workers start again without having got to a new checkpoint", at_least=0
    )
    hang_seconds: int = _field(
        "a worker that gets no update done for so long is started again", at_least=10
    )

    @property
    def folder(self) -> str:
        """Where this machine has its runs: `storage`, or where they come home to from a bucket."""
        return HOME if is_address(self.storage) else self.storage


@dataclass(frozen=True)
class TrackingConfig:
    uri: str | None = _field("null: $MLFLOW_TRACKING_URI, else mlflow.db in this folder")
    experiment: str = _field("name of the MLflow experiment")


@dataclass(frozen=True)
class Config:
    """All of params.yaml."""

    data: DataConfig = _field("WHAT TO TRANSLATE")
    download: DownloadConfig = _field("WHERE IT COMES FROM; a change runs nothing again")
    prepare: PrepareConfig = _field("CLEANING")
    vocabulary: VocabularyConfig = _field("WORD PIECES")
    model: ModelConfig = _field("THE TRANSFORMER (section 3 and Table 3 of the paper)")
    train: TrainConfig = _field("TRAINING (section 5)")
    evaluate: EvaluateConfig = _field(
        "DECODING AND SCORING (section 6.1); a change retrains nothing"
    )
    sweep: SweepConfig = _field("VARIANTS TO COMPARE")
    cluster: ClusterConfig = _field("WHERE IT RUNS; a change retrains nothing")
    tracking: TrackingConfig = _field("WHERE RESULTS ARE RECORDED; a change retrains nothing")


# --- reading -----------------------------------------------------------------------------------


def load(path: Path) -> Config:
    """Read and check params.yaml. Raises UserError with one line for anything wrong in it."""
    try:
        text = read_text(path, "run `seq2sweep preset phrasebook` in the project's folder")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text") from None
    return parse(text, str(path))


def parse(text: str, name: str = "params.yaml") -> Config:
    """Build a Config from YAML text; `name` is what error messages call it."""
    try:
        values = yaml_text.read_yaml(text)
    except yaml_text.ERRORS as error:
        raise UserError(yaml_text.problem(error, name)) from None
    if not isinstance(values, dict):
        raise UserError(f"{name}: expected sections such as `model:` and `train:`")
    return from_dict(values, name)


def is_address(text: str) -> bool:
    """Whether a text begins as an address (https://, s3://) that can be taken apart."""
    try:
        urlsplit(text)
    except ValueError:
        return False
    return re.match(r"[a-z][a-z0-9+.-]*://", text) is not None


def from_dict(values: Mapping[str, Any], name: str = "params.yaml") -> Config:
    """Build a checked Config from nested dictionaries (the inverse of `to_dict`)."""
    config: Config = _build(Config, values, "", name)
    _check(config, name)
    return config


def to_dict(config: Config) -> dict[str, Any]:
    """Nested plain dictionaries, lists and scalars."""
    return typing.cast(dict[str, Any], _plain(dataclasses.asdict(config)))


def flatten(config: Config, *sections: str) -> dict[str, Any]:
    """Dotted key to value, of the named sections or of all."""
    return {
        key: value
        for key, value in _leaves(to_dict(config), "")
        if not sections or key.split(".")[0] in sections
    }


def identity(config: Config, *sections: str) -> dict[str, Any]:
    """As `flatten`, without KEYS_WITHOUT_RESULT."""
    values = flatten(config, *sections)
    return {key: value for key, value in values.items() if key not in KEYS_WITHOUT_RESULT}


def _keys_without_result(kind: Any, prefix: str = "") -> Iterator[str]:
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from _keys_without_result(hints[field.name], f"{prefix}{field.name}.")
        elif not field.metadata["result"]:
            yield prefix + field.name


KEYS_WITHOUT_RESULT = frozenset(_keys_without_result(Config))
"""Dotted keys whose values can change nothing that comes out."""


def is_language(code: str) -> bool:
    """Whether a text is a language code of two letters (ISO 639-1), perhaps with a region."""
    return re.fullmatch("[A-Za-z]{2}([-_][A-Za-z0-9]+)*", code) is not None


def with_changes(config: Config, changes: Mapping[str, Any], name: str = "params.yaml") -> Config:
    """A copy with dotted keys replaced, checked again: `{"model.heads": 8}`."""
    values = to_dict(config)
    known = [key for key, _ in _leaves(values, "")]
    for key, value in changes.items():
        if key not in known:
            raise UserError(_unknown(key, known, name))
        *path, last = key.split(".")
        section = values
        for part in path:
            section = section[part]
        section[last] = value
    return from_dict(values, name)


def fingerprint(config: Config, *sections: str, without: Collection[str] = ()) -> str:
    """sha256 (hex) of the named sections, or of all: equal exactly when the values are.

    without: dotted keys that are left out.
    """
    values = flatten(config, *sections)
    text = json.dumps({k: v for k, v in values.items() if k not in without}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def dump(config: Config) -> str:
    """params.yaml text, each key with its help as a comment."""
    lines: list[str] = []
    for section in dataclasses.fields(config):
        lines += ["", f"# {section.metadata['help']}", f"{section.name}:"]
        lines += _dump_fields(getattr(config, section.name), 1)
    return "\n".join(lines[1:]) + "\n"


def _unknown(key: str, known: list[str], name: str) -> str:
    key = key[:LONGEST_SHOWN] if key.isprintable() else shown(key)
    section = key if any(k.startswith(key + ".") for k in known) else key.rpartition(".")[0]
    if section == key:
        keys = ", ".join(k for k in known if k.startswith(key + "."))
        return f"{name}: {key} is a section; its keys are {keys}"
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    hint = f", did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
    if not close and section:
        siblings = [k for k in known if k.startswith(section + ".")]
        hint = f"; known: {', '.join(siblings or known)}"
    return f"{name}: unknown key {key}{hint}"


def _build(kind: Any, values: Any, prefix: str, name: str) -> Any:
    if not isinstance(values, Mapping):
        raise UserError(f"{name}: {prefix.rstrip('.')} must be a section with keys of its own")
    hints = typing.get_type_hints(kind)
    fields = [field.name for field in dataclasses.fields(kind)]
    for key in values:
        if key not in fields:
            raise UserError(_unknown(f"{prefix}{key}", [prefix + field for field in fields], name))
    built = {}
    for field in dataclasses.fields(kind):
        key = prefix + field.name
        if field.name not in values:
            raise UserError(f"{name}: missing key {key} ({field.metadata['help']}); add it")
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            built[field.name] = _build(hint, values[field.name], key + ".", name)
        else:
            built[field.name] = _convert(hint, values[field.name], key, name)
    return kind(**built)


def _convert(hint: Any, value: Any, key: str, name: str) -> Any:
    def wrong(expected: str) -> UserError:
        return UserError(f"{name}: {key} must be {expected}, not {shown(value)}")

    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        return _convert(next(a for a in hint.__args__ if a is not type(None)), value, key, name)
    origin = typing.get_origin(hint)
    if origin is Literal:
        options = typing.get_args(hint)
        if value not in options:
            raise wrong("one of " + ", ".join(options) + _near(value, options))
        return value
    if origin is tuple:
        kind = typing.get_args(hint)[0]
        if typing.get_origin(kind) is Literal:
            options = typing.get_args(kind)
            items = value if isinstance(value, list | tuple) else [value]
            strange = [item for item in items if item not in options]
            if strange or items is not value:
                near = _near(strange[0], options) if strange else ""
                raise wrong("a list, each one of " + ", ".join(options) + near)
            return tuple(value)
        # type, not isinstance: true and false are no whole numbers here.
        if not isinstance(value, list | tuple) or not all(type(v) is kind for v in value):
            raise wrong("a list of texts" if kind is str else "a list of whole numbers")
        return tuple(_line(v, wrong) if isinstance(v, str) else v for v in value)
    if origin is dict:
        if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
            raise wrong("a mapping, such as {}")
        return dict(value)
    if hint is bool:
        if not isinstance(value, bool):
            raise wrong("true or false")
        return value
    if hint is int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong("a whole number")
        return value
    if hint is float:
        # YAML 1.1 reads 1e-4 (no dot) as text.
        try:
            number = float(value) if not isinstance(value, bool) else math.nan
        except (TypeError, ValueError, OverflowError):
            raise wrong("a number") from None
        if not math.isfinite(number):
            raise wrong("a number")
        return number
    if not isinstance(value, str):
        raise wrong("text (in quotes if YAML reads it as something else)")
    return _line(value, wrong)


def _line(value: str, wrong: Callable[[str], UserError]) -> str:
    if "\n" in value:
        raise wrong("text of one line")
    return value


def shown(value: Any) -> str:
    """A value in an error message: on one line, and not endless."""
    text = repr(value) if not isinstance(value, list | tuple) else repr(value[:SHOWN_VALUES])
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _near(value: Any, options: tuple[str, ...]) -> str:
    if not isinstance(value, str):
        return ""
    close = difflib.get_close_matches(value[:LONGEST_SHOWN], options, n=1)
    return f", did you mean {close[0]}?" if close else ""


# --- ranges ------------------------------------------------------------------------------------


_Require = Callable[[bool, str, str], None]
"""Raises a UserError unless something holds: of a dotted key, by the rule that it breaks."""


def _check(config: Config, name: str) -> None:
    values = flatten(config)

    def require(good: bool, key: str, rule: str) -> None:
        if not good:
            raise UserError(f"{name}: {key} must be {rule}, not {shown(values[key])}")

    for key, least in _minima(config, ""):
        require(values[key] is None or values[key] >= least, key, f"at least {least}")
    for key in ("dropout", "attention_dropout", "feed_forward_dropout"):
        require(0 <= values[f"model.{key}"] < 1, f"model.{key}", "in [0, 1)")
    require(0 <= config.train.label_smoothing < 1, "train.label_smoothing", "in [0, 1)")
    require(config.train.learning_rate_scale > 0, "train.learning_rate_scale", "above 0")
    require(config.evaluate.alpha <= 10, "evaluate.alpha", "at most 10")
    gpus = config.sweep.gpus_per_trial
    require(gpus <= 1 or gpus == int(gpus), "sweep.gpus_per_trial", "at most 1, or a whole number")
    require(config.prepare.max_ratio >= 1, "prepare.max_ratio", "at least 1")
    require(16 <= config.vocabulary.size <= 1_000_000, "vocabulary.size", "from 16 to 1000000")
    require(
        0.9 <= config.vocabulary.character_coverage <= 1,
        "vocabulary.character_coverage",
        "from 0.9 to 1",
    )
    require(
        (config.cluster.min_workers or 1) <= config.cluster.workers,
        "cluster.min_workers",
        f"at most cluster.workers ({config.cluster.workers})",
    )
    server = config.cluster.job_server
    if server is not None:
        # The value is not shown: it may hold a password.
        if not is_address(server) or urlsplit(server).scheme not in ("http", "https"):
            raise UserError(f"{name}: cluster.job_server must be as http://host:8265")
        if secrets_in(server):
            raise UserError(
                f"{name}: cluster.job_server holds a user or password: put the cluster's token "
                "into ~/.ray/auth_token or $RAY_AUTH_TOKEN instead"
            )
    require(
        all(re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", v) for v in config.cluster.job_environment),
        "cluster.job_environment",
        "names of variables, without their values",
    )
    _check_storage(config.cluster.storage, name)
    require(config.sweep.reduction_factor >= 2, "sweep.reduction_factor", "at least 2")
    if config.sweep.method == "table3" and config.sweep.space:
        raise UserError(
            f"{name}: sweep.space must be {{}} for sweep.method table3, which varies what the rows "
            "of sweep.rows say"
        )
    require(config.sweep.cpus_per_trial > 0, "sweep.cpus_per_trial", "above 0")
    for key in ("sweep.cpus_per_trial", "sweep.gpus_per_trial"):
        several = config.sweep.workers_per_trial > 1
        rule = "a whole number where sweep.workers_per_trial is above 1"
        require(not several or values[key] == int(values[key]), key, rule)
    _check_search(config.sweep, name)
    train = config.train
    require(
        train.checkpoint_every % train.validate_every == 0 or not train.keep_best,
        "train.checkpoint_every",
        f"a multiple of train.validate_every ({train.validate_every}) for train.keep_best",
    )
    require(
        train.keep_every % train.checkpoint_every == 0,
        "train.keep_every",
        f"0 or a multiple of train.checkpoint_every ({train.checkpoint_every})",
    )
    kept = "keep_best" if config.evaluate.checkpoints == "best" else "keep_checkpoints"
    require(
        config.evaluate.average_checkpoints <= values[f"train.{kept}"],
        "evaluate.average_checkpoints",
        f"at most train.{kept} ({values[f'train.{kept}']})",
    )
    _check_checkpoint_steps(config, require)
    for key in ("data.source", "data.target"):
        require(is_language(values[key]), key, "a code of two letters, such as de or pt-BR")
    for key in ("data.dataset", "data.folder", "download.folder", "cluster.storage"):
        require(bool(values[key].strip()), key, "not empty")
    for key in ("data.phrasebook.seed", "train.seed", "sweep.seed"):
        require(values[key] < 2**31, key, "below 2147483648")
    last_seed = config.train.seed + config.sweep.seeds - 1
    require(last_seed < 2**31, "sweep.seeds", "so few that all seeds are below 2147483648")
    for prefix, mirror in config.download.mirrors.items():
        whole = isinstance(mirror, str) and is_address(mirror) and is_address(prefix)
        require(whole, "download.mirrors", "a mapping of addresses such as https://host/folder/")
        if prefix.endswith("/") and not mirror.endswith("/"):
            raise UserError(f"{name}: download.mirrors: {mirror} must end in / as {prefix} does")
        if any(secret.certain for secret in secrets_in(mirror)):
            raise UserError(
                f"{name}: download.mirrors holds a user or password, which would be recorded with "
                "the experiment: put it into ~/.netrc (or the environment, for s3) instead"
            )
    if config.vocabulary.kind == "word_piece" and config.vocabulary.byte_fallback:
        raise UserError(f"{name}: vocabulary.byte_fallback must be false for kind word_piece")
    _check_origin(config.data, name, require)
    if config.model.positions == "sinusoidal":
        require(config.model.d_model % 2 == 0, "model.d_model", "even for sinusoidal positions")


def _check_origin(data: DataConfig, name: str, require: _Require) -> None:
    """That what is recorded of the data can be true of them."""
    languages = [code.lower().replace("_", "-") for code in (data.source, data.target)]
    require(languages[0] != languages[1], "data.target", f"another than data.source, {data.source}")
    if data.dataset == "phrasebook":
        pairs = " or ".join(map(" to ".join, PHRASEBOOK_LANGUAGES))
        if tuple(languages) not in PHRASEBOOK_LANGUAGES:
            raise UserError(
                f"{name}: data.source and data.target must be {pairs} for data.dataset phrasebook, "
                f"not {data.source} to {data.target}: it holds English and German only"
            )
    if data.dataset != "files":
        return
    named: dict[str, str] = {}
    for split in ("train", "valid", "test"):
        key, files = f"data.files.{split}", getattr(data.files, split)
        require(len(files) == 2, key, "two files, [source, target]")
        for file in files:
            first = named.get(os.path.normpath(file))
            named[os.path.normpath(file)] = key
            if first is not None:
                raise UserError(
                    f"{name}: {key} names {file}, which "
                    + (f"{first} names too" if first != key else "is its other side too")
                    + ": each side of each split needs a text of its own"
                )


def _check_storage(storage: str, name: str) -> None:
    if "://" not in storage:
        return
    # The value is not shown: it may hold a password.
    address = urlsplit(storage) if is_address(storage) else None
    if address is None or address.scheme not in BUCKETS or not address.hostname:
        raise UserError(
            f"{name}: cluster.storage must be a folder, s3://bucket/prefix or gs://bucket/prefix"
        )
    if "@" in address.netloc or address.query or address.fragment:
        raise UserError(
            f"{name}: cluster.storage must be no more than s3://bucket/prefix: what the bucket "
            "asks for belongs into the environment of all nodes (AWS_ACCESS_KEY_ID, ...)"
        )


def _check_search(sweep: SweepConfig, name: str) -> None:
    """What sweep.method optuna asks of the other keys of its section."""
    objectives, problem = sweep.objectives, None
    if sweep.method != "optuna":
        return
    if not sweep.space:
        problem = "sweep.space must name what sweep.method optuna may vary: it is {}"
    elif not objectives:
        problem = "sweep.objectives must name what sweep.method optuna looks for, such as [bleu]"
    elif len(set(objectives)) < len(objectives):
        problem = f"sweep.objectives names one twice: {', '.join(objectives)}"
    elif len(objectives) > 1 and sweep.scheduler != "none":
        problem = (
            f"sweep.scheduler must be none for several sweep.objectives, not {sweep.scheduler}: it "
            "stops trials by their perplexity alone"
        )
    elif "flops" in objectives and sweep.budget == "flops":
        problem = (
            "sweep.objectives names flops, which sweep.budget flops makes equal for all: leave it "
            "out, or set sweep.budget to steps or tokens"
        )
    if problem:
        raise UserError(f"{name}: {problem}")


def _kept_steps(train: TrainConfig) -> tuple[range, range]:
    """Steps whose checkpoints may be left when training ends, besides the last: the newest, and
    others. Ranges, as there may be billions of them."""
    regular = range(train.checkpoint_every, train.steps, train.checkpoint_every)
    newest = regular[max(0, len(regular) - train.keep_checkpoints + 1) :]
    if train.keep_best:  # it might be any; the one that is named is kept for that
        return newest, regular
    often = train.keep_every
    return newest, range(often, train.steps, often) if often else range(0)


def _check_checkpoint_steps(config: Config, require: _Require) -> None:
    newest, further = _kept_steps(config.train)
    steps, last = config.evaluate.checkpoint_steps, config.train.steps
    key = "evaluate.checkpoint_steps"
    require(len(set(steps)) == len(steps), key, "steps that are not repeated")
    first = [*map(str, newest[:SHOWN_STEPS]), "..."][: len(newest[: SHOWN_STEPS + 1])]
    others = f"; multiples of {further.step}" * bool(further)
    require(
        all(step == last or step in newest or step in further for step in steps),
        key,
        f"among the steps that training keeps ({', '.join([*first, str(last)])}{others})",
    )


def _minima(section: Any, prefix: str) -> Iterator[tuple[str, int]]:
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            yield from _minima(value, f"{prefix}{field.name}.")
        elif field.metadata["at_least"] is not None:
            yield prefix + field.name, field.metadata["at_least"]


# --- helpers -----------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


_FREE_FORM = ("download.mirrors", "sweep.base", "sweep.space")


def _leaves(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and prefix + key not in _FREE_FORM:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _dump_fields(section: Any, depth: int) -> list[str]:
    indent = "  " * depth
    lines = []
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        comment = f"# {field.metadata['help']}"
        if dataclasses.is_dataclass(value):
            lines.append(f"{indent}{field.name}:  {comment}")
            lines += _dump_fields(value, depth + 1)
        elif isinstance(value, dict) and value:
            lines.append(f"{indent}{field.name}:  {comment}")
            lines += [f"{indent}  {_flow(key)}: {_flow(item)}" for key, item in value.items()]
        else:
            lines.append(f"{f'{indent}{field.name}: {_flow(value)}':<34}  {comment}")
    return lines


def _flow(value: Any) -> str:
    text = yaml.safe_dump(_plain(value), default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
