"""`seq2sweep why` of files: faults that are planted in good output are named with their share."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from sacrebleu.dataset import DATASETS
from sacremoses import MosesTokenizer

from seq2sweep.cli import main
from seq2sweep.compare.scored_run import ScoredRun, Scores
from seq2sweep.compare.why import known_test_sets, line_alignment
from seq2sweep.compare.why.explain import ALL, PAPER, Output, explain, output_of
from seq2sweep.compare.why.overview import overview
from seq2sweep.compare.why.waterfall import Texts
from seq2sweep.config.scores import BLEU
from seq2sweep.errors import UserError
from seq2sweep.evaluate import bleu

from ...refusal import refusal
from .made_up_output import references, translations

REFERENCES = references(150)
GOOD = translations(REFERENCES)
Lines = list[str]


def sacre_bleu(hypotheses: Lines, theirs: Lines) -> float:
    """By sacreBLEU's own interface."""
    return float(sacrebleu.corpus_bleu(hypotheses, [theirs], force=True).score)


BEST = sacre_bleu(GOOD, REFERENCES)


def tokenised(lines: Lines) -> Lines:
    tokenizer = MosesTokenizer(lang="de")
    return [tokenizer.tokenize(line, return_str=True, escape=False) for line in lines]


def escaped(lines: Lines) -> Lines:
    """As Moses does, all but quotes."""
    signs = {"&": "&amp;", "[": "&#91;", "]": "&#93;"}
    return [re.sub(r"[&\[\]]", lambda sign: signs[sign[0]], line) for line in lines]


def in_pieces(lines: Lines) -> Lines:
    return [re.sub(r"(\w{4})(?=\w)", r"\1@@ ", line) for line in lines]


def with_blocks(lines: Lines) -> Lines:
    """As SentencePiece writes pieces of four letters."""
    pieces = ([*re.findall(".{1,4}", "▁" + word)] for line in lines for word in line.split())
    words = iter(pieces)
    return [" ".join(" ".join(next(words)) for _ in line.split()) for line in lines]


def with_unknowns(lines: Lines) -> Lines:
    draw = random.Random(3)

    def said(word: str) -> str:
        return "<unk>" if word.isalpha() and draw.random() < 0.007 else word

    return [" ".join(map(said, line.split())) for line in lines]


def of_filtered_set(lines: Lines) -> Lines:
    """The other newstest2014, on a scale of 1 to 10."""
    return [line for i, line in enumerate(lines) if i % 11 != 5]


FAULTS: dict[str, tuple[str, Callable[[Lines], Lines]]] = {
    "one line too few": ("line shift", lambda lines: lines[:75] + lines[76:]),
    "one line too many": ("line shift", lambda lines: [*lines[:75], "Ja.", *lines[75:-1]]),
    "lower case": ("case", lambda lines: [line.lower() for line in lines]),
    "tokens": ("detokenised or not", tokenised),
    "entities": ("entities", escaped),
    "quotes": ("quotes", lambda lines: [re.sub("[„“]", '"', line) for line in lines]),
    "compounds": (
        "compound split",
        lambda lines: [re.sub(r"(\w)-(\w)", r"\1 ##AT##-##AT## \2", line) for line in lines],
    ),
    "Moses' compounds": (
        "compound split",
        lambda lines: [re.sub(r"(\w)-(\w)", r"\1 @-@ \2", line) for line in lines],
    ),
    "subwords": ("pieces left in", in_pieces),
    "SentencePiece": ("pieces left in", with_blocks),
    "unknowns": ("unknowns", with_unknowns),
    "cut": ("cut lengths", lambda lines: [" ".join(line.split()[:54]) for line in lines]),
}

LOST = {"one line too few": 75, "one line too many": len(GOOD) - 1}
"""The line that nothing brings back."""


def output(hypotheses: Lines, theirs: Lines = REFERENCES, **changes: Any) -> Output:
    about: dict[str, Any] = {"target": "de", "source": None, **changes}
    return Output("output.de", Texts(hypotheses, theirs), **about)


def shares(found: dict[str, Any]) -> float:
    return float(sum(step["share"] for step in found["steps"]))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named_first_with_its_share(fault: str) -> None:
    cause, plant = FAULTS[fault]
    bad = plant(GOOD)
    missing = [""] * (len(REFERENCES) - len(bad))
    left = [line if i != LOST.get(fault) else "" for i, line in enumerate(GOOD)]
    loss = sacre_bleu(left, REFERENCES) - sacre_bleu(bad + missing, REFERENCES)
    assert loss > 0.2
    found = explain(output(bad))
    first, *others = found["steps"]
    assert first["cause"] == cause
    assert first["share"] == pytest.approx(loss, abs=0.1)
    assert others == []
    assert found["bleu"] + shares(found) == pytest.approx(first["bleu"], abs=1e-9)
    assert first["estimate"] == (cause in ("case", "unknowns", "cut lengths"))


