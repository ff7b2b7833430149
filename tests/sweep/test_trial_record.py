"""What is known of a trial by its folder."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep import yaml_text
from seq2sweep.cluster.failures import LOWER
from seq2sweep.config import Config
from seq2sweep.errors import OperationalError
from seq2sweep.runs.journal import Journal
from seq2sweep.runs.layout import JOURNAL_NAME, checkpoint_name, checkpoints, interrupted_name
from seq2sweep.runs.run_store import Ending, RunStore
from seq2sweep.runs.stores import driver_store
from seq2sweep.sweep.trial_record import (
    INTERRUPTED,
    NODES_NAME,
    ROOM,
    TRANSLATIONS_NAME,
    TrialRecord,
    TrialResult,
    nodes_of,
)
from seq2sweep.sweep.variants import Variant, variants
from seq2sweep.train import checkpointing
from seq2sweep.train.events import CheckpointDue, Finished, Logged, Validated
from tests.clone import ROOT
from tests.cluster.checkpoints import damage, save


@pytest.fixture
def variant(tiny_config: Config) -> Variant:
    """Of twelve steps."""
    (found, *_), _ = variants(tiny_config)
    assert found.config.train.steps == 12
    return found


def opened(
    variant: Variant,
    folder: Path,
    torch: str | None = None,
    *,
    schedule: str = "none",
    final: bool = False,
) -> TrialRecord:
    """Of a sweep that stops no trial, and tries again what failed, unless another one is asked for.

    torch: the version that trains.
    """
    made_by = {"version.torch": torch} if torch else None
    (record,) = TrialRecord.open_all([(variant, RunStore(folder))], schedule, "", final, made_by)
    return record


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of checkpoints that are read and summed, in order."""
    found, verify = list[str](), checkpointing.verify

    def counted(place: Path) -> None:
        found.append(place.name)
        verify(place)

    monkeypatch.setattr(checkpointing, "verify", counted)
    return found


def test_a_checkpoint_is_verified_once(
    variant: Variant, tmp_path: Path, verified: list[str]
) -> None:
    """As the rounds of a search ask for it, each with records of its own."""
    places = [save(tmp_path / f"step-0000000{step}", step) for step in (4, 8)]

    def newest() -> Path | None:
        return opened(variant, tmp_path).checkpoint()

    assert [newest(), newest()] == [places[1]] * 2
    assert verified == ["step-00000008"]
    damage(places[1])
    assert newest() == places[0]
    assert verified[1:] == ["step-00000008", "step-00000004"]


