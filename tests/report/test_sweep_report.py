"""What reports/sweep.json and metrics/sweep.json say of trials that ended in every way."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.config.scores import BLEU, F1
from seq2sweep.data.files import write_lines
from seq2sweep.data.treebank.trees import parse_tree
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.evaluate.bleu import score
from seq2sweep.evaluate.brackets import score_trees, tree_or_none
from seq2sweep.evaluate.scorers import BleuScorer, TreeScorer
from seq2sweep.evaluate.significance import against_base
from seq2sweep.model import flops
from seq2sweep.report import sweep_report
from seq2sweep.report.positions import length_scores
from seq2sweep.runs.layout import JOURNAL_NAME
from seq2sweep.runs.run_store import Ending, RunStore
from seq2sweep.storage.atomic import write_whole
from seq2sweep.sweep.search import Proposal
from seq2sweep.sweep.trial_record import TrialResult
from seq2sweep.sweep.variants import Refused, base_of, variants
from tests import rebuild
from tests.conftest import Corpus, write_encoded
from tests.evaluate.made_up_trees import GOLD, parsed

KEYS = {
    *("name", "variant", "row", "group", "seed", "changes", "model", "train", "status", "cause"),
    *("steps", "valid_perplexity", "bleu", "bleu_paper", "chrf", "signature", "parameters"),
    *("flops", "mfu", "device_hours", "energy_kwh", "wall_seconds", "curve", "translations"),
    *("nodes", "mlflow_run_id", "params_sha256", *sweep_report.ORIGIN.values()),
    *("shared_device", "heads"),
}
FIGURES = KEYS - {
    *("name", "variant", "row", "group", "seed", "changes", "model", "train", "status", "cause"),
    *("steps", "wall_seconds", "curve", "nodes", "mlflow_run_id", "params_sha256"),
    *sweep_report.ORIGIN.values(),
}
SCORES = {"bleu": 20.0, "bleu_paper": 20.5, "chrf": 50.0, "signature": "a|b"}
COST = {"flops": 1e12, "mfu": None, "device_hours": 0.5, "energy_kwh": None}
REFERENCES = [f"das ist Satz {n} von allen Sätzen hier" for n in range(40)]


@pytest.fixture
def config(tiny_config: Config) -> Config:
    return configuration.with_changes(
        tiny_config,
        {
            "sweep.method": "table3",
            "sweep.rows": ["A-heads-1", "C-layers-2", "E"],
            "sweep.space": {},
            "sweep.base": {"model.heads": 8, "model.layers": 2},
            "sweep.seeds": 2,
        },
    )


@pytest.fixture
def results(config: Config, tmp_path: Path) -> list[TrialResult]:
    """Two seeds of three variants, all finished; the last is much worse than the others."""
    found = []
    for place, variant in enumerate(variants(config)[0]):
        folder = tmp_path / variant.slug
        folder.mkdir()
        entries = [
            {"kind": "validated", "step": step, "valid_loss": 9 - step, "valid_perplexity": 99.0}
            for step in (4, 8, 4)  # a run that was killed says some things twice
        ]
        lines = [json.dumps(entry) + "\n" for entry in entries]
        (folder / "journal.jsonl").write_text("".join(lines))
        wrong = 5 + place % 2 if place < 4 else 30
        texts = ["nichts davon"] * wrong + REFERENCES[wrong:]
        write_lines(folder / "valid.translations.txt", texts)
        found.append(
            TrialResult(
                variant=variant,
                store=RunStore(folder),
                status="finished",
                cause=None,
                steps=12,
                checkpoint=folder / "step-00000012",
                metrics=SCORES | COST | {"step": 12, "valid_perplexity": 99.0},
                journal=folder / "journal.jsonl",
                translations=folder / "valid.translations.txt",
                wall_seconds=3.0,
                nodes=["one", "two"],
            )
        )
    assert [result.variant.variant for result in found][::2] == [
        *("base", "A-heads-1", "E-learned-positions"),
    ]
    return found


def ended(result: TrialResult, status: Ending, **changes: Any) -> TrialResult:
    return dataclasses.replace(result, status=status, **changes)


def test_a_trial_that_finished_has_all_figures(results: list[TrialResult]) -> None:
    entry = sweep_report.describe(results[3], 90, {"A-heads-1 seed=2": "abc"})
    config = results[3].variant.config
    assert entry.keys() == KEYS
    assert (entry["name"], entry["variant"]) == ("A-heads-1 seed=2", "A-heads-1")
    assert (entry["row"], entry["group"], entry["seed"]) == ("A-heads-1", "A", 2)
    assert entry["changes"] == {"model.heads": 1, "model.d_k": 128, "model.d_v": 128}
    assert entry["model"] == configuration.to_dict(config)["model"]
    assert (entry["model"]["heads"], entry["train"]["seed"]) == (1, 2)
    assert {key: entry[key] for key in SCORES} == SCORES
    assert {key: entry[key] for key in COST} == COST
    assert entry["parameters"] == flops.parameter_count(config.model, 90)
    assert entry["curve"] == [(4, 5), (8, 1)]
    assert entry["valid_perplexity"] == 99.0
    assert (entry["mlflow_run_id"], entry["cause"]) == ("abc", None)
    assert entry["nodes"] == ["one", "two"]
    json.dumps(entry)


def test_translations_outside_the_project_are_found_from_anywhere(
    results: list[TrialResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage may run in a copy of the project, which a path from there would lead out of."""
    places = []
    for project in (results[0].journal.parent, results[1].journal.parent):
        monkeypatch.chdir(project)
        place = sweep_report.describe(results[0], 90, {})["translations"]
        places.append(place["file"])
    assert places == ["valid.translations.txt", str(results[0].translations)]