def test_translations_of_the_other_newstest2014(monkeypatch: pytest.MonkeyPatch) -> None:
    filtered = of_filtered_set(REFERENCES)
    sizes = {"wmt14": len(filtered), "wmt14/full": len(REFERENCES)}
    monkeypatch.setattr(line_alignment, "NEWSTEST2014", sizes)
    best = sacre_bleu(of_filtered_set(GOOD), filtered)
    for bad, theirs in ((GOOD, filtered), (of_filtered_set(GOOD), REFERENCES)):
        given = (bad + [""] * len(theirs))[: len(theirs)]
        found = explain(output(bad, theirs))
        assert [step["cause"] for step in found["steps"]] == ["test set"]
        assert found["steps"][0]["share"] == pytest.approx(
            best - sacre_bleu(given, theirs), abs=1e-3
        )


def test_an_output_that_was_cut_off_is_scored_by_what_it_has() -> None:
    """As of a translation that was killed."""
    found = explain(output(GOOD[:100]))
    (step,) = found["steps"]
    assert step["cause"] == "missing lines"
    assert step["evidence"].startswith("100 translations, 150 references; 50 of these have no")
    best = sacre_bleu(GOOD[:100], REFERENCES[:100])
    assert step["bleu"] == pytest.approx(best, abs=1e-4)
    assert (found["translations"], found["sentences"]) == (100, 150)
    assert "The 150 references are no test set whose sha256 is known; there are 100 " in overview(
        found
    )
    # Whatever the last line has become.
    for last in (GOOD[99][:12], REFERENCES[120][:40]):
        (step,) = explain(output([*GOOD[:99], last]))["steps"]
        assert step["cause"] == "missing lines", last
    # Surplus lines move nothing, and are told.
    more = explain(output([*GOOD, "Ja."]))
    assert (more["steps"], more["translations"]) == ([], 151)
    assert "; there are 151 translations." in overview(more)
    assert "there are" not in overview(explain(output(GOOD)))


def test_of_clean_output_nothing_is_found() -> None:
    found = explain(output(GOOD))
    assert found["steps"] == []
    assert found["bleu"] == pytest.approx(BEST, abs=1e-4)
    assert found["against"] is None


def test_every_cause_is_a_step_or_not_found_or_not_tested() -> None:
    for hypotheses in (GOOD, in_pieces([line.lower() for line in GOOD])):
        found = explain(output(hypotheses))
        steps = [step["cause"] for step in found["steps"]]
        assert sorted([*steps, *found["not_found"], *found["not_tested"]]) == sorted(ALL)
    untested = {"averaging", "beam", "penalty", "stopping", "precision", "effective batch"}
    assert found["not_tested"].keys() == untested | {"contamination", "test set", "tokenisation"}


def test_several_faults_add_up() -> None:
    bad = [re.sub("[„“]", '"', line).lower() for line in escaped(GOOD)]
    bad = in_pieces(bad[:100] + bad[101:])
    found = explain(output(bad))
    assert {step["cause"] for step in found["steps"]} == {
        "line shift",
        "pieces left in",
        "case",
        "quotes",
        "entities",
    }
    after = found["bleu"]
    for step in found["steps"]:
        assert step["bleu"] == pytest.approx(after + step["share"], abs=1e-9)
        after = step["bleu"]
    best = sacre_bleu([*GOOD[:100], "", *GOOD[101:]], REFERENCES)  # that line is gone
    assert after == pytest.approx(best, abs=0.3)


def test_a_fault_of_the_references_is_named_too() -> None:
    found = explain(output(GOOD, tokenised(REFERENCES)))
    assert found["steps"][0]["cause"] == "detokenised or not"
    assert found["steps"][0]["bleu"] == pytest.approx(BEST, abs=0.1)
    found = explain(output(GOOD, [line.lower() for line in REFERENCES]))
    lower = [[line.lower() for line in lines] for lines in (GOOD, REFERENCES)]
    assert found["steps"][0]["cause"] == "case"
    assert found["steps"][0]["bleu"] == pytest.approx(sacre_bleu(*lower), abs=1e-3)


def test_of_lines_that_are_missing_and_shifted_one_cause_is_tested() -> None:
    found = explain(output([line for i, line in enumerate(GOOD) if i % 3]))
    assert [step["cause"] for step in found["steps"]] == ["line shift"]
    assert found["not_tested"]["missing lines"].startswith("lines are shifted too")


