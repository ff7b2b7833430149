"""What the report says of the heads of a sweep's variants."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pipeline.report import read_sweep
from seq2sweep.errors import UserError
from seq2sweep.report import page
from seq2sweep.report.aggregate import aggregate
from seq2sweep.report.attention import heads_table
from seq2sweep.storage.atomic import write_json
from tests.report.made_up_results import results, seeded_sweep, sweep


def heads(count: int, entropy: float | None = 0.5, **more: Any) -> dict[str, Any]:
    found = {
        "heads": count,
        "cross_attention_entropy": entropy,
        "positional": 2,
        "loss_without": 0.02,
        "removable": 0.25,
    }
    return found | more


def made() -> dict[str, Any]:
    """Heads of all trials but the two last, one of which failed; one model has no attention, and
    another heads that cannot be left out."""
    found = sweep()
    for number, trial in enumerate(found["trials"][:-2]):
        trial["heads"] = heads(12 + number, 0.4 + number / 100)
    found["trials"][4]["heads"] = heads(0, None, positional=0, loss_without=None, removable=None)
    found["trials"][4]["model"]["architecture"] = "bytenet"
    found["trials"][5]["heads"] = heads(1, 0.3, loss_without=None, removable=None)
    return found


def rows(found: dict[str, Any]) -> tuple[dict[str, list[str]], str]:
    section = heads_table.section(found, aggregate(found))
    assert section is not None
    (table,) = section["tables"]
    assert {len(row) for row in table.rows} == {len(table.headings)}
    return {row[0]: row[1:] for row in table.rows}, table.notes[-1]


def test_a_row_a_variant() -> None:
    shown, note = rows(made())
    stopped = "dropout 0.3 (stopped early at step 100)"
    labels = [v.label if v.label != "dropout 0.3" else stopped for v in aggregate(made())]
    assert stopped in labels
    assert list(shown) == labels
    assert shown["base"] == ["4", "32", "31.4", "12", "0.40", "2", "0.020", "25\u202f%"]
    assert shown["heads 1"][:5] == ["1", "128", "29.9", "13", "0.41"]
    nothing = ["–"] * 5
    assert shown["layers 2"][3:] == shown["positions learned"][3:] == nothing
    assert shown["d_ff 1024"][3:] == ["1", "0.30", "2", "–", "–"]
    assert note == (
        "–: layers 2: bytenet has no attention; d_ff 1024: its heads are not joined by W^O, and "
        "none can be left out; positions learned: not measured (finished); "
        "d_model 4096: not measured (failed)."
    )


def test_seeds_are_pooled() -> None:
    found = seeded_sweep({"base": [30.0, 31.0], "d_k=4": [29.0, 28.0]})
    for trial, positional, entropy in zip(
        found["trials"], (1, 2, 5, 5), (0.1, 0.3, 0.6, 0.6), strict=True
    ):
        trial["heads"] = heads(12, entropy, positional=positional)
    shown, _ = rows(found)
    assert shown["base"][3:6] == ["12", "0.20 ± 1.27", "1.5"]
    assert shown["d_k=4"][4:6] == ["0.60 ± 0.00", "5.0"]
    # As in the other tables, the trials that finished count.
    found["trials"][1]["status"] = "stopped early"
    shown, _ = rows(found)
    assert shown["base (1 of 2 seeds finished, 1 stopped early)"][4:6] == ["0.10", "1"]


def test_an_earlier_sweep_has_no_such_section() -> None:
    assert heads_table.section(sweep(), aggregate(sweep())) is None
    assert 'id="heads"' not in page.render(results())
    shown = page.render(dataclasses.replace(results(), sweep=made()))
    assert '<h2 id="heads">Attention heads of the variants</h2>' in shown
    assert "bytenet has no attention" in shown


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"heads": 3}, "trials[2].heads.cross_attention_entropy is missing"),
        (heads(3) | {"removable": "all"}, "trials[2].heads.removable is"),
        ([1], "trials[2].heads is a list, not an object"),
    ],
)
def test_a_damaged_entry_is_one_line(wrong: Any, said: str, tmp_path: Any) -> None:
    found = made()
    found["trials"][2]["heads"] = wrong
    write_json(tmp_path / "sweep.json", found)
    with pytest.raises(UserError) as told:
        read_sweep(tmp_path / "sweep.json")
    assert said in str(told.value)
    assert str(told.value).endswith("remove it and run `dvc repro`")
