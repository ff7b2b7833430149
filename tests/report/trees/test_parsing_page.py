"""The page of a run of parsing: its scores, its trees, and nothing of translation."""

from __future__ import annotations

import dataclasses
import html
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline import report as stage_report
from seq2sweep import config as configuration
from seq2sweep import presets, project_files
from seq2sweep.config import ParsingConfig
from seq2sweep.data.files import TRANSLATION_COLUMNS
from seq2sweep.errors import UserError
from seq2sweep.report import page, samples
from seq2sweep.report.number_format import MISSING
from seq2sweep.report.trees import parsing_scores, tree_samples
from seq2sweep.stages import stage
from tests.report.made_up_parsing import evaluate, parser, parses, parsing_results
from tests.report.made_up_results import results
from tests.report.parsing_sweep import of_parsing
from tests.report.test_page import check_boxes, identifiers, write_inputs
from tests.report.test_table2 import made_up


@pytest.fixture(scope="module")
def rendered() -> str:
    return page.render(parsing_results())


def test_page_is_whole(rendered: str) -> None:
    found = identifiers(rendered)
    named = re.findall(r'aria-labelledby="([^"]+)', rendered)
    targets = re.findall(r'(?:href="|url\()#([^")]+)', rendered)
    assert {*named, *targets} <= found
    check_boxes(rendered)
    sections = {"results", "labels", "phenomena", "by-length", "table4", "trees", "provenance"}
    assert sections <= found


def test_page_shows_what_was_scored(rendered: str) -> None:
    scores = evaluate()
    text = html.unescape(re.sub(r"<[^>]+>", " ", rendered))
    text = re.sub(r"\s+", " ", text)
    for shown in (
        f"F1 {scores['f1']:.1f} ± 0.4 (95 % bootstrap) EVALB, COLLINS.prm",
        f"{scores['precision']:.1f} / {scores['recall']:.1f}",
        "Complete match 50.0 % of 20 sentences",
        f"at most 40 words {scores['short']['f1']:.1f} of 20 sentences",
        "Errors / skipped 0 / 0 every sentence counts",
        f"F1, unconstrained 80.2 constraint gains +{scores['f1'] - 80.25:.2f}; 3 outputs malformed",
        "9.6 / 17.9 F1 of trees that are flat / right-branching",
        "closed by another label 2, fewer words than the sentence 4",
        "beam 21, α 0.3",
        "pp attachment 72.7 of 5 , 12 % right",
        "5–8 12 98.8",
        "Not comparable",
    ):
        assert shown in text, shown
    assert "not to be trusted" not in text
    assert rendered.index("pp attachment") < rendered.index("particle")
    noun_phrases = scores["by_label"]["NP"]
    assert f"<tr><td>NP</td><td>{noun_phrases['gold']}</td><td>{noun_phrases['f1']:.1f}</td>" in (
        rendered
    )


def test_nothing_of_translation_is_on_the_page_of_parsing(rendered: str) -> None:
    for word in ("BLEU", "chrF", "Translations", "sacre", "sentence pairs", "Table 2"):
        assert word not in rendered.partition('id="table1"')[0]
    assert "BLEU" not in rendered


def test_the_page_of_translation_has_nothing_of_parsing() -> None:
    rendered = page.render(results())
    for section in ("trees", "labels", "table4"):
        assert f'id="{section}"' not in rendered
    assert "F1" not in rendered
    assert "sentence pairs for training" in rendered


def test_errors_are_said_loudly() -> None:
    rendered = page.render(parsing_results(errors=2, skipped=1, error_lines=[3, 7, 9]))
    alarm = re.search(r'role="alert">(.*?)</p>', rendered)
    assert alarm
    assert "not to be trusted. Of 20 sentences, errors: 2, skipped: 1." in alarm[1]
    assert "Sentences: 3, 7, 9." in alarm[1]
    many = parsing_scores.context(parser(errors=12, error_lines=[*range(1, 11)]), [])
    assert "9, 10 and more." in many["alarm"]
    skipped = parsing_scores.context(parser(skipped=1, error_lines=[4]), [])
    assert "errors: 0, skipped: 1." in skipped["alarm"]
    wordless = parsing_scores.context(parser(skipped=1, wordless=1), [])
    assert wordless["alarm"] == ""


