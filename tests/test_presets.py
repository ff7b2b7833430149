"""All presets: that they load, sweep, and are listed so that one finds the right one."""

from __future__ import annotations

import math
import os
import re
from importlib import resources
from pathlib import Path

import pytest

from benchmarks.record import read
from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.cli import main
from seq2sweep.errors import UserError
from seq2sweep.model.flops import parameter_count
from seq2sweep.presets import catalogue, table3
from seq2sweep.sweep.variants import variants
from seq2sweep.train.optimizers import learning_rate

ROOT = Path(__file__).parents[1]


def test_each_file_is_a_preset_but_the_table() -> None:
    files = {
        Path(file.name).stem
        for file in resources.files("seq2sweep.presets").iterdir()
        if file.name.endswith(".yaml")
    }
    rows = {f"table3-{row.name}" for row in table3.read().rows}
    assert set(presets.names()) == (files - {"table3"}) | rows
    assert len(set(presets.names())) == len(presets.names())


def test_the_base_of_table_3_is_that_of_the_preset() -> None:
    values = configuration.flatten(presets.load("base").config)
    changed = {key for row in table3.read().rows for key in row.changes}
    assert table3.read().base == {key: values[key] for key in changed}


@pytest.mark.parametrize("name", presets.names())
def test_a_sweep_has_its_base_and_something_to_compare_it_with(name: str) -> None:
    config = presets.load(name).config
    if config.sweep.method == "none":
        config = configuration.with_changes(config, {"sweep.method": _meant(config)})
    found, refused = variants(config)
    assert refused == []
    assert found[0].changes == {}
    assert len(found) > 1 or config.sweep.method == "optuna"  # which proposes the others later
    most = max(variant.config.train.steps for variant in found)
    assert config.sweep.grace_steps <= most
    for variant in found:
        # A trial saves and reports where it validates: it must do so before its end.
        assert variant.config.train.validate_every < variant.config.train.steps


def _meant(config: configuration.Config) -> str:
    """The method that the rest of a section is for, where none is set."""
    return "one_at_a_time" if config.sweep.space else "table3"


DAYS = 1e17
"""FLOPs: more than a day on 2 CPU cores, and a tenth of what the paper's base model takes."""


@pytest.mark.parametrize("name", [*presets.names(), *presets.SHORT])
def test_no_preset_of_the_papers_size_sweeps_unless_its_name_says_so(name: str) -> None:
    config = presets.load(name).config
    found = variants(config)[0]
    # Six FLOPs a parameter and token.
    costs = [
        6
        * parameter_count(trial.config.model, trial.config.vocabulary.size)
        * (trial.config.train.steps * trial.config.train.tokens_per_update)
        for trial in found
    ]
    asked_for = name == "wmt14-en-de-table3"
    assert (sum(costs) > DAYS) is asked_for
    assert len(found) == 19 or not asked_for


@pytest.mark.parametrize("name", presets.names())
def test_a_preset_says_what_to_expect(name: str) -> None:
    preset = presets.load(name)
    assert all((preset.summary, preset.score, preset.time, preset.hardware))
    # What nobody ran here must not look like a measurement.
    if preset.config.data.folder == "corpora/wmt14-en-de":
        assert preset.score.startswith("not run here yet; paper: ")
        assert preset.time.startswith("paper: ")


@pytest.mark.parametrize("name", presets.names())
def test_what_was_measured_says_when_and_with_these_settings(name: str) -> None:
    preset = presets.load(name)
    if preset.score.startswith("not run here yet"):
        assert preset.measured is None
        return
    assert preset.measured is not None
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", str(preset.measured["date"]))
    assert re.fullmatch(r"[0-9a-f]{7}", str(preset.measured["commit"]))
    assert preset.settings == preset.measured["settings"], (
        f"{name} was measured with other settings: run it anew, and write into its `about` and "
        "into the page of WHERE_FROM what came out; of a new key that changes nothing write "
        f"`settings: {preset.settings}` alone"
    )


