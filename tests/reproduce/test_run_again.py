"""A run is made again with its own values, in its own place, and only from code that is trusted."""

from __future__ import annotations

import copy
import json
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep.cli import main
from seq2sweep.config import Config
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.reproduce import run_again
from seq2sweep.reproduce.run_again import reproduce
from seq2sweep.reproduce.stored_record import StoredRecord
from seq2sweep.sweep.variants import variants
from tests.reproduce.repository import git
from tests.reproduce.test_stored_record import CONTENT

TRAINING, EVALUATION, TRIAL = "a" * 32, "e" * 32, "7" * 32


class Store:
    """Stands in for a store: folders of records by the ids of runs, and what is above them."""

    def __init__(self, project: Path) -> None:
        self.uri = f"sqlite:///{project}/mlflow.db"
        self.records: dict[str, dict[str, str]] = {}
        self.parents = {EVALUATION: TRAINING}

    def add(self, run_id: str, config: Config, patch: str = "", **changes: Any) -> None:
        content = copy.deepcopy(CONTENT) | changes
        self.records[run_id] = {
            "record.json": json.dumps(content),
            "constraints.txt": "torch==2.13.0\n",
            "params.yaml": configuration.dump(config),
            "dvc.lock": "stages: {}\n",
            "changes.patch": patch,
        }

    def find(self, run_id: str) -> str:
        (found,) = [known for known in self.records if known.startswith(run_id)]
        return found

    def children(self, run_id: str) -> list[str]:
        return [child for child, above in self.parents.items() if above == run_id]

    def lost(self, run_id: str) -> None:
        """All files are where they were."""

    def parent(self, run_id: str) -> str | None:
        return self.parents.get(run_id)

    def fetch(self, run_id: str, folder: str, names: Any, most: int, to: Path) -> None:
        to.mkdir(parents=True)
        for name, text in self.records.get(run_id, {}).items():
            (to / name).write_text(text)


class Tree:
    """Stands in for a worktree: keeps what it is made of and asked for, and gives its results, or
    the others that a test names."""

    made: dict[str, Any]

    def __init__(self, root: Path, results: dict[str, dict[str, str]]) -> None:
        self.root = self.project = root
        self.results, self.others = results, dict[str, dict[str, str]]()
        self.kept: str | None = None
        self.begun: tuple[str, str] | None = None
        self.fails = self.has_come_to_one = False
        self.ran: list[str] = []

    @property
    def params(self) -> Config:
        """What it is made of."""
        return configuration.parse(self.made["params"])

    def storage(self) -> str | None:
        return self.kept

    def bring_data(self, stages: list[str], say: Any) -> None:
        self.ran += [f"data of {' '.join(stages)}"]

    def dvc(self, *arguments: str) -> None:
        assert arguments[:-1] == (
            "repro", "--force", "--single-item", "--no-run-cache", "--no-commit"
        )  # fmt: skip
        self.ran += arguments[-1:]
        if self.fails:
            raise OperationalError("sweep failed")

    def has_result(self, one: StoredRecord) -> bool:
        return self.has_come_to_one

    def record_again(self, one: StoredRecord, folder: Path) -> StoredRecord:
        folder.mkdir()
        for name, text in (self.results | self.others)[one.stage].items():
            (folder / name).write_text(text)
        return StoredRecord.read("new", folder)


