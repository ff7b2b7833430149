"""A trial in this process, with Tune and Ray only made believe."""

from __future__ import annotations

import errno
import itertools
import json
import platform
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file

from seq2sweep import config as configuration
from seq2sweep.cluster import session, tune_runner, tune_scheduler, tune_trial
from seq2sweep.cluster.train_driver import TrainingError
from seq2sweep.cluster.train_driver import no_room as no_room_of
from seq2sweep.cluster.train_worker import START_SECONDS
from seq2sweep.config import Config
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.errors import NodeError, UserError
from seq2sweep.runs import journal, pass_size
from seq2sweep.runs.layout import FAILURE_NAME, JOURNAL_NAME, checkpoints, newest_checkpoint
from seq2sweep.runs.remote_run_store import RemoteRunStore
from seq2sweep.runs.run_store import RunStore
from seq2sweep.runs.stores import driver_store, worker_store
from seq2sweep.runs.watchdog import Watchdog
from seq2sweep.storage import retry
from seq2sweep.sweep import trial_score
from seq2sweep.sweep.trial_record import TrialRecord, nodes_of
from seq2sweep.sweep.variants import variants
from tests.cluster.checkpoints import save
from tests.cluster.scoring import no_room, score
from tests.conftest import Corpus, write_encoded
from tests.runs.test_pass_size import room_for


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Steps of which Tune is told."""
    found: list[int] = []
    context = SimpleNamespace(get_node_id=lambda: "0123456789abcdef")
    monkeypatch.setattr("ray.get_runtime_context", lambda: context)
    monkeypatch.setattr(tune_trial.tune, "report", lambda result: found.append(result["step"]))
    return found


@pytest.fixture
def settings(tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path) -> dict[str, Any]:
    folder = tmp_path / "trial"
    folder.mkdir()
    return {
        "config": configuration.to_dict(tiny_config),
        "data": {"encoded": str(tiny_corpus.encoded)},
        "location": str(folder),
        "sweep": str(tmp_path),
        "attempt": "1",
        "workers": 1,
        "cpus": 1,
        "gpus": 0,
        "sharers": 2,
        "rungs": [],
    }


def test_what_a_trial_before_has_chosen_for_its_process_is_not_this_ones(
    reported: list[int], settings: dict[str, Any]
) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        tune_trial.run_trial({"index": 0}, [settings])
        assert not torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_trials_peak_of_memory_is_its_own(
    reported: list[int], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process trains one trial after another."""
    forgotten = Mock()
    monkeypatch.setattr(tune_trial.hardware, "forget_peak", forgotten)
    tune_trial.run_trial({"index": 0}, [settings])
    forgotten.assert_called_once_with(torch.device("cpu"))


def test_what_a_process_kept_of_a_trial_before_is_no_memory_of_the_next(
    reported: list[int], settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tune_trial, "_trained", itertools.count())
    found = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        tune_trial.run_trial({"index": 0}, [settings | {"location": str(folder)}])
        entries = [json.loads(line) for line in (folder / JOURNAL_NAME).open(encoding="utf-8")]
        found.append({key for entry in entries for key in entry if key.endswith("rss_bytes")})
        assert all("memory_percent" in entry for entry in entries if entry["kind"] == "logged")
    assert found == [{"rss_bytes", "peak_rss_bytes"}, set()]


def test_one_that_is_to_stop_does_not_begin(settings: dict[str, Any], reported: list[int]) -> None:
    RunStore(Path(settings["sweep"]), "1").request_stop()
    tune_trial.run_trial({"index": 0}, [settings])
    assert list(Path(settings["location"]).iterdir()) == []
    assert reported == []