def test_in_a_bucket_the_newest_is_looked_for_each_time(
    variant: Variant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files here stay, when it is trained on elsewhere."""
    store = RunStore(tmp_path)
    store.location = "s3://bucket/trial"
    found = [save(tmp_path / f"step-0000000{step}", step) for step in (4, 8)]
    monkeypatch.setattr(store, "newest_checkpoint", lambda: found[-1])
    record = TrialRecord.open(variant, store, "none", "", False)
    assert record.checkpoint() == found.pop()
    assert record.checkpoint() == found[0]


def test_a_bucket_is_asked_once_of_a_trial_that_has_ended(
    variant: Variant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round of a search, with a scheduler, asks of all trials before."""
    asked: list[str] = []
    for request in ("refresh", "newest_checkpoint"):
        answer = getattr(RunStore, request)
        monkeypatch.setattr(
            RunStore,
            request,
            lambda store, to=answer, name=request: asked.append(name) or to(store),
        )

    def record() -> TrialRecord:
        store = RunStore(tmp_path)
        store.location = "s3://bucket/trial"
        return TrialRecord.open(variant, store, "none", "", False)

    last = save(tmp_path / checkpoint_name(variant.config.train.steps), variant.config.train.steps)
    before = record()
    before.end("finished", None, 1.0)
    before.keep_scores({"bleu": 31.4, "translations": ["ein Satz"]})
    asked.clear()
    again = record()
    again.end("finished", None, 2.0)
    assert again.checkpoint() == last
    assert again.reuse_scores()
    assert again.result().checkpoint == again.result().checkpoint == last
    assert asked == ["refresh", "newest_checkpoint"]
    resumes = record()
    resumes.earlier = None  # as `rungs_of` finds that it would not be stopped in this sweep
    shutil.rmtree(last)
    assert resumes.checkpoint() is None


@pytest.mark.parametrize("bucket", ["s3://bucket", ""])
def test_trials_are_opened_together_and_told_of_in_order(
    variant: Variant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bucket: str
) -> None:
    """The first asks until the second does; what is wrong with the first of them is told."""
    both, wrong = threading.Barrier(2, timeout=60.0), set[str]()

    def refresh(store: RunStore) -> None:
        both.wait()
        if store.folder.name in wrong:
            raise OperationalError(store.folder.name)

    monkeypatch.setattr(RunStore, "refresh", refresh)
    stores = [RunStore(tmp_path / name) for name in ("0", "1")]
    for store in stores:
        store.location = f"{bucket}/{store.folder.name}" if bucket else store.location
    asked = [(variant, store) for store in stores]
    records = TrialRecord.open_all(asked, "none", "", False)
    assert [record.store for record in records] == stores
    wrong |= {"0", "1"}
    with pytest.raises(OperationalError, match=r"^0$"):
        TrialRecord.open_all(asked, "none", "", False)


def test_a_checkpoint_from_a_bucket_is_here_for_as_long_as_it_is_needed(
    variant: Variant, tmp_path: Path, bucket: str
) -> None:
    store = driver_store(bucket, tmp_path / "sweep").child("trial")
    store.attempt = "1"
    with store.writing():
        store.keep(save(store.folder / "step-00000004", 4))
        store.finish()
    record = TrialRecord.open(variant, store, "none", "", False)
    record.end("finished", None, 1.0)
    with record.result().fetched() as checkpoint:
        checkpointing.verify(checkpoint)
    assert checkpoints(store.folder) == []
    assert record.checkpoint() == checkpoint
    with pytest.raises(OSError, match="no room"), record.result().fetched():
        raise OSError("no room")
    assert checkpoints(store.folder) == []


def test_what_trained_a_trial_is_kept_with_it(variant: Variant, tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []

    def end(torch: str) -> dict[str, str] | None:
        record = opened(variant, tmp_path, torch)
        record.on_trial = lambda event, of, figures: heard.append(figures)
        record.end("finished", None, 1.0)
        return dict(record.result().made_by or {}) or None

    save(tmp_path / checkpoint_name(variant.config.train.steps), variant.config.train.steps)
    assert end("2.12.0") == {"version.torch": "2.12.0"}
    assert end("2.13.0") == {"version.torch": "2.12.0"}
    started = [figures for figures in heard if "done_before" in figures]
    assert [one["done_before"] for one in started] == [False, True]
    assert [one["made_by"]["version.torch"] for one in started] == ["2.12.0"] * 2
    result = tmp_path / "result.json"
    content = json.loads(result.read_text())
    result.write_text(json.dumps({key: content[key] for key in content if key != "made_by"}))
    assert end("2.13.0") is None, "of an earlier version: nobody knows"


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("schedule", ["asha", "another rule"])
def test_a_stopped_trial_that_resumes_is_of_what_trains_it_further(
    variant: Variant, tmp_path: Path, trains: bool, schedule: str
) -> None:
    """Another sweep may stop it where it was: then nothing else has trained it."""
    save(tmp_path / checkpoint_name(4), 4)
    opened(variant, tmp_path, "2.12.0", schedule="asha").end("stopped early", None, 1.0)
    again = opened(variant, tmp_path, "2.13.0", schedule=schedule)
    again.earlier = None  # as `rungs_of` finds that it would not be stopped in this sweep
    if trains:
        save(tmp_path / checkpoint_name(8), 8)
    again.end("stopped early", None, 1.0)
    wanted = {"version.torch": "2.13.0" if trains else "2.12.0"}
    assert again.result().made_by == wanted
    assert json.loads((tmp_path / "result.json").read_text())["made_by"] == wanted


@pytest.mark.parametrize("trains", [True, False])
def test_without_its_result_a_trial_is_still_of_what_trained_it(
    variant: Variant, tmp_path: Path, trains: bool
) -> None:
    """The last line of a search asks to remove it, where a trial could not be scored."""

    def end(torch: str) -> Any:
        record = opened(variant, tmp_path, torch, final=True)
        record.end("finished", None, 1.0)
        return record.result().made_by

    last = variant.config.train.steps
    save(tmp_path / checkpoint_name(last - trains), last - trains)
    assert end("2.12.0") == {"version.torch": "2.12.0"}
    (tmp_path / "result.json").unlink()
    if trains:
        save(tmp_path / checkpoint_name(last), last)
    assert end("2.13.0") == {"version.torch": "2.13.0" if trains else "2.12.0"}
    for torn in ("[]", "{", "{}"):
        (tmp_path / "result.json").unlink()
        (tmp_path / "trained_by.json").write_text(torn)
        assert end("2.14.0") == {"version.torch": "2.14.0"}


@pytest.mark.parametrize("scored", [True, False])
def test_what_trained_a_trial_and_was_interrupted_is_not_what_stopped_it_before(
    variant: Variant, tmp_path: Path, scored: bool
) -> None:
    open_by = functools.partial(opened, variant, tmp_path, schedule="asha")
    save(tmp_path / checkpoint_name(4), 4)
    open_by("2.12.0").end("stopped early", None, 1.0)
    if scored:  # of the step that it was stopped at
        result = json.loads((tmp_path / "result.json").read_text())
        scores = {"scores": {"bleu": 1.0}, "scored_step": 4}
        (tmp_path / "result.json").write_text(json.dumps(result | scores))
    open_by("2.13.0").earlier = None
    save(tmp_path / checkpoint_name(8), 8)  # and then it was interrupted
    again = open_by("2.13.0")
    again.earlier = None
    again.end("stopped early", None, 1.0)
    assert again.result().made_by == {"version.torch": "2.13.0"}


@pytest.mark.parametrize(
    ("left", "trained_again", "torch"),
    [(None, True, "2.13.0"), (4, True, "2.13.0"), (4, False, "2.12.0")],
)
def test_a_trial_whose_checkpoint_was_lost_is_of_what_trains_it_again(
    variant: Variant, tmp_path: Path, left: int | None, trained_again: bool, torch: str
) -> None:
    """Though it comes to the same step as before."""

    last = variant.config.train.steps
    for step in filter(None, (left, last)):
        save(tmp_path / checkpoint_name(step), step)
    opened(variant, tmp_path, "2.12.0").end("finished", None, 1.0)
    shutil.rmtree(tmp_path / checkpoint_name(last))
    again = opened(variant, tmp_path, "2.13.0")
    if trained_again:
        save(tmp_path / checkpoint_name(last), last)
    again.end("finished" if trained_again else "stopped early", None, 1.0)
    assert again.result().made_by == {"version.torch": torch}


def test_a_folder_with_the_result_of_another_variant_is_no_earlier_one(
    variant: Variant, tmp_path: Path
) -> None:
    """As somebody may have copied it."""
    save(tmp_path / checkpoint_name(variant.config.train.steps), variant.config.train.steps)
    first = opened(variant, tmp_path)
    first.end("finished", None, 1.0)
    assert opened(variant, tmp_path).earlier is not None
    path = tmp_path / "result.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"fingerprint": "of another"}))
    assert opened(variant, tmp_path).earlier is None


def test_a_trial_that_is_not_trained_again_took_as_long_as_it_did(
    variant: Variant, tmp_path: Path
) -> None:
    told: list[float] = []

    def end(began: float, ended: float) -> float:
        def hear(event: str, of: Any, figures: dict[str, Any]) -> None:
            if event == "finished":
                told.append(figures["wall_seconds"])

        record = opened(variant, tmp_path)
        record.on_trial = hear
        record.start(began)
        record.end("finished", None, ended)
        return record.result().wall_seconds

    save(tmp_path / checkpoint_name(variant.config.train.steps), variant.config.train.steps)
    assert [end(1.0, 8.5), end(20.0, 20.25)] == [7.5, 7.5]
    assert told == [7.5, 7.5]


def test_how_far_a_stopped_trial_was_judged_is_kept(variant: Variant, tmp_path: Path) -> None:
    record = functools.partial(opened, variant, tmp_path, schedule="asha")
    first = record()
    assert first.told_before() is None
    for step in (4, 8, 4):  # of a trial that was tried again
        first.report({"step": step})
    first.status = "stopped early"
    first.save()
    again = record()
    assert again.told_before() == 8
    again.status = first.status
    again.save()  # as when it is scored in another way
    assert record().told_before() == 8


def test_scores_are_used_again_where_they_were_made_alike(variant: Variant, tmp_path: Path) -> None:
    def record(
        scorer: str = "code", *, final: bool = False, lowercase: bool = False, **changes: int
    ) -> TrialRecord:
        named = {f"evaluate.{key}": value for key, value in changes.items()}
        named["prepare.lowercase"] = lowercase
        config = configuration.with_changes(variant.config, named)
        asked = dataclasses.replace(variant, config=config)
        assert asked.fingerprint == variant.fingerprint
        return TrialRecord.open(asked, RunStore(tmp_path), "none", scorer, final)

    save(tmp_path / checkpoint_name(variant.config.train.steps), variant.config.train.steps)
    first = record()
    first.status = "finished"
    assert not first.reuse_scores()
    assert not first.reuse_cause()
    first.keep_scores({"bleu": 31.4, "translations": ["ein Satz"]})
    again, other = record(), record("other code")
    assert again.reuse_scores()
    assert again.scores == {"bleu": 31.4}
    assert not other.reuse_scores()
    assert not record(beam=variant.config.evaluate.beam + 3).reuse_scores()
    assert record(tokens_per_batch=7).reuse_scores()
    # Of text that is lower-case already the data are the same, and the signature is not.
    assert not record(lowercase=True).reuse_scores()
    values = configuration.fingerprint(
        variant.config, "evaluate", "data", without=["evaluate.tokens_per_batch"]
    )
    kept = json.loads((tmp_path / "result.json").read_text())
    older = kept | {"scored_as": f"code-{values}"}
    (tmp_path / "result.json").write_text(json.dumps(older))
    assert record().reuse_scores(), "scores of earlier versions stay"
    assert not record(beam=variant.config.evaluate.beam + 3).reuse_scores()
    assert not record(lowercase=True).reuse_scores()
    (tmp_path / "result.json").write_text(json.dumps(kept))
    # A kill between both files, or a hand, leaves scores of other translations.
    said = (tmp_path / TRANSLATIONS_NAME).read_text()
    (tmp_path / TRANSLATIONS_NAME).write_text("zwei Sätze\n")
    assert not record().reuse_scores()
    (tmp_path / TRANSLATIONS_NAME).write_text(said)
    assert record().reuse_scores()
    (tmp_path / TRANSLATIONS_NAME).unlink()
    assert not record().reuse_scores()
    # That there are none is final only where the search that asks says so.
    first.scores, first.cause = {}, "not scored: out of memory"
    first.save()
    assert not record().reuse_cause()
    assert not record("other code", final=True).reuse_cause()
    assert not record(final=True, tokens_per_batch=7).reuse_cause(), "it may be what helps"
    last = record(final=True)
    assert last.reuse_cause()
    assert last.cause == first.cause


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({"data.private": True, "data.folder": "corpora/moved"}, True),
        ({"data.files.test": ["new.en", "new.de"]}, True),
        ({"data.phrasebook.test": 7}, True),
        ({"data.source": "de", "data.target": "en"}, False),
    ],
)
def test_scores_are_used_again_where_data_that_no_score_is_of_have_changed(
    variant: Variant, tmp_path: Path, changes: dict[str, Any], same: bool
) -> None:
    """What changes the text changes `scorer`, or the folder of the sweep. That there is no score is
    final in the same cases."""

    def record(changes: dict[str, Any]) -> TrialRecord:
        config = configuration.with_changes(variant.config, changes)
        asked = dataclasses.replace(variant, config=config)
        assert asked.fingerprint == variant.fingerprint
        return TrialRecord.open(asked, RunStore(tmp_path), "none", "code", True)

    save(tmp_path / checkpoint_name(variant.config.train.steps), variant.config.train.steps)
    first = record({})
    first.status = "finished"
    first.keep_scores({"bleu": 31.4, "translations": ["ein Satz"]})
    assert record(changes).reuse_scores() == same
    first.scores, first.cause = {}, "not scored: out of memory"
    first.save()
    assert record(changes).reuse_cause() == same


