"""What the stage `sweep` writes and says of its trials, by the score of their task."""

from __future__ import annotations

import contextlib
import json
import resource
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline import sweep
from seq2sweep import config as configuration
from seq2sweep import project_files
from seq2sweep.config import Config
from seq2sweep.config.scores import SCORES
from seq2sweep.data import files
from seq2sweep.data.bitext import read_training_header
from seq2sweep.errors import OperationalError, UserError
from seq2sweep.evaluate.attention.trial_heads import TrialScorer
from seq2sweep.jobs import entrypoint
from seq2sweep.model.architecture import transformer
from seq2sweep.report.sweep_report import summarise
from seq2sweep.reproduce.run_record import Source
from seq2sweep.runs.run_store import RunStore
from seq2sweep.stages import preconditions, scoring, stage
from seq2sweep.storage.atomic import sha256
from seq2sweep.sweep import console_lines
from seq2sweep.sweep.trial_record import TrialResult
from seq2sweep.sweep.variants import Variant, variants
from tests.conftest import Corpus
from tests.report.made_up_results import sweep as made_up
from tests.report.parsing_sweep import of_parsing

TREES = {"data.target": "trees", "model.target_symbols": 64, "model.tie_embeddings": False}


class Run:
    """Stands in for a run of the outbox, and keeps what it is given."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **more: self.given.setdefault(name, []).append((args, more))


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for folder in (project_files.REPORTS, project_files.METRICS):
        (tmp_path / folder / "dvc").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def record(parses: bool) -> dict[str, Any]:
    found = made_up() | {"vocabulary_size": 90}
    for trial in found["trials"]:
        trial["variant"] = trial["name"]
    return of_parsing(found) if parses else found


@pytest.mark.parametrize(("parses", "score"), [(False, "bleu"), (True, "f1")])
def test_dvc_shows_the_best_by_its_score(folders: Path, parses: bool, score: str) -> None:
    summary = sweep.write_report(record(parses))
    shown = json.loads((folders / "metrics/dvc/sweep.json").read_text())
    assert shown == {"finished": 9, "failed": 1, f"best_{score}": 36.9}
    assert summary["best"] == {"variant": "layers 2", "name": "layers 2", "steps": 300, score: 36.9}
    assert json.loads((folders / "metrics/sweep.json").read_text()) == summary


@pytest.mark.parametrize(("parses", "score"), [(False, "bleu"), (True, "f1")])
def test_mlflow_has_the_best_by_its_score(
    folders: Path, tiny_config: Config, parses: bool, score: str
) -> None:
    config = configuration.with_changes(tiny_config, TREES) if parses else tiny_config
    run, report = Run(), record(parses)
    marked: dict[str, Run] = {}
    recorder: Any = SimpleNamespace(
        parent=run, variant_run=lambda name: marked.setdefault(name, Run())
    )
    sweep.record(recorder, config, report, summarise(report))
    assert (({f"score/valid_{score}": 36.9},), {}) in run.given["log"]
    assert "layers 2" in marked
    for one in marked.values():
        assert one.given == {"tag": [(({"pareto_front": "yes"},), {})]}
    texts = {args[0]: args[1] for args, _ in run.given["text"]}
    assert ("F1 (dev)" in texts["table3.md"]) is parses


@pytest.mark.parametrize(("parses", "said"), [(False, "BLEU 36.90"), (True, "F1 36.90")])
def test_the_best_is_said_with_its_score(
    tiny_config: Config, parses: bool, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration.with_changes(tiny_config, TREES) if parses else tiny_config
    result: Any = SimpleNamespace(
        variant=SimpleNamespace(config=config), status="finished", metrics={}, origin={}, cause=None
    )
    console_lines.say_end([result], summarise(record(parses)), 0, 60.0)
    assert f"; best: layers 2, {said} on valid" in capsys.readouterr().out


def trial(
    config: Config,
    method: str,
    status: str,
    cause: str | None,
    storage: str = "runs",
    name: str = "base",
) -> Any:
    """How one of a sweep of this method ended."""
    of = SimpleNamespace(sweep=SimpleNamespace(method=method), data=config.data)
    return SimpleNamespace(
        variant=SimpleNamespace(name=name, config=of),
        store=SimpleNamespace(location=f"{storage}/sweep-1/trials/base-1a"),
        journal=Path("runs/sweep-1/trials/base-1a/journal.jsonl"),
        metrics={}, origin={}, status=status, cause=cause,
    )  # fmt: skip


@pytest.mark.parametrize("method", ["grid", "optuna", "table2"])
@pytest.mark.parametrize("storage", ["runs", "s3://bucket/runs"])
def test_how_to_try_failed_trials_again(
    tiny_config: Config, method: str, storage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A search, or Table 2, keeps them: to force the stage trains none of them."""
    failed = trial(tiny_config, method, "failed", "out of memory", storage)
    finished = trial(tiny_config, method, "finished", None, storage)
    folders = "runs/sweep-1/trials"
    if storage != "runs":
        folders += " and s3://bucket/runs/sweep-1/trials"
    results = [failed, finished]
    assert console_lines.removal(failed, "those") == f"remove result.json from those in {folders}"
    remove = f"remove result.json from their folders in {folders}, then "
    remove = "" if method == "grid" else remove
    console_lines.say_end(results, summarise(record(parses=False)), 0, 60.0)
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"to try those that failed again: {remove}dvc repro --force --single-item sweep"
    )
    # Whoever asks for the same job again would get the same results.
    console_lines.say_end(results, summarise(record(parses=False)), 0, 60.0, job="jobs/sweep-1")
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"to try those that failed again: remove jobs/sweep-1, then {remove}submit the job again "
        "(where dvc repro did: dvc repro --force --single-item sweep)"
    )
    with pytest.raises(OperationalError) as caught:
        console_lines.say_end(results[:1], summarise(record(parses=False)), 0, 60.0)
    assert str(caught.value) == (
        "all 1 trials failed, the first (base) as: out of memory; their logs are in "
        f"runs/sweep-1/trials; {remove}run `dvc repro` again to resume"
    )