def test_storage_that_fails_for_a_while_is_met_with_patience(
    settings: dict[str, Any], reported: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[str] = []

    def failing_once(name: str) -> Callable[..., Any]:
        real = getattr(RunStore, name)

        def work(*args: Any, **how: Any) -> Any:
            if name not in failures:
                failures.append(name)
                raise OSError(errno.EIO, "the disk is away")
            return real(*args, **how)

        return work

    names = ("writing", "resume_point", "keep", "prune")
    for name in names:
        monkeypatch.setattr(RunStore, name, failing_once(name))
    monkeypatch.setattr("seq2sweep.storage.retry.time.sleep", lambda seconds: None)
    tune_trial.run_trial({"index": 0}, [settings])
    assert sorted(failures) == sorted(names)
    assert reported == [4, 8, 12]
    newest = newest_checkpoint(Path(settings["location"]))
    assert newest is not None
    assert newest.name == "step-00000012"
    (node,) = nodes_of(Path(settings["location"]))
    assert node.endswith("-01234567")


def test_workers_that_no_longer_fit_the_cluster_have_the_trial_wait(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node was lost since Tune chose it; the sweep reads none of the keys cluster.*."""
    told: list[dict[str, Any]] = []

    def pause(result: dict[str, Any]) -> None:
        told.append(result)
        raise SystemExit(0)  # as a report does

    monkeypatch.setattr(tune_trial.tune, "report", pause)
    monkeypatch.setattr(session, "nodes", lambda: [session.Node(1, 0)])
    with pytest.raises(SystemExit):
        tune_trial.run_trial({"index": 0}, [settings | {"workers": 2}])
    assert told == [{tune_trial.NO_PLACE: True}]
    assert not (Path(settings["location"]) / FAILURE_NAME).exists()


def keeping_fails(error: Exception) -> Callable[..., None]:
    """In the place of `RunStore.keep`."""

    def keep(store: RunStore, checkpoint: Path) -> None:
        raise error

    return keep


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, None])
def test_what_it_leaves_says_whether_a_disk_was_full(
    settings: dict[str, Any],
    reported: list[int],
    monkeypatch: pytest.MonkeyPatch,
    number: int | None,
) -> None:
    error = OSError(number, "full") if number else RuntimeError("a bug")
    monkeypatch.setattr(RunStore, "keep", keeping_fails(error))
    with pytest.raises(type(error)):
        tune_trial.run_trial({"index": 0}, [settings])
    folder = Path(settings["location"])
    failure = json.loads((folder / FAILURE_NAME).read_text())
    assert failure["disk_full"] is (number is not None)
    said = f"no space left in {folder} (" if number else "RuntimeError: a bug"
    assert failure["cause"].startswith(said)
    assert "in keep" in failure["traceback"]


def test_what_a_machine_lacks_is_no_fault_of_the_trial(
    settings: dict[str, Any], reported: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or Tune gives it one trial after the other, and each would count as failed for good."""
    lacking = NodeError("cluster.storage: the credentials have expired")
    monkeypatch.setattr(RunStore, "keep", keeping_fails(lacking))
    with pytest.raises(NodeError):
        tune_trial.run_trial({"index": 0}, [settings])
    failure = json.loads((Path(settings["location"]) / FAILURE_NAME).read_text())
    assert (failure["cause"], failure["disk_full"]) == (str(lacking), True)


def test_a_trial_that_begins_on_other_data_trains_nothing_and_ends_the_sweep(
    settings: dict[str, Any], reported: list[int], tiny_corpus: Corpus, tmp_path: Path
) -> None:
    """Checked out since the sweep began: it would stand in Table 3 beside trials of the first."""
    encoded = Path(shutil.copytree(tiny_corpus.encoded, tmp_path / "encoded"))
    data = RunStore(tmp_path).publish(encoded)
    write_encoded(encoded, "train", ["one"], ["eins"], Vocabulary.open(tiny_corpus.vocabulary))
    with pytest.raises(NodeError, match="has changed since this began"):
        tune_trial.run_trial({"index": 0}, [settings | {"data": data}])
    failure = json.loads((Path(settings["location"]) / FAILURE_NAME).read_text())
    assert failure["cause"].startswith(f"{encoded} has changed since this began: check out")
    assert (failure["disk_full"], reported) == (True, [])
    assert not (Path(settings["location"]) / JOURNAL_NAME).exists()


@pytest.mark.parametrize("unwritable", [OSError(errno.ENOSPC, "full"), UserError("no bucket")])
def test_what_ended_a_trial_is_raised_where_it_cannot_be_written(
    settings: dict[str, Any],
    reported: list[int],
    monkeypatch: pytest.MonkeyPatch,
    unwritable: Exception,
) -> None:
    """Else a run that diverged would be told as a failure of the storage."""
    write = RunStore.write

    def fail(store: RunStore, name: str, text: str) -> None:
        if name == FAILURE_NAME:
            raise unwritable
        write(store, name, text)

    monkeypatch.setattr(RunStore, "write", fail)
    monkeypatch.setattr(RunStore, "keep", keeping_fails(RuntimeError("the run diverged")))
    with pytest.raises(RuntimeError, match="the run diverged"):
        tune_trial.run_trial({"index": 0}, [settings])


def test_a_trial_that_cannot_begin_says_why_in_the_place_of_an_older_failure(
    settings: dict[str, Any], reported: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    older = Path(settings["location"]) / FAILURE_NAME
    older.write_text('{"cause": "no space left", "disk_full": true}')
    refused = PermissionError(errno.EACCES, "Permission denied")
    monkeypatch.setattr(RunStore, "delete", Mock(side_effect=refused))
    with pytest.raises(PermissionError):
        tune_trial.run_trial({"index": 0}, [settings])
    failure = json.loads(older.read_text())
    assert "Permission denied" in failure["cause"]
    assert not failure["disk_full"]


def test_workers_of_a_trial_that_met_a_full_disk_met_one(tmp_path: Path) -> None:
    for final in (True, False):
        error = TrainingError("no space left in runs", "run it again", final=final)
        failure = tune_trial._failure(error, RunStore(tmp_path))
        assert (failure["cause"], failure["disk_full"]) == ("no space left in runs", final)


def test_with_a_bucket_it_is_said_on_which_node_a_disk_is_full(in_bucket: dict[str, Any]) -> None:
    store = worker_store(in_bucket["location"], "1")
    failure = tune_trial._failure(OSError(errno.ENOSPC, "full", "/tmp/there"), store)
    assert failure["cause"].startswith(f"{platform.node()}: no space left in /tmp/there: free")
    assert tune_trial._failure(ValueError("wrong"), store)["cause"] == "ValueError: wrong"


def test_a_trial_keeps_its_number_of_tokens_a_pass_and_has_the_weights_of_that_number(
    settings: dict[str, Any], reported: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(name: str, tokens: Any, free: float, dropped: int = 0) -> Path:
        """Train, after some of its checkpoints were lost."""
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        for path in checkpoints(folder)[-dropped:] if dropped else []:
            shutil.rmtree(path)
        monkeypatch.setattr(pass_size, "free_bytes", lambda device, sharers: free / sharers)
        changes = {"train.tokens_per_pass": tokens, "model.dropout": 0.2}
        config = configuration.with_changes(configuration.from_dict(settings["config"]), changes)
        asked = {"config": configuration.to_dict(config), "location": str(folder)}
        tune_trial.run_trial({"index": 0}, [settings | asked])
        return folder

    # An update has 300 tokens. Two trials share the memory.
    number = 200
    encoded = Path(settings["data"]["encoded"])
    little = 2 * room_for(configuration.from_dict(settings["config"]), encoded, number)
    auto = run("auto", "auto", little)
    (entry,) = journal.entries(auto / JOURNAL_NAME, "sized")
    assert entry["tokens_per_pass"] == number
    (end,) = journal.entries(auto / JOURNAL_NAME, "finished")
    assert end["tokens_per_pass"] == number
    whole = run("number", number, 80e9)
    assert [*journal.entries(whole / JOURNAL_NAME, "sized")] == []
    expected = load_file(checkpoints(whole)[-1] / "model.safetensors")

    def same(folder: Path) -> bool:
        found = load_file(checkpoints(folder)[-1] / "model.safetensors")
        return all(torch.equal(found[name], expected[name]) for name in expected)

    assert same(auto)
    # It resumes from its first checkpoint where there is more memory, and where there is none.
    assert same(run("auto", "auto", 80e9, dropped=1))
    assert len([*journal.entries(auto / JOURNAL_NAME, "sized")]) == 1
    assert same(run("auto", "auto", 0.1e9, dropped=1))
    entries = [*journal.entries(auto / JOURNAL_NAME, "sized")]
    assert [each["tokens_per_pass"] for each in entries] == [number, number]
    assert (entries[1]["step"], entries[1]["fitting_tokens"]) == (8, 0)


def test_what_tune_hears_again_is_not_taken_for_a_hang(
    settings: dict[str, Any], reported: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of validations, each while Tune is busy with other trials."""
    tune_trial.run_trial({"index": 0}, [settings])
    shutil.rmtree(checkpoints(Path(settings["location"]))[-1])
    happened: list[str] = []
    feed = Watchdog.feed
    monkeypatch.setattr(Watchdog, "feed", lambda self: (happened.append("feed"), feed(self)))
    monkeypatch.setattr(tune_trial.tune, "report", lambda result: happened.append("report"))
    monkeypatch.setattr(tune_trial, "train", lambda *_, **__: iter(()))
    tune_trial.run_trial({"index": 0}, [settings])
    replayed = happened[happened.index("report") :]
    assert replayed[:2] == ["report", "feed"]
    assert replayed.count("report") == 2


@pytest.mark.parametrize(("hang_seconds", "waits"), [(60, START_SECONDS), (5000, 5000)])
def test_a_download_is_not_taken_for_a_hang(
    settings: dict[str, Any],
    reported: list[int],
    monkeypatch: pytest.MonkeyPatch,
    hang_seconds: int,
    waits: float,
) -> None:
    """Of data, and of the checkpoint that a trial goes on from: hours on a slow link."""
    patience: list[float] = []
    seen: dict[str, float] = {}

    class Noting(Watchdog):
        def __init__(self, seconds: float, log: Path) -> None:
            patience.append(seconds)
            super().__init__(seconds, log)

    def noting(name: str) -> Callable[..., Any]:
        real = getattr(RunStore, name)

        def work(*args: Any) -> Any:
            seen[name] = patience[-1]
            return real(*args)

        return work

    monkeypatch.setattr(RunStore, "start_seconds", 3600.0)
    monkeypatch.setattr(tune_trial, "Watchdog", Noting)
    names = ("data", "writing", "resume_point", "keep")
    for name in names:
        monkeypatch.setattr(RunStore, name, noting(name))
    changes = {"cluster.hang_seconds": hang_seconds}
    config = configuration.with_changes(configuration.from_dict(settings["config"]), changes)
    tune_trial.run_trial({"index": 0}, [settings | {"config": configuration.to_dict(config)}])
    longer = dict.fromkeys(names, waits + 3600.0)
    assert seen == longer | {"keep": hang_seconds}


@pytest.fixture
def in_bucket(
    settings: dict[str, Any], bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """On a node that sees no folder of the driver's."""
    store = driver_store(bucket, tmp_path / "runs" / "sweep")
    data = store.publish(Path(settings["data"]["encoded"]))
    (tmp_path / "node").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "node"))
    place = {"location": f"{store.location}/trials/base", "sweep": store.location}
    return settings | place | {"data": data}


def test_a_trial_that_tune_stops_or_pauses_leaves_no_checkpoint_on_its_node(
    in_bucket: dict[str, Any], reported: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(result: dict[str, Any]) -> None:
        raise SystemExit(0)  # as a report does

    monkeypatch.setattr(tune_trial.tune, "report", stop)
    with pytest.raises(SystemExit):
        tune_trial.run_trial({"index": 0}, [in_bucket])
    store = worker_store(in_bucket["location"], "1")
    newest = store.newest_checkpoint()
    assert newest is not None
    assert newest.name == "step-00000004"
    assert checkpoints(store.folder) == []


def test_a_trial_that_fails_leaves_only_what_is_nowhere_else_on_its_node(
    in_bucket: dict[str, Any], reported: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = worker_store(in_bucket["location"], "1")

    def fail(result: dict[str, Any]) -> None:
        assert [path.name for path in checkpoints(store.folder)] == ["step-00000004"]
        save(store.folder / "step-00000008", 8)
        raise RuntimeError("a bug")

    monkeypatch.setattr(tune_trial.tune, "report", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        tune_trial.run_trial({"index": 0}, [in_bucket])
    assert [path.name for path in checkpoints(store.folder)] == ["step-00000008"]
    newest = store.newest_checkpoint()
    assert newest is not None
    assert newest.name == "step-00000004"


def test_scoring_leaves_no_checkpoint_on_its_node(
    in_bucket: dict[str, Any], reported: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a score lost for a storage that is away for a moment."""
    tune_trial.run_trial({"index": 0}, [in_bucket])
    monkeypatch.setattr(retry.time, "sleep", lambda seconds: None)
    away = iter([OSError(5, "no answer"), None, OSError(5, "no answer"), None])

    def at_times(real: Any) -> Any:
        def call(*given: Any) -> Any:
            if error := next(away):
                raise error
            return real(*given)

        return call

    for name in ("fetch", "data"):
        monkeypatch.setattr(RemoteRunStore, name, at_times(getattr(RemoteRunStore, name)))
    config = configuration.from_dict(in_bucket["config"])
    place = (in_bucket["location"], "1", "step-00000012")
    found = trial_score.score_one(score, config, place, in_bucket["data"], 1)
    assert found["bleu"] == 12.0
    store = worker_store(in_bucket["location"], "1")
    assert (store.folder / "scored.txt").exists()
    assert checkpoints(store.folder) == []


def test_scoring_names_the_disk_that_is_full(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of writing names no file, and scoring writes to the folder for temporary ones."""
    monkeypatch.setattr(tempfile, "tempdir", "/small")
    config = configuration.from_dict(settings["config"])
    place = (settings["location"], "1", "step-00000012")
    with pytest.raises(OSError, match="No space left") as caught:
        trial_score.score_one(no_room, config, place, settings["data"], 1)
    told = no_room_of(caught.value, RunStore(Path(settings["location"])))
    assert told is not None
    assert told.startswith("no space left in /small: free some, or set TMPDIR")


def test_trials_have_as_long_to_upload_as_their_storage_needs(
    bucket: str, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C, where any runs: docs/storage.md says ten minutes."""
    given: list[Any] = []
    store = driver_store(bucket, tmp_path / "runs" / "sweep")
    sweep = tune_runner._Sweep(tiny_config, store, [], None, {}, Mock())
    monkeypatch.setattr(sweep, "_tuner", Mock())
    monkeypatch.setattr(session, "while_waiting", lambda *of, **how: given.extend([of, how]))
    sweep._run_tune()
    (_, _, ask, can_hear), how = given
    assert how == {"last_words": 600.0}
    assert not can_hear(), "no trial runs"
    ask.__self__.running = True
    assert can_hear()


def test_a_failure_of_an_earlier_sweep_is_not_taken_for_one_of_this(
    bucket: str, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the process of a trial dies before it has removed what is there."""
    store = driver_store(bucket, tmp_path / "runs" / "sweep")
    (variant,), _ = variants(configuration.with_changes(tiny_config, {"sweep.space": {}}))
    record = TrialRecord.open(variant, store.child("trials").child("base"), "none", "", False)
    record.store.write(FAILURE_NAME, '{"cause": "no space left", "disk_full": true}')
    sweep = tune_runner._Sweep(tiny_config, store, [record], None, {}, Mock())
    died, found = tune_scheduler.Failure("its process died"), list[object]()

    def run_tune() -> None:
        found.append(tune_scheduler._failure(record, died))

    monkeypatch.setattr(sweep, "_run_tune", run_tune)
    sweep.train_all()
    assert found == [died]
