"""The page from made-up results: what it says, that it holds together, and the stage."""

from __future__ import annotations

import contextlib
import dataclasses
import html.parser
import json
import math
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline import report as stage_report
from seq2sweep import presets, project_files
from seq2sweep.data.files import TRANSLATION_COLUMNS
from seq2sweep.errors import UserError
from seq2sweep.report import formats, page, samples
from seq2sweep.stages import stage
from tests.report.made_up_results import SIGNATURE, results, sweep, table3_sweep, undrawn
from tests.report.positions.made_up_lengths import positions_sweep
from tests.report.test_sweep_plots import texts

PRESET = presets.load("phrasebook").config


class Tags(html.parser.HTMLParser):
    """Checks that elements nest, and keeps attributes."""

    VOID = ("meta", "link", "br", "img", "hr", "input")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def rendered() -> str:
    return page.render(results())


def changed(**parts: Any) -> str:
    """The page of results of which these differ, and little is drawn."""
    return page.render(dataclasses.replace(undrawn(), **parts))


def identifiers(rendered: str) -> set[str]:
    """The `id` of each element, of a page whose elements nest and have ids of their own."""
    tags = Tags()
    tags.feed(rendered)
    assert tags.open == []
    found = [str(value) for _, name, value in tags.attributes if name == "id"]
    assert len(found) == len(set(found))
    return set(found)


# --- the page ----------------------------------------------------------------------------------


def test_page_is_whole_and_self_contained(rendered: str) -> None:
    tags = Tags()
    tags.feed(rendered)
    for tag, name, value in tags.attributes:
        if name in ("src", "href", "action", "data"):
            assert value is not None
            beside = (tag, value) == ("a", "attention.html")
            assert beside or value.startswith(("#", "data:")), (tag, name, value)
    assert not re.search(r"@import|url\((?!#)", rendered)
    targets = re.findall(r'(?:href="|url\()#([^")]+)', rendered)
    assert set(targets) <= identifiers(rendered)


def test_paper_has_all_columns(rendered: str) -> None:
    """It does not scroll: what is to the right of a box would be lost."""
    (style,) = re.findall("<style>(.*?)</style>", rendered, re.DOTALL)
    _, _, printed = style.partition("@media print {")
    assert ".scroll { overflow: visible; }" in printed
    assert "@page { size: landscape; " in style


def check_boxes(rendered: str) -> None:
    """Each box that scrolls can be scrolled by keys too, and has a name."""
    boxes = re.findall('<div class="(?:[^"]* )?scroll"([^>]*)>', rendered)
    assert boxes
    for box in boxes:
        assert re.fullmatch(' tabindex="0" role="region" aria-label="[^"]+"', box), box


def test_boxes_scroll_by_keys() -> None:
    bins = [{"shortest": 5, "longest": 8, "sentences": 1260, "bleu": 70.14}]
    evaluate = {**results().evaluate, "by_length": bins}
    check_boxes(changed(sweep=positions_sweep(), evaluate=evaluate))


def test_no_backtick_is_left_in_the_text(rendered: str) -> None:
    assert "<code>sweep.method: table2</code>" in rendered
    body = re.sub("<(script|style).*?</\\1>", "", rendered, flags=re.DOTALL)
    assert "`" not in body


def test_page_shows_the_headline_numbers(rendered: str) -> None:
    for shown in (
        "61.2",
        "± 1.1",
        SIGNATURE,
        "61.9",
        "78.7",
        "3.17",
        "42.5",
        "1.31 M",
        "7\u202f403",
    ):
        assert shown in rendered
    assert "de-compounds" in rendered
    assert "Moses tokens, compounds split for German" in rendered  # and for no other language
    assert "git checkout 4ad1c0ffee" in rendered
    assert "make ui" in rendered
    assert rendered.index("subordinate clause") < rendered.index("verb second")
    assert "a side is empty" not in rendered
    assert "95.7\u202f%" in rendered
    # 2300 of the 60 000 that were read.
    assert (
        "<tr><td>dropped: pair seen before</td><td>2\u202f300</td><td>3.8\u202f%</td>" in rendered
    )