@pytest.mark.parametrize(
    ("end", "tested"), [("", False), ("།", True), ("។", True), ("။", True), (".", True)]
)
def test_lengths_are_tested_where_references_end_with_a_mark(end: str, tested: bool) -> None:
    lines = [f"བོད་ཡིག {n} ཡི་གེ{end}" for n in range(40)]
    found = explain(dataclasses.replace(output(lines, lines), target="bo"))
    assert ("cut lengths" in found["not_found"]) == tested


def test_of_two_texts_in_lower_case_nothing_tells_the_case() -> None:
    lower = [[line.lower() for line in lines] for lines in (GOOD, REFERENCES)]
    found = explain(output(*lower))
    assert found["steps"] == []
    assert found["not_tested"]["case"].startswith("both texts are in lower case")


def test_what_a_script_cannot_show_is_not_said_to_be_tested() -> None:
    lines = [f"彼は「はい」と{'とても' * n}言った。" for n in range(1, 8)]
    found = explain(output([line.replace("「", '"') for line in lines], lines))
    assert found["not_tested"]["case"] == "most letters here have no case"
    assert found["not_tested"]["quotes"].startswith("no blank tells where corner brackets")
    assert not {"case", "quotes"} & {*found["not_found"]}
    # So it is where they are the translations', and few, among lines without any.
    plain = ["そうです。"] * 90
    found = explain(output([*lines, *plain], [*(re.sub("[「」]", '"', s) for s in lines), *plain]))
    assert "quotes" in found["not_tested"]
    # A few among many others are no reason, nor are letters without case.
    quoted = [f'"{line}"' for line in REFERENCES[:90]]
    found = explain(output([*quoted, lines[0]], [*quoted, lines[0]]))
    assert not {"case", "quotes"} & {*found["not_tested"]}
    digits = [f"{n} + {n} = {2 * n}." for n in range(9)]
    assert explain(output(digits, digits))["not_tested"]["case"].startswith("most letters")