@pytest.fixture
def store(tmp_path: Path, tiny_config: Config, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store of a project, whose params.yaml has places of its own."""
    here = {"cluster.max_failures": 9, "download.folder": "here", "tracking.experiment": "mine"}
    config = configuration.with_changes(tiny_config, here)
    (tmp_path / "params.yaml").write_text(configuration.dump(config))
    made = Store(tmp_path)
    monkeypatch.setattr(run_again, "StoreReader", lambda uri: made)
    monkeypatch.setattr(run_again.lineage, "environment", lambda: "torch==2.13.0\n")
    return made


@pytest.fixture
def tree(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """What Worktree.make gives; every stage's result is what the store has of it."""
    stages = {"train": TRAINING, "evaluate": EVALUATION, "sweep": TRIAL}
    results = {name: store.records.get(run_id, {}) for name, run_id in stages.items()}
    found = Tree(tmp_path / "a tree", results)

    def make(project: Path, root: Path, record: Any, params: str, begun: Any, say: Any) -> Tree:
        found.made = {"root": root, "params": params, "key": begun[0], "compared": begun[1]}
        found.results = {name: store.records.get(run_id, {}) for name, run_id in stages.items()}
        return found

    monkeypatch.setattr(run_again.Worktree, "make", make)
    monkeypatch.setattr(run_again.Worktree, "begun", lambda project, root: found.begun)
    return found


def again(tmp_path: Path, run_id: str, **more: Any) -> Any:
    lines: list[str] = []
    more = {"settings": {}, **more}
    about, verdict = reproduce(tmp_path, run_id, say=lines.append, **more)
    return about, verdict, lines


def test_a_training_is_made_again_with_its_evaluation(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path
) -> None:
    store.add(TRAINING, configuration.with_changes(tiny_config, {"train.seed": 5}))
    other = configuration.with_changes(tiny_config, {"evaluate.beam": 7, "train.seed": 6})
    # The code that scores is other code than that which trains.
    store.add(EVALUATION, other, stage="evaluate", identity={"data": "of the test set"})
    about, verdict, _ = again(tmp_path, TRAINING[:8])
    assert about == {
        "run": TRAINING, "stage": "train", "commit": "a" * 40, "folder": str(tree.root),
        "storage": None,
    }  # fmt: skip
    assert verdict.identical
    assert verdict.remarks == verdict.causes == []
    assert tree.ran == ["data of train evaluate", "train", "evaluate"]
    assert tree.made["root"] == tmp_path.with_name(f"{tmp_path.name}-{TRAINING[:8]}")
    values = tree.params
    assert (values.train.seed, values.evaluate.beam) == (5, 7)
    assert values.model == tiny_config.model
    assert values.cluster.max_failures == 9
    assert values.download.folder == str(tmp_path.resolve() / "here")
    assert values.tracking.uri == "sqlite:///mlflow.db"


@pytest.mark.parametrize("kept", [True, False])
def test_text_that_git_does_not_keep_is_read_where_the_project_has_it(
    store: Store,
    tree: Tree,
    tiny_config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept: bool,
) -> None:
    monkeypatch.setattr(run_again.git_tree, "holds", lambda project, commit, folder: kept)
    store.add(TRAINING, configuration.with_changes(tiny_config, {"data.folder": "corpora/mine"}))
    again(tmp_path, TRAINING)  # which does not have it either
    assert tree.params.data.folder == "corpora/mine"
    (tmp_path / "corpora/mine").mkdir(parents=True)
    again(tmp_path, TRAINING)
    folder = "corpora/mine" if kept else str(tmp_path.resolve() / "corpora/mine")
    assert tree.params.data.folder == folder


def test_an_evaluation_is_made_again_with_its_training(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path
) -> None:
    store.add(TRAINING, tiny_config)
    changes = {"evaluate.beam": 7, "train.log_every": 3}  # which a finished training passes over
    other = configuration.with_changes(tiny_config, changes)
    store.add(EVALUATION, other, stage="evaluate")
    about, verdict, _ = again(tmp_path, EVALUATION)
    assert about["stage"] == "evaluate"
    logged = tree.params.train.log_every
    assert logged == tiny_config.train.log_every
    assert tree.ran == ["data of train evaluate", "train", "evaluate"]
    assert tree.params.evaluate.beam == 7
    assert [part.name for part in verdict.parts] == [
        "weights of step 4", "loss at 2 steps", "bleu"
    ]  # fmt: skip


@pytest.mark.parametrize("changes", [{"commit": "b" * 40}, {"changes_missing": "a secret"}, None])
def test_an_evaluation_of_other_code_is_not_compared(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path, changes: dict[str, str] | None
) -> None:
    store.add(TRAINING, tiny_config)
    if changes is not None:
        store.add(EVALUATION, tiny_config, stage="evaluate", **changes)
    _, verdict, _ = again(tmp_path, TRAINING)
    assert tree.ran == ["data of train", "train"]
    (remark,) = verdict.remarks
    assert ("other code" in remark) is (changes is not None)


def lock(test: str) -> str:
    """dvc.lock of data with a test set of this sum."""
    sums = {"data/clean": test, "data/encoded": test, "data/vocabulary": "v" * 32}
    outs = [{"path": path, "hash": "md5", "md5": total} for path, total in sums.items()]
    return json.dumps({"schema": "2.0", "stages": {"encode": {"outs": outs}}})


def test_the_newest_evaluation_of_the_same_code_and_data_is_compared(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path
) -> None:
    def add(run_id: str, beam: int, test: str, **changes: Any) -> None:
        config = configuration.with_changes(tiny_config, {"evaluate.beam": beam})
        store.add(run_id, config, stage="evaluate", **changes)
        store.records[run_id]["dvc.lock"] = lock(test)
        store.parents[run_id] = TRAINING

    store.add(TRAINING, tiny_config)
    store.records[TRAINING]["dvc.lock"] = lock("0" * 32)
    other_data, other_code = "d" * 32, "c" * 32
    store.parents.clear()  # the newest child is the first
    add(other_data, 5, "1" * 32)
    _, verdict, _ = again(tmp_path, TRAINING)
    assert verdict.remarks == [
        f"{other_data}, of stage evaluate, is of other data and is not compared"
    ]
    assert tree.ran == ["data of train", "train"]
    add(other_code, 6, "0" * 32, commit="b" * 40)
    add(EVALUATION, 7, "0" * 32)
    _, verdict, _ = again(tmp_path, TRAINING)
    assert verdict.remarks == []
    assert tree.params.evaluate.beam == 7
    # An evaluation of a new test set is compared with the training of its weights all the same.
    _, verdict, _ = again(tmp_path, other_data)
    assert verdict.remarks == []
    assert "weights of step 4" in [part.name for part in verdict.parts]


def test_a_trial_is_made_again_alone(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path
) -> None:
    sweep = {
        "sweep.method": "grid", "sweep.space": {"model.dropout": [0.0, 0.3]}, "sweep.seeds": 2,
        "sweep.base": {"train.warmup_steps": 5}, "sweep.scheduler": "asha",
    }  # fmt: skip
    config = configuration.with_changes(tiny_config, sweep)
    trials, _ = variants(config)
    assert len(trials) == 6
    for trial in trials:
        store.add(TRIAL, trial.config, stage="sweep")
        again(tmp_path, TRIAL)
        ((alone,), refused) = variants(tree.params)
        assert refused == []
        # By this hash a sweep knows that a trial is trained already.
        assert alone.fingerprint == trial.fingerprint
        assert alone.config.evaluate == trial.config.evaluate
    assert tree.ran[-2:] == ["data of sweep", "sweep"]


def test_how_far_a_trial_is_compared_that_did_not_come_to_its_end_is_said(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path
) -> None:
    outcome = CONTENT["outcome"] | {"stopped_early": True}
    ((trial, *_), _) = variants(tiny_config)
    store.add(TRIAL, trial.config, stage="sweep", outcome=outcome)
    _, verdict, _ = again(tmp_path, TRIAL)
    (remark,) = verdict.remarks
    assert "stopped early or failed: it is compared as far as the recorded one came" in remark


def test_where_jobs_are_submitted_a_run_is_made_again_here(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job records into its own copy of the worktree: nothing could be compared."""
    jobs = {
        "cluster.job_server": "http://127.0.0.1:8265",
        "cluster.job_environment": ["MLFLOW_TRACKING_URI"],
        "cluster.storage": str(tmp_path / "shared"),
    }
    config = configuration.with_changes(tiny_config, jobs)
    (tmp_path / "params.yaml").write_text(configuration.dump(config))
    monkeypatch.setattr(run_again, "available_cpus", lambda: 5)
    store.add(TRAINING, config, trained={"workers": 3, "threads": 2})
    again(tmp_path, TRAINING)
    found = tree.params.cluster
    assert (found.job_server, found.job_environment) == (None, ())
    assert (found.workers, found.cpus_per_worker) == (3, None), "5 CPUs may be used here"


def test_threads_and_workers_are_those_of_the_run_where_they_fit(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cluster(threads: int, **settings: Any) -> Any:
        trained = {"workers": 3, "threads": threads}
        store.add(TRAINING, tiny_config, trained=trained)
        again(tmp_path, TRAINING, settings=settings)
        found = tree.params.cluster
        return found.workers, found.cpus_per_worker

    monkeypatch.setattr(run_again, "available_cpus", lambda: 6)
    assert cluster(2) == (3, 2)
    assert cluster(3) == (3, None)
    assert cluster(3, **{"cluster.workers": 2}) == (2, 3)
    assert cluster(2, **{"cluster.workers": 4}) == (4, None)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")  # a running cluster's, which may have room
    assert cluster(3) == (3, 3)
    monkeypatch.setenv("RAY_ADDRESS", "local")
    assert cluster(3) == (3, None)
    assert cluster(2, **{"cluster.workers": 1, "cluster.cpus_per_worker": 4}) == (1, 4)


def test_a_trial_has_the_workers_and_threads_that_trained_it(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later sweep, which has others, may have reused it."""

    def sweep(threads: int, **settings: Any) -> Any:
        ((trial, *_), _) = variants(later)
        store.add(TRIAL, trial.config, stage="sweep", trained={"workers": 2, "threads": threads})
        again(tmp_path, TRIAL, settings=settings)
        found = tree.params.sweep
        return found.workers_per_trial, found.cpus_per_trial

    monkeypatch.setattr(run_again, "available_cpus", lambda: 6)
    later = configuration.with_changes(tiny_config, {"sweep.cpus_per_trial": 4})
    assert sweep(3) == (2, 3)
    assert sweep(4) == (2, 4)
    assert sweep(5) == (2, 4)
    assert sweep(5, **{"sweep.workers_per_trial": 1}) == (1, 5)
    assert sweep(3, **{"sweep.workers_per_trial": 1, "sweep.cpus_per_trial": 2}) == (1, 2)
    later = configuration.with_changes(tiny_config, {"sweep.cpus_per_trial": 0.5})
    assert sweep(4) == (2, 1), "several workers share no core"
    (tmp_path / "params.yaml").write_text(
        configuration.dump(configuration.with_changes(tiny_config, {"cluster.storage": "s3://b/x"}))
    )
    assert sweep(2) == (1, 2), "a bucket serves trials of one worker"
    assert sweep(5) == (1, 5), "which has room for more threads than two"


@pytest.mark.parametrize("recorded", [True, False])
def test_fewer_workers_than_a_training_could_start_with(
    recorded: bool, store: Store, tree: Tree, tiny_config: Config, tmp_path: Path
) -> None:
    """Whether the run's params.yaml has `min_workers`, or that of the project here."""
    many = {"cluster.workers": 4, "cluster.min_workers": 2}
    elastic = configuration.with_changes(tiny_config, many)
    here, record = (tiny_config, elastic) if recorded else (elastic, tiny_config)
    (tmp_path / "params.yaml").write_text(configuration.dump(here))
    store.add(TRAINING, record)
    again(tmp_path, TRAINING, settings={"cluster.workers": 1})
    found = tree.params.cluster
    assert (found.workers, found.min_workers) == (1, 1 if recorded else None)
    again(tmp_path, TRAINING, settings={"cluster.min_workers": record.cluster.workers})
    del tree.made
    too_many = {"cluster.min_workers": record.cluster.workers + 1}
    with pytest.raises(UserError, match=r"^--set: cluster\.min_workers must be at most"):
        again(tmp_path, TRAINING, settings=too_many)
    assert not hasattr(tree, "made")


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        ("/shared/runs/", f"/shared/runs/reproduce-{TRAINING[:12]}-"),
        ("s3://bucket/x", f"s3://bucket/x/reproduce-{TRAINING[:12]}-"),
        ("../runs", f"{{beside}}/runs/reproduce-{TRAINING[:12]}-"),
    ],
)
def test_no_finished_run_is_found_in_the_storage(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path, storage: str, expected: str
) -> None:
    config = configuration.with_changes(tiny_config, {"cluster.storage": storage})
    (tmp_path / "params.yaml").write_text(configuration.dump(config))
    store.add(TRAINING, tiny_config)
    found = set()
    for _ in range(2):
        again(tmp_path, TRAINING)
        found |= {(tree.params.cluster.storage, tree.made["key"])}
    # Neither that of the run itself, nor that of a worktree which has been removed since: other
    # libraries or workers may have trained it. A worktree that is still there keeps its own.
    (first, key), (second, same_key) = found
    assert first != second
    expected = expected.format(beside=tmp_path.resolve().parent)
    assert all(name.startswith(expected) for name in (first, second))
    assert key == same_key


