"""The presets: names, values, and what to expect of each.

What a stage computes with is never from here, so that a new or edited preset runs no stage again.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from seq2sweep import config as configuration
from seq2sweep import console
from seq2sweep.errors import UserError, did_you_mean
from seq2sweep.paths import read_bytes
from seq2sweep.presets import table3

CHANGES_NO_RESULT = "what there is to choose from: of base a sweep takes what table3.yaml has"

SHORT = {"base": "wmt14-en-de-base", "big": "wmt14-en-de-big"}
"""Other names of presets: what the paper calls them."""
DECISIVE = (
    *("data", "prepare", "vocabulary", "model", "train", "evaluate", "sweep"),
    *("parsing", "self_training"),
)
_ROW_PREFIX = "table3-"

EARLIER_COMMENTS = {
    "[source, target]: aligned text, plain or .gz, inside data.folder": "data.files.train",
    "phrasebook (built in), files (your own), or one that data.folder's registry describes: "
    "wmt14-en-de, wmt14-en-fr, multi30k": "data.dataset",
    "language translated into, a code such as de": "data.target",
    "bpe (paper, English-German), unigram or word_piece (paper, English-French)": "vocabulary.kind",
    "none (trains no variants), table3 (the paper's rows), one_at_a_time, grid (all combinations), "
    "random or optuna (which learns from the trials before)": "sweep.method",
    "of table3: rows (A-heads-1), groups (base, A to E, big) or all; sized to the base variant": (
        "sweep.rows"
    ),
    "times a failed trial is tried again": "sweep.max_failures",
    "null shares out the CPUs of this machine": "cluster.cpus_per_worker",
    "fewest to go on with while nodes are missing; null: all of them": "cluster.min_workers",
    "share out weights, gradients and moments: for a model that does not fit a device": (
        "cluster.fsdp"
    ),
    "a worker that gets no update done for so long is started again": "cluster.hang_seconds",
    "http://host:8265 of a cluster: train and sweep run there as jobs; null: here": (
        "cluster.job_server"
    ),
    "times in a row that workers start again without having got to a new checkpoint": (
        "cluster.max_failures"
    ),
    "how every text is written anew: of invisible, unicode, whitespace": "prepare.normalise",
    "tokens a worker computes at once; more is done by accumulation": "train.tokens_per_pass",
    "layers by torch.compile: faster updates for long runs, after a start of up to a minute": (
        "train.compile"
    ),
    "what optuna looks for, one or several of bleu, bleu_paper, chrf (high), perplexity, flops, "
    "parameters (low)": "sweep.objectives",
    "variants that optuna proposes together; it sees their figures before the next": "sweep.round",
    "what all get alike: their own train.steps, or the tokens or flops of the base variant": (
        "sweep.budget"
    ),
    "no trial is stopped before this step": "sweep.grace_steps",
    "record no sentence of it in MLflow, as its licence is yours alone; of ptb none ever is": (
        "data.private"
    ),
    "their text inside data.folder, a sentence a line, words parted by blanks; [] for the "
    "phrasebook, which makes its own": "self_training.files",
}
"""What `seq2sweep preset` once wrote beside a key, and beside which: nobody has edited it."""


@dataclass(frozen=True)
class Preset:
    """A named experiment with what its user may expect.

    score: BLEU, or F1 of trees.
    measured: of what was run here: its `date`, the `commit` that states what came out, and
    `settings`, the sum of those that it was run with.
    """

    name: str
    summary: str
    score: str
    time: str
    hardware: str
    config: configuration.Config
    measured: Mapping[str, Any] | None = None

    @property
    def expectation(self) -> str:
        """Score, time and hardware on one line, and when that was measured."""
        name = self.config.data.score.upper()
        line = f"{name} {self.score} · {self.time} · {self.hardware}"
        if self.measured is not None:
            line += f" · measured {self.measured['date']}, commit {self.measured['commit']}"
        return line

    @property
    def settings(self) -> str:
        """A sum of all settings that figures follow from: not of where it runs."""
        return configuration.fingerprint(self.config, *DECISIVE)[:8]


def names() -> list[str]:
    """Names of all presets: those with a file, sorted, then the rows of Table 3 in its order."""
    return [*_file_names(), *_rows()]


def load(name: str) -> Preset:
    """Read a preset; an unknown name is a UserError with the nearest known one."""
    name = SHORT.get(name, name)
    if name in _rows():
        return _row_preset(name, _rows()[name])
    return Preset(name, config=_config(name), **_read(name)["about"])


def is_unchanged(path: Path) -> bool:
    """Whether a params.yaml is as `seq2sweep preset` writes it, no value and no comment edited.

    Also as it was before there were the keys with a default, which are comments, or a comment was
    worded as today.
    """
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError:
        return False
    help_texts = configuration.help_texts()
    for comment, key in EARLIER_COMMENTS.items():
        text = text.replace(f"  # {comment}\n", f"  # {help_texts[key]}\n")
    return any(_as_before(configuration.dump(load(name).config), text) == text for name in names())


def _as_before(written: str, text: str) -> str:
    """What is written without the keys and sections with a default that `text` has not either."""
    lines = text.split("\n")
    for section in configuration.OPTIONAL:
        if f"{section}:" not in lines:
            written = re.sub(rf"\n# .*\n{section}:\n(?: .*\n)*", "", written)
    present = set(lines)
    idle = re.compile(" +# ")
    kept = [line for line in written.split("\n") if not idle.match(line) or line in present]
    return "\n".join(kept)


def overview() -> str:
    """All presets for a reader: each with what to expect of it, the rows of Table 3 as a table."""
    lines = []
    for name in _file_names():
        preset = load(name)
        short = [f" (short: {other})" for other, whole in SHORT.items() if whole == name]
        lines += [name + "".join(short), f"    {preset.summary}", f"    {preset.expectation}"]
    lines += [
        "",
        "The rows of Table 3, derived from base; scored on newstest2013, without averaging.",
        "Not run here yet: perplexity, BLEU and parameters (millions) are the paper's.",
        "",
    ]
    cells: list[tuple[str, ...]] = [("name", "PPL", "BLEU", "params", "differs from base in")]
    for name, row in _rows().items():
        millions = "" if row.parameters_millions is None else str(row.parameters_millions)
        figures = (f"{row.perplexity:.2f}", f"{row.bleu:.1f}", millions)
        cells.append((name, *figures, _described(row.changes)))
    return "\n".join([*lines, *console.columns(cells, "<>>><")])


# --- files ---------------------------------------------------------------------------------------


def _file_names() -> list[str]:
    files = {file.name for file in resources.files(__package__).iterdir()} - {table3.FILE}
    named = (file for file in files if not file.startswith("."))  # no editor's
    return sorted(file.removesuffix(".yaml") for file in named if file.endswith(".yaml"))


@functools.cache
def _read(name: str) -> dict[str, Any]:
    if name not in _file_names():
        hint = did_you_mean(name, [*names(), *SHORT], cutoff=0.4) or ";"
        raise UserError(f"unknown preset {name}{hint} `seq2sweep preset` lists all")
    text = resources.files(__package__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


@functools.cache
def _config(name: str) -> configuration.Config:
    content = _read(name)
    where = f"preset {name}"
    if "extends" not in content:
        return configuration.from_dict(content["params"], where)
    return configuration.with_changes(_config(content["extends"]), content["changes"], where)


# --- rows of Table 3 -----------------------------------------------------------------------------


def _rows() -> dict[str, table3.Row]:
    return {f"{_ROW_PREFIX}{row.name}": row for row in table3.read().rows}


def _row_preset(name: str, row: table3.Row) -> Preset:
    """`base` with the row's changes, scored as Table 3 is."""
    base = load("base")
    changes = dict(row.changes)
    changes["data.dataset"] = "wmt14-en-de-newstest2013"
    changes["evaluate.average_checkpoints"] = 1
    if row.changes:
        # Table 3 is about differences, so the sweep trains the row beside the base row. Both are
        # trials of table3-base's sweep as well: what one has trained the other finds trained.
        values = configuration.flatten(base.config)
        back = {key: values[key] for key in row.changes}
        changes["sweep.base"] = base.config.sweep.base | back
        changes["sweep.rows"] = [row.name]
    like = load("big") if row.group == "big" else base
    in_paper = row.group in ("base", "big")
    return Preset(
        name,
        f"Table 3 ({row.group}): {_described(row.changes) or 'the base row'}",
        f"not run here yet; paper: {row.bleu} on newstest2013, perplexity {row.perplexity:.2f}",
        like.time if in_paper else f"{like.time} for base",
        like.hardware,
        configuration.with_changes(base.config, changes, f"preset {name}"),
    )


def _described(changes: Mapping[str, Any]) -> str:
    """`heads 1, d_k 512, d_v 512`."""
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in changes.items())
