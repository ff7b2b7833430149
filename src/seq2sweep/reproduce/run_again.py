"""Make a recorded run again, from its record alone, in a worktree of its commit."""

from __future__ import annotations

import hashlib
import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from seq2sweep import config as configuration
from seq2sweep import yaml_text
from seq2sweep.cluster.signals import signals_as_interrupts
from seq2sweep.config import Config
from seq2sweep.errors import OperationalError, UserError, first_of
from seq2sweep.jobs import dvc_stages
from seq2sweep.parallel import available_cpus
from seq2sweep.paths import read_bytes
from seq2sweep.project_files import CLEAN, ENCODED, VOCABULARY
from seq2sweep.reproduce import git_tree, verdict
from seq2sweep.reproduce.stored_record import PARAMS, PATCH, StoredRecord, variables
from seq2sweep.reproduce.worktree import KEPT, OF_WHOEVER_RUNS, STORE, Worktree, as_params
from seq2sweep.storage.locks import only_maker
from seq2sweep.tracking import lineage
from seq2sweep.tracking.mlflow_store import resolve_uri
from seq2sweep.tracking.store_reader import StoreReader

FEWEST = "cluster.min_workers"
SETTINGS = (
    "cluster.workers",
    FEWEST,
    "cluster.cpus_per_worker",
    "cluster.gpus_per_worker",
    "cluster.fsdp",
    "sweep.workers_per_trial",
    "sweep.cpus_per_trial",
    "sweep.gpus_per_trial",
)
"""What may be another than recorded: where it runs."""
ALONE: Mapping[str, Any] = {
    "method": "one_at_a_time",
    "base": {},
    "space": {},
    "seeds": 1,
    "budget": "steps",
    "scheduler": "none",
}
"""Of `sweep`: one trial, whose values are those of the sections themselves."""


def reproduce(
    project: Path,
    run_id: str,
    *,
    folder: Path | None = None,
    settings: Mapping[str, Any],
    trusted: bool = False,
    say: Callable[[str], None],
) -> tuple[dict[str, Any], verdict.Verdict]:
    """Make a run again, and compare it with its record.

    run_id: of a training, an evaluation or a trial of a sweep; its first characters will do.
    folder: of the worktree; None: beside the project's. What an earlier call began there is
    finished. settings: values of SETTINGS in place of those recorded. trusted: changes of code that
    a store of others recorded are applied, and their commit may be in no branch here.

    Returns the run's id, stage and commit with the folder, and the verdict. Raises UserError where
    the run or something of its record is missing, OperationalError where a stage fails or the data
    made again are not those recorded.
    """
    config = configuration.load(project / PARAMS)
    for key in settings:
        if key not in SETTINGS:
            raise UserError(f"--set {key}: only where it runs can be set: {', '.join(SETTINGS)}")
    store = StoreReader(resolve_uri(config.tracking, project))
    run = store.find(run_id)
    place = folder or project.resolve().with_name(f"{project.resolve().name}-{run[:8]}")
    place = place.resolve()
    with (
        signals_as_interrupts(),
        TemporaryDirectory(prefix="seq2sweep-") as name,
        _only_user(project, place),
    ):
        record = StoredRecord.fetch(store, run, Path(name) / "run")
        key, begun = _key(record, settings), Worktree.begun(project, place)
        if begun is not None and begun[0] == key:
            other, remarks = _same_counterpart(store, record, Path(name) / "other", begun[1])
        else:
            other, remarks = _counterpart(store, record, Path(name) / "other")
        _require_whole(record)
        _require_outcome(record)
        if store.uri != f"sqlite:///{project.resolve() / STORE}" and not trusted:
            _require_no_changes(record)
            _require_own_commit(project, record)
        params = _params(project, record, other, config, settings)
        compared = other.run_id if other is not None else ""
        tree = Worktree.make(project, place, record, params, (key, compared), say)
        stages = [record.stage]
        if record.stage == "evaluate" or other is not None:
            stages = ["train", "evaluate"]
        for line in _libraries(record):
            say(line)
        tree.bring_data(stages, say)
        failure = None
        for stage in stages:
            say(f"{stage} runs in {tree.project}")
            failure = _run(tree, stage, record)
        compared_ones = [one for one in (record, other) if one is not None]
        pairs = _pairs(tree, compared_ones, params, Path(name))
        if failure is not None and not all(_comes_as_far(again, one) for one, again in pairs):
            raise failure
    pairs.sort(key=lambda pair: pair[0]["stage"] == "evaluate")  # the training first
    if record.content["outcome"]["stopped_early"]:
        remarks.append(
            "this trial was stopped early or failed: it is compared as far as the recorded one came"
        )
    causes = [line for one, again in pairs for line in verdict.causes(one, again)]
    about = {"run": run, "stage": record.stage, "commit": record.content["commit"]}
    about |= {"folder": str(tree.root), "storage": tree.storage()}
    return about, verdict.Verdict(verdict.parts_of(pairs), list(dict.fromkeys(causes)), remarks)