def test_page_shows_what_training_cost(rendered: str) -> None:
    for shown in (
        "2.0\u202f×\u202f10¹³",
        "2.9\u202f×\u202f10¹⁰",
        "34.1\u202f%",
        "0.18",
        "0.012\u202fkWh",
    ):
        assert f"<dd>{shown}</dd>" in rendered
    of_unknown = changed(train=results().train | {"mfu": None, "energy_kwh": None})
    assert "kWh" not in of_unknown
    assert "utilisation" not in of_unknown


def test_page_says_when_the_commit_is_not_all() -> None:
    """Of what scored and swept: the weights may be of an earlier one."""
    lineage = {"git.commit": "0ld3r0", "git.dirty": "false"}
    text = changed(tree={"git.commit": "4ad1c0", "git.dirty": "true"}, lineage=lineage)
    assert "git checkout 4ad1c0   # and changes that were not committed" in text
    assert "<td>0ld3r0</td>" in text
    # As in a job, whose params.yaml may differ from the commit's without a word of it.
    text = changed(tree={"git.commit": "4ad1c0", "git.dirty": "unknown"}, lineage=lineage)
    assert "git checkout 4ad1c0   # and, if it differs, the params.yaml of this run (lineag" in text
    text = changed(tree={"git.commit": "4ad1c0", "git.dirty": "false"}, lineage=lineage)
    assert "git checkout 4ad1c0\n" in text
    assert "git checkout" not in changed(tree={"git.commit": "unknown"}, lineage=lineage)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (None, "Transformer"),
        ({"architecture": "transformer"}, "Transformer"),
        ({"architecture": "recurrent"}, "GNMT"),
        ({"architecture": "convolutional"}, "ConvS2S"),
        ({"architecture": "bytenet"}, "ByteNet"),
    ],
)
def test_page_names_the_architecture_that_was_trained(
    model: dict[str, Any] | None, name: str
) -> None:
    text = changed(model=model)
    assert f'<p class="muted">A {name} trained, averaged, decoded and scored as in' in text


@pytest.mark.parametrize("kind", ["paper", "power"])
def test_a_length_penalty_that_is_not_the_papers_is_named(kind: str) -> None:
    text = changed(evaluate={**results().evaluate, "length_penalty": kind})
    assert ("(length penalty power), stopping " in text) is (kind == "power")


def test_the_papers_bleu_of_lower_cased_text_is_called_so(rendered: str) -> None:
    assert "lower-cased" not in rendered
    evaluate: Any = results().evaluate
    evaluate["bleu"]["paper"]["signature"] = SIGNATURE.replace("case:mixed", "case:lc")
    text = changed(evaluate=evaluate)
    assert "compounds split for German, of lower-cased text<" in text


def test_the_papers_bleu_of_a_language_without_blanks_names_no_moses() -> None:
    evaluate: Any = results().evaluate
    evaluate["bleu"]["paper"]["tokeniser"] = "sacrebleu 2.6.0"
    text = changed(evaluate=evaluate)
    assert "sacreBLEU’s tokens<" in text
    assert "Moses" not in text


def test_a_training_that_diverged_is_still_a_page() -> None:
    """Its perplexity is at most e to the 700."""
    record, large = sweep(), math.exp(700)
    record["trials"][1] |= {"valid_perplexity": large, "bleu": 0.0}
    given = results()
    text = changed(
        sweep=record,
        train={**given.train, "final": {"valid_perplexity": large}},
        evaluate={**given.evaluate, "perplexity": large},
    )
    written = {"index.html": text, **formats.table_files(record, "en → de", 90)}
    del written["table3.csv"]
    for name, text in written.items():
        assert not re.search(r"\d{30}", text), name
        assert ("$^{304}$" if name == "table3.tex" else "10³⁰⁴") in text, name


def test_page_escapes_what_it_is_given() -> None:
    hostile = "<script>alert('x')</script> & \"y\""
    record = sweep()
    record["trials"][-1]["cause"] = hostile
    record["trials"][1]["name"] = hostile
    rendered = changed(
        dataset=hostile,
        translations=[samples.Translation(hostile, hostile, "<b>x</b>", (hostile,))],
        sweep=record,
    )
    assert "<script" not in rendered
    assert "<b>x" not in rendered
    identifiers(rendered)