def test_where_no_sentence_is_short_there_is_no_f1_of_them() -> None:
    short = {**parser().evaluate["short"], "sentences": 0, "f1": 0.0}
    rendered = page.render(parsing_results(short=short))
    text = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", rendered)).split())
    assert f"at most 40 words {MISSING} of 0 sentences" in text


def test_what_a_run_has_not_is_left_out() -> None:
    lacking = parsing_results(
        unconstrained=None, floors=None, confidence=None, well_formed=None, phenomena=None
    )
    rendered = page.render(dataclasses.replace(lacking, translations=[]))
    for word in ("nconstrained", "Floors", "bootstrap)", 'id="phenomena"', 'id="trees"'):
        assert word not in rendered


# --- trees ---------------------------------------------------------------------------------------


def test_those_with_mistakes_come_first_and_a_full_stop_is_none() -> None:
    chosen = tree_samples.choose(parses())
    assert [sample.right for sample in chosen] == [False] * 4 + [True] * 4
    assert {len(sample.drawings) for sample in chosen if sample.right} == {1}
    assert {len(sample.drawings) for sample in chosen if not sample.right} == {2}
    # The particle is PRT in gold, ADVP in the parser’s tree.
    assert chosen[0].score == "F1 92.3: 0 of 6 brackets missed, 1 of 7 wrong"
    scores = {sample.score for sample in chosen}
    assert "F1 92.3: 2 of 14 brackets missed, 0 of 12 wrong" in scores


def test_what_cannot_be_compared_is_shown_as_text() -> None:
    gold = "(TOP (S (NN a)))"
    for found, told in (("(TOP (S (NN b)))", "other words"), ("(TOP (S", "no tree"), ("", "other")):
        (sample,) = tree_samples.choose([samples.Translation("a", gold, found)])
        assert not sample.right
        assert told in sample.drawings[1].problem
        assert sample.drawings[1].svg is None


def test_long_sentences_are_cut_and_hostile_ones_are_text() -> None:
    words = [f"w{i}" for i in range(500)]
    gold = f"(TOP (S {' '.join(f'(NN {word})' for word in words)}))"
    found = gold.replace("(S ", "(S (NP ") + ")"
    hostile = "(TOP (<script>x</script> (<b> <i>&amp;)))"
    rows = [
        samples.Translation(" ".join(words), gold, found),
        samples.Translation("x", hostile, hostile.replace("(<b>", "(X (<b>") + ")"),
    ]
    rendered = page.render(dataclasses.replace(parsing_results(), translations=rows))
    assert "Drawn are the first 60 of 500 words." in rendered
    assert ">w59</text>" in rendered
    assert ">w60</text>" not in rendered
    assert "<script" not in rendered
    assert "&lt;script&gt;x" in rendered
    identifiers(rendered)


# --- the stage -----------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    given = parsing_results()
    write_inputs(given)
    for name in ("semi_supervised", "silver"):
        stage.write_json(project_files.METRICS / f"{name}.json", {})
    nothing = {"reason": "No attention maps: `attention.sentences` is 0."}
    stage.write_json(project_files.METRICS / "attention.json", nothing)
    model = {"run": "train-1", "lineage": given.lineage, "config": {"model": given.model}}
    stage.write_json(project_files.MODEL / "receipt.json", model)
    stage.write_json(project_files.REPORTS / "sweep.json", {"method": "none"})
    return tmp_path


def config(dataset: str = "craft", **sections: tuple[int, ...]) -> configuration.Config:
    given = presets.load("phrasebook").config
    data = dataclasses.replace(given.data, target="trees", dataset=dataset)
    return dataclasses.replace(given, data=data, parsing=ParsingConfig(**sections))