@pytest.mark.parametrize("room", [None, *ROOM])
def test_a_failure_is_final_only_with_the_room_that_it_had(
    variant: Variant, tmp_path: Path, room: str | None
) -> None:
    """What a trial that ran out of memory is told to change: its fingerprint has none of it."""

    def record(changes: dict[str, Any], *, final: bool = True) -> TrialRecord:
        config = configuration.with_changes(variant.config, changes)
        asked = dataclasses.replace(variant, config=config)
        assert asked.fingerprint == variant.fingerprint
        return TrialRecord.open(asked, RunStore(tmp_path), "none", "", final)

    other = {} if room is None else {room: 0.5 if "gpus" in room else 7}
    first = record({})
    first.end("failed", "out of memory", 1.0)
    first.settle()
    assert record({}, final=False).earlier is None
    assert record({"sweep.max_failures": 7}).earlier is not None
    assert (record(other).earlier is None) == (room is not None)
    last = record(other)
    last.end("failed", "out of memory again", 2.0)
    last.settle()
    assert record(other).earlier is not None, "it failed with these too"
    path = tmp_path / "result.json"
    kept = json.loads(path.read_text())
    del kept["room"]
    path.write_text(json.dumps(kept))
    assert record({}).earlier is not None, "of an earlier version, which did not say"