def test_a_trial_is_described_up_to_the_checkpoint_that_is_scored(
    results: list[TrialResult],
) -> None:
    """Its journal may have more, of steps whose checkpoint was lost or never came."""
    metrics = SCORES | COST | {"valid_perplexity": 55.5}
    stopped = ended(results[0], "stopped early", steps=4, metrics=metrics)
    entry = sweep_report.describe(stopped, 90, {})
    assert (entry["steps"], entry["curve"], entry["valid_perplexity"]) == (4, [(4, 5)], 55.5)


def test_seeds_keep_the_same_steps_of_a_long_curve_after_a_resume(
    results: list[TrialResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_report, "MOST_POINTS", 4)
    steps = range(1, 11)
    for result, order in zip(results[:2], (steps, [1, 2, 3, 3, 2, 3, *steps[3:]]), strict=True):
        entries = [{"kind": "validated", "step": step, "valid_loss": step / 2} for step in order]
        result.journal.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    first, resumed = (sweep_report.describe(result, 90, {})["curve"] for result in results[:2])
    assert first == resumed
    assert 2 < len(first) <= 5
    assert set(first) <= {(step, step / 2) for step in steps}


def test_a_trial_and_what_all_have_alike_are_its_params(
    config: Config, results: list[TrialResult]
) -> None:
    assert config.evaluate.average_checkpoints == 2
    base = results[0].variant.config
    report = json.loads(json.dumps(sweep_report.whole(config, base, {}, {}, 90)))
    for result in results:
        entry = json.loads(json.dumps(sweep_report.describe(result, 90, {})))
        rebuilt = rebuild.from_sweep(report, entry)
        assert rebuilt == result.variant.config
        assert rebuilt.evaluate.average_checkpoints == 1
        assert entry["params_sha256"] == configuration.fingerprint(rebuilt)
    nothing = sweep_report.whole(config, base_of(config), {}, {}, 90)
    assert nothing["config"] == report["config"]


def test_a_trial_says_on_what_it_was_computed(results: list[TrialResult]) -> None:
    origin: dict[str, Any] = {"precision": "bf16", "workers": 3, "threads": 2, "device": "CPU"}
    origin |= {"cpu_features": "AVX2 avx2", "tokens_per_pass": 4000}
    # Also one that has no summary, or that failed after a checkpoint.
    for status in ("finished", "stopped early", "failed"):
        result = ended(results[0], status, origin=origin)
        entry = sweep_report.describe(result, 90, {})
        found = {name: entry[key] for name, key in sweep_report.ORIGIN.items()}
        assert found == origin


def test_trials_at_once_on_a_processor_shared_it(results: list[TrialResult]) -> None:
    def made(
        place: int, begins: float, ends: float, node: str, device: str | None = "CPU"
    ) -> TrialResult:
        result = results[place]
        line = {"kind": "logged", "step": 1, "time": begins + 1}
        text = "".join(json.dumps(line | {"time": time}) + "\n" for time in (begins + 1, ends))
        result.journal.write_text(text)
        changes: dict[str, Any] = {"wall_seconds": ends - begins, "nodes": [node] if node else []}
        return ended(result, "finished", origin={"device": device}, **changes)

    given = [
        made(0, 0.0, 10.0, "one"),
        made(1, 9.5, 20.0, "one"),  # its journal begins when the first one has ended
        made(2, 0.0, 20.0, "two"),
        made(3, 20.5, 30.0, "one"),
        made(4, 0.0, 30.0, ""),
        made(5, 0.0, 30.0, "one", None),
    ]
    names = [result.variant.name for result in given]
    assert sweep_report.sharing(given[:5]) == dict(
        zip(names[:5], (True, True, False, False, None), strict=True)
    )
    assert sweep_report.sharing(given)[names[5]] is None
    # A try of a learning rate may be the final training itself.
    twin = dataclasses.replace(given[2], variant=given[4].variant)
    assert set(sweep_report.sharing([given[2], twin]).values()) == {False}
    # One that the sweep has no more, since `sweep.space` is another.
    gone = given[2].journal.parent.with_name("gone")
    write_whole(gone / "nodes/two", "1.0")
    assert sweep_report.sharing(given[2:3]) == {names[2]: False}
    write_whole(gone / JOURNAL_NAME, given[2].journal.read_text())
    assert sweep_report.sharing(given[2:3]) == {names[2]: True}
    with (gone / JOURNAL_NAME).open("a") as stream:
        stream.write("damaged\n")
    assert sweep_report.sharing(given[2:3]) == {names[2]: False}
    assert sweep_report.describe(given[0], 90, {}, True)["shared_device"] is True

    def with_gpus(result: TrialResult, gpus: float) -> TrialResult:
        config = configuration.with_changes(
            result.variant.config, {"sweep.gpus_per_trial": gpus, "cluster.gpus_per_worker": 1}
        )
        variant = dataclasses.replace(result.variant, config=config)
        return ended(result, "finished", origin={"device": "H100"}, variant=variant)

    for gpus, expected in ((1, False), (0.6, False), (0.5, True)):
        parts = [with_gpus(result, gpus) for result in given[:2]]
        assert set(sweep_report.sharing(parts).values()) == {expected}


def test_addresses_in_the_report_have_no_passwords(config: Config) -> None:
    changes = {"tracking.uri": "https://ada:hunter2@host"}
    secret = configuration.with_changes(config, changes)
    assert "hunter2" not in json.dumps(sweep_report.whole(secret, secret, {}, {}, 90))


def test_other_methods_have_no_rows(tiny_config: Config, results: list[TrialResult]) -> None:
    [variant, *_], _ = variants(tiny_config)
    other = dataclasses.replace(results[0], variant=variant)
    entry = sweep_report.describe(other, 90, {})
    assert (entry["row"], entry["group"], entry["mlflow_run_id"]) == (None, None, None)


def test_figures_of_a_trial_that_failed_are_null(results: list[TrialResult]) -> None:
    entry = sweep_report.describe(ended(results[2], "failed", cause="out of memory"), 90, {})
    assert entry.keys() == KEYS
    assert {entry[key] for key in FIGURES} == {None}
    assert (entry["status"], entry["cause"]) == ("failed", "out of memory")


def test_a_refused_variant_has_the_same_keys_and_its_reason(config: Config) -> None:
    [refused] = variants(config)[1]
    entry = sweep_report.describe_refused(refused, BLEU)
    assert entry.keys() == KEYS
    assert {entry[key] for key in FIGURES} == {None}
    assert (entry["name"], entry["row"], entry["group"]) == ("C-layers-2", "C-layers-2", "C")
    assert entry["status"] == "refused"
    assert entry["cause"] == "model.layers would be 0.666667: the base must have a multiple of 3"
    assert entry["changes"] == {"model.layers": pytest.approx(2 / 3)}
    assert (entry["model"]["heads"], entry["train"]["seed"], entry["steps"]) == (8, 1, 0)
    json.dumps(entry)


def test_a_search_is_described_by_its_objectives_and_proposals(tiny_config: Config) -> None:
    searched = configuration.with_changes(
        tiny_config,
        {
            "sweep.method": "optuna",
            "sweep.objectives": ["bleu", "perplexity", "flops"],
            "sweep.scheduler": "none",
            "sweep.space": {"model.d_model": [32, 33]},
        },
    )
    base, _ = variants(searched)
    odd = Refused("d_model=33", {}, "it is odd", {})
    proposals = [
        Proposal(1, 1, odd, repeats=False),
        Proposal(2, 1, base, repeats=True),
        Proposal(3, 2, odd, repeats=True),
    ]
    assert sweep_report.refused_of(proposals) == [odd]
    assert sweep_report.describe_search(searched, proposals) == {
        "objectives": [
            {"name": "bleu", "figure": "bleu", "better": "higher"},
            {"name": "perplexity", "figure": "valid_perplexity", "better": "lower"},
            {"name": "flops", "figure": "flops", "better": "lower"},
        ],
        "proposals": [
            {"number": 1, "round": 1, "variant": "d_model=33", "repeats": False},
            {"number": 2, "round": 1, "variant": "base", "repeats": True},
            {"number": 3, "round": 2, "variant": "d_model=33", "repeats": True},
        ],
    }
    assert sweep_report.describe_search(tiny_config, []) == {}
    figures = {
        entry["figure"] for entry in sweep_report.describe_search(searched, [])["objectives"]
    }
    assert figures <= KEYS


def test_all_are_counted_and_the_best_is_named(results: list[TrialResult], config: Config) -> None:
    given = [
        results[0],
        ended(results[1], "finished", metrics=SCORES | {"bleu": 31.0}),
        ended(results[2], "stopped early"),
        ended(results[3], "failed"),
    ]
    trials = [sweep_report.describe(result, 90, {}) for result in given]
    trials += [sweep_report.describe_refused(one, BLEU) for one in variants(config)[1]]
    assert sweep_report.summarise({"trials": trials}) == {
        "trials": 5,
        "finished": 2,
        "stopped_early": 1,
        "failed": 1,
        "refused": 1,
        "best": {"variant": "base", "name": "base seed=2", "bleu": 25.5, "steps": 12},
        "bleu": {
            "base seed=1": 20.0,
            "base seed=2": 31.0,
            "A-heads-1 seed=1": 20.0,
            "A-heads-1 seed=2": None,
            "C-layers-2": None,
        },
    }


def test_the_best_variant_is_the_best_on_average(results: list[TrialResult]) -> None:
    def best(*bleus: float | None, stopped: Collection[int] = ()) -> Any:
        trials = [sweep_report.describe(result, 90, {}) for result in results]
        for number, (trial, bleu) in enumerate(zip(trials, bleus, strict=True)):
            trial["bleu"] = bleu
            trial["status"] = "stopped early" if number in stopped else "finished"
        return sweep_report.summarise({"trials": trials})["best"]

    # The best single training is the base's.
    found = best(40.0, 10.0, 27.0, 28.0, 1.0, 2.0)
    assert found["variant"] == "A-heads-1"
    assert (found["name"], found["bleu"]) == ("A-heads-1 seed=2", 27.5)
    # One that has no score says nothing of its variant.
    assert best(40.0, None, 27.0, 28.0, 1.0, 2.0)["bleu"] == 40.0
    assert best(*[None] * 6) is None
    # A mean over what a scheduler left is too good where there is any other.
    scores = 40.0, 10.0, 27.0, 28.0, 1.0, 2.0
    assert best(*scores, stopped=[1]) == found
    left = best(*scores, stopped=[1, 2, 4])
    assert (left["name"], left["bleu"]) == ("base seed=1", 40.0)


# --- significance --------------------------------------------------------------------------------


@pytest.fixture
def references(tmp_path: Path) -> Path:
    file = tmp_path / "valid.target.txt"
    write_lines(file, REFERENCES)
    return file


def lines(result: TrialResult) -> list[str]:
    return result.translations.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(("count", "certain"), [(5, False), (6, True)])
def test_a_few_sentences_leave_any_difference_possible(
    config: Config, results: list[TrialResult], tmp_path: Path, count: int, certain: bool
) -> None:
    """Their draws are so much alike that two models would be found to be alike."""
    references = tmp_path / "few.target.txt"
    write_lines(references, REFERENCES[:1] * count)
    for result in results:
        if result.status == "finished":
            write_lines(result.translations, REFERENCES[:1] * count)
    found = sweep_report.significance(config, results, references)
    assert found
    for one in found.values():
        assert (one["low"], one["high"]) == ((0, 0) if certain else (-100, 100))


def test_variants_are_compared_with_the_base_over_all_seeds(
    config: Config, results: list[TrialResult], references: Path
) -> None:
    found = sweep_report.significance(config, results, references)
    assert found is not None
    assert found.keys() == {"A-heads-1", "E-learned-positions"}
    base, worse = ([lines(r) for r in results[start : start + 2]] for start in (0, 4))
    assert found["E-learned-positions"] == against_base(base, worse, BleuScorer(REFERENCES, "de"))
    assert found["E-learned-positions"]["seen"]
    assert found["A-heads-1"]["bleu_difference"] == 0
    assert not found["A-heads-1"]["seen"]
    assert json.loads(json.dumps(found)) == found


def test_texts_are_read_a_variant_at_a_time_and_a_bar_tells_how_far(
    config: Config,
    results: list[TrialResult],
    references: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Translations of all variants at once are gigabytes of a large sweep."""
    events: list[Any] = []

    def read(file: Path) -> list[str]:
        events.append(next((r.variant.variant for r in results if r.translations == file), ""))
        return lines(results[0])

    def progress(items: Collection[Any], what: str, unit: str, total: int) -> Collection[Any]:
        events.append((what, unit, total))
        return items

    monkeypatch.setattr(sweep_report, "read_lines", read)
    monkeypatch.setattr(sweep_report, "against_base", lambda *_: events.append("test"))
    monkeypatch.setattr(sweep_report.console, "progress", progress)
    sweep_report.significance(config, results, references)
    assert events == [
        *("base", "base", "", ("compare with base", "variants", 2)),
        *("A-heads-1", "A-heads-1", "test"),
        *("E-learned-positions", "E-learned-positions", "test"),
    ]


def test_only_trials_that_finished_and_were_scored_are_compared(
    config: Config, results: list[TrialResult], references: Path
) -> None:
    results[1] = ended(results[1], "stopped early")
    results[2] = ended(results[2], "failed")
    results[3] = ended(
        results[3], "finished", metrics=COST, cause="not scored: it has no checkpoint"
    )
    found = sweep_report.significance(config, results, references)
    worse = [lines(result) for result in results[4:]]
    expected = against_base([lines(results[0])], worse, BleuScorer(REFERENCES, "de"))
    assert found == {"E-learned-positions": expected}


def test_without_a_finished_base_there_is_nothing_to_compare_with(
    config: Config, results: list[TrialResult], references: Path
) -> None:
    results[:2] = [ended(result, "failed") for result in results[:2]]
    assert sweep_report.significance(config, results, references) is None
    # Of Table 2 it may not have been trained, as all of its tries failed, nor any other.
    assert sweep_report.significance(config, results[2:], references) is None
    assert sweep_report.significance(config, [], references) is None


def test_texts_are_lower_cased_where_the_data_is(
    config: Config, results: list[TrialResult], references: Path
) -> None:
    write_lines(results[4].translations, [text.upper() for text in lines(results[0])])
    results[5] = ended(results[5], "failed")
    lower = configuration.with_changes(config, {"prepare.lowercase": True})
    for used, seen in ((config, True), (lower, False)):
        found = sweep_report.significance(used, [results[0], results[4]], references)
        assert found is not None
        assert found["E-learned-positions"]["seen"] is seen


# --- by length -----------------------------------------------------------------------------------


def test_scored_trials_have_scores_by_length(
    config: Config,
    results: list[TrialResult],
    references: Path,
    tiny_corpus: Corpus,
    tmp_path: Path,
) -> None:
    pieces = Vocabulary.open(tiny_corpus.vocabulary)
    sources = ["the cat " * (1 + n % 4) for n in range(len(REFERENCES))]
    write_encoded(tmp_path, "valid", sources, REFERENCES, pieces)
    write_encoded(tmp_path, "train", ["the cat " * 2] * 5, ["x"] * 5, pieces)
    results[1] = ended(results[1], "failed")
    results[2] = ended(results[2], "stopped early")
    results[3] = ended(results[3], "finished", metrics=COST, cause="it has no checkpoint")
    found = sweep_report.by_length(config, results, references, tmp_path)
    assert found is not None
    assert json.loads(json.dumps(found)) == found
    assert length_scores.problem({"by_length": found}) is None
    # The end of the sentence is a token of each.
    lengths = [len(line) for line in pieces.encode(sources)]
    assert found["trained_on"] == {"usual": lengths[1], "longest": lengths[1]}
    assert [one["sentences"] for one in found["bins"]] == [10, 10, 20]
    assert found["bins"][-1]["shortest"] == lengths[1] + 1
    assert (
        found["signature"]
        == score(lines(results[0]), REFERENCES, "de")["bleu"]["sacrebleu"]["signature"]
    )
    scored = [results[place] for place in (0, 2, 4, 5)]
    assert list(found["bleu"]) == [result.variant.name for result in scored]
    for result in scored:
        own = found["bleu"][result.variant.name]
        for places, bleu in (
            ([n for n in range(40) if n % 4 > 1], own["bins"][-1]),
            ([n for n in range(40) if n % 4 < 2], own["within"]),
        ):
            some, wanted = ([texts[n] for n in places] for texts in (lines(result), REFERENCES))
            assert bleu == pytest.approx(sacrebleu.corpus_bleu(some, [wanted]).score, abs=6e-5)


def test_without_a_scored_trial_there_are_none_by_length(
    config: Config, results: list[TrialResult], references: Path, tmp_path: Path
) -> None:
    unscored = [ended(result, "finished", metrics=COST) for result in results]
    assert sweep_report.by_length(config, unscored, references, tmp_path) is None


# --- parsing -------------------------------------------------------------------------------------


@pytest.fixture
def parsing(config: Config) -> Config:
    return configuration.with_changes(
        config, {"data.target": "trees", "model.target_symbols": 64, "model.tie_embeddings": False}
    )


@pytest.fixture
def parsers(parsing: Config, results: list[TrialResult]) -> list[TrialResult]:
    """As `results`, of parsers: the last two are much worse."""
    found = []
    for place, (result, variant) in enumerate(zip(results, variants(parsing)[0], strict=True)):
        write_lines(result.translations, parsed(0.2 if place < 4 else 0.6, seed=place))
        metrics = {"f1": 90.0 + place, "precision": 91.0, "recall": 89.0, "complete": 40.0}
        metrics |= {"signature": "EVALB, COLLINS.prm"}
        changes: dict[str, Any] = {"variant": variant, "origin": {"precision": "float32"}}
        found.append(ended(result, "finished", metrics=metrics | COST, **changes))
    return found


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    file = tmp_path / "valid.target.txt"
    write_lines(file, GOLD)
    return file


def test_a_trial_of_parsing_has_f1_in_place_of_bleu(
    parsing: Config, parsers: list[TrialResult]
) -> None:
    entry = sweep_report.describe(parsers[1], 90, {})
    translation = {"bleu", "bleu_paper", "chrf"}
    assert entry.keys() == KEYS - translation | {"f1", "precision", "recall", "complete"}
    assert (entry["f1"], entry["complete"]) == (91.0, 40.0)
    assert entry["signature"] == "EVALB, COLLINS.prm"
    assert entry["translations"]["file"].endswith("valid.translations.txt")
    [refused] = variants(parsing)[1]
    assert sweep_report.describe_refused(refused, F1).keys() == entry.keys()
    # Its precision is no float32.
    assert (entry["precision"], entry["train_precision"]) == (91.0, "float32")
    unscored = ended(parsers[1], "finished", metrics=COST | {"precision": "float32"})
    lost = sweep_report.describe(unscored, 90, {})
    assert (lost["f1"], lost["precision"], lost["translations"]) == (None, None, None)
    assert lost["train_precision"] == "float32"


def test_a_report_of_parsing_says_its_score_and_one_of_translation_none(
    config: Config, parsing: Config, parsers: list[TrialResult]
) -> None:
    report = sweep_report.whole(parsing, parsing, {}, {}, 90)
    assert report["score"] == "f1"
    assert "score" not in sweep_report.whole(config, config, {}, {}, 90)
    report["trials"] = [sweep_report.describe(result, 90, {}) for result in parsers]
    report["trials"][0] |= {"status": "failed", "f1": None}
    summary = sweep_report.summarise(report)
    assert summary["best"] == {
        "variant": "E-learned-positions",
        "name": "E-learned-positions seed=2",
        "steps": 12,
        "f1": 94.5,
    }
    assert summary["f1"] == {trial["name"]: trial["f1"] for trial in report["trials"]}
    assert "bleu" not in json.dumps([report["trials"], summary])


def test_parsers_are_compared_by_f1_with_the_base(
    parsing: Config, parsers: list[TrialResult], gold: Path
) -> None:
    found = sweep_report.significance(parsing, parsers, gold)
    assert found is not None
    base, worse = ([lines(r) for r in parsers[start : start + 2]] for start in (0, 4))
    assert found["E-learned-positions"] == against_base(base, worse, TreeScorer(GOLD))
    assert found["E-learned-positions"]["seen"]
    assert found["E-learned-positions"]["f1_difference"] < -10
    assert found.keys() == {"A-heads-1", "E-learned-positions"}


def test_parsers_have_f1_by_length(
    parsing: Config,
    parsers: list[TrialResult],
    gold: Path,
    tiny_corpus: Corpus,
    tmp_path: Path,
) -> None:
    pieces = Vocabulary.open(tiny_corpus.vocabulary)
    sources = ["the cat " * (1 + n % 4) for n in range(len(GOLD))]
    write_encoded(tmp_path, "valid", sources, sources, pieces)
    write_encoded(tmp_path, "train", ["the cat " * 2] * 5, ["x"] * 5, pieces)
    found = sweep_report.by_length(parsing, parsers, gold, tmp_path)
    assert found is not None
    record = {"score": "f1", "by_length": found}
    assert length_scores.problem(record) is None
    assert found["signature"] == "EVALB, COLLINS.prm"
    assert list(found["f1"]) == [result.variant.name for result in parsers]
    places = [n for n in range(len(GOLD)) if n % 4 > 1]
    for result in parsers:
        own = [tree_or_none(lines(result)[n]) for n in places]
        expected = score_trees(own, [parse_tree(GOLD[n]) for n in places])["f1"]
        assert found["f1"][result.variant.name]["bins"][-1] == expected