def test_stage_writes_what_dvc_expects(project: Path) -> None:
    stage_report.work(config())
    text = (project / "reports/index.html").read_text(encoding="utf-8")
    assert "F1 by label" in text
    assert "No attention maps: <code>attention.sentences</code> is 0." in text
    declared = Path(stage_report.__file__).parents[1] / "dvc.yaml"
    outs = yaml.safe_load(declared.read_text(encoding="utf-8"))["stages"]["report"]["outs"]
    given = {f"reports/{name}" for name in ("translations.tsv", "sweep.json", "table1.json")}
    written = {f"reports/{path.name}" for path in (project / "reports").iterdir()}
    assert written - given == set(outs)


@pytest.mark.parametrize(
    ("dataset", "sections", "trees", "comparable"),
    [
        ("craft", {}, (39_832, 2_416), False),
        ("ptb", {}, (39_832, 2_416), True),
        # Files are missing, of a section that has others.
        ("ptb", {}, (39_832, 2_415), False),
        ("ptb", {}, (1_000, 2_416), False),
        ("ptb", {"test_sections": (24,)}, (39_832, 2_416), False),
        ("ptb", {"train_sections": (2, 3)}, (39_832, 2_416), False),
    ],
)
def test_what_is_comparable_is_the_papers_split(
    project: Path,
    dataset: str,
    sections: dict[str, Any],
    trees: tuple[int, int],
    comparable: bool,
) -> None:
    given, (train, test) = parsing_results(), trees
    prepare = {**given.prepare, "train": {**given.prepare["train"], "read": train}}
    stage.write_json(project_files.METRICS / "prepare.json", prepare)
    stage.write_json(project_files.METRICS / "evaluate.json", {**given.evaluate, "sentences": test})
    stage_report.work(config(dataset, **sections))
    text = (project / "reports/table4.md").read_text(encoding="utf-8")
    assert ("two tables are comparable" in text) is comparable
    assert f"| {dataset} " in text
    assert "| 1.31 " in text  # of metrics/train.json
    assert "| 1024 " in text


def test_stage_shows_what_self_training_gained(project: Path) -> None:
    gain = {"f1_difference": 1.25, "low": 0.5, "high": 2.0, "p": 0.004, "seen": True}
    student = {**parsing_results().evaluate, "f1": 93.75, "gain": gain}
    stage.write_json(project_files.METRICS / "semi_supervised.json", student)
    silver = {"gold": 22004, "parsed": 3000, "agreed": 690}
    stage.write_json(project_files.METRICS / "silver.json", silver)
    stage_report.work(config())
    text = (project / "reports/index.html").read_text(encoding="utf-8")
    assert "self-training gains +1.25" in text
    table = (project / "reports/table4.md").read_text(encoding="utf-8")
    assert re.search(r"semi-supervised *\| craft", table)
    stage.write_json(project_files.METRICS / "silver.json", silver | {"agreed": "all"})
    with pytest.raises(UserError, match=r"silver.json is damaged \(agreed is"):
        stage_report.work(config())


def test_stage_names_what_is_damaged(project: Path) -> None:
    path = project_files.REPORTS / "translations.tsv"
    path.write_text("\t".join(TRANSLATION_COLUMNS) + "\na\t(S (N a\t(S (N a))\t\n")
    with pytest.raises(UserError, match=r"translations.tsv is damaged \(a reference is no tree"):
        stage_report.work(config())
    stage.write_json(project_files.METRICS / "evaluate.json", {"bleu": 3})
    with pytest.raises(UserError, match=r"metrics/evaluate.json has no "):
        stage_report.work(config())


def test_architectures_that_were_compared_stand_on_the_page() -> None:
    assert 'id="table2"' not in page.render(parsing_results())
    compared = dataclasses.replace(parsing_results(), sweep=of_parsing(made_up()))
    rendered = page.render(compared)
    assert 'href="#table2"' in rendered
    assert "FLOPs of the tries" in rendered
    assert "As printed" in rendered  # Table 4's alone
    assert "GNMT + RL Ensemble" not in rendered
