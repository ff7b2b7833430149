"""`seq2sweep compare` of trials, variants and evaluated weights: scores, and are they chance."""

from __future__ import annotations

import copy
import functools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep import console, presets
from seq2sweep.cli import main
from seq2sweep.compare import runs
from seq2sweep.data.files import write_lines
from seq2sweep.data.treebank.trees import parse_tree
from seq2sweep.evaluate import bleu
from seq2sweep.evaluate.brackets import score_trees, tree_or_none
from seq2sweep.evaluate.scorers import BleuScorer, TreeScorer
from seq2sweep.evaluate.significance import against_base
from seq2sweep.report.aggregate import aggregate
from seq2sweep.storage.atomic import sha256
from tests.evaluate.made_up_trees import GOLD, parsed
from tests.refusal import refusal

CONFIG = configuration.to_dict(presets.load("phrasebook").config)
REFERENCES = [f"das ist Satz {n} von allen vierzig Sätzen hier" for n in range(40)]
SOURCES = [f"this is sentence {n}" for n in range(40)]
LINEAGE = {
    "git.commit": "a" * 40,
    "git.dirty": "false",
    "data.dataset": "1" * 64,
    "data.vocabulary": "2" * 64,
    "host": "here",
}


def wrong(lines: int) -> list[str]:
    """A translation that misses so many sentences."""
    return ["nichts davon"] * lines + REFERENCES[lines:]


@functools.cache
def scores_of(lines: int) -> dict[str, Any]:
    return bleu.score(wrong(lines), REFERENCES, "de")


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def write_test_set(project: Path, split: str) -> dict[str, str]:
    clean = project / "data/clean"
    clean.mkdir(parents=True, exist_ok=True)
    files = {side: clean / f"{split}.{side}.txt" for side in ("source", "target")}
    write_lines(files["source"], SOURCES)
    write_lines(files["target"], REFERENCES)
    return {"split": split} | {side: sha256(path) for side, path in files.items()}


def trial(
    project: Path, variant: str, seed: int, lines: int | None, **changes: Any
) -> dict[str, Any]:
    """An entry of reports/sweep.json whose translations miss so many lines; None: not scored."""
    name = f"{variant} seed={seed}"
    entry: dict[str, Any] = {
        "name": name,
        "variant": variant,
        "changes": {} if variant == "base" else {"model.heads": 1},
        "model": CONFIG["model"] | ({} if variant == "base" else {"heads": 1}),
        "train": CONFIG["train"] | {"steps": 300, "seed": seed},
        "status": "finished",
        "cause": None,
        "steps": 300,
        "valid_perplexity": None,
        **dict.fromkeys(("bleu", "bleu_paper", "chrf", "signature", "translations")),
        "curve": [],
    }
    if lines is not None:
        file = project / f"runs/{name}.txt"
        file.parent.mkdir(exist_ok=True)
        write_lines(file, wrong(lines))
        scores = scores_of(lines)
        entry |= {
            "valid_perplexity": 2.5,
            "bleu": scores["bleu"]["sacrebleu"]["score"],
            "bleu_paper": scores["bleu"]["paper"]["score"],
            "chrf": scores["chrf"]["score"],
            "signature": scores["bleu"]["sacrebleu"]["signature"],
            "translations": {"file": f"runs/{name}.txt", "sha256": sha256(file)},
        }
    return entry | changes