def test_sections_without_data_are_left_out() -> None:
    evaluate = dict(results().evaluate)
    del evaluate["phenomena"]
    short = changed(evaluate=evaluate, sweep=None, curves=[], translations=[])
    for section in ("phenomena", "variants", "training", "translations"):
        assert f'id="{section}"' not in short
        assert f'href="#{section}"' not in short
    assert 'id="results"' in short


CLAIM, TOO = ", none of them used in training", "of their sentences are in training too"


@pytest.mark.parametrize(
    ("dropped", "in_training", "expected"),
    [
        ({"contamination": 0}, None, f"Held out{CLAIM}: 500 pairs for validation, 900 pairs for"),
        ({"empty": 1}, None, "Held out: 500 pairs for validation, 900 pairs for test."),
        # Of trees none is dropped for that, and it is counted.
        ({}, (0, 0), f"Held out{CLAIM}: 500 pairs for validation, 900 pairs for test."),
        (
            {},
            (0, 199),
            f"Held out: 500 pairs for validation (0 {TOO}), 900 pairs for test (199 {TOO}).",
        ),
    ],
)
def test_page_says_what_of_the_held_out_is_in_training_too(
    dropped: dict[str, int], in_training: tuple[int, int] | None, expected: str
) -> None:
    prepare = {split: dict(counts) for split, counts in results().prepare.items()}
    prepare["train"]["dropped"], prepare["test"]["kept"] = dropped, 900
    if in_training is not None:
        for split, count in zip(("valid", "test"), in_training, strict=True):
            prepare[split]["in_training"] = count
    assert expected in changed(prepare=prepare)


def test_text_runs_from_right_to_left_where_its_letters_do() -> None:
    hebrew, wrong = "זה בית.", "זה חתול."
    rows = [samples.Translation("A house.", hebrew, of) for of in (wrong, hebrew)]
    rendered = changed(translations=rows)
    for name in ("source", "reference", "translation", "exact"):
        assert f'<span>{name}</span><span dir="auto">' in rendered
        assert f"<span>{name}</span><span>" not in rendered


def test_a_sweep_of_failures_is_still_a_page() -> None:
    record = sweep()
    record["trials"] = [record["trials"][-1]]
    rendered = changed(sweep=record)
    assert "d_model 4096: out of memory" in rendered
    for heading in ("Quality against cost", "Quality against one setting", "Validation loss of"):
        assert heading not in rendered


@pytest.mark.parametrize("seeds", [1, 3])
def test_table_3_is_shown_with_its_figures(seeds: int) -> None:
    rendered = changed(sweep=table3_sweep(seeds))
    identifiers(rendered)
    for title in ("BLEU against heads", "BLEU against d_k", "BLEU against dropout"):
        assert f'aria-label="{title}"' in rendered
    drawn = set(texts("".join(re.findall(r"<svg.*?</svg>", rendered, re.DOTALL))))
    assert {"A-heads-32", "C-d_ff-4096", "E-learned-positions", "base"} <= drawn
    assert "big" not in drawn  # it was refused, and has no figures
    assert ("Bars: 95 % intervals over seeds" in rendered) == (seeds > 1)
    assert f"Trials: {20 * seeds - 1 - seeds} finished, 1 failed, {seeds} refused" in rendered


def test_settings_without_two_points_have_no_figure() -> None:
    record = table3_sweep()
    record["trials"] = [
        trial
        for trial in record["trials"]
        if trial["group"] in ("base", "A", "C") and trial["row"] != "base"
    ]
    rendered = changed(sweep=record)
    assert 'aria-label="BLEU against heads"' in rendered
    assert 'aria-label="BLEU against d_k"' not in rendered


def test_page_shows_scores_by_length_and_positions() -> None:
    bins = [{"shortest": 5, "longest": 8, "sentences": 1260, "bleu": 70.14}]
    rendered = changed(
        sweep=positions_sweep(),
        model={"positions": "sinusoidal", "d_model": 16},
        evaluate={**results().evaluate, "by_length": bins},
    )
    assert {"by-length", "positions"} <= identifiers(rendered)
    assert "<td>5–8</td><td>1\u202f260</td><td>70.1</td>" in rendered
    assert 'aria-label="BLEU of variants by the length of the source"' in rendered
    assert "beyond: 17–29 (n = 490)" in rendered
    assert 'aria-label="The sinusoids of each position and dimension"' in rendered
    learned = changed(model={"positions": "learned", "d_model": 16})
    assert "learns a vector for each position" in learned
    assert "The sinusoids of each" not in learned