@pytest.mark.parametrize("fault", ["tokens", "lower case", "entities"])
def test_of_references_that_are_a_cached_set_with_a_fault_the_fault_is_named(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no other test set."""
    monkeypatch.setattr(DATASETS["wmt14/full"], "_outdir", str(tmp_path))
    text = "\n".join([*REFERENCES, ""])
    (tmp_path / "wmt14_full.en-de.ref").write_text(text, encoding="utf-8")
    cause, plant = FAULTS[fault]
    found = explain(output(GOOD, plant(REFERENCES), source="en"))
    assert [step["cause"] for step in found["steps"]] == [cause]
    assert "line shift" in found["not_found"]


# --- against something ---------------------------------------------------------------------------


def test_against_the_paper_ends_at_its_figure_by_its_own_score() -> None:
    scores = bleu.score(GOOD, REFERENCES, "de")["bleu"]
    found = explain(output([line.lower() for line in GOOD], source="en"), PAPER)
    causes = [step["cause"] for step in found["steps"]]
    assert causes == ["case", "tokenisation", "compound split"]
    assert found["steps"][1]["bleu"] == pytest.approx(scores["tokenised"]["score"], abs=0.1)
    assert found["steps"][2]["bleu"] == pytest.approx(scores["paper"]["score"], abs=0.1)
    assert found["against"]["bleu"] == 27.3
    total = found["bleu"] + shares(found) + found["against"]["left"]
    assert total == pytest.approx(27.3, abs=1e-9)
    assert found["not_tested"]["test set"].startswith("the references are not newstest2014 (3003")


@pytest.mark.parametrize("source", ["EN", "en-US"])
def test_the_papers_figure_is_found_by_the_language_alone(source: str) -> None:
    found = explain(output(GOOD, target="DE", source=source), PAPER)
    assert found["against"]["bleu"] == 27.3


def test_references_of_newstest2014_are_known_by_their_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {known_test_sets.fingerprint(REFERENCES): known_test_sets.PAPERS}
    monkeypatch.setattr(known_test_sets, "KNOWN", known)
    found = explain(output(GOOD, [line + " " for line in REFERENCES], source="en"), PAPER)
    assert found["test_set"] == known_test_sets.PAPERS
    assert "test set" in found["not_found"]
    assert explain(output(GOOD[:-1], REFERENCES[:-1], source="en"))["test_set"] is None


def test_against_other_output_both_are_mended() -> None:
    better = translations(REFERENCES, seed=5, wrong=0.05)
    other = output([re.sub("[„“]", '"', line) for line in better])
    found = explain(output([line.lower() for line in GOOD]), other)
    goal = found["against"]
    assert [step["cause"] for step in found["steps"]] == ["case"]
    assert [step["cause"] for step in goal["steps"]] == ["quotes"]
    assert goal["left"] == pytest.approx(sacre_bleu(better, REFERENCES) - BEST, abs=0.2)
    total = found["bleu"] + shares(found) + goal["left"] - shares(goal)
    assert total == pytest.approx(goal["bleu"], abs=1e-9)


LOWER = [[line.lower() for line in lines] for lines in (GOOD, REFERENCES)]


def test_of_a_run_in_lower_case_neither_case_nor_the_test_set_is_said_to_be_tested() -> None:
    found = explain(output(*LOWER, source="en", lowercase=True), PAPER)
    assert "case" not in found["not_found"]
    assert found["not_tested"]["case"] == (
        "the text was lower-cased before training, and scores are of that"
    )
    assert found["not_tested"]["test set"] == (
        "whether the references are newstest2014 (3003 sentences), which the paper's are, is not "
        "known of lower-cased text"
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"lowercase": True},
            "lowercase is True for output.de, False for other.de; `seq2sweep score --lowercase` "
            "scores translations of both by one reference",
        ),
        ({"target": "fr"}, "language is fr for output.de, de for other.de"),
    ],
)
def test_output_that_is_scored_otherwise_is_not_compared_with(
    changes: dict[str, Any], told: str
) -> None:
    other = dataclasses.replace(output(GOOD), name="other.de")
    with pytest.raises(UserError, match=rf"^their BLEU is not the same: {told}$"):
        explain(output(*LOWER, **changes), other)
    alike = dataclasses.replace(other, target="de-AT")
    assert explain(output(GOOD), alike)["against"]["left"] == 0


def test_of_several_trainings_one_that_there_is_is_named() -> None:
    """Seeds begin at train.seed."""
    scores = Scores([50.0, 51.0], {}, "", {"split": "valid"}, lambda: ([], []))
    config = {"train": {"seed": [7, 8]}}
    run = ScoredRun("base", "", BLEU, [], config, {}, scores)
    with pytest.raises(UserError, match=r"such as 'base seed=7'$"):
        output_of(run)


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, lines in (
        ("good.de", GOOD),
        ("ref.de", REFERENCES),
        ("bad.de", [line.lower() for line in GOOD]),
    ):
        Path(name).write_text("\n".join([*lines, ""]), encoding="utf-8")
    return tmp_path


def test_the_command_prints_a_table(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["why", "bad.de", "ref.de", "--to", "de"]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (step,) = found["steps"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"bad.de: BLEU {found['bleu']:.2f} (nrefs:1|case:mixed|")
    (row,) = [line for line in lines if line.startswith("case ")]
    assert row.split()[1:4] == ["≈", f"+{step['share']:.2f}", f"{step['bleu']:.2f}"]
    assert any(line.startswith("- averaging, beam, penalty, stopping, precision") for line in lines)
    assert main(["why", "good.de", "ref.de", "--to", "de"]) == 0
    assert "\nNothing was found.\n" in capsys.readouterr().out


def test_the_table_goes_on_to_the_other_output(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", "good.de", "ref.de", "--to", "de", "--against", "bad.de"]) == 0
    lines = capsys.readouterr().out.splitlines()
    first, last = (next(i for i, x in enumerate(lines) if x.startswith(n)) for n in ("left", "bad"))
    assert lines[first].split()[1] == "0.00"
    assert lines[first + 1].startswith("case")
    assert "≈ −" in lines[first + 1]
    bad = sacre_bleu([line.lower() for line in GOOD], REFERENCES)
    assert lines[last].split()[-1] == f"{bad:.2f}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bad.de", "ref.de"], "add --to LANGUAGE"),
        (["bad.de", "nowhere.de", "--to", "de"], "nowhere.de is missing"),
        (["nowhere.de", "ref.de", "--to", "de"], "nowhere.de"),
        ([".", "ref.de", "--to", "de"], ". is a folder: a run is explained without a REFERENCE"),
        (["bad.de"], "bad.de is a file"),
        (["bad.de", "--to", "de"], "--to and --from go with a file"),
        (["bad.de", "ref.de", "--to", "german"], "'german' is no language code"),
        (["bad.de", "ref.de", "--to", "de", "--against", "paper"], "add --from LANGUAGE"),
        (
            ["bad.de", "ref.de", "--to", "de", "--from", "ru", "--against", "paper"],
            "the paper has no BLEU of ru-de, but of en-de, en-fr: set --from and --to",
        ),
        (["bad.de", "ref.de", "--to", "de", "--against", "nowhere"], "nowhere"),
        (["empty.de", "ref.de", "--to", "de"], "empty.de is empty"),
        (["bad.de", "wmt14/full", "--to", "de"], "such as --from en"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    files: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty.de").touch()
    assert message in refusal(capsys, "why", *arguments)
