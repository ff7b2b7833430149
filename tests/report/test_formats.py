"""The table of a sweep as Markdown, CSV, HTML and LaTeX."""

from __future__ import annotations

import dataclasses
import html as html_text
import itertools
import re
import statistics
from typing import Any

import pytest

from seq2sweep.config.scores import BLEU
from seq2sweep.report import findings, formats, page, paper, table, templates
from seq2sweep.report.formats import table_files
from seq2sweep.report.markdown import escape
from seq2sweep.report.table import NONE_YET, Tables
from tests.report.made_up_results import (
    SIGNATURE,
    csv_lines,
    failed,
    papers_own_sweep,
    search,
    seeded_sweep,
    sweep,
    table3_sweep,
    undrawn,
)
from tests.report.parsing_sweep import of_parsing
from tests.report.positions.made_up_lengths import positions_sweep

HOSTILE = "a & b_c 50% #1 {x} ~^ \\ $5 <i> | `c` *d*\n% new line"


def html(found: Tables | None, dataset: str) -> str:
    """reports/table3.html."""
    return templates.render("table3.html", tables=found, dataset=dataset, none_yet=NONE_YET)


def tables(record: dict[str, Any]) -> table.Tables:
    return table.tables(record, "en → de, phrasebook", 3000)


def hostile() -> dict[str, Any]:
    record = sweep()
    record["trials"][1]["name"] = HOSTILE
    record["trials"][-1]["cause"] = HOSTILE
    return record


def lines(record: dict[str, Any] | None) -> list[dict[str, str]]:
    return csv_lines(formats.csv_text(record))


# --- Markdown ------------------------------------------------------------------------------------


def test_markdown_is_a_table_with_what_one_must_know() -> None:
    found = formats.markdown(tables(sweep()))
    rows = found.split("\n")[2:15]
    assert re.sub(" +", " ", rows[0]).startswith("| row | N | d_model | d_ff | h | d_k | d_v |")
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {len(table.headings(BLEU)) + 1}
    assert {len(row) for row in rows} == {len(rows[0])}
    assert r"- d_model 4096: out of memory: a worker \| was killed" in found
    for needed in ("Empty cells are the base row's", SIGNATURE, "3\u202f000 tokens", "word piece"):
        assert needed in found
    assert "not comparable with the paper's in absolute terms" in found
    assert "arXiv 1706.03762" in found


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see ![x](https://host/x.png)", r"see ![x\](https://host/x.png)"),
        ("[x][y] and [x]: y", r"[x\][y] and [x\]: y"),
        ("one\ntwo\r\nthree", "one two three"),
        ("&lt;b&gt; &#33;", r"\&lt;b\&gt; \&#33;"),
        ("_word_ and __init__", r"\_word\_ and \_\_init\_\_"),
        ("a\\b|c `d` *e* <i>", r"a\\b\|c \`d\` \*e\* \<i>"),
        # Names as they are.
        *[(name, name) for name in ("C-d_ff-1024", "ε_ls", "[1, 2, 4]", "a & b", "done!", "−0.5")],
    ],
)
def test_markdown_shows_text_as_it_is(text: str, shown: str) -> None:
    assert escape(text) == shown
    record = sweep()
    record["trials"][-1]["name"] = text
    assert f"- {shown}: out of memory: a worker" in formats.markdown(tables(record))


def test_markdown_of_table_3_tells_what_holds() -> None:
    found = formats.markdown(tables(table3_sweep(3)))
    assert "- A single head is worse (Table 3 (A)): **holds**. A-heads-1 −" in found
    assert "n = 3 unless the status says otherwise" in found
    assert "- big: model.heads 16 of d_k 8 is refused here" in found
    # What the end of `make reproduce` prints is the table itself.
    assert "holds" not in found.partition("\n## ")[0]


@pytest.mark.parametrize(
    ("budget", "note"),
    [
        ("steps", ""),
        ("tokens", "as many updates × `train.tokens_per_update`"),
        ("flops", "for as many FLOPs"),
    ],
)
def test_what_all_rows_get_alike_is_said(budget: str, note: str) -> None:
    found = formats.markdown(tables(table3_sweep() | {"budget": budget}))
    assert note in found
    assert ("as the base row." in found) == bool(note)


@pytest.mark.parametrize(
    ("budget", "what"), [("steps", ""), ("tokens", ""), ("flops", "FLOPs, larger models")]
)
def test_verdicts_on_rows_that_were_not_trained_as_the_papers_say_so(
    budget: str, what: str
) -> None:
    record = table3_sweep() | {"budget": budget}
    note = "The paper's rows have equal steps (big three times as many), those here equal "
    for name, text in formats.table_files(record, "x", 1).items():
        # After the findings and after the comparison; LaTeX has the latter alone, CSV no notes.
        count = {"md": 2, "html": 2, "tex": 1, "csv": 0}[name.partition(".")[2]] if what else 0
        assert html_text.unescape(text).count(note + what) == count, name
    rendered = page.render(dataclasses.replace(undrawn(), sweep=record))
    assert html_text.unescape(rendered).count(note) == 2 * bool(what)