def test_a_folder_in_the_worktree_keeps_its_name(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path
) -> None:
    store.add(TRAINING, tiny_config)
    again(tmp_path, TRAINING)
    assert tree.params.cluster.storage == "runs"


@pytest.mark.parametrize("value", ["many", -1, None])
def test_a_wrong_value_is_told_before_a_worktree_is_made(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path, value: object
) -> None:
    store.add(TRAINING, tiny_config)
    with pytest.raises(UserError, match=r"^--set: cluster\.workers .* not"):
        again(tmp_path, TRAINING, settings={"cluster.workers": value})
    assert not hasattr(tree, "made")


def test_a_record_that_cannot_be_read_is_named(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(TRAINING, tiny_config)
    store.add(EVALUATION, tiny_config, stage="evaluate")
    fetch = StoredRecord.fetch

    def away(store: Any, run_id: str, folder: Path) -> StoredRecord:
        if run_id == EVALUATION:
            raise UserError("the store does not answer")
        return fetch(store, run_id, folder)

    monkeypatch.setattr(StoredRecord, "fetch", away)
    _, verdict, _ = again(tmp_path, TRAINING)
    (remark,) = verdict.remarks
    assert remark.endswith("evaluate is recorded for it (the store does not answer)")


def test_a_worktree_is_made_by_one_call_at_a_time(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one would take it for that of a call that was killed, and remove it."""

    whole = run_again.Worktree.make

    def make(*arguments: Any) -> Any:
        (tmp_path / "link").symlink_to(tmp_path)
        same = tmp_path / "link" / "again"
        with pytest.raises(UserError, match=f"another process is working in {tmp_path}/again: "):
            again(tmp_path, TRAINING, folder=same)
        with monkeypatch.context() as patch:
            patch.setattr(run_again.Worktree, "make", whole)
            again(tmp_path, TRAINING, folder=tmp_path / "other")
        return whole(*arguments)

    store.add(TRAINING, tiny_config)
    monkeypatch.setattr(run_again.Worktree, "make", make)
    again(tmp_path, TRAINING, folder=tmp_path / "again")
    assert tree.ran == 2 * ["data of train", "train"]
    assert not [*tmp_path.rglob("*.lock")]  # for it is not held any more
    with pytest.raises(FileExistsError):  # it is free again
        again(tmp_path, TRAINING, folder=tmp_path / "again")


def test_another_question_has_another_key(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key(**settings: Any) -> str:
        again(tmp_path, TRAINING, settings=settings)
        return str(tree.made["key"])

    store.add(TRAINING, tiny_config)
    keys = [key(), key(**{"cluster.workers": 1})]
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    keys.append(key())
    monkeypatch.setattr(run_again.lineage, "environment", lambda: "torch==2.12.0\n")
    keys.append(key())
    store.add(TRAINING, tiny_config, patch=" \n")
    keys.append(key())
    assert len(set(keys)) == 5
    assert keys[-1] == key()


@pytest.mark.parametrize(
    "here",
    [{"cluster.max_failures": 3}, {"download.folder": "there"}, {"cluster.storage": "/runs"}],
)
def test_what_changes_no_result_is_no_other_question(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path, here: dict[str, Any]
) -> None:
    store.add(TRAINING, tiny_config)
    again(tmp_path, TRAINING)
    key = tree.made["key"]
    changed = configuration.with_changes(configuration.load(tmp_path / "params.yaml"), here)
    (tmp_path / "params.yaml").write_text(configuration.dump(changed))
    again(tmp_path, TRAINING)
    assert tree.made["key"] == key


def test_what_was_interrupted_is_compared_with_the_evaluation_that_it_began_with(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path
) -> None:
    """Though the training was evaluated again meanwhile."""

    def add(run_id: str, beam: int) -> None:
        config = configuration.with_changes(tiny_config, {"evaluate.beam": beam})
        store.add(run_id, config, stage="evaluate")
        store.parents = {run_id: TRAINING} | store.parents  # the newest child is the first

    store.add(TRAINING, tiny_config)
    again(tmp_path, TRAINING)
    assert tree.made["compared"] == ""
    alone = tree.made["key"]
    add(EVALUATION, 7)
    tree.begun = alone, ""
    _, verdict, _ = again(tmp_path, TRAINING)
    assert verdict.remarks == ["this run alone is compared, as when it was begun"]
    assert tree.ran[-2:] == ["data of train", "train"]
    tree.begun = None
    again(tmp_path, TRAINING)
    tree.begun = tree.made["key"], tree.made["compared"]
    assert tree.begun == (alone, EVALUATION)
    add("f" * 32, 9)
    again(tmp_path, TRAINING)
    assert tree.made["compared"] == EVALUATION
    assert tree.params.evaluate.beam == 7
    tree.begun = "of another question", EVALUATION
    again(tmp_path, TRAINING)
    assert tree.made["compared"] == "f" * 32


@pytest.mark.parametrize("has_result", [True, False])
@pytest.mark.parametrize("stopped_early", [True, False])
def test_a_trial_that_fails_again_is_compared(
    store: Store,
    tree: Tree,
    tiny_config: Config,
    tmp_path: Path,
    has_result: bool,
    stopped_early: bool,
) -> None:
    """The stage of the sweep fails with its only trial, after that is recorded."""
    outcome = CONTENT["outcome"] | {"stopped_early": stopped_early}
    ((trial, *_), _) = variants(tiny_config)
    store.add(TRIAL, trial.config, stage="sweep", outcome=outcome)
    tree.fails, tree.has_come_to_one = True, has_result
    if has_result and stopped_early:
        assert again(tmp_path, TRIAL)[1].identical
        # What breaks off sooner failed for another reason, as a machine with less memory has.
        sooner = copy.deepcopy(CONTENT) | {"stage": "sweep"}
        sooner["outcome"]["curves"] = {}
        tree.others["sweep"] = store.records[TRIAL] | {"record.json": json.dumps(sooner)}
        with pytest.raises(OperationalError, match="sweep failed"):
            again(tmp_path, TRIAL)
    else:
        with pytest.raises(OperationalError, match="sweep failed"):
            again(tmp_path, TRIAL)


def test_what_failed_before_it_had_a_loss_is_not_trained_again(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path
) -> None:
    outcome = {"weights": {}, "curves": {}, "scores": {}, "stopped_early": True}
    ((trial, *_), _) = variants(tiny_config)
    store.add(TRIAL, trial.config, stage="sweep", outcome=outcome)
    with pytest.raises(UserError, match="there is nothing to compare"):
        again(tmp_path, TRIAL)
    assert tree.ran == []


@pytest.mark.parametrize("keeps", [True, False])
def test_a_checkpoint_that_the_evaluation_does_not_ask_for_is_not_missed(
    store: Store,
    tree: Tree,
    tiny_config: Config,
    tmp_path: Path,
    keeps: bool,
) -> None:
    """The training kept it for ever as `evaluate.checkpoint_steps` of those days named it."""
    asked = {"evaluate.checkpoint_steps": [8]}
    outcome = copy.deepcopy(CONTENT["outcome"])
    outcome["weights"]["8"] = "c" * 64
    config = configuration.with_changes(tiny_config, asked)
    store.add(TRAINING, config, outcome=outcome)
    if not keeps:
        store.add(EVALUATION, tiny_config, stage="evaluate")
    tree.others["train"] = store.records[TRAINING] | {"record.json": json.dumps(CONTENT)}
    _, verdict, _ = again(tmp_path, TRAINING)
    assert verdict.identical is not keeps


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whatever_ends_it_leaves_no_temporary_files(
    store: Store,
    tree: Tree,
    tiny_config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    def make(project: Path, root: Path, record: StoredRecord, *rest: Any) -> None:
        assert record.folder.is_relative_to(temporary)
        signal.raise_signal(number)  # while the worktree is made

    def unheard(*signal: Any) -> None:
        raise AssertionError("it would have killed the process")

    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(run_again.Worktree, "make", make)
    store.add(TRAINING, tiny_config)
    before = signal.signal(number, unheard)
    try:
        with pytest.raises(KeyboardInterrupt):
            again(tmp_path, TRAINING)
        assert signal.getsignal(number) is unheard
    finally:
        signal.signal(number, before)
    assert [*temporary.iterdir()] == []


def test_changes_of_a_store_of_others_run_only_if_that_is_said(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path
) -> None:
    store.add(TRAINING, tiny_config, patch="diff --git a/src/x b/src/x\n")
    again(tmp_path, TRAINING)
    for uri in ("http://host:5000", "postgresql+psycopg2://host/db", "sqlite:////elsewhere.db"):
        store.uri = uri
        with pytest.raises(UserError, match=r"code that would run here, .*--trust-changes"):
            again(tmp_path, TRAINING)
        again(tmp_path, TRAINING, trusted=True)
    store.add(TRAINING, tiny_config)
    again(tmp_path, TRAINING)


def test_a_commit_that_others_name_runs_only_if_it_is_of_a_branch_or_that_is_said(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path
) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "ours")
    git(tmp_path, "checkout", "-q", "--detach")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "theirs")
    theirs = git(tmp_path, "rev-parse", "HEAD")
    store.add(TRAINING, tiny_config, commit=theirs)
    store.uri = "http://host:5000"
    again(tmp_path, TRAINING)
    git(tmp_path, "checkout", "-q", "-")
    with pytest.raises(UserError, match=rf"commit {theirs}, which no branch .*--trust-changes"):
        again(tmp_path, TRAINING)
    again(tmp_path, TRAINING, trusted=True)
    store.uri = f"sqlite:///{tmp_path}/mlflow.db"
    again(tmp_path, TRAINING)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"commit": "unknown"}, "its commit is not known"),
        ({"changes_missing": "an AWS key"}, r"its changes were not recorded \(an AWS key\)"),
    ],
)
def test_what_the_record_lacks_is_one_line(
    store: Store, tiny_config: Config, tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    store.add(TRAINING, tiny_config, **changes)
    with pytest.raises(UserError, match=said):
        again(tmp_path, TRAINING)


@pytest.mark.parametrize("name", ["record.json", "params.yaml", "changes.patch", "dvc.lock"])
def test_a_file_that_is_missing_is_one_line(
    store: Store, tiny_config: Config, tmp_path: Path, name: str
) -> None:
    store.add(TRAINING, tiny_config)
    del store.records[TRAINING][name]
    with pytest.raises(UserError, match=f"has no reproduce/{name}: "):
        again(tmp_path, TRAINING)


@pytest.mark.parametrize("text", ["", "[]", "cluster: 5", "a: [", "sweep: {}\ncluster: {}\n"])
def test_parameters_that_are_damaged_are_one_line(
    store: Store, tiny_config: Config, tmp_path: Path, text: str
) -> None:
    store.add(TRAINING, tiny_config)
    store.records[TRAINING]["params.yaml"] = text
    with pytest.raises(UserError, match=r"params\.yaml of run a+"):
        again(tmp_path, TRAINING)


def test_libraries_that_differ_are_told_first(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path
) -> None:
    store.add(TRAINING, tiny_config)
    store.records[TRAINING]["constraints.txt"] = "torch==2.12.0\n"
    _, verdict, lines = again(tmp_path, TRAINING)
    assert lines[0].startswith("other libraries than recorded: torch: 2.12.0 recorded, 2.13.0 here")
    assert "(pip install --no-deps -r) in an environment" in lines[0]
    assert verdict.causes == []  # in this test the run made again has the same record


def test_a_build_that_is_not_on_the_usual_index_is_told(
    store: Store, tree: Tree, tiny_config: Config, tmp_path: Path
) -> None:
    store.add(TRAINING, tiny_config)
    store.records[TRAINING]["constraints.txt"] = "numpy==1.0\ntorch==2.13.0+cpu\n"
    _, _, lines = again(tmp_path, TRAINING)
    index = "-r, --extra-index-url ADDRESS of the index that has torch==2.13.0+cpu) in an"
    assert index in lines[0]


def test_the_command_prints_a_verdict_and_its_status_follows(
    store: Store,
    tree: Tree,
    tiny_config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    store.add(TRAINING, tiny_config)
    assert main(["reproduce", TRAINING]) == 0
    out, _ = capsys.readouterr()
    assert "verdict: identical" in out
    assert f"it stays in {tree.root}, until: git worktree remove --force '{tree.root}'\n" in out
    unlike = copy.deepcopy(CONTENT)
    unlike["outcome"]["weights"]["4"] = "b" * 64
    unlike["outcome"]["curves"]["loss"][0][1] = 1.500001
    unlike["trained"]["threads"] = 2
    tree.others["train"] = store.records[TRAINING] | {"record.json": json.dumps(unlike)}
    assert main(["reproduce", TRAINING, "--json"]) == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["identical"], found["digits"], found["first_step"]) == (False, 6, 2)
    assert found["causes"] == ["threads: none recorded, 2 here"]
    last = "run a+ made again: equal to 6 digits, not identical from step 2 on".replace(
        "a+", TRAINING
    )
    assert err.splitlines()[-1] == f"seq2sweep reproduce: {last}"
    assert main(["reproduce", TRAINING, "--set", "train.steps=5"]) == 2
    assert "only where it runs can be set" in capsys.readouterr().err