@pytest.mark.parametrize("method", ["grid", "optuna"])
def test_trials_without_a_score_are_counted(
    tiny_config: Config, method: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have finished, and look healthy else; a sweep without any score has failed."""
    unscored, failed, scored = (
        trial(tiny_config, method, status, cause)
        for status, cause in (
            ("stopped early", "not scored: out of memory"),
            ("failed", "killed"),
            ("finished", None),
        )
    )
    summary = {"finished": 1, "stopped_early": 1, "failed": 0, "best": None}

    def say_end(*results: Any) -> list[str]:
        console_lines.say_end(results, summary, 2, 60.0)
        return capsys.readouterr().out.splitlines()

    said = say_end(unscored, scored)
    assert said[0] == (
        "1 finished, 1 stopped early, 0 failed, 1 without a score, 2 refused in 1m00s"
    )
    assert said[-1].startswith("to try those that have no score again: ")
    assert say_end(unscored, failed, scored)[-1].startswith(
        "to try those that failed or have no score again: "
    )
    for lost, first in (([unscored] * 2, unscored.cause), ([unscored, failed], failed.cause)):
        with pytest.raises(OperationalError) as caught:
            say_end(*lost)
        assert str(caught.value).startswith(
            f"none of 2 trials has a score, the first (base) as: {first}; their logs are in runs/"
        )


def test_a_text_too_long_for_a_row_is_told_before_any_is_trained(
    tiny_corpus: Corpus, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its mend is another text, of which all rows would be trained again."""
    monkeypatch.setattr(project_files, "ENCODED", tiny_corpus.encoded)
    asked = {"sweep.space": {"model.positions": ["learned"]}, "sweep.method": "one_at_a_time"}
    chosen, _ = variants(configuration.with_changes(tiny_config, asked))
    size = tiny_corpus.size
    preconditions.require_all_positions(chosen, size)
    monkeypatch.setattr(preconditions, "LEARNED_POSITIONS", 3)
    few = property(lambda model: 3 if model.config.positions == "learned" else 10**9)
    monkeypatch.setattr(transformer.Transformer, "max_length", few)
    preconditions.require_all_positions(chosen[:1], size)
    told = (
        r"^positions=learned.*: line \d+ of the train set .*; or leave this row out of the sweep$"
    )
    with pytest.raises(UserError, match=told):
        preconditions.require_all_positions(chosen, size)


def test_too_few_open_files_are_told_before_any_is_trained(
    tiny_corpus: Corpus, tiny_config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_files, "ENCODED", tiny_corpus.encoded)
    header = read_training_header(tiny_corpus.encoded)
    monkeypatch.setattr(stage, "training_header", lambda config: header)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 128))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    asked = {"sweep.space": {"model.dropout": [0.3]}, "sweep.method": "one_at_a_time"}
    with pytest.raises(UserError, match=r"^the sweep's 2 trials need 258 open files"):
        sweep.work(configuration.with_changes(tiny_config, asked))


