"""Paired comparison: its shape, what it counts, and what a mistake looks like.

That its figures are sacreBLEU's is held by tests/paper/test_scores.py.
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seq2sweep.cli import main
from seq2sweep.errors import UserError
from seq2sweep.evaluate import bleu, compare
from tests.refusal import refusal

SAMPLES = 60


def texts(seed: int = 5) -> tuple[list[str], list[str], list[str]]:
    """Two systems that drop words, the second more of them, and the reference."""
    draw = random.Random(seed)
    words = "der U-Bahn-Plan läuft „gut“ nicht, a-b-c z.B. 3,5 sehr E-Mail".split()
    references = [" ".join(draw.choices(words, k=11)) + "." for _ in range(40)]
    kept = [
        [" ".join(w for w in line.split() if draw.random() > share) + "." for line in references]
        for share in (0.1, 0.2)
    ]
    return kept[0], kept[1], references


def test_scores_are_those_of_score() -> None:
    baseline, system, references = texts()
    result = compare.compare(baseline, system, references, "de", samples=SAMPLES)
    alone = [bleu.score(lines, references, "de") for lines in (baseline, system)]
    for figures, (first, second) in (
        (result["bleu"]["sacrebleu"], [one["bleu"]["sacrebleu"] for one in alone]),
        (result["bleu"]["paper"], [one["bleu"]["paper"] for one in alone]),
        (result["chrf"], [one["chrf"] for one in alone]),
    ):
        assert figures["baseline"]["score"] == first["score"]
        assert figures["system"]["score"] == second["score"]
        difference = second["score"] - first["score"]
        assert figures["difference"] == pytest.approx(difference, abs=1.1e-4)
        signature = figures["signature"].replace(f"|bs:{SAMPLES}|seed:12345", "")
        assert signature == first["signature"]
    assert result["bleu"]["paper"]["tokeniser"] == alone[0]["bleu"]["paper"]["tokeniser"]
    assert (result["samples"], result["seed"], result["sentences"]) == (SAMPLES, "12345", 40)
    assert "test_set" not in result


def test_the_bootstrap_by_a_plain_loop() -> None:
    # The definition, sample by sample, on the corpora that the same draws make.
    baseline, system, references = texts()
    result = compare.compare(baseline, system, references, "de", samples=SAMPLES)
    figures = result["bleu"]["paper"]
    draws = np.random.default_rng(12345).choice(40, size=(SAMPLES, 40), replace=True)
    tokens = [bleu.paper_tokens(lines, "de") for lines in (baseline, system, references)]

    def drawn(side: list[str], draw: Any) -> float:
        metric = bleu.token_metric([tokens[2][i] for i in draw])
        return float(metric.corpus_score([side[i] for i in draw], None).score)

    scores = np.array([[drawn(side, draw) for side in tokens[:2]] for draw in draws])
    for name, column in (("baseline", 0), ("system", 1)):
        confidence = figures[name]["confidence"]
        ordered = np.sort(scores[:, column])
        # 60 samples: the 95 % interval leaves out one at either end.
        assert confidence["mean"] == pytest.approx(ordered.mean(), abs=1e-3)
        assert confidence["margin"] == pytest.approx((ordered[-2] - ordered[1]) / 2, abs=1e-3)
    strays = np.abs(scores[:, 1] - scores[:, 0])
    larger = (strays - strays.mean() > abs(figures["difference"])).sum()
    assert figures["p_value"] == pytest.approx((larger + 1) / (SAMPLES + 1), abs=1e-4)


def test_one_that_is_better_everywhere_has_the_smallest_p_value() -> None:
    _, system, references = texts()
    result = compare.compare(system, references, references, "de", samples=SAMPLES)
    assert result["bleu"]["paper"]["system"] == {
        "score": 100.0,
        "confidence": {"mean": 100.0, "margin": 0.0},
    }
    assert result["bleu"]["paper"]["p_value"] == round(1 / (SAMPLES + 1), 4)


@pytest.mark.parametrize(("count", "p"), [(1, 1.0), (3, 0.25), (7, 0.0156)])
def test_a_few_sentences_are_never_more_certain_than_the_sign_test(count: int, p: float) -> None:
    """Of one sentence all draws are alike."""
    _, _, references = texts()
    wanted = references[:count]
    worse = [" ".join(reversed(line.split())) for line in wanted]
    found = compare.compare(worse, wanted, wanted, "de", samples=1000)
    assert found["bleu"]["sacrebleu"]["difference"] > 0
    assert found["bleu"]["sacrebleu"]["p_value"] == p


def test_no_chance_is_said_to_be_none() -> None:
    assert [bleu.rounded_chance(p) for p in (1.0, 0.04998, 1 / 1001)] == [1.0, 0.05, 0.001]
    assert [bleu.rounded_chance(1 / (n + 1)) for n in (20_000, 50_000)] == [5e-5, 2e-5]
    right, wrong = ["a b c d e f"] * 20, ["a b c d e g"] * 20
    result = compare.compare(wrong, right, right, "de", samples=20_000)
    assert result["bleu"]["paper"]["p_value"] == 5e-5


def test_systems_that_differ_in_spaces_and_quotes_only_do_not_differ() -> None:
    baseline, _, references = texts()
    spaced = [line.replace(" ", "  ").replace("“", '"') for line in baseline]
    assert spaced != baseline
    paper = compare.compare(baseline, spaced, references, "de", samples=SAMPLES)["bleu"]["paper"]
    assert (paper["difference"], paper["p_value"]) == (0.0, 1.0)


@pytest.mark.parametrize(("language", "split"), [("de-AT", True), ("fr", False)])
def test_only_german_is_split(language: str, split: bool) -> None:
    result = compare.compare(*texts(), language, samples=SAMPLES)
    assert ("-compounds|" in result["bleu"]["paper"]["signature"]) == split
    tokenised = bleu.score(texts()[0], texts()[2], language)["bleu"]["tokenised"]["score"]
    assert (result["bleu"]["paper"]["baseline"]["score"] != tokenised) == split


def test_text_that_is_split_already_is_taken_back() -> None:
    baseline, system, references = texts()
    plain = compare.compare(baseline, system, references, "de", samples=SAMPLES)
    split = compare.compare(
        baseline, bleu.paper_tokens(system, "de"), references, "de", samples=SAMPLES
    )
    assert split["detokenised"] == ["system"]
    assert split["bleu"]["paper"] == plain["bleu"]["paper"]
    assert "detokenised" not in plain


def test_the_seed_is_sacrebleus(monkeypatch: pytest.MonkeyPatch) -> None:
    first = compare.compare(*texts(), "de", samples=SAMPLES)
    assert compare.compare(*texts(), "de", samples=SAMPLES) == first
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    other = compare.compare(*texts(), "de", samples=SAMPLES)
    assert other["seed"] == "7"
    assert "|seed:7|" in other["chrf"]["signature"]
    assert other["chrf"]["baseline"]["score"] == first["chrf"]["baseline"]["score"]
    assert other["chrf"]["baseline"]["confidence"] != first["chrf"]["baseline"]["confidence"]


@pytest.mark.parametrize(("seed", "message"), [("abc", "SACREBLEU_SEED=abc"), ("0", "from 1")])
def test_a_seed_that_fixes_nothing_is_refused(
    seed: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    with pytest.raises(UserError, match=message):
        compare.compare(*texts(), "de", samples=SAMPLES)


def test_unequal_or_no_sentences_are_refused() -> None:
    with pytest.raises(ValueError, match="1 and 2 hypotheses, 1 references"):
        compare.compare(["a"], ["a", "b"], ["a"], "de")
    with pytest.raises(ValueError, match="0 and 0 hypotheses"):
        compare.compare([], [], [], "de")


def test_no_more_is_drawn_than_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "DRAWN_SENTENCES", 40 * SAMPLES)
    compare.compare(*texts(), "de", samples=SAMPLES)
    with pytest.raises(UserError, match=r"--samples 61 of 40 sentences.* 2,400 sentences"):
        compare.compare(*texts(), "de", samples=SAMPLES + 1)


def test_the_command_prints_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    baseline, system, references = texts()
    Path("a.txt").write_text("\n".join(baseline) + "\n", encoding="utf-8")
    Path("b.txt").write_text("\n".join(system) + "\n", encoding="utf-8")
    Path("r.gz").write_bytes(gzip.compress(("\n".join(references) + "\n").encode()))
    command = ["compare", "a.txt", "b.txt", "r.gz", "--to", "de"]
    assert main([*command, "--samples", str(SAMPLES)]) == 0
    out, error = capsys.readouterr()
    assert json.loads(out) == compare.compare(baseline, system, references, "de", samples=SAMPLES)
    assert error == ""
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["samples"] == 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.txt", "short.txt", "r.txt"], "short.txt has 1 lines but r.txt has 2 lines"),
        (["nowhere.txt", "a.txt", "r.txt"], "nowhere.txt is missing"),
        (["a.txt", "latin.txt", "r.txt"], "latin.txt line 2: not UTF-8"),
        (["a.txt", "a.txt", "empty.txt"], "empty.txt is empty"),
        (["a.txt", "a.txt", "r.txt", "--samples", "0"], "--samples must be a whole number from 1"),
        (["a.txt", "a.txt", "wmt14"], "--from en"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in (
        ("a.txt", b"eins\nzwei\n"),
        ("r.txt", b"eins\ndrei\n"),
        ("short.txt", b"eins\n"),
        ("latin.txt", b"eins\nf\xfcnf\n"),
        ("empty.txt", b""),
    ):
        Path(name).write_bytes(content)
    assert message in refusal(capsys, "compare", *arguments, "--to", "de")
