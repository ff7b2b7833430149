"""What is recorded of a run so that it can be made again, and what came out, to compare with.

MLflow has it as the run's folder `reproduce`: the resolved params.yaml, of a trial with its
changes; dvc.lock with the sums of the data; every installed package; what differs from the commit,
as a patch; and record.json with the rest. Addresses and secrets are in none of them.
"""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import torch

from seq2sweep import config as configuration
from seq2sweep import console, hardware
from seq2sweep.config import Config, TrainConfig
from seq2sweep.config.execution import HOME
from seq2sweep.git_command import GitError
from seq2sweep.jobs import bundle
from seq2sweep.redaction import is_secret_by_name, redact, secret_in
from seq2sweep.reproduce import git_tree
from seq2sweep.reproduce.stored_record import (
    FOLDER,
    LOCK,
    PACKAGES,
    PARAMS,
    PATCH,
    RECORD,
    variables,
)
from seq2sweep.runs import journal
from seq2sweep.storage.atomic import naming_temporary
from seq2sweep.tracking import lineage
from seq2sweep.tracking.recorder import Recorder, clean_tags

LARGEST_PATCH = 2**20
"""Bytes of a patch that is recorded; code is far smaller."""
MOST_POINTS = 2_000
"""Of a curve; more are thinned out evenly, to steps of which a longer curve has a part."""
CURVES = {"logged": ("loss", "gradient_norm"), "validated": ("valid_loss",)}
"""What is compared step by step, by the kind of journal entry. Both are means since the last one:
they tell of every update."""
NO_ADDRESSES: Mapping[str, Any] = {
    "cluster.address": None,
    "cluster.job_server": None,
    "cluster.job_environment": [],
    "cluster.storage": HOME,
    "download.mirrors": {},
    "tracking.uri": None,
}
"""Values in place of those that say where something is: no result depends on them."""


@dataclass(frozen=True)
class Source:
    """What a stage computes from, as it is when the stage begins.

    about: what record.json says of it; files: content by name.
    """

    about: dict[str, Any]
    files: dict[str, bytes]

    @classmethod
    def of(cls, project: Path, stage: str, identity: Mapping[str, str]) -> Self:
        """identity: fingerprints of data and code, by name.

        Changes that cannot be recorded are told on the console, and no error.
        """
        code = lineage.code(project)
        patch, missing = _changes(project, code)
        if missing:
            console.say(
                f"the changes of this tree are not recorded ({missing}): commit them, or "
                "`seq2sweep reproduce` will not know them"
            )
        about = {
            "stage": stage,
            "commit": code["git.commit"],
            "origin": git_tree.remotes(project).get("origin"),
            "changes_missing": missing,
            "identity": dict(identity),
            "machine": _machine(),
        }
        lock = project / LOCK
        files = {
            LOCK: lock.read_bytes() if lock.is_file() else b"",
            PACKAGES: lineage.environment().encode(),
            PATCH: patch,
        }
        return cls(about, files)

    def record(
        self,
        run: Recorder,
        config: Config,
        *,
        trained: Mapping[str, Any],
        weights: Sequence[Mapping[str, Any]],
        train: TrainConfig | None = None,
        curves: Path | None = None,
        scores: Mapping[str, Any] | None = None,
        stopped_early: bool = False,
    ) -> None:
        """Give a run its folder, when it has ended.

        config: of this run alone. trained: figures with `hardware.ORIGIN`. weights: `step` and
        `sha256` of each checkpoint that was kept. train: what made them, where that is not
        config's. curves: the journal. scores: numbers by name, and sums of texts. stopped_early:
        before its last step, by a scheduler or by a failure.
        """
        outcome = {
            "weights": {str(entry["step"]): entry["sha256"] for entry in weights},
            "curves": _curves(curves, (train or config.train).steps) if curves else {},
            "scores": dict(scores or {}),
            "stopped_early": stopped_early,
        }
        values = {key: trained.get(key) for key in hardware.ORIGIN}
        text = json.dumps({**self.about, "trained": values, "outcome": outcome}, indent=1)
        config = configuration.with_changes(config, NO_ADDRESSES)
        # Not checked with the other sections, which may be later ones: the result is there.
        train = train or config.train
        # The number that auto came to, or that a trial had before it was changed: another would
        # give other passes, and other last digits.
        number = values["tokens_per_pass"] or train.tokens_per_pass
        # Nor is a mean of the loss the same over other steps: a finished training keeps its own.
        logged = next(journal.entries(curves, "logged"), None) if curves else None
        every = train.log_every if logged is None else logged["step"]
        train = dataclasses.replace(train, tokens_per_pass=number, log_every=every)
        params = configuration.dump(dataclasses.replace(config, train=train))
        files = {**self.files, PARAMS: params.encode(), RECORD: text.encode()}
        with TemporaryDirectory(prefix="seq2sweep-") as name:
            folder = Path(name) / FOLDER
            folder.mkdir()
            with naming_temporary():
                for file, content in files.items():
                    (folder / file).write_bytes(content)
            run.artifact(folder)