def test_a_choice_is_a_short_line_however_bad_a_try_was(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tries = [SimpleNamespace(metrics={"valid_perplexity": p}) for p in (4.917, 6.3e41, None)]
    entrant: Any = SimpleNamespace(name="bytenet", refused=None, best=0.5, tries=tries)
    console_lines.say_choice([entrant])
    assert capsys.readouterr().out == (
        "bytenet: train.learning_rate_scale 0.5 x the base's (validation perplexities of its "
        "tries: 4.92, 6.3e+41, nan)\n"
    )


def test_a_sweep_of_which_all_tries_failed_has_failed(tiny_config: Config) -> None:
    """Table 2 trains nothing after them, and has no results."""
    name = "base at 1 x the learning rate"
    failed = trial(tiny_config, "table2", "failed", "out of memory", name=name)
    nothing = {"finished": 0, "stopped_early": 0, "failed": 0, "refused": 1, "best": None}
    with pytest.raises(OperationalError, match=r"^all 3 trials failed, the first \(base at 1"):
        console_lines.say_end([], nothing, 1, 60.0, [failed] * 3)


def test_a_try_that_failed_is_told_where_others_have_trained(
    tiny_config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """The results of Table 2 are of other trials: that of an architecture may be missing."""
    finished = trial(tiny_config, "table2", "finished", None)
    failed = trial(tiny_config, "table2", "failed", "out of memory")
    summary = {"finished": 1, "stopped_early": 0, "failed": 0, "best": None}
    every = [finished, finished, failed, failed]
    console_lines.say_end(every[:1], summary, 1, 60.0, every)
    assert capsys.readouterr().out.splitlines() == [
        "1 finished, 0 stopped early, 0 failed, 1 refused, 2 tries of learning rates failed "
        "in 1m00s",
        "to try those that failed again: remove result.json from their folders in "
        "runs/sweep-1/trials, then dvc repro --force --single-item sweep",
    ]


@pytest.fixture
def given(
    tiny_config: Config, tiny_corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """What `run_sweep` is called with in a job, on a head whose disk no other node sees."""
    found: dict[str, Any] = {}
    copy = tmp_path / "copy"
    for folder in (tiny_corpus.clean, tiny_corpus.vocabulary, tiny_corpus.encoded):
        shutil.copytree(folder, copy / "data" / folder.name)
    monkeypatch.chdir(copy)
    monkeypatch.setenv(entrypoint.JOB_CONFIG, "{}")
    monkeypatch.setattr(stage, "origin", lambda header: SimpleNamespace(identity={}))
    monkeypatch.setattr(stage, "code_of", lambda program: {})
    monkeypatch.setattr(sweep, "begin_sweep", lambda folder, origin: None)
    monkeypatch.setattr(sweep, "ray_session", lambda cluster: contextlib.nullcontext())
    monkeypatch.setattr(sweep, "idle_gpus", lambda sweep: None)
    monkeypatch.setattr(sweep, "run_sweep", lambda *args, **more: found.update(more) or [])
    return found


@pytest.mark.parametrize("address", [None, "s3://bucket/runs"])
def test_trials_on_other_nodes_find_what_was_made_on_the_head(
    given: dict[str, Any], address: str | None, tiny_config: Config, tmp_path: Path
) -> None:
    """In the storage that all nodes see; from a bucket `run_sweep` has them get it."""
    storage = address or str(tmp_path / "storage")
    config = configuration.with_changes(tiny_config, {"cluster.storage": storage})
    listener: Any = SimpleNamespace(hear=None, lineage={})
    sweep.train(config, {"fingerprint": "sum"}, variants(config)[0], listener, {})
    made = Path("data/encoded").resolve()
    assert given["encoded"].is_relative_to(storage) is (address is None)
    assert (given["encoded"] == made) is (address is not None)
    for file in made.iterdir():
        assert (given["encoded"] / file.name).read_bytes() == file.read_bytes()
    assert isinstance(given["score"], TrialScorer)
    assert given["data"] == "sum", "trials are to find what the sweep is named by"


def test_scores_are_of_the_texts_that_are_there(
    given: dict[str, Any], tiny_config: Config, tmp_path: Path
) -> None:
    """A reference may change where no token does: a tag in a tree, or a character that is rare."""
    listener: Any = SimpleNamespace(hear=None, lineage={})
    config = configuration.with_changes(tiny_config, {"cluster.storage": str(tmp_path / "storage")})

    def scorer() -> str:
        sweep.train(config, {"fingerprint": "sum"}, variants(config)[0], listener, {})
        return str(given["scorer"])

    first = scorer()
    assert scorer() == first
    references = project_files.CLEAN / "valid.target.txt"
    lines, before = references.read_text().splitlines(), sha256(references)
    references.write_text("\n".join([lines[0] + " ", *lines[1:], ""]))
    files.write_header(project_files.CLEAN, "valid", len(lines))
    header = project_files.ENCODED / "valid.json"
    header.write_text(header.read_text().replace(before, sha256(references)))
    assert scorer() != first


NOW = {
    "git.commit": "b", "version.torch": "2.13.0", "hardware.cpu": "EPYC", "host": "here",
    "data.dataset": "sum", "params.sha256": "sum",
}  # fmt: skip


def result_of(variant: Variant, folder: Path, **changes: Any) -> TrialResult:
    """A trial that is in a folder."""
    of = {
        "variant": variant, "store": RunStore(folder), "status": "finished", "cause": "lost",
        "steps": 12, "checkpoint": None, "journal": folder / "journal.jsonl", "nodes": [],
        "translations": folder / "valid.translations.txt", "wall_seconds": 1.0,
        "origin": {"precision": "float32"}, "metrics": {"precision": "float32"}, "made_by": NOW,
    }  # fmt: skip
    return TrialResult(**of | changes)


def recorded_of(config: Config, folder: Path, *changes: dict[str, Any]) -> list[dict[str, Any]]:
    """What is recorded of a trial that is in a folder, with each of these changes."""
    [variant, *_], _ = variants(config)
    recorded: list[dict[str, Any]] = []
    source: Any = SimpleNamespace(record=lambda run, config, **about: recorded.append(about))
    recorder: Any = SimpleNamespace(runs={variant.name: None}, lineage=NOW)
    for one in changes:
        sweep.record_trials(source, recorder, [result_of(variant, folder, **one)])
    return recorded


def test_a_trial_of_the_last_seed_that_there_is_is_recorded(
    tiny_config: Config, tmp_path: Path
) -> None:
    """After hours of a sweep, of whose other seeds it knows nothing."""
    last = {"train.seed": 2**31 - 3, "sweep.seeds": 3}
    chosen, _ = variants(configuration.with_changes(tiny_config, last))
    runs = {variant.name: Run() for variant in chosen}
    recorder: Any = SimpleNamespace(runs=runs, lineage=NOW)
    (tmp_path / "journal.jsonl").touch()
    results = [result_of(variant, tmp_path) for variant in chosen]
    sweep.record_trials(Source({}, {}), recorder, results)
    assert {variant.seed for variant in chosen} == {2**31 - 3, 2**31 - 2, 2**31 - 1}
    assert all(len(run.given["artifact"]) == 1 for run in runs.values())


def test_a_trial_that_did_not_come_to_its_end_is_recorded_as_stopped_early(
    tiny_config: Config, tmp_path: Path
) -> None:
    ends = ("finished", "stopped early", "failed")
    recorded = recorded_of(tiny_config, tmp_path, *({"status": end} for end in ends))
    assert [one["stopped_early"] for one in recorded] == [False, True, True]


@pytest.mark.parametrize(
    ("made_by", "recorded"),
    [
        ({"git.commit": "a", "host": "there"}, True),  # code is the same by its meaning
        ({"version.torch": "2.12.0"}, False),
        ({"hardware.cpu": "Xeon"}, False),
        (None, False),
    ],
)
def test_a_trial_that_was_trained_otherwise_has_its_record_in_the_run_of_then(
    tiny_config: Config, tmp_path: Path, made_by: dict[str, str] | None, recorded: bool
) -> None:
    then = None if made_by is None else NOW | made_by
    found = recorded_of(tiny_config, tmp_path, {"made_by": then})
    assert bool(found) is recorded


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), OperationalError("full")])
def test_trials_that_have_ended_are_recorded_once(
    given: dict[str, Any],
    tiny_config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException | None,
) -> None:
    """Also before an interruption; what a round has stopped and a later one resumed as it ended."""
    config = configuration.with_changes(tiny_config, {"cluster.storage": str(tmp_path / "storage")})

    def ended(name: str, status: str = "finished") -> Any:
        return SimpleNamespace(variant=SimpleNamespace(name=name), status=status)

    recorded: list[list[Any]] = []
    monkeypatch.setattr(sweep, "record_trials", lambda source, recorder, of: recorded.append(of))
    recorder: Any = SimpleNamespace(hear=None, lineage={})

    def run_sweep(*args: object, on_end: Any, **more: object) -> list[Any]:
        on_end([ended("first"), ended("second", "stopped early")])
        on_end([ended("second")])
        if error is not None:
            raise error
        return []

    monkeypatch.setattr(sweep, "run_sweep", run_sweep)
    source: Any = None
    with (
        pytest.raises(type(error)) if error else contextlib.nullcontext(),
        sweep.recording(source, recorder) as found,
    ):
        sweep.train(config, {"fingerprint": "sum"}, variants(config)[0], recorder, found)
    assert recorded == [[ended("first"), ended("second")]]