def write_sweep(project: Path, **changes: Any) -> dict[str, Any]:
    """Two seeds of each variant."""
    test_set = write_test_set(project, "valid")
    refused = "model.d_model must be even for sinusoidal positions, not 33"
    stopped = {"status": "stopped early", "steps": 100}
    failed = {"status": "failed", "cause": "RuntimeError: out\nof memory"}
    diverged = {"status": "failed", "cause": "UserError: the run diverged: weights are not finite"}
    sweep = {
        "config": {key: CONFIG[key] for key in ("data", "prepare", "vocabulary", "evaluate")},
        "lineage": LINEAGE,
        "test_set": test_set,
        "base": {"model": CONFIG["model"], "train": CONFIG["train"]},
        "trials": [
            *(trial(project, "base", seed, lines) for seed, lines in ((1, 4), (2, 5))),
            *(trial(project, "A-heads-1", seed, lines) for seed, lines in ((1, 25), (2, 26))),
            *(trial(project, "equal", seed, lines) for seed, lines in ((1, 5), (2, 4))),
            *(trial(project, "wide", seed, lines) for seed, lines in ((1, 4), (2, 30))),
            trial(project, "half", 1, 5),
            trial(project, "half", 2, None, **failed),
            *(trial(project, "stopped", seed, 20, **stopped) for seed in (1, 2)),
            trial(project, "mixed", 1, 5),
            trial(project, "mixed", 2, 20, **stopped),
            trial(project, "wild", 1, 5),
            trial(project, "wild", 2, None, **diverged),
            trial(project, "refused", 1, None, status="refused", cause=refused),
        ],
        **changes,
    }
    write_json(project / "reports/sweep.json", sweep)
    return sweep


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_sweep(Path())
    return tmp_path


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["compare", *arguments, "--json"]) == 0
    out, error = capsys.readouterr()
    assert error == ""
    found: dict[str, Any] = json.loads(out)
    return found


# --- variants and trials -------------------------------------------------------------------------