# What a preset says in `score` or `time`, and the page that says how it came about, each with the
# figure as the group of a pattern.
HOW = "docs/how_it_works.md"
PAPER = "docs/paper.md"
TABLE2 = "docs/table2.md"
WHERE_FROM = [
    ("phrasebook", r"^([\d.]+) on its test set", "README.md", r"BLEU (\S+) \(nrefs"),
    ("phrasebook", r"^(\d+) minutes", "README.md", r"without a GPU: ([\d.]+) minutes after"),
    ("phrasebook-search", r"^(\d+) for the base variant", HOW, r"BLEU (\d+) with the base variant"),
    (
        "phrasebook-search",
        r"(\d+) for the best of 12 trials",
        HOW,
        r"(\d+) with the best of 12",
    ),
    ("phrasebook-search", r"^(\d+) minutes", HOW, r"its sweep took (\d+) minutes"),
    ("phrasebook-mixers", r"^([\d.]+) for the base", PAPER, r"BLEU of the base variant (\S+) ±"),
    ("phrasebook-mixers", r"([\d.]+) for the best of 9", PAPER, r"separable \| (\S+) ±"),
    ("phrasebook-mixers", r"^(\d+) minutes", PAPER, r"27 trainings in (\d+) minutes"),
    (
        "phrasebook-table2",
        r"^([\d.]+) for the Transformer",
        TABLE2,
        r"1\.31 \| 0\.5 × \| \S+ ± \S+ \| (\S+) ±",
    ),
    (
        "phrasebook-table2",
        r"([\d.]+) for the conv",
        TABLE2,
        r"\| 1\.64 \| 2 × \| \S+ ± \S+ \| (\S+) ±",
    ),
    ("phrasebook-table2", r"^(\d+) minutes", TABLE2, r"24 trainings in (\d+) minutes"),
    (
        "multi30k-en-de-table2",
        r"^([\d.]+) for the Transformer",
        TABLE2,
        r"1\.69 \| 0\.5 × \| \S+ ± \S+ \| (\S+) ±",
    ),
    (
        "multi30k-en-de-table2",
        r"([\d.]+) for the conv",
        TABLE2,
        r"\| 2\.02 \| 2 × \| \S+ ± \S+ \| (\S+) ±",
    ),
    ("multi30k-en-de-table2", r"^(\d+) minutes", TABLE2, r"32 trainings, unattended, in (\d+)"),
    ("phrasebook-positions", r"^([\d.]+) within", PAPER, r"told\*\* \((\S+) with sinusoids"),
    ("phrasebook-positions", r"and ([\d.]+) beyond", PAPER, r"12 tokens.* \| (\S+) ± 2\.1 \|"),
    (
        "phrasebook-positions",
        r"^(\d+) minutes",
        PAPER,
        r"other work beside it\): 6 trainings in (\d+) minutes",
    ),
    ("parsing", r"^([\d.]+) on its test set", "docs/parsing.md", r"\*\*F1 (\S+) ± 0.29"),
    ("parsing", r"^(\d+) minutes", "docs/parsing.md", r"`dvc repro` took ([\d.]+) minutes"),
    ("parsing-craft", r"^([\d.]+) on its test set", "docs/parsing.md", r"\*\*F1 (\S+) ± 0.94"),
    ("parsing-craft", r"^(\d+) minutes", "docs/parsing.md", r"trained in (\d+) minutes"),
    ("phrasebook-attention", r"^([\d.]+) for the base", PAPER, r"16 \(base\) \| (\S+) ±"),
    ("phrasebook-attention", r"([\d.]+) for the best of 12", PAPER, r"(\S+) ± 5\.1 \|"),
    ("phrasebook-attention", r"^(\d+) minutes", PAPER, r"36 trainings in (\d+) minutes"),
]


@pytest.mark.parametrize(("name", "here", "page", "there"), WHERE_FROM)
def test_figures_are_those_of_the_pages(name: str, here: str, page: str, there: str) -> None:
    preset = presets.load(name)
    (said,) = (m for text in (preset.score, preset.time) for m in re.findall(here, text))
    text = (ROOT / page).read_text(encoding="utf-8")
    (found,) = re.findall(there, " ".join(text.split()))
    decimals = len(said.partition(".")[2])
    assert f"{float(found.replace(' ', '')):.{decimals}f}" == said


def test_the_demo_is_described_by_its_record() -> None:
    preset, record = presets.load("phrasebook"), read("demo")
    assert preset.measured is not None
    assert str(preset.measured["date"]) == record["date"]
    assert preset.measured["commit"] == record["commit"]
    bleu = record["figures"]["evaluate"]["bleu"]["sacrebleu"]["score"]
    assert str(preset.score).startswith(f"{bleu:.1f} on ")
    assert str(preset.time).startswith(f"{record['figures']['minutes']['all']:.0f} minutes")


def test_every_measured_preset_has_a_page() -> None:
    measured = {name for name in presets.names() if presets.load(name).measured is not None}
    assert measured == {name for name, *_ in WHERE_FROM}


def test_tiny_reaches_the_published_peak_of_the_learning_rate() -> None:
    config = presets.load("multi30k-en-de-tiny").config
    train = config.train
    rates = [
        learning_rate(step, config.model.d_model, train.warmup_steps, train.learning_rate_scale)
        for step in range(1, train.steps + 1)
    ]
    assert max(rates) == rates[2000 - 1]
    assert max(rates) == pytest.approx(5e-3, rel=1e-3)
    trial = variants(config)[0][0].config.train
    peak = learning_rate(trial.warmup_steps, 128, trial.warmup_steps, trial.learning_rate_scale)
    assert math.isclose(peak, 5e-3, rel_tol=1e-2)


def test_tiny_reads_the_files_of_its_sister_in_lower_case() -> None:
    tiny, sister = (presets.load(f"multi30k-en-de{end}").config for end in ("-tiny", ""))
    assert tiny.data == sister.data
    assert (tiny.prepare.lowercase, sister.prepare.lowercase) == (True, False)
    assert (tiny.evaluate.length_penalty, tiny.evaluate.alpha) == ("power", 1.0)