@pytest.mark.parametrize("architecture", ["transformer", "bytenet"])
def test_mlflow_has_the_best_by_its_architecture(
    architecture: str, tiny_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by the base's."""
    space = {"model.architecture": [architecture]} if architecture != "transformer" else {}
    config = configuration.with_changes(tiny_config, {"sweep.space": space})
    (*_, best), refused = variants(config)
    assert refused == []
    monkeypatch.setattr(scoring, "write_package", lambda folder, model: folder.mkdir())
    for place, name in (
        (sweep, "Translator"), (sweep, "receipt"), (sweep, "weights_entry"),
        (sweep.stage, "write_json"), (scoring, "flavor"),
    ):  # fmt: skip
        monkeypatch.setattr(place, name, lambda *given: {})
    result: Any = SimpleNamespace(
        variant=best, steps=12, origin={}, metrics=dict.fromkeys(SCORES["bleu"].columns, 20.0),
        fetched=lambda: contextlib.nullcontext(tmp_path),
    )  # fmt: skip
    run: Any = Run()
    run.name = "best"
    sweep.record_best(run, result, header={"fingerprint": "sum"}, lineage={}, mean=20.0)
    assert [run.given[what][0][0][0] for what in ("model", "register")] == [architecture] * 2


def test_a_parser_without_a_score_is_recorded(tiny_config: Config, tmp_path: Path) -> None:
    """Its journal has a precision, float32, and so has F1."""
    config = configuration.with_changes(tiny_config, TREES)
    recorded = recorded_of(config, tmp_path, {})
    (tmp_path / "valid.translations.txt").write_text("(S)\n")
    scores = {"f1": 80.0, "precision": 81.0, "recall": 79.0, "complete": 5.0}
    recorded += recorded_of(config, tmp_path, {"metrics": scores})
    assert [one["trained"]["precision"] for one in recorded] == ["float32", "float32"]
    assert [one["scores"].get("precision") for one in recorded] == [None, 81.0]
    assert recorded[0]["scores"] == {}