def test_what_helps_where_memory_ran_out_runs_the_stage_again() -> None:
    """By dvc.yaml, and so does what the message says."""
    stages = yaml_text.read_yaml((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
    for key in ROOM:
        assert key in LOWER
        assert key.partition(".")[0] in stages["sweep"]["params"]


@pytest.mark.parametrize(
    ("status", "left", "told"),
    [
        ("finished", 12, None),
        ("finished", 8, "step-00000012 is missing or damaged"),
        ("finished", None, "step-00000012 is missing or damaged"),
        ("stopped early", 8, None),
        ("stopped early", None, "its checkpoints are missing or damaged"),
    ],
)
def test_a_trial_without_its_checkpoint_is_trained_again(
    variant: Variant,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    status: Ending,
    left: int | None,
    told: str | None,
) -> None:
    """Else it would have no score, or that of an earlier step."""
    before = opened(variant, tmp_path)
    before.status = status
    before.keep_scores({"bleu": 31.4, "translations": ["ein Satz"]})
    if left is not None:
        save(tmp_path / checkpoint_name(left), left)
    found = opened(variant, tmp_path)
    assert (found.earlier is None) == (told is not None)
    assert found.reuse_scores() == (told is None)
    said = f"{variant.name}: {told}; it is trained again\n" if told else ""
    assert capsys.readouterr().out.endswith(said)


@pytest.mark.parametrize(
    ("journal_ends", "left", "expected"),
    [
        (True, 12, "finished"),
        (True, 8, "stopped early"),  # it finished once, and was trained again to a rung
        (True, None, "stopped early"),
        (False, 12, "stopped early"),  # the loop has not ended: there is no last validation
    ],
)
def test_a_trial_has_finished_by_its_journal_and_its_last_checkpoint(
    variant: Variant, tmp_path: Path, journal_ends: bool, left: int | None, expected: Ending
) -> None:
    if journal_ends:
        (tmp_path / JOURNAL_NAME).write_text('{"kind": "finished", "step": 12}\n')
    if left is not None:
        save(tmp_path / checkpoint_name(left), left)
    record = opened(variant, tmp_path)
    assert record.ended_as() == expected


def test_without_the_checkpoint_that_was_scored_a_stopped_trial_is_trained_again(
    variant: Variant, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else its score would be of a later step than its other figures."""
    for step in (4, 8):
        save(tmp_path / checkpoint_name(step), step)
    before = opened(variant, tmp_path)
    before.status = "stopped early"
    before.keep_scores({"bleu": 31.4, "translations": ["ein Satz"]})
    assert opened(variant, tmp_path).earlier is not None
    damage(tmp_path / checkpoint_name(8))
    assert opened(variant, tmp_path).earlier is None
    said = "its scores are of step 8, and its newest checkpoint is step-00000004"
    assert capsys.readouterr().out.endswith(f"{variant.name}: {said}; it is trained again\n")


def test_a_stopped_trial_without_scores_and_checkpoints_is_trained_again(
    variant: Variant, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scores come last: else it would never have any."""
    save(tmp_path / checkpoint_name(4), 4)
    before = opened(variant, tmp_path)
    before.status = "stopped early"
    before.save()
    assert opened(variant, tmp_path).earlier is not None
    shutil.rmtree(tmp_path / checkpoint_name(4))
    assert opened(variant, tmp_path).earlier is None
    said = "its checkpoints are missing or damaged; it is trained again"
    assert capsys.readouterr().out.endswith(f"{variant.name}: {said}\n")
    # One that was stopped before its first checkpoint is as it was.
    before.save()
    assert opened(variant, tmp_path).earlier is not None


def test_an_interruption_asks_nothing_of_a_bucket(
    variant: Variant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which may be silent for minutes, and why one interrupts."""
    for further, made_by in ((False, {"code": "then"}), (True, {"code": "now"})):
        folder = tmp_path / str(further)
        save(folder / checkpoint_name(4), 4)
        before = TrialRecord.open(
            variant, RunStore(folder), "other", "", False, made_by={"code": "then"}
        )
        before.status = "stopped early"
        before.save()
        store, told = RunStore(folder), list[tuple[str, Any]]()
        record = TrialRecord.open(
            variant, store, "none", "", False, made_by={"code": "now"},
            on_trial=lambda event, _, figures, told=told: told.append((event, figures)),
        )  # fmt: skip
        if further:
            train(folder, 4, 8, "CPU")
        store.location = "s3://bucket/trial"
        for request in ("refresh", "newest_checkpoint"):
            monkeypatch.setattr(store, request, lambda: pytest.fail("it was asked"))
        record.end("failed", INTERRUPTED, 1.0)
        assert [event for event, _ in told] == ["started", "failed"]
        assert told[-1][1]["made_by"] == made_by


def train(folder: Path, after: int, until: int, device: str) -> None:
    """Write what a trial of twelve steps does; its figures are by the device and the step."""
    with contextlib.closing(Journal(folder / JOURNAL_NAME)) as journal:
        for step in range(after + 4, until + 1, 4):
            perplexity = {"valid_perplexity": {"CPU": 100.0, "H100": 200.0}[device] - step}
            journal.append(Logged(step, {"loss": 9.0 - step / 4}))
            journal.append(Validated(step, perplexity))
            figures = {"step": step, "flops": 1e9 * step, "device": device, **perplexity}
            journal.append(CheckpointDue(step, figures, pytest.fail))
            save(folder / checkpoint_name(step), step)
        if until == 12:
            journal.append(Finished(12, {"step": 12, "flops": 12e9, "device": device}))


def test_a_result_has_the_size_of_a_pass_that_it_was_trained_with(
    variant: Variant, tmp_path: Path
) -> None:
    """An earlier sweep asked for another, which trains nothing anew."""
    assert variant.config.train.tokens_per_pass not in (50, "auto")
    with contextlib.closing(Journal(tmp_path / JOURNAL_NAME)) as journal:
        journal.append(Finished(12, {"step": 12, "tokens_per_pass": 50}))
    save(tmp_path / checkpoint_name(12), 12)
    found = result_of(variant, tmp_path).variant
    assert found.config.train.tokens_per_pass == 50
    assert (found.name, found.fingerprint) == (variant.name, variant.fingerprint)


def lose(folder: Path, *steps: int) -> None:
    for step in steps:
        shutil.rmtree(folder / checkpoint_name(step))


def result_of(variant: Variant, folder: Path, status: Ending | None = None) -> TrialResult:
    """As it ended, or by its folder."""
    record = opened(variant, folder)
    record.end(status or record.ended_as(), None, 1.0)
    return record.result()


def numbers(result: TrialResult) -> tuple[Any, ...]:
    step, metrics = result.checkpoint and int(result.checkpoint.name[-2:]), result.metrics
    assert result.origin == {"device": metrics["device"]}
    perplexity, device = metrics["valid_perplexity"], metrics["device"]
    return result.status, step, result.steps, perplexity, metrics["flops"], device


def test_a_trial_that_lost_its_end_and_was_stopped_then_is_told_up_to_there(
    variant: Variant, tmp_path: Path
) -> None:
    train(tmp_path, 0, 12, "CPU")
    expected = ("finished", 12, 12, 88.0, 12e9, "CPU")
    assert numbers(result_of(variant, tmp_path)) == expected
    lose(tmp_path, 8, 12)
    # At a rung that it had passed before.
    assert numbers(result_of(variant, tmp_path))[:3] == ("stopped early", 4, 4)
    train(tmp_path, 4, 8, "H100")
    expected = ("stopped early", 8, 8, 192.0, 8e9, "H100")
    assert numbers(result_of(variant, tmp_path)) == expected


def test_a_trial_that_lost_its_end_and_was_trained_again_has_the_figures_of_that(
    variant: Variant, tmp_path: Path
) -> None:
    train(tmp_path, 0, 12, "CPU")
    lose(tmp_path, 12)
    train(tmp_path, 8, 12, "H100")
    expected = ("finished", 12, 12, 188.0, 12e9, "H100")
    assert numbers(result_of(variant, tmp_path)) == expected


@pytest.mark.parametrize("then", ["interrupted", "killed"])
def test_a_trial_is_told_up_to_the_checkpoint_that_is_scored(
    variant: Variant, tmp_path: Path, then: str
) -> None:
    """A scheduler that came later may stop it where it resumes, and what came after is lost."""
    train(tmp_path, 0, 8, "CPU")
    with contextlib.closing(Journal(tmp_path / JOURNAL_NAME)) as journal:
        journal.append(Logged(10, {"loss": 1.0}))
        if then == "killed":
            journal.append(Validated(12, {"valid_perplexity": 1.0}))
        else:
            save(tmp_path / interrupted_name(11), 11)
    stopped = result_of(variant, tmp_path)
    assert numbers(stopped) == ("stopped early", 8, 8, 92.0, 8e9, "CPU")
    assert stopped.metrics["loss"] == 7.0


@pytest.mark.parametrize(("status", "kept"), [("failed", [4, 8]), ("stopped early", [])])
def test_a_trial_that_failed_or_has_no_checkpoint_is_told_by_all_of_its_journal(
    variant: Variant, tmp_path: Path, status: Ending, kept: list[int]
) -> None:
    train(tmp_path, 0, 8, "CPU")
    lose(tmp_path, *({4, 8} - set(kept)))
    with contextlib.closing(Journal(tmp_path / JOURNAL_NAME)) as journal:
        journal.append(Logged(10, {"loss": 99.0}))
    found = result_of(variant, tmp_path, status)
    assert (found.steps, found.metrics["loss"]) == (10, 99.0)


def test_a_file_that_says_of_no_node_when_a_trial_came_there_is_left_out(tmp_path: Path) -> None:
    """What a kill has left before it was renamed, and what somebody else has put there."""
    folder = tmp_path / NODES_NAME
    folder.mkdir()
    nodes = {"late-2b": "2.0\n", "early-1a": "1.0\n"}
    others = {".late-2b.0f.partial": "3.0\n", "a": "?"}
    for name, text in (nodes | others).items():
        (folder / name).write_text(text)
    assert nodes_of(tmp_path) == ["early-1a", "late-2b"]