def test_characters_get_as_many_more_tokens_as_docs_data_says() -> None:
    """Else long sentences would be cut before they are translated, or after."""
    usual = presets.load("base").config.evaluate
    every = [presets.load(name).config for name in presets.names()]
    found = [c.evaluate for c in every if c.vocabulary.kind in ("characters", "bytes")]
    assert len(found) == 2
    for asked in found:
        assert asked.max_input_tokens >= 4 * usual.max_input_tokens
        assert asked.max_extra_tokens >= 4 * usual.max_extra_tokens


# --- the list --------------------------------------------------------------------------------


def test_the_list_has_a_line_for_each_row_of_table_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preset"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(i for i, line in enumerate(lines) if re.match(r"name +PPL +BLEU", line))
    body = lines[start + 1 :]
    assert [line.split()[0] for line in body] == [
        f"table3-{row.name}" for row in table3.read().rows
    ]
    assert body[5].split() == ["table3-B-d_k-16", "5.16", "25.1", "58", "d_k", "16"]
    assert body[1].split()[1:] == ["5.29", "24.9", *"heads 1, d_k 512, d_v 512".split()]
    # Columns stand one under the other: each figure ends where its heading does.
    for heading, column in (("PPL", 1), ("BLEU", 2)):
        ends = {line.index(line.split()[column], 20) + len(line.split()[column]) for line in body}
        assert ends == {lines[start].index(heading) + len(heading)}
    # A terminal of 80 columns shows every row on one line, but the one that changes five settings.
    assert [line.split()[0] for line in body if len(line) > 80] == ["table3-big"]


def test_a_params_file_that_is_a_pipe_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And no command that waits for ever."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("params.yaml")
    assert main(["preset", "phrasebook"]) == 2
    assert "params.yaml cannot be read: it is a named pipe, not a file" in capsys.readouterr().err


def test_an_editors_link_is_no_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.yaml").write_text("")
    (tmp_path / ".#small.yaml").symlink_to("someone@somewhere.1")
    monkeypatch.setattr(resources, "files", lambda package: tmp_path)
    assert catalogue._file_names() == ["small"]


def test_rows_come_after_the_other_presets(capsys: pytest.CaptureFixture[str]) -> None:
    main(["preset"])
    others, rows = capsys.readouterr().out.split("The rows of Table 3", 1)
    for name in presets.names():
        place, elsewhere = (rows, others) if name.startswith("table3-") else (others, rows)
        assert re.search(rf"^{re.escape(name)}\b", place, re.MULTILINE)
        assert not re.search(rf"^{re.escape(name)}\b", elsewhere, re.MULTILINE)
    assert "Not run here yet" in rows


def test_writing_a_preset_tells_what_to_expect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["preset", "table3-C-d_ff-4096"]) == 0
    out = capsys.readouterr().out
    assert "params.yaml is now table3-C-d_ff-4096" in out
    assert "paper: 26.2 on newstest2013, perplexity 4.75" in out
    # With changes of one's own nobody knows.
    assert main(["preset", "table3-C-d_ff-4096", "--set", "train.steps=5"]) == 0
    assert "26.2" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("phrasebok", "phrasebook"),
        ("table3-a-heads-1", "table3-A-heads-1"),
        ("table3-A-head-16", "table3-A-heads-16"),
        ("table3-D-labelsmoothing-0.2", "table3-D-label_smoothing-0.2"),
        ("multi30k-tiny", "multi30k-en-de-tiny"),
        ("Big", "big"),
    ],
)
def test_a_misspelt_name_gets_the_nearest(wrong: str, meant: str) -> None:
    with pytest.raises(UserError, match=f"unknown preset {wrong}, did you mean {re.escape(meant)}"):
        presets.load(wrong)


@pytest.mark.parametrize("wrong", ["", "zzzzzzzz", "../phrasebook.yaml", "table3"])
def test_what_is_no_preset_is_one_line_that_says_where_they_are_listed(wrong: str) -> None:
    with pytest.raises(UserError, match=r"unknown preset .*`seq2sweep preset` lists all") as caught:
        presets.load(wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("section", configuration.OPTIONAL)
def test_a_file_from_before_there_was_a_section_is_still_unedited(
    section: str, tmp_path: Path
) -> None:
    path = tmp_path / "params.yaml"
    written = configuration.dump(presets.load("phrasebook").config)
    before = re.sub(rf"\n# .*\n{section}:\n(?: .*\n)*", "", written)
    assert (f"\n{section}:" in written, f"\n{section}:" in before) == (True, False)
    path.write_text(before, encoding="utf-8")
    assert presets.is_unchanged(path)
    path.write_text(before.replace("  layers: 2 ", "  layers: 3 "), encoding="utf-8")
    assert not presets.is_unchanged(path)