# --- the stage ---------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the stages before write."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQ2SWEEP_COMMIT", results().tree["git.commit"])
    write_inputs(undrawn())
    return tmp_path


@pytest.fixture
def project(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same; MLflow, which takes seconds, is given nothing."""
    monkeypatch.setattr(stage_report, "record", lambda *_: None)
    return recorded


def write_inputs(given: page.Results) -> None:
    stage.write_json(project_files.METRICS / "prepare.json", given.prepare)
    stage.write_json(project_files.METRICS / "train.json", given.train)
    stage.write_json(project_files.METRICS / "evaluate.json", given.evaluate)
    stage.write_json(
        project_files.MODEL / "receipt.json", {"run": "train-1", "lineage": given.lineage}
    )
    stage.write_json(project_files.REPORTS / "sweep.json", given.sweep)
    columns = list(given.curves[0]) if given.curves else ["step", "loss"]
    rows = [["" if row[c] is None else repr(row[c]) for c in columns] for row in given.curves]
    curves = "\n".join(",".join(cells) for cells in [columns, *rows])
    (project_files.METRICS / "curves.csv").write_text(curves + "\n", encoding="utf-8")
    translations = ["\t".join(TRANSLATION_COLUMNS)] + [
        "\t".join((row.source, row.reference, row.translation, " ".join(row.phenomena)))
        for row in given.translations
    ]
    path = project_files.REPORTS / "translations.tsv"
    path.write_text("\n".join(translations) + "\n", encoding="utf-8")
    stage.write_json(project_files.REPORTS / "table1.json", given.table1)
    stage.write_json(project_files.METRICS / "attention.json", given.attention)


def test_stage_writes_what_dvc_expects(recorded: Path, rendered: str) -> None:
    """The page is the same each time."""
    write_inputs(results())
    stage_report.work(PRESET)
    assert (recorded / "reports/index.html").read_text(encoding="utf-8") == rendered
    assert "## Beside the paper" in (recorded / "reports/table3.md").read_text(encoding="utf-8")
    assert not list(recorded.rglob("*.partial"))
    declared = Path(stage_report.__file__).parents[1] / "dvc.yaml"
    outs = yaml.safe_load(declared.read_text(encoding="utf-8"))["stages"]["report"]["outs"]
    given = {f"reports/{name}" for name in ("translations.tsv", "sweep.json", "table1.json")}
    written = {f"reports/{path.name}" for path in (recorded / "reports").iterdir()}
    assert written - given == set(outs)


def test_stage_runs_without_a_sweep(project: Path) -> None:
    (project_files.REPORTS / "sweep.json").unlink()
    stage_report.work(PRESET)
    assert "Table 3" not in (project / "reports/index.html").read_text(encoding="utf-8")
    for name in ("table3.md", "table3.html", "table3.tex"):
        assert "sweep.method" in (project / "reports" / name).read_text(encoding="utf-8")


def test_stage_names_a_damaged_input(project: Path) -> None:
    path = project_files.REPORTS / "translations.tsv"
    path.write_text("source\ttarget\na\tb\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"translations.tsv must have the columns source, ref"):
        stage_report.work(PRESET)
    (project_files.METRICS / "curves.csv").write_text("step,loss\n1,none\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"curves.csv is damaged"):
        stage_report.work(PRESET)
    (project_files.METRICS / "train.json").unlink()
    with pytest.raises(UserError, match=r"train.json is missing: run `dvc repro`"):
        stage_report.work(PRESET)


@pytest.mark.parametrize(
    ("file", "place"),
    [
        ("metrics/prepare.json", ("train", "read")),
        ("metrics/train.json", ("steps",)),
        ("metrics/evaluate.json", ("bleu", "sacrebleu", "signature")),
        ("models/train/receipt.json", ("lineage",)),
        ("reports/sweep.json", ("trials",)),
        ("reports/sweep.json", ("trials", 1, "name")),
    ],
)
def test_stage_names_a_key_that_is_missing(
    project: Path, file: str, place: tuple[str | int, ...]
) -> None:
    content: Any = json.loads((project / file).read_text())
    *parents, key = place
    inner = content
    for parent in parents:
        inner = inner[parent]
    del inner[key]
    stage.write_json(Path(file), content)
    with pytest.raises(UserError) as told:
        stage_report.work(PRESET)
    assert str(told.value) == f"{file} has no {key}: remove it and run `dvc repro`"


@pytest.mark.parametrize("file", ["reports/sweep.json", "metrics/evaluate.json"])
def test_damaged_scores_by_length_are_one_line(project: Path, file: str) -> None:
    content = json.loads((project / file).read_text())
    stage.write_json(Path(file), content | {"by_length": 3})
    with pytest.raises(UserError) as told:
        stage_report.work(PRESET)
    kind = "an object" if file == "reports/sweep.json" else "a list"
    assert str(told.value) == (
        f"{file} is damaged (by_length is a number, not {kind}): remove it and run `dvc repro`"
    )


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        ({"model": {"positions": "sinusoidal", "d_model": 16}}, True),
        ({"model": 3}, False),
        ([], False),
        (None, False),
    ],
)
def test_stage_shows_the_positions_of_the_model_that_was_trained(
    project: Path, config: Any, shown: bool
) -> None:
    stage.write_json(
        project_files.MODEL / "receipt.json", {"run": "train-1", "lineage": {}, "config": config}
    )
    stage_report.work(PRESET)
    text = (project / "reports/index.html").read_text(encoding="utf-8")
    assert ('id="positions"' in text) is shown


def test_report_needs_neither_torch_nor_ray_nor_mlflow() -> None:
    code = (
        "import sys, seq2sweep.report.formats;"
        "print([m for m in ('torch', 'ray', 'mlflow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_inputs_are_left_unchanged() -> None:
    record = sweep()
    changed(sweep=record)
    formats.csv_text(record)
    assert record == sweep()


def test_the_page_that_is_linked_is_recorded_beside(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[list[str]] = []

    def attach(root: Path, name: str, files: list[Path], *rest: Any) -> None:
        given.append([path.name for path in files])

    def relay(*where: Any) -> Any:
        return contextlib.nullcontext(types.SimpleNamespace(root=recorded, to=None))

    monkeypatch.setattr(stage_report, "attach", attach)
    monkeypatch.setattr("seq2sweep.tracking.relay_thread.RelayThread", relay)
    for name in ("index.html", "attention.html"):
        (recorded / "reports" / name).write_text("a page", encoding="utf-8")
        stage_report.record(PRESET, {"run": "train-1"}, results(), {**results().evaluate})
    assert given == [["index.html"], ["index.html", "attention.html"]]


def test_attention_is_linked_with_its_numbers(project: Path) -> None:
    stage_report.work(PRESET)
    text = (project / "reports/index.html").read_text(encoding="utf-8")
    assert '<a href="attention.html">What the model attends to</a> on 3 test sentences' in text
    assert "37.5" not in text.partition('id="attention"')[2].partition("</section>")[0]
    assert "38\u202f%" in text
    assert "Alignment error rate" not in text
    path = project_files.METRICS / "attention.json"
    content = json.loads(path.read_text())
    aligned = {"sentences": 7, "best_head": {"aer": 0.21212}, "mean": 0.5}
    stage.write_json(path, content | {"alignment": aligned})
    stage_report.work(PRESET)
    text = (project / "reports/index.html").read_text(encoding="utf-8")
    assert "0.212" in text
    assert "of the best head, on 7 aligned sentences; of the mean of all 0.500" in text
    stage.write_json(path, content | {"sentences": []})
    stage_report.work(PRESET)
    text = (project / "reports/index.html").read_text(encoding="utf-8")
    assert '<a href="attention.html">Each head in numbers</a>. No test sentence is shown' in text
    assert "on 0 test sentences" not in text
    del content["positional"]
    stage.write_json(path, content)
    with pytest.raises(UserError, match=r"attention.json is damaged \(positional is missing\)"):
        stage_report.work(PRESET)