def _changes(project: Path, code: Mapping[str, str]) -> tuple[bytes, str | None]:
    """The patch, and why it is missing where it is."""
    try:
        patch = git_tree.changes(project)
        if not lineage.has_project(project):  # a job's copy in a folder that git ignores
            raise GitError("it knows no file of this project")
        paths = git_tree.files_of(project, patch)
    except GitError as error:
        # In a job, whose copy has no git, the commit alone is known.
        dirty = code["git.dirty"] == "true" or code["git.commit"] == lineage.UNKNOWN
        return b"", f"git failed: {redact(str(error))}" if dirty else None
    if len(patch) > LARGEST_PATCH:
        most = bundle.mebibytes(LARGEST_PATCH)
        return b"", f"{bundle.mebibytes(len(patch))} of changes, and at most {most} are"
    for path in paths:
        if is_secret_by_name(path):
            return b"", f"{path} looks like a secret by its name"
    if b"\nGIT binary patch\n" in patch:  # compressed: a secret in it would not be seen
        return b"", "a file among them is no text"
    if secret := secret_in(patch):
        return b"", f"what looks like a secret is in them: {secret} of `git diff HEAD`"
    return patch, None


def _machine() -> dict[str, str]:
    """What else can change a sum's last digit, as far as this process knows."""
    return {
        "python": platform.python_version(),
        "torch": f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}",
        "system": f"{platform.system()} {platform.machine()} {' '.join(platform.libc_ver())}",
        "processor": lineage.processor(),
        "threads of the stage": str(torch.get_num_threads()),
        **clean_tags(variables()),
    }


def _curves(path: Path, steps: int) -> dict[str, list[list[float | None]]]:
    """Step and value of each point, by metric. steps: of the whole training."""
    found: dict[str, list[list[float | None]]] = {}
    for kind, names in CURVES.items():
        all_of_them = journal.entries(path, kind)
        entries = _of_one_interval(all_of_them, steps) if kind == "logged" else all_of_them
        for entry in journal.thinned(entries, MOST_POINTS):
            for name in names:
                if entry is not None and name in entry:
                    found.setdefault(name, []).append([entry["step"], entry[name]])
    return found


def _of_one_interval(
    entries: Iterable[dict[str, Any]], steps: int
) -> Iterator[dict[str, Any] | None]:
    """Those that are means over as many steps as the first; None in the place of others, which the
    same training has no more if it is made again in one go: it was resumed with another
    `train.log_every`, or after its end. steps: of the whole training."""
    every = before = place = 0
    for entry in entries:
        step = entry["step"]
        every = every or step
        rest = step % every if step == steps else 0
        passed, place = place, -(-step // every)
        if place > passed:
            yield from [None] * (place - passed - 1)
            yield entry if step - before == (rest or every) else None
        before = step