def test_verdicts_on_other_sources_stand_without_it() -> None:
    """Table 2 of the paper, and papers of others, say nothing of equal steps."""
    scores = {"base": [30, 31], "encoder_mixer=fft": [20, 21], "decoder_mixer=fft": [25, 26]}
    found = tables(seeded_sweep(scores) | {"budget": "flops"})
    assert [one.source for one in found.findings] == [findings.DOMHAN]
    assert "equal steps" not in " ".join(found.finding_notes)


def test_every_format_is_there_without_a_sweep() -> None:
    assert "sweep.method" in formats.markdown(None)
    assert "sweep.method" in formats.latex(None).replace("\\", "")
    assert formats.latex(None).startswith("%")
    assert "sweep.method" in html(None, "x")
    assert lines(None) == []
    assert formats.csv_text(None) == formats.csv_text(sweep()).split("\n")[0] + "\n"


# --- CSV -----------------------------------------------------------------------------------------


def test_csv_has_plain_numbers_of_every_variant() -> None:
    record = table3_sweep(3)
    for trial in record["trials"]:
        trial["shared_device"] = trial["name"] == "B-d_k-16 seed=2"
    found = {line["variant"]: line for line in lines(record)}
    assert len(found) == 20
    assert {n for n, line in found.items() if line["shared_device"] == "True"} == {"B-d_k-16"}
    scores = [t["bleu"] for t in record["trials"] if t["variant"] == "B-d_k-16"]
    line = found["B-d_k-16"]
    assert (line["row"], line["group"], line["d_k"], line["heads"]) == ("B-d_k-16", "B", "2", "8")
    assert float(line["bleu"]) == pytest.approx(statistics.mean(scores))
    assert float(line["bleu_sd"]) == pytest.approx(statistics.stdev(scores))
    assert line["bleu_n"] == "3"
    assert float(line["chrf_n"]) == float(line["bleu_paper_n"]) == 3
    assert float(line["bleu_difference_p"]) == record["significance"]["B-d_k-16"]["p"]
    assert (line["paper_row"], line["paper_bleu"]) == ("B-d_k-16", "25.1")
    assert (line["paper_bleu_difference"], line["paper_perplexity_difference"]) == ("-0.7", "0.24")
    assert (line["paper_parameters_millions"], line["status"]) == ("58", "finished")
    base = found["base"]
    assert (base["paper_row"], base["paper_bleu_difference"]) == ("base", "0.0")
    assert base["bleu_difference"] == ""
    refused = found["big"]
    assert (refused["bleu"], refused["bleu_n"], refused["flops"]) == ("", "0", "")
    assert refused["cause"] == "big: model.heads 16 of d_k 8 is refused here"


def test_csv_of_one_seed_has_no_deviation() -> None:
    line = lines(table3_sweep())[1]
    assert (line["bleu_sd"], line["bleu_margin"], line["bleu_n"]) == ("", "", "1")


def test_csv_of_an_older_sweep_leaves_unknown_cells_empty() -> None:
    line = next(line for line in lines(sweep()) if line["variant"] == "d_k 8")
    assert (line["row"], line["bleu_paper"], line["device_hours"]) == ("", "", "")
    assert line["shared_device"] == ""
    assert line["bleu_difference_seen"] == ""
    assert line["paper_row"] == "B-d_k-16"


def test_csv_keeps_names_whole() -> None:
    assert lines(hostile())[1]["variant"] == HOSTILE


# --- LaTeX ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [sweep(), hostile(), table3_sweep(3), papers_own_sweep()],
    ids="old hostile 3 paper".split(),
)
def test_latex_is_well_formed(record: dict[str, Any]) -> None:
    found = formats.latex(tables(record))
    code = [line for line in found.split("\n") if not line.startswith("%")]
    bare = re.sub(r"\\[\\&%$#_{}]", "", "\n".join(code))
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert "#" not in bare
    assert "%" not in bare
    assert "_" not in re.sub(r"\$[^$]*\$", "", bare)
    assert bare.count(r"\begin{tabular}") == bare.count(r"\end{tabular}") == 2
    # What a plain LaTeX has no letter for.
    assert set(re.findall(r"[^\x00-\x7f]", "\n".join(code))) == set()
    for headings, text in zip(
        (table.headings(BLEU), paper.headings(BLEU)),
        "\n".join(code).split(r"\end{tabular}"),
        strict=False,
    ):
        rows = re.findall(r"[^\\]&.*", text)
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(headings) - 1}


def test_latex_shows_what_the_table_shows() -> None:
    found = formats.latex(tables(table3_sweep(3)))
    assert r"\begin{tabular}{l" + "r" * 15 + "l}" in found
    assert r"\begin{tabular}{llrrrrrrrl}" in found
    assert r"row & $N$ & $d_{\mathrm{model}}$ & $d_{\mathrm{ff}}$ & $h$ & $d_k$ & $d_v$" in found
    assert r"B-d\_k-16 &  &  &  &  & 2 &" in found
    assert r"\,$\times$\,10$^{12}$" in found
    assert r"$\approx$" in found
    assert r"(A) h 8 $\to$ 1, d\_k 64 $\to$ 512" in found


