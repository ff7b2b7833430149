"""Table 2: the paper's cost column computed anew, and what a sweep measured beside it."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from seq2sweep import hardware
from seq2sweep.presets import rivals as paper
from seq2sweep.report import findings, page
from seq2sweep.report.aggregate import aggregate
from seq2sweep.report.formats import csv_text
from seq2sweep.report.paper_tables import table2
from seq2sweep.report.paper_tables.table2 import table2_files
from seq2sweep.report.table import SHARED, SHARED_NOTE
from tests.report.made_up_parsing import parsing_results
from tests.report.made_up_results import csv_lines, results, sweep, trial
from tests.report.parsing_sweep import of_parsing

BLEU = {
    "transformer": (30.0, 31.0, 32.0),
    "recurrent": (25.0, 26.0, 27.5),
    "convolutional": (29.9, 31.2, 31.9),
    "bytenet": (12.0, 12.5, 13.0),
}
PARAMETERS = {"transformer": 790e3, "recurrent": 800e3, "convolutional": 780e3, "bytenet": 795e3}


def made_up(bleu: dict[str, tuple[float, ...]] = BLEU) -> dict[str, Any]:
    trials = []
    for architecture, scores in bleu.items():
        name = "base" if architecture == "transformer" else architecture
        changes = {} if name == "base" else {"architecture": architecture, "layers": 3}
        for seed, score in enumerate(scores, 1):
            one = trial(name, changes, bleu=score, perplexity=5.0 + seed / 10)
            one["train"] = one["train"] | {"seed": seed}
            one["model"] = one["model"] | {"architecture": architecture}
            one |= {"name": f"{name} seed={seed}", "variant": name, "bleu_paper": score + 1}
            one |= {"parameters": PARAMETERS[architecture], "flops": 3e12, "device_hours": 0.25}
            trials.append(one)
    tries = [
        {"learning_rate": rate, "status": "finished", "cause": None, "steps": 40,
         "valid_perplexity": 9.0 + rate, "flops": 2e11, "device_hours": 0.01}
        for rate in (0.5, 1.0, 2.0)
    ]  # fmt: skip
    names = dict.fromkeys(trial["variant"] for trial in trials)
    best = {"base": 1.0, "recurrent": 2.0}
    architectures = [
        {"variant": name, "best": best.get(name, 1.0), "tries": tries} for name in names
    ]
    settings = {"search_share": 0.2, "learning_rates": [0.5, 1.0, 2.0]}
    against = {
        name: {"bleu_difference": -1.0, "low": -2.5, "high": 0.5, "p": 0.2, "seen": False}
        for name in names
        if name != "base"
    }
    against["recurrent"] = {
        "bleu_difference": -4.8, "low": -6.0, "high": -3.5, "p": 0.002, "seen": True
    }  # fmt: skip
    against["bytenet"] = {
        "bleu_difference": -18.5, "low": -20.0, "high": -17.0, "p": 0.002, "seen": True
    }  # fmt: skip
    return sweep() | {
        "method": "table2",
        "scheduler": "none",
        "budget": "flops",
        "trials": trials,
        "significance": against,
        "table2": settings | {"architectures": architectures},
    }


def test_costs_are_days_times_devices_times_what_these_sustain() -> None:
    """All 14 printed, of which 12 are of trainings or of the Transformer and come out as printed to
    two digits; of an ensemble the paper takes 8 times the rounded one."""
    rates = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}
    assert {name: rate * 1e12 for name, rate in rates.items()} == paper.SUSTAINED
    assert paper.SUSTAINED == hardware.PAPER_SUSTAINED_FLOPS
    count = 0
    for row in paper.ROWS:
        for cost in row.cost.values():
            one = cost.days * 24 * 3600 * cost.devices * rates[cost.device] * 1e12
            anew = one if cost.models == 1 else 8 * float(f"{one:.1e}")
            assert cost.computed == pytest.approx(anew, rel=1e-12)
            assert f"{cost.computed:.1e}" == f"{cost.printed:.1e}", row.name
            count += 1
    assert count == 16  # those of the Transformer stand for both pairs
    assert f"{float(f'{2.32e19:.1e}') * 8:.1e}" == "1.8e+20"


def test_bleu_is_what_the_paper_prints() -> None:
    printed = {row.name: (row.bleu.get("en-de"), row.bleu.get("en-fr")) for row in paper.ROWS}
    assert printed == {
        "ByteNet": (23.75, None),
        "Deep-Att + PosUnk": (None, 39.2),
        "GNMT + RL": (24.6, 39.92),
        "ConvS2S": (25.16, 40.46),
        "MoE": (26.03, 40.56),
        "Deep-Att + PosUnk Ensemble": (None, 40.4),
        "GNMT + RL Ensemble": (26.30, 41.16),
        "ConvS2S Ensemble": (26.36, 41.29),
        "Transformer (base model)": (27.3, 38.1),
        "Transformer (big)": (28.4, 41.8),
    }


def test_without_a_sweep_there_are_the_papers_figures_alone() -> None:
    for given in (None, sweep()):
        files = table2_files(given, "the phrasebook")
        assert "No architectures were compared at equal FLOPs" in files["table2.md"]
        assert "## Measured" not in files["table2.md"]
        assert "| GNMT + RL " in files["table2.md"]
        assert "sweep.method: table2" in files["table2.html"]
        rows = csv_lines(files["table2.csv"])
        assert len(rows) == len(paper.ROWS)
        assert all(row["bleu"] == "" for row in rows)


def test_models_of_which_no_size_costs_as_much_are_named() -> None:
    record = made_up()
    assert "as it costs the base." in " ".join(table2.tables(record)[0].notes)
    for one in record["trials"]:
        if one["variant"] == "recurrent":
            one["flops"] *= 1.85
    notes = " ".join(table2.tables(record)[0].notes)
    assert "as it costs the base; recurrent costs 1.85 times as many." in notes


def test_the_projects_own_training_stands_beside_the_papers_figures() -> None:
    own = page.trained_here(results())
    assert own is not None
    shown = dict(zip(own.headings, own.rows[0], strict=True))
    given = results()
    assert shown["model"] == "Transformer"
    scores = given.evaluate["bleu"]
    assert shown["BLEU as in the paper"] == f"{scores['paper']['score']:.1f}"
    assert shown["sacreBLEU"] == f"{scores['sacrebleu']['score']:.1f}"
    assert scores["paper"]["signature"] in own.notes[0]
    assert own.notes[0].startswith("en → de, phrasebook: ")
    for sweep_record, titles in (
        (None, ["Trained here", "As printed"]),
        (made_up(), ["Measured", "Trained here", "As printed"]),
    ):
        assert [one.title for one in table2.tables(sweep_record, own)] == titles
    assert "## Trained here" in table2_files(None, "x", own)["table2.md"]
    assert "Trained here" in page.render(given)
    assert page.trained_here(parsing_results()) is None


@pytest.mark.parametrize(
    ("steps", "said"), [([], "one"), ([9], "one"), ([8, 9], "2 averaged")], ids=["none", "1", "2"]
)
def test_a_checkpoint_alone_is_no_average(steps: list[int], said: str) -> None:
    given = results()
    evaluate = {**given.evaluate, "averaged_checkpoints": steps}
    own = table2.trained_here(given.dataset, "Transformer", given.train, evaluate)
    assert f": {said} checkpoint{'s' * (len(steps) > 1)} on the test set." in own.notes[0]


def test_bleu_of_lower_cased_text_is_not_said_to_be_the_papers() -> None:
    given = results()
    paper = given.evaluate["bleu"]["paper"]
    for case, said in (("mixed", "for German ("), ("lc", "German, but of lower-cased text (")):
        signature = paper["signature"].replace("case:mixed", f"case:{case}")
        bleu = {**given.evaluate["bleu"], "paper": {**paper, "signature": signature}}
        own = table2.trained_here("d", "Transformer", given.train, given.evaluate | {"bleu": bleu})
        assert f"{said}{signature})" in own.notes[0]


def test_the_measured_table_says_what_each_model_did() -> None:
    measured, printed = table2.tables(made_up())
    assert (measured.title, printed.title) == ("Measured", "As printed")
    rows = {row[0]: dict(zip(measured.headings, row, strict=True)) for row in measured.rows}
    assert list(rows) == ["transformer (base)", "recurrent", "convolutional", "bytenet"]
    base, recurrent = rows["transformer (base)"], rows["recurrent"]
    assert base["BLEU (dev)"].startswith("31.0 ± 2.5")
    assert base["less base's"] == base["p"] == "–"
    assert recurrent["in place of"] == "GNMT + RL"
    assert recurrent["layers"] == "3"
    assert recurrent["BLEU (dev)"].startswith("26.2 ± ")
    assert recurrent["BLEU as in the paper"].startswith("27.2 ± ")
    assert recurrent["less base's"].startswith("−4.8 (")
    assert recurrent["p"] == "0.002"
    assert recurrent["FLOPs"] == "3.0\u202f×\u202f10¹²"
    assert recurrent["FLOPs of the tries"] == "6.0\u202f×\u202f10¹¹"
    assert recurrent["device-hours"] == "0.250"
    assert (base["learning rate"], recurrent["learning rate"]) == ("1 ×", "2 ×")
    assert any("at an end of those tried for recurrent:" in note for note in measured.notes)
    assert any("20 % of them went into 3 tries" in note for note in measured.notes)


SEEDS = (
    "Figures are means over seeds, n = 3 unless the status says otherwise; ± is half the width of "
    "the 95 % confidence interval of the mean (Student's t)."
)
BRACKETS = "In brackets: the 95 % interval of the difference, "
WELCH, BOOTSTRAP = "Welch's over seeds", "the paired bootstrap's over sentences"
OF_ONE = ". What another seed would have changed is not in it."


def test_it_says_what_the_intervals_are() -> None:
    """Of seeds, of sentences, or as far as either reaches."""
    several = made_up()
    table = table2.tables(several)[0]
    notes = table.notes
    both = f"{WELCH} and {BOOTSTRAP}, from the lowest end of the two to the highest."
    assert SEEDS in notes
    assert BRACKETS + both in notes
    # The bootstrap's lower end, and Welch's upper one.
    assert "0.0 (−2.5 to +2.3)" in table.rows[2]
    notes = table2.tables(several | {"significance": None})[0].notes
    assert f"{BRACKETS}{WELCH}." in notes
    one = made_up({name: scores[:1] for name, scores in BLEU.items()})
    notes = table2.tables(one)[0].notes
    assert BRACKETS + BOOTSTRAP + OF_ONE in notes
    assert "±" not in "".join(notes)
    notes = table2.tables(one | {"significance": None})[0].notes
    assert "In brackets" not in "".join(notes)


def test_device_hours_of_a_shared_device_are_marked() -> None:
    record = made_up()
    assert SHARED not in "".join(table2_files(record, "x").values())
    for one in record["trials"]:
        one["shared_device"] = one["variant"] == "recurrent"
    measured = table2.tables(record)[0]
    hours = measured.headings.index("device-hours")
    assert [row[hours] for row in measured.rows] == ["0.250", f"0.250 {SHARED}", "0.250", "0.250"]
    assert SHARED_NOTE in measured.notes
    assert r"$\dagger$" in table2_files(record, "x")["table2.tex"]


def test_device_hours_of_different_devices_are_told_apart() -> None:
    record = made_up()
    for one in record["trials"]:
        one["device"] = "CPU" if one["variant"] == "bytenet" else "NVIDIA H200"
    files = table2_files(record, "x")
    note = "do not compare. NVIDIA H200: base, recurrent, convolutional; CPU: bytenet."
    assert f"Device-hours are of different devices, and {note}" in files["table2.md"]
    devices = {line["architecture"]: line["devices"] for line in csv_lines(files["table2.csv"])}
    assert (devices["bytenet"], devices["recurrent"], devices[""]) == ("CPU", "NVIDIA H200", "")


def test_it_says_whose_optimizer_each_was_trained_with() -> None:
    found = made_up()
    notes = " ".join(table2.tables(found)[0].notes)
    assert "All use the base's optimizer, schedule, batches" in notes
    found["table2"]["optimizer"] = "as_published"
    notes = " ".join(table2.tables(found)[0].notes)
    assert "Each has its own paper's optimizer and schedule. All use the base's batches" in notes
    assert "All use the base's optimizer" not in notes


def test_it_names_the_tries_that_no_choice_could_fall_on() -> None:
    """The best of two rates is not the best of three."""
    found = made_up()
    assert "Tries that ended" not in " ".join(table2.tables(found)[0].notes)
    lost = {"status": "failed", "cause": "out of\nmemory", "valid_perplexity": None}
    for one in found["table2"]["architectures"]:
        first, *others = one["tries"]
        if one["variant"] == "bytenet":
            one["tries"] = [first | lost, first | {"valid_perplexity": math.inf}, *others[1:]]
    assert (
        "Tries that ended without a perplexity, and could not be chosen: bytenet at 0.5 × (out of "
        "memory), bytenet at 0.5 × (finished)."
    ) in table2.tables(found)[0].notes


def test_files_have_the_figures_unrounded() -> None:
    files = table2_files(made_up(), "the phrasebook")
    rows = {row["model"]: row for row in csv_lines(files["table2.csv"])}
    gnmt = rows["GNMT + RL"]
    assert float(gnmt["bleu"]) == pytest.approx((25.0 + 26.0 + 27.5) / 3)
    assert float(gnmt["bleu_difference"]) == pytest.approx((25.0 + 26.0 + 27.5) / 3 - 31)
    assert (gnmt["bleu_n"], gnmt["learning_rate_multiple"]) == ("3", "2.0")
    assert float(gnmt["flops_of_tries"]) == pytest.approx(6e11)
    assert float(gnmt["computed_flops_en-de"]) == pytest.approx(86400 * 96 * 2.8e12)
    assert rows["MoE"]["bleu"] == ""
    assert float(rows["Transformer (base model)"]["bleu"]) == 31.0
    assert files["table2.tex"].count(r"\begin{tabular}") == 2
    assert re.search(r"<td[^>]*>GNMT \+ RL</td>", files["table2.html"])
    assert "the phrasebook." in files["table2.html"]


def test_differences_have_the_columns_and_figures_of_table_3() -> None:
    """The bootstrap's ends beside its p: the seeds' margin is a column of its own."""
    record = made_up()
    rows = {row["architecture"]: row for row in csv_lines(table2_files(record, "x")["table2.csv"])}
    of_table3 = {row["variant"]: row for row in csv_lines(csv_text(record))}
    columns = [key for key in of_table3["base"] if key.startswith("bleu_difference")]
    assert len(columns) == 6
    for name in ("recurrent", "convolutional", "bytenet"):
        own = {key: value for key, value in rows[name].items() if "difference" in key}
        assert own == {key: of_table3[name][key] for key in columns}
    found = [rows["recurrent"][f"bleu_difference_{end}"] for end in ("low", "high", "p", "seen")]
    assert found == ["-6.0", "-3.5", "0.002", "True"]
    assert rows["recurrent"].keys().isdisjoint({"low", "high", "p"})


def test_the_papers_order_is_judged_by_differences_that_are_seen() -> None:
    found = {one.claim: one for one in findings.findings(aggregate(made_up()))}
    verdicts = {claim: one.verdict for claim, one in found.items()}
    assert verdicts == {
        "transformer translates better than convolutional": "can not be told",
        "transformer translates better than recurrent": "holds",
        "transformer translates better than bytenet": "holds",
        "convolutional translates better than recurrent": "holds",
        "convolutional translates better than bytenet": "holds",
        "recurrent translates better than bytenet": "holds",
    }
    one = found["convolutional translates better than recurrent"]
    assert one.source == "Table 2, En-De: 25.16 against 24.6"
    assert one.evidence.startswith("recurrent less convolutional −4.8 BLEU")
    with_base = found["transformer translates better than recurrent"].evidence
    assert with_base.startswith("recurrent less transformer −")
    reverse = BLEU | {"recurrent": BLEU["convolutional"], "convolutional": BLEU["recurrent"]}
    found = {one.claim: one for one in findings.findings(aggregate(made_up(reverse)))}
    assert found["convolutional translates better than recurrent"].verdict == "does not hold"
    assert found["convolutional translates better than bytenet"].verdict == "holds"


def test_a_pair_with_the_base_is_judged_by_its_bootstrap_whichever_is_better() -> None:
    """A sweep around a recurrent base; all differences are to that one then."""
    record = made_up({"transformer": (27.0, 31.0), "recurrent": (25.0, 29.0)})
    names = {"base": ("transformer", {"architecture": "transformer"}), "recurrent": ("base", {})}
    for one in record["trials"]:
        before = one["variant"]
        one["variant"], one["changes"] = names[before]
        one["name"] = one["name"].replace(before, one["variant"])
    seen = {"bleu_difference": 2.0, "low": 0.8, "high": 3.2, "p": 0.004, "seen": True}
    record["significance"] = {"transformer": seen}
    [found] = findings.findings(aggregate(record))
    assert found.claim == "transformer translates better than recurrent"
    said = "transformer less recurrent +2.0 BLEU (p 0.004, 95 % "
    assert found.evidence.startswith(said)


def test_an_architecture_is_judged_by_the_base_not_by_a_smaller_one() -> None:
    """As a sweep of one_at_a_time has both: model.architecture and model.layers."""
    record = made_up()
    of_base = [one for one in record["trials"] if one["variant"] == "base"]
    for one in of_base:
        other = {"variant": "layers=1", "changes": {"layers": 1}, "bleu": one["bleu"] - 25}
        record["trials"].append(one | other | {"name": one["name"].replace("base", "layers=1")})
    found, known = (findings.findings(aggregate(each)) for each in (record, made_up()))
    assert [one for one in found if "translates better" in one.claim] == known


def test_a_sweep_of_parsing_is_shown_without_the_papers_table() -> None:
    record = of_parsing(made_up())
    files = table2_files(record, "en → trees")
    for name, text in files.items():
        assert "BLEU" not in text, name
    [table] = table2.tables(record)
    there = table2.tables(made_up())[0]
    dropped = there.headings.index("BLEU as in the paper")
    kept = [n for n in range(len(there.headings)) if n != dropped]
    assert list(table.headings) == [there.headings[n].replace("BLEU", "F1") for n in kept]
    assert [list(row) for row in table.rows] == [[row[n] for n in kept] for row in there.rows]
    assert table2.NOT_MEASURED not in files["table2.md"]
    f1 = {line["architecture"]: line["f1"] for line in csv_lines(files["table2.csv"])}
    assert float(f1["bytenet"]) == pytest.approx(12.5)
    other = of_parsing(sweep())
    assert table2.tables(other) == []
    assert table2.NOT_MEASURED in table2_files(other, "x")["table2.md"]