def test_variants_are_pooled_over_their_seeds_as_in_the_report(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(capsys, "base", "A-heads-1")
    sets = [[wrong(4), wrong(5)], [wrong(25), wrong(26)]]
    expected = against_base(*sets, BleuScorer(REFERENCES, "de"))
    assert expected["seen"]
    difference = found["difference"]
    assert {key: difference[key] for key in ("p", "low", "high")} == {
        key: expected[key] for key in ("p", "low", "high")
    }
    assert difference["bleu"] == pytest.approx(expected["bleu_difference"], abs=2e-4)
    sweep = json.loads(Path("reports/sweep.json").read_text("utf-8"))
    sweep["significance"] = {"A-heads-1": expected}
    in_report = next(variant.against for variant in aggregate(sweep) if variant.name == "A-heads-1")
    assert in_report is not None
    assert difference["seeds_margin"] == in_report.difference.margin
    assert difference["seen"] is in_report.seen is True
    assert found["parameters"] == {"model.heads": [4, 1]}
    assert found["code"] == found["data"] == {}
    assert found["conclusion"].startswith("A (base) is better by ")
    assert f"p {expected['p']:.3f}".replace("p ", "p = ") in found["conclusion"]


def test_no_more_is_drawn_than_of_text_files_and_it_is_said_what_takes_so_long(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, test = [], runs.against_base

    def against(*texts: Any, samples: int) -> dict[str, Any]:
        found.append((samples, console.doing_now()))
        return test(*texts, samples=samples)

    monkeypatch.setattr(runs, "against_base", against)
    monkeypatch.setattr(runs, "BOOTSTRAP_SAMPLES", 19)  # as many are always drawn
    monkeypatch.setattr(runs, "DRAWN_SENTENCES", 40 * 20)
    compared(capsys, "base", "A-heads-1", "--samples", "20")
    assert found == [(20, "compare")]
    error = refusal(capsys, "compare", "base", "A-heads-1", "--samples", "21")
    assert "--samples 21 of 40 sentences are too many: at most 800 sentences" in error
    assert len(found) == 1
    monkeypatch.setattr(runs, "BOOTSTRAP_SAMPLES", 21)
    compared(capsys, "base", "A-heads-1", "--samples", "21")
    assert len(found) == 2


def test_the_other_way_round_only_the_sign_changes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there, back = (
        compared(capsys, *names) for names in (("base", "A-heads-1"), ("A-heads-1", "base"))
    )
    assert there["difference"]["bleu"] == -back["difference"]["bleu"]
    assert there["difference"]["low"] == pytest.approx(-back["difference"]["high"])
    assert back["conclusion"] == there["conclusion"].replace("A (base)", "B (base)")


def test_no_difference_is_said_where_none_can_be_seen(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(capsys, "base", "equal")
    assert found["difference"]["seen"] is False
    assert found["conclusion"].startswith("No difference can be seen between them (p = ")


def test_what_seeds_explain_is_no_difference(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(capsys, "base", "wide")
    assert found["difference"]["p"] < 0.05
    assert found["difference"]["seen"] is False
    assert "seeds alone explain up to" in found["conclusion"]


def test_a_single_trial_by_its_name(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = compared(capsys, "base seed=1", "base seed=2")
    assert found["parameters"] == {"train.seed": [1, 2]}
    assert [len(found[side]["scores"]["bleu_of_each"]) for side in ("a", "b")] == [1, 1]
    assert found["difference"]["seeds_margin"] is None
    expected = against_base([wrong(4)], [wrong(5)], BleuScorer(REFERENCES, "de"))
    assert found["difference"]["p"] == expected["p"]


def test_a_key_that_came_with_a_default_is_no_difference(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project / "reports/sweep.json"
    report = json.loads(path.read_text())
    report["trials"][0]["model"]["feed_forward"] = "relu"
    path.write_text(json.dumps(report))
    first, second = (report["trials"][i]["name"] for i in (0, 1))
    assert "model.feed_forward" not in compared(capsys, first, second)["parameters"]
    report["trials"][0]["model"]["feed_forward"] = "swiglu"
    path.write_text(json.dumps(report))
    parameters = compared(capsys, first, second)["parameters"]
    assert parameters["model.feed_forward"] == ["swiglu", "relu"]


def test_one_reads_a_table_and_a_sentence(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "base", "A-heads-1"]) == 0
    out, _ = capsys.readouterr()
    lines = out.splitlines()
    assert lines[:2] == [
        "A  base  (reports/sweep.json, 2 trainings)",
        "B  A-heads-1  (reports/sweep.json, 2 trainings)",
    ]
    assert "model.heads  4  1" in lines
    assert "No difference in code, data." in lines
    assert "Perplexities" not in out
    assert [line.split()[0] for line in lines if line.startswith(("BLEU ", "chrF"))][:3] == [
        *("BLEU", "BLEU", "chrF"),
    ]
    assert any("tok:13a" in line for line in lines)
    assert lines[-2].startswith("B less A: −")
    assert lines[-1].startswith("A (base) is better by ")


def test_of_one_training_it_is_said_what_is_not_tested(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "base seed=1", "A-heads-1 seed=1"]) == 0
    assert "what another seed would change is not in it" in capsys.readouterr().out


# --- what did not finish -------------------------------------------------------------------------


def test_what_failed_in_part_is_said_and_the_rest_compared(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(capsys, "base", "half")
    assert found["remarks"] == ["half seed=2 failed (RuntimeError: out of memory)"]
    expected = against_base([wrong(4), wrong(5)], [wrong(5)], BleuScorer(REFERENCES, "de"))
    assert found["difference"]["p"] == expected["p"]
    assert found["parameters"]["train.seed"] == [[1, 2], 1]


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("refused", "refused was refused (model.d_model must be even for sinusoidal positions"),
        ("half seed=2", "half seed=2 failed (RuntimeError: out of memory)"),
    ],
)
def test_what_has_no_score_is_said_with_its_cause(
    project: Path, name: str, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = json.loads(Path("reports/sweep.json").read_text("utf-8"))
    refused = sweep["trials"][-1]
    refused["name"] = "refused"
    write_json(Path("reports/sweep.json"), sweep)
    found = compared(capsys, "base", name)
    assert found["difference"] is None
    assert found["b"]["scores"] is None
    assert cause in found["conclusion"]
    assert "model.heads" in found["parameters"]


def test_what_was_stopped_early_has_a_score_but_is_not_tested(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(capsys, "base", "stopped")
    assert found["remarks"][0] == "stopped seed=1 was stopped early at step 100 of 300"
    assert found["difference"]["bleu"] < 0
    assert found["difference"]["p"] is found["difference"]["seen"] is None
    assert found["conclusion"].startswith("Whether the difference is chance cannot be said: ")
    assert "stopped seed=1 was stopped early" in found["not_tested"]


def test_what_was_stopped_early_does_not_count_beside_what_finished(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(capsys, "base", "mixed")
    assert found["remarks"] == ["mixed seed=2 was stopped early at step 100 of 300"]
    finished = scores_of(5)["bleu"]["sacrebleu"]["score"]
    assert found["b"]["scores"]["bleu_of_each"] == [finished]
    assert found["parameters"]["train.seed"] == [[1, 2], 1]
    # What finished is the better part.
    assert found["difference"]["p"] is found["difference"]["seen"] is None
    assert found["conclusion"] == (
        "Whether the difference is chance cannot be said: mixed seed=2 was stopped early at step "
        "100 of 300, and those that finished were the better ones: name one of them alone."
    )
    assert compared(capsys, "base", "mixed seed=1")["difference"]["p"] is not None


def test_what_did_not_diverge_is_the_better_part(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compared(capsys, "base", "wild")["not_tested"] == (
        "wild seed=2 failed (UserError: the run diverged: weights are not finite), and those that "
        "finished were the better ones: name one of them alone"
    )
    assert compared(capsys, "base", "wild seed=1")["difference"]["p"] is not None


# --- never the wrong texts -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("runs/base seed=1.txt", "runs/base seed=1.txt is not the text that was scored"),
        ("data/clean/valid.target.txt", "valid.target.txt is not the text that was scored"),
    ],
)
@pytest.mark.parametrize("gone", [True, False])
def test_other_texts_than_those_that_were_scored_are_not_used(
    project: Path, file: str, why: str, gone: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(file).unlink()
    if not gone:
        write_lines(Path(file), wrong(7))
    found = compared(capsys, "base", "A-heads-1")
    assert found["difference"]["p"] is None
    assert found["difference"]["bleu"] < 0
    assert (f"{file} is missing" if gone else why) in found["not_tested"]
    assert found["a"]["scores"]["bleu"] > found["b"]["scores"]["bleu"]


@pytest.mark.parametrize(
    ("server", "remedy"),
    [
        (None, "run `dvc repro -f sweep`, which trains again only what cluster.storage has lost"),
        ("http://head:8265", "it is in the cluster.storage of a job, s3://b/p; copy it from there"),
    ],
)
def test_a_job_has_the_translations_where_it_ran(
    project: Path, server: str | None, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = json.loads(Path("reports/sweep.json").read_text("utf-8"))
    sweep["config"]["cluster"] = {"job_server": server, "storage": "s3://b/p"}
    write_json(Path("reports/sweep.json"), sweep)
    Path("runs/base seed=1.txt").unlink()
    told = f"runs/base seed=1.txt is missing: {remedy}"
    assert compared(capsys, "base", "A-heads-1")["not_tested"] == told


def test_a_report_of_an_earlier_version_is_compared_by_what_it_has(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = json.loads(Path("reports/sweep.json").read_text("utf-8"))
    for key in ("config", "lineage", "test_set"):
        del sweep[key]
    for each in sweep["trials"]:
        del each["translations"]
    write_json(Path("reports/sweep.json"), sweep)
    found = compared(capsys, "base", "A-heads-1")
    assert found["parameters"] == {"model.heads": [4, 1]}
    assert found["code"]["git.commit"] == found["data"]["data.dataset"] == [None, None]
    assert found["difference"] is None
    assert "run `dvc repro sweep`" in found["not_tested"]


# --- another project -----------------------------------------------------------------------------


def test_a_trial_of_another_project(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = Path("other")
    write_sweep(other, lineage=LINEAGE | {"git.commit": "b" * 40, "data.vocabulary": "9" * 64})
    found = compared(capsys, "base", "other:A-heads-1")
    assert found["code"] == {"git.commit": ["a" * 40, "b" * 40]}
    assert found["data"] == {"data.vocabulary": ["2" * 64, "9" * 64]}
    assert found["remarks"] == ["Trained on different data."]
    assert main(["compare", "base", "other:A-heads-1"]) == 0
    assert "\nPerplexities do not compare: " in capsys.readouterr().out
    write_sweep(other, lineage={k: v for k, v in LINEAGE.items() if k != "data.vocabulary"})
    assert main(["compare", "base", "other:A-heads-1"]) == 0
    said = "\nPerplexities may not compare: the vocabulary of one is unknown."
    assert said in capsys.readouterr().out
    assert found["difference"]["p"] == compared(capsys, "base", "A-heads-1")["difference"]["p"]


@pytest.mark.parametrize(
    ("change", "text", "remark"),
    [
        (("vocabulary", "dataset"), "same", "with different vocabularies, on the same text"),
        (("vocabulary", "dataset"), "other", "on different data"),
        (("vocabulary", "dataset"), "unknown", "on different data"),
        (("dataset",), "same", "on different data"),
    ],
)
def test_another_vocabulary_is_told_from_other_text(
    change: tuple[str, ...],
    text: str,
    remark: str,
    project: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its tokens are others too."""
    own = {"input.clean": "unknown" if text == "unknown" else "same"}
    write_sweep(project, lineage=LINEAGE | own)
    changed = {f"data.{name}": "9" * 64 for name in change} | {"input.clean": text}
    write_sweep(Path("other"), lineage=LINEAGE | changed)
    assert compared(capsys, "base", "other:A-heads-1")["remarks"] == [f"Trained {remark}."]


@pytest.mark.parametrize(
    ("what", "how"),
    [
        ("text", "valid is not the same text in both"),
        ("lowercase", "lowercase is False for A, True for B"),
        ("language", "to is de for A, fr for B"),
    ],
)
def test_scores_on_different_test_sets_are_not_compared(
    project: Path, what: str, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Path("other")
    sweep = write_sweep(other)
    if what == "text":
        write_lines(other / "data/clean/valid.source.txt", SOURCES[::-1])
        sweep["test_set"]["source"] = sha256(other / "data/clean/valid.source.txt")
    section, key, value = {
        "text": ("prepare", "lowercase", False),
        "lowercase": ("prepare", "lowercase", True),
        "language": ("data", "target", "fr"),
    }[what]
    sweep["config"] = copy.deepcopy(sweep["config"])
    sweep["config"][section][key] = value
    write_json(other / "reports/sweep.json", sweep)
    found = compared(capsys, "base", "other:A-heads-1")
    assert found["difference"] is None
    assert "`seq2sweep score` scores each" in found["conclusion"]
    assert ("both with --lowercase" in found["conclusion"]) == (what == "lowercase")
    [warning] = found["remarks"]
    assert warning == f"Different test sets: {how}."
    assert main(["compare", "base", "other:A-heads-1"]) == 0
    assert warning in capsys.readouterr().out.split("\n\n")[0]


# --- weights -------------------------------------------------------------------------------------


def write_weights(project: Path, lines: int, sums: str = "5") -> None:
    """A training and its evaluation."""
    test_set = write_test_set(project, "test")
    receipt = {
        "checkpoints": [
            {"step": step, "file": f"step-{step}.safetensors", "sha256": sums * 60 + str(step)}
            for step in (1000, 2000)
        ],
        "config": {k: CONFIG[k] for k in ("data", "prepare", "vocabulary", "model", "train")},
        "lineage": LINEAGE,
        "run": "train-1",
    }
    write_json(project / "models/train/receipt.json", receipt)
    rows = zip(SOURCES, REFERENCES, wrong(lines), strict=True)
    table = project / "reports/translations.tsv"
    table.parent.mkdir(exist_ok=True)
    header = "source\treference\ttranslation\tphenomena"
    write_lines(table, [header, *("\t".join([*row, ""]) for row in rows)])
    metrics = scores_of(lines) | {
        "perplexity": 2.0,
        "averaged_checkpoints": [1000, 2000],
        "made_from": {
            "weights": [entry["sha256"] for entry in receipt["checkpoints"]],
            "translations": sha256(table),
            "test_set": test_set,
            "evaluate": CONFIG["evaluate"],
        },
    }
    write_json(project / "metrics/evaluate.json", metrics)


def test_weights_are_compared_by_their_own_evaluations(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_weights(Path(), 4)
    write_weights(Path("other"), 25, sums="6")
    expected = against_base([wrong(4)], [wrong(25)], BleuScorer(REFERENCES, "de"))
    for names in (("models/train", "other/models/train"), (".", "other")):
        found = compared(capsys, *names)
        assert found["difference"]["p"] == expected["p"]
        assert found["difference"]["bleu"] == pytest.approx(expected["bleu_difference"], abs=2e-4)
        assert found["parameters"] == found["code"] == found["data"] == {}


def test_a_copy_of_the_weights_has_the_scores_of_the_same_weights_only(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_weights(Path(), 4)
    shutil.copytree("models/train", "copy")
    found = compared(capsys, "models/train", "copy")
    assert found["a"]["scores"] == found["b"]["scores"] is not None
    write_weights(Path(), 4, sums="7")  # trained again, with the same scores
    found = compared(capsys, "models/train", "copy")
    assert found["b"]["scores"] is None
    assert found["conclusion"].endswith(f"B (copy) has no known score: {NOT_SCORED}.")


NOT_SCORED = (
    "stages score models/train and models/student alone, and no evaluation here is of the weights "
    "in this folder"
)


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("models/teacher", NOT_SCORED),
        (
            "other/models/train",
            "metrics/evaluate.json of its project is missing or of other weights; `dvc repro "
            "evaluate` there makes it",
        ),
    ],
)
def test_how_weights_get_a_score_is_told_where_a_stage_scores_them(
    project: Path, capsys: pytest.CaptureFixture[str], folder: str, expected: str
) -> None:
    write_weights(Path("other"), 4, sums="7")
    Path("other/metrics/evaluate.json").unlink()
    write_weights(Path(), 4)
    if folder == "models/teacher":
        Path("other/models/train").rename(folder)
    found = compared(capsys, "models/train", folder)
    assert found["conclusion"].endswith(f"B ({folder}) has no known score: {expected}.")


def test_an_evaluation_that_does_not_say_of_what_is_not_used(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_weights(Path(), 4)
    metrics = json.loads(Path("metrics/evaluate.json").read_text("utf-8"))
    del metrics["made_from"]
    write_json(Path("metrics/evaluate.json"), metrics)
    found = compared(capsys, "models/train", "models/train")
    assert found["a"]["scores"] is None


def test_weights_and_a_trial_have_different_test_sets(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_weights(Path(), 4)
    found = compared(capsys, "models/train", "base seed=1")
    assert found["remarks"] == ["Different test sets: A is scored on test, B on valid."]
    assert found["difference"] is None
    assert found["parameters"] == {"train.steps": [CONFIG["train"]["steps"], 300]}


# --- mistakes ------------------------------------------------------------------------------------


def test_a_mistyped_trial_is_one_line_with_the_nearest(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(capsys, "compare", "base", "A-head-1") == (
        "seq2sweep compare: A-head-1 is neither a file, a folder nor a trial of "
        "reports/sweep.json, did you mean A-heads-1?\n"
    )
    assert "did you mean base seed=2?" in refusal(capsys, "compare", "Base seed=2", "base")
    assert "it has base, A-heads-1, equal, wide" in refusal(capsys, "compare", "zzz", "base")


def test_other_mistakes_are_one_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bare").mkdir()
    assert "bare/reports/sweep.json is missing" in refusal(capsys, "compare", "base", "bare:base")
    assert "bare has no weights, and is no project whose models/train has some" in refusal(
        capsys, "compare", "base", "bare"
    )
    assert "base is no trial" not in (both := refusal(capsys, "compare", ":base", ":A-head-1"))
    assert "did you mean A-heads-1?" in both
    # As a variant of a search over many keys is called; no path is so long.
    assert "is neither a file, a folder nor a trial" in refusal(
        capsys, "compare", "base", "layers=6 " * 50
    )
    write_json(Path("bare/reports/sweep.json"), ["no", "sweep"])
    assert "bare/reports/sweep.json is damaged (it holds a list" in refusal(
        capsys, "compare", "base", "bare:base"
    )
    Path("bare/reports/sweep.json").write_text("{", encoding="utf-8")
    assert "bare/reports/sweep.json is damaged" in refusal(capsys, "compare", "base", "bare:base")
    write_weights(Path(), 4)
    write_json(Path("metrics/evaluate.json"), {"made_from": {}})
    assert "metrics/evaluate.json has no weights" in refusal(
        capsys, "compare", "base", "models/train"
    )
    write_json(Path("metrics/evaluate.json"), {"made_from": 3, "averaged_checkpoints": 3})
    told = refusal(capsys, "compare", "base", "models/train")
    assert "metrics/evaluate.json is no evaluation" in told
    assert "`dvc repro -f evaluate`" in told


# --- parsing -------------------------------------------------------------------------------------


@functools.cache
def scores_of_trees(share: float, seed: int) -> dict[str, Any]:
    found = score_trees(map(tree_or_none, parsed(share, seed)), [*map(parse_tree, GOLD)])
    own = {name: found[name] for name in ("f1", "precision", "recall", "complete")}
    return own | {"signature": "EVALB, COLLINS.prm"}


def write_parsers(project: Path) -> None:
    """A sweep of parsers: base, one that is worse, one as good; and the base's evaluation."""
    files = write_test_set(project, "valid"), write_test_set(project, "test")
    for test_set in files:
        path = project / f"data/clean/{test_set['split']}.target.txt"
        write_lines(path, GOLD)
        test_set["target"] = sha256(path)
    trials = []
    for variant, share in (("base", 0.2), ("worse", 0.5), ("equal", 0.2)):
        for seed in (1, 2):
            one = trial(project, variant, seed, None)
            for name in ("bleu", "bleu_paper", "chrf"):
                del one[name]
            file = project / f"runs/{one['name']}.txt"
            file.parent.mkdir(exist_ok=True)
            other = 2 * seed + (variant == "equal")
            write_lines(file, parsed(share, other))
            place = {"file": f"runs/{one['name']}.txt", "sha256": sha256(file)}
            trials.append(one | scores_of_trees(share, other) | {"translations": place})
    config = {key: CONFIG[key] for key in ("data", "prepare", "vocabulary", "evaluate")}
    config["data"] = config["data"] | {"target": "trees"}
    sweep = {
        "score": "f1",
        "config": config,
        "lineage": LINEAGE,
        "test_set": files[0],
        "base": {"model": CONFIG["model"], "train": CONFIG["train"]},
        "trials": trials,
    }
    write_json(project / "reports/sweep.json", sweep)


def write_parser(project: Path, share: float, sums: str = "5") -> None:
    """The weights of a parser and their evaluation."""
    write_weights(project, 4, sums)
    write_parsers(project)
    path = project / "models/train/receipt.json"
    receipt = json.loads(path.read_text("utf-8"))
    receipt["config"]["data"]["target"] = "trees"
    write_json(path, receipt)
    rows = zip(SOURCES, GOLD, parsed(share, 1), strict=True)
    table = project / "reports/translations.tsv"
    write_lines(table, ["a\tb\tc\td", *("\t".join([*row, ""]) for row in rows)])
    path = project / "metrics/evaluate.json"
    metrics = json.loads(path.read_text("utf-8"))
    for name in ("bleu", "chrf"):
        del metrics[name]
    metrics["made_from"] |= {"translations": sha256(table)}
    metrics["made_from"]["test_set"]["target"] = sha256(project / "data/clean/test.target.txt")
    write_json(path, metrics | scores_of_trees(share, 1))


def test_parsers_are_compared_by_f1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_parsers(Path())
    found = compared(capsys, "base", "worse")
    sets = [[parsed(share, 2), parsed(share, 4)] for share in (0.2, 0.5)]
    expected = against_base(*sets, TreeScorer(GOLD))
    assert expected["seen"]
    difference = found["difference"]
    assert {key: difference[key] for key in ("p", "low", "high")} == {
        key: expected[key] for key in ("p", "low", "high")
    }
    assert difference["f1"] == pytest.approx(expected["f1_difference"], abs=2e-4)
    assert found["score"] == "f1"
    assert found["a"]["scores"]["f1_of_each"] == [scores_of_trees(0.2, n)["f1"] for n in (2, 4)]
    assert found["a"]["scores"]["complete"] == pytest.approx(
        (scores_of_trees(0.2, 2)["complete"] + scores_of_trees(0.2, 4)["complete"]) / 2
    )
    sweep = json.loads(Path("reports/sweep.json").read_text("utf-8"))
    sweep["significance"] = {"worse": expected}
    in_report = next(variant.against for variant in aggregate(sweep) if variant.name == "worse")
    assert in_report is not None
    assert difference["seeds_margin"] == in_report.difference.margin
    assert compared(capsys, "base", "equal")["conclusion"].startswith("No difference can be seen")
    assert main(["compare", "base", "worse"]) == 0
    text = capsys.readouterr().out
    assert "BLEU" not in text
    assert "\nF1 of each seed  " in text
    assert "\nF1 is EVALB, COLLINS.prm\n" in text
    assert re.search(r"seeds alone explain up to \d+\.\d\d F1", text)
    one = compared(capsys, "base seed=1", "worse seed=1")["conclusion"]
    assert re.match(r"A \(base seed=1\) is better by \d+\.\d\d F1, 95 %", one)
    assert re.search(r"\nB less A: −\d+\.\d\d F1, 95 % interval", text)
    assert {"precision", "recall", "complete match", "perplexity"} <= {
        re.split("  +", line)[0] for line in text.splitlines()
    }


def test_of_parsers_no_further_text_is_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Leaves of `translate` do not have gold's tags, and `score` of trees goes by these."""
    monkeypatch.chdir(tmp_path)
    for project in (Path(), Path("other")):
        write_parsers(project)
    path = Path("other/reports/sweep.json")
    sweep = json.loads(path.read_text("utf-8"))
    sweep["test_set"]["source"] = "9" * 64
    write_json(path, sweep)
    found = compared(capsys, "base", "other:worse")
    assert found["not_tested"] == "their test sets are not the same"
    assert found["remarks"] == ["Different test sets: valid is not the same text in both."]


def test_weights_of_parsers_are_compared_by_their_evaluations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_parser(Path(), 0.2)
    write_parser(Path("other"), 0.5, sums="6")
    found = compared(capsys, "models/train", "other/models/train")
    expected = against_base([parsed(0.2, 1)], [parsed(0.5, 1)], TreeScorer(GOLD))
    assert found["difference"]["p"] == expected["p"]
    assert found["difference"]["f1"] == pytest.approx(expected["f1_difference"], abs=2e-4)
    assert found["b"]["scores"]["recall"] == scores_of_trees(0.5, 1)["recall"]


def test_a_parser_and_a_translator_are_not_compared(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_weights(Path(), 4)
    write_parser(Path("trees"), 0.2)
    for first, second, scores in (
        ("base", "trees:base", ("BLEU", "F1")),
        ("trees:base", "base", ("F1", "BLEU")),
        ("models/train", "trees/models/train", ("BLEU", "F1")),
        ("trees/models/train", "base", ("F1", "BLEU")),
    ):
        assert refusal(capsys, "compare", first, second) == (
            f"seq2sweep compare: A ({first.rpartition(':')[2]}) is scored by {scores[0]}, "
            f"B ({second.rpartition(':')[2]}) by {scores[1]}: only runs of one task can be "
            "compared\n"
        )


def test_the_student_is_compared_by_its_own_evaluation(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of self-training: that of the stage student."""
    for share, sums in ((0.3, "6"), (0.5, "5")):  # the student's first, which is put aside
        write_parser(Path(), share, sums)
        if sums == "6":
            Path("models/train").rename("models/student")
            Path("metrics/evaluate.json").rename("metrics/semi_supervised.json")
            Path("reports/translations.tsv").rename("reports/semi_supervised.tsv")
    found = compared(capsys, "models/train", "models/student")
    expected = against_base([parsed(0.5, 1)], [parsed(0.3, 1)], TreeScorer(GOLD))
    assert found["difference"]["p"] == expected["p"]
    assert found["difference"]["f1"] == pytest.approx(expected["f1_difference"], abs=2e-3)
    Path("reports/semi_supervised.tsv").unlink()
    told = json.dumps(compared(capsys, "models/train", "models/student"))
    assert "run `dvc checkout reports/semi_supervised.tsv`, or `dvc repro -f student`" in told
    write_json(Path("metrics/semi_supervised.json"), {})  # as without self-training
    found = compared(capsys, "models/train", "models/student")
    assert found["b"]["scores"] is None
    assert "metrics/semi_supervised.json of its project is missing" in found["conclusion"]
    assert "`dvc repro student` there makes it" in found["conclusion"]