# --- HTML ----------------------------------------------------------------------------------------


def test_html_stands_alone_and_escapes() -> None:
    record = hostile()
    record["trials"][2]["name"] = "<script>alert('x')</script>"
    found = html(tables(record), "<b>x</b>")
    assert "<script" not in found
    assert "<b>x" not in found
    assert "--surface: #ffffff" in found
    assert not re.search(r"(?:src|href)=\"(?!data:)", found)
    assert found.count("<tr") == found.count("</tr>")


def test_no_note_of_the_html_has_backticks() -> None:
    record = table3_sweep() | {"budget": "flops"}
    big = next(one for one in record["trials"] if one["row"] == "big")
    big |= {"status": "finished", "cause": None, "bleu": 55.0, "bleu_paper": 55.0}
    del big["changes"]["train.steps"]
    record["trials"][1] |= {"status": "refused", "cause": "run `seq2sweep doctor`", "bleu": None}
    found = html(tables(record), "x")
    assert found.count("<code>sweep.budget: flops</code>") == 2
    assert "<code>seq2sweep doctor</code>" in found
    assert "`" not in found


def test_html_is_what_the_page_shows() -> None:
    found = html(tables(table3_sweep(3)), "x")
    for heading in (*table.headings(BLEU), *paper.headings(BLEU)):
        assert f">{heading}</th>" in found
    assert "Published findings at this scale" in found
    assert "Refused and failed" in found


def test_variants_refused_for_their_values_are_shown_with_them() -> None:
    record = sweep()
    keys = ("model.heads", "model.d_k", "model.dropout", "train.steps")
    for key, value in itertools.product(keys, ["many", 0, -3, 0.5, None, "[1, 2]", True]):
        section, name = key.split(".")
        odd = record["trials"][1] | failed("refused", f"{key} must not be {value!r}")
        odd |= {"name": f"odd {key}={value}", "changes": {key: value}, "parameters": None}
        odd |= {"model": record["base"]["model"], "train": record["base"]["train"]}
        record["trials"].append(odd | {section: record["base"][section] | {name: value}})
    found = tables(record)
    assert [row.cells[-1] for row in found.rows[-28:]] == ["refused"] * 28
    assert "odd model.heads=0: model.heads must not be 0" in formats.markdown(found)
    assert "odd" not in str([*found.findings, *found.comparisons])
    assert len(lines(record)) == len(record["trials"])
    shown = page.render(dataclasses.replace(undrawn(), sweep=record))
    assert "must not be &#39;many&#39;" in shown


def test_a_trial_that_could_not_be_scored_says_why() -> None:
    record = sweep()
    record["trials"][1] |= {"bleu": None, "cause": "not scored: out of memory"}
    found = tables(record)
    assert ("heads 1", "not scored: out of memory") in found.failures
    assert found.rows[1].cells[-1] == "finished"


def test_a_sweep_in_which_everything_failed_is_still_a_table() -> None:
    record = table3_sweep()
    for one in record["trials"]:
        one |= failed("failed", "out of memory")
        one |= {"parameters": None}
    record["significance"] = None
    assert "out of memory" in formats.markdown(tables(record))
    assert "Beside the paper" not in formats.markdown(tables(record))
    assert len(lines(record)) == 20
    assert r"\end{tabular}" in formats.latex(tables(record))
    assert "out of memory" in html(tables(record), "x")


# --- parsing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record", [sweep(), search(), table3_sweep(3), papers_own_sweep(), positions_sweep()]
)
def test_a_sweep_of_parsing_says_f1_everywhere(record: dict[str, Any]) -> None:
    files = table_files(of_parsing(record), "en → trees, phrasebook", 3000)
    for name, text in files.items():
        assert not re.search("BLEU", text), name
        assert "F1" in text or name == "table3.csv"
        assert "bleu" not in text or name == "table3.html"  # a class of the style sheet
    assert "F1 is by EVALB's rules: `EVALB, COLLINS.prm`" in files["table3.md"]
    # The same numbers under another name, without what there is of translation alone.
    translated, parsed = (
        csv_lines(table_files(one, "x", 3000)["table3.csv"]) for one in (record, of_parsing(record))
    )
    for before, after in zip(translated, parsed, strict=True):
        others = {"bleu_paper", "chrf", "paper_bleu"}
        kept = {
            key.replace("bleu", "f1"): value
            for key, value in before.items()
            if not any(key.startswith(other) for other in others)
        }
        own = ("precision", "recall", "complete")
        assert kept == {key: v for key, v in after.items() if not key.startswith(own)}
        assert after["precision"] == (str(float(after["f1"]) + 1) if after["f1"] else "")


def test_scores_by_length_of_parsing_have_their_title() -> None:
    files = table_files(of_parsing(positions_sweep()), "x", 3000)
    for name in ("table3.md", "table3.html"):
        assert "F1 by length of the source" in files[name]