def _run(tree: Worktree, stage: str, record: StoredRecord) -> OperationalError | None:
    """Gives why it failed where it came to a result all the same: a sweep fails with its only
    trial, which may have done so when it was recorded."""
    try:
        tree.dvc("repro", "--force", "--single-item", "--no-run-cache", "--no-commit", stage)
    except OperationalError as error:
        if not (record.content["outcome"]["stopped_early"] and tree.has_result(record)):
            raise
        return error
    return None


def _pairs(
    tree: Worktree, ones: Sequence[StoredRecord], params: str, folder: Path
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each record with that of the same run made again."""
    pairs = []
    for one in ones:
        found = tree.record_again(one, folder / f"again-{one.stage}").content
        pairs.append((_to_compare(one, found, params), found))
    return pairs


def _comes_as_far(again: Mapping[str, Any], recorded: Mapping[str, Any]) -> bool:
    """Whether each curve does, as of a trial that failed, and not sooner for a reason of today."""
    curves = again["outcome"]["curves"]
    return all(
        name in curves and curves[name][-1][0] >= points[-1][0]
        for name, points in recorded["outcome"]["curves"].items()
    )


def _key(record: StoredRecord, settings: Mapping[str, Any]) -> str:
    """What a worktree is made for: this run with these settings, libraries and variables."""
    texts = [record.content["commit"], json.dumps(dict(settings), sort_keys=True)]
    texts += [lineage.environment(), str(variables()), record.run_id]
    texts += [read_bytes(record.folder / name).hex() for name in (PARAMS, PATCH)]
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _only_user(project: Path, place: Path) -> AbstractContextManager[None]:
    """Hold the folder of a worktree, which may not be there yet. Raises UserError."""
    name = hashlib.sha256(bytes(place)).hexdigest()[:16]
    return only_maker(place, project / KEPT.parts[0] / f"reproduce-{name}.lock")


def _counterpart(
    store: StoreReader, record: StoredRecord, folder: Path
) -> tuple[StoredRecord | None, list[str]]:
    """The newest evaluation of a training that is of the same code and data, or the training of an
    evaluation if it is of the same code; and what is to be said of it."""
    if record.stage == "train":
        ids, wanted = store.children(record.run_id), "evaluate"
    elif record.stage == "evaluate":
        parent = store.parent(record.run_id)
        ids, wanted = [parent] if parent else [], "train"
    else:
        return None, []
    unread, unlike = [], []
    for run_id in ids:
        try:
            found = StoredRecord.fetch(store, run_id, folder / run_id)
            same_data = wanted == "train" or _data(found) == _data(record)
        except UserError as error:  # such as one of an earlier version
            unread.append(f" ({error})")
            continue
        if found.stage == wanted:
            same_code = _code(found) == _code(record)
            if same_code and same_data:
                return found, []
            of = "data" if same_code else "code"
            unlike.append(f"{run_id}, of stage {wanted}, is of other {of} and is not compared")
    return None, unlike[:1] or [f"no run of the stage {wanted} is recorded for it{''.join(unread)}"]


def _same_counterpart(
    store: StoreReader, record: StoredRecord, folder: Path, run_id: str
) -> tuple[StoredRecord | None, list[str]]:
    """What a resumed one is compared with, though a newer evaluation may be there by now: the
    training was made again for that one. run_id: or "", where it was none. Raises UserError."""
    if run_id:
        return StoredRecord.fetch(store, run_id, folder / run_id), []
    found, remarks = _counterpart(store, record, folder)
    return None, remarks if found is None else ["this run alone is compared, as when it was begun"]


def _code(record: StoredRecord) -> tuple[Any, ...]:
    """The same for two records of the same code."""
    content = record.content
    return content["commit"], content["changes_missing"], read_bytes(record.folder / PATCH)


def _data(record: StoredRecord) -> list[str | None]:
    """The sums of what the stage evaluate reads besides weights: a new test set trains nothing
    unless it changes which training pairs `prepare` drops, so an evaluation may have one that its
    training had not. Raises UserError."""
    sums = dvc_stages.sums(record.folder)
    return [sums.get(path.as_posix()) for path in (CLEAN, VOCABULARY, ENCODED)]


def _require_whole(record: StoredRecord) -> None:
    """Raise UserError where the code of a run is not known."""
    if record.content["commit"] == lineage.UNKNOWN:
        raise UserError(f"run {record.run_id} was made outside of git: its commit is not known")
    if missing := record.content["changes_missing"]:
        raise UserError(
            f"run {record.run_id} was made from changed files, and its changes were not recorded "
            f"({missing}): only a run of committed files can be made again"
        )


def _require_outcome(record: StoredRecord) -> None:
    outcome = record.content["outcome"]
    if not outcome["curves"] and (
        outcome["stopped_early"] or not (outcome["weights"] or outcome["scores"])
    ):
        raise UserError(
            f"run {record.run_id} failed before it had recorded a loss: there is nothing to compare"
        )


def _require_no_changes(record: StoredRecord) -> None:
    patch = read_bytes(record.folder / PATCH)
    if patch.strip():
        raise UserError(
            f"run {record.run_id} was made from changed files, and its changes are code that would "
            f"run here, from a store that is not this project's {STORE}: look at {PATCH} of the "
            "run, and add --trust-changes if you know whose they are"
        )


def _require_own_commit(project: Path, record: StoredRecord) -> None:
    commit = record.content["commit"]
    if git_tree.is_strange(project, commit):
        raise UserError(
            f"run {record.run_id} was made from commit {commit}, which no branch and no tag here "
            "has, and it is code that would run here, from a store that is not this project's "
            f"{STORE}: look at it (git show {commit}), and add --trust-changes if you know whose "
            "it is"
        )


def _params(
    project: Path,
    record: StoredRecord,
    other: StoredRecord | None,
    config: Config,
    settings: Mapping[str, Any],
) -> str:
    """params.yaml for the worktree: values of the record, places of the project here.

    config: of the project here. Raises UserError.
    """
    values, here = _sections(record), configuration.to_dict(config)
    if other is not None and record.stage == "train":
        values["evaluate"] = _sections(other)["evaluate"]
    if other is not None and record.stage == "evaluate":  # whose losses are compared
        values["train"]["log_every"] = _sections(other)["train"]["log_every"]
    cluster, storage = values["cluster"], config.cluster.storage
    cluster |= {key: here["cluster"][key] for key in OF_WHOEVER_RUNS}
    # What a job records into its copy of the worktree would be lost, and nothing compared.
    cluster |= {"job_server": None, "job_environment": []}
    # Not where the run itself is, which is finished: ../runs is the same from a worktree.
    root = project.resolve()
    if not configuration.is_address(storage):
        place = (root / storage).resolve()
        storage = storage if place.is_relative_to(root) else str(place)
    if configuration.is_address(storage) or Path(storage).is_absolute():
        # What another worktree left there is not found.
        own = f"reproduce-{record.run_id[:12]}-{uuid.uuid4().hex[:8]}"
        storage = f"{storage.rstrip('/')}/{own}"
    cluster["storage"] = storage
    # What lies there already is not fetched again.
    downloads = str((root / here["download"]["folder"]).resolve())
    values["download"] = here["download"] | {"folder": downloads}
    # Text that git does not keep is in no worktree.
    texts, commit = str(values["data"].get("folder", "")), record.content["commit"]
    if (root / texts).is_dir() and not git_tree.holds(root, commit, texts):
        values["data"]["folder"] = str((root / texts).resolve())
    values["tracking"] = {"uri": f"sqlite:///{STORE}", "experiment": "reproduce"}
    trained = record.content["trained"]
    workers, threads = trained.get("workers"), trained.get("threads")
    name, of_workers, of_threads = "cluster", "workers", "cpus_per_worker"
    if record.stage == "sweep":
        # Its values may be those of a later sweep, which reused the trial.
        name, of_workers, of_threads = "sweep", "workers_per_trial", "cpus_per_trial"
        values["sweep"] |= ALONE
    section = values[name]
    if isinstance(workers, int) and isinstance(threads, int):
        if record.stage == "sweep" and workers > 1:  # none of which shares a device
            for key in ("cpus_per_trial", "gpus_per_trial"):
                section[key] = math.ceil(section[key])
            if configuration.is_address(storage):
                workers = 1
        section[of_workers] = workers
        if _have_room(config, settings.get(f"{name}.{of_workers}", workers), threads):
            section[of_threads] = threads
    # Of the run's workers, not of those that the project here has.
    changes = {"cluster.workers": cluster["workers"], FEWEST: None, **settings}
    configuration.with_changes(config, changes, "--set")
    for key, value in settings.items():
        name, _, last = key.partition(".")
        values[name][last] = value
    if (fewest := cluster.get("min_workers")) is not None:
        cluster["min_workers"] = min(fewest, cluster["workers"])
    return as_params(values)


def _have_room(config: Config, workers: Any, threads: int) -> bool:
    """Whether so many workers have room for so many threads each. workers: a user's, checked
    elsewhere."""
    here = isinstance(workers, int) and workers * threads <= available_cpus()
    return here or config.cluster.running_address is not None


def _sections(record: StoredRecord) -> dict[str, dict[str, Any]]:
    """params.yaml of a record. Raises UserError."""
    name = f"{PARAMS} of run {record.run_id}"
    try:
        values = yaml_text.read_yaml(read_bytes(record.folder / PARAMS).decode())
    except yaml_text.ERRORS as error:
        raise UserError(yaml_text.problem(error, name)) from None
    for section in ("cluster", "sweep", "train", "evaluate", "data"):
        if not isinstance(values, dict) or not isinstance(values.get(section), dict):
            raise UserError(f"{name} has no section {section}: choose another run")
    return dict(values)


def _to_compare(one: StoredRecord, again: Mapping[str, Any], params: str) -> dict[str, Any]:
    """A record without weights that a training kept for an evaluation of those days alone."""
    if one.stage != "train":
        return one.content
    asked, ran = (
        {str(step) for step in values["evaluate"].get("checkpoint_steps") or []}
        for values in (_sections(one), yaml_text.read_yaml(params))
    )
    outcome, kept = one.content["outcome"], again["outcome"]["weights"]
    weights = {
        step: total
        for step, total in outcome["weights"].items()
        if step in kept or step not in asked - ran
    }
    return one.content | {"outcome": outcome | {"weights": weights}}


def _libraries(record: StoredRecord) -> list[str]:
    """A line of the libraries that differ here, if there are any."""
    pairs = (line.partition("==")[::2] for line in lineage.environment().splitlines())
    unlike = verdict.packages(record.content["packages"], dict(pairs))
    if not unlike:
        return []
    # Builds for some hardware, `2.13.0+cpu`, are not on the usual index.
    builds = [f"{name}=={v}" for name, v in record.content["packages"].items() if "+" in v]
    index = f", --extra-index-url ADDRESS of the index that has {', '.join(builds[:3])}"
    return [
        f"other libraries than recorded: {first_of(unlike, between='; ')}; to have the same, "
        f"install the constraints.txt of the run (pip install --no-deps -r{index * bool(builds)}) "
        "in an environment of its own"
    ]
