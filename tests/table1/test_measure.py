"""A whole record, of few and small sizes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import psutil
import pytest
import torch

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import Table1Config
from seq2sweep.errors import UserError
from seq2sweep.model import products
from seq2sweep.report.paper_tables.table1_record import problem
from seq2sweep.table1 import measure as measure_module
from seq2sweep.table1.measure import BOTH_WAYS, CHAIN_LENGTHS, FULL, LONGEST_SEARCH, _path, measure
from seq2sweep.table1.rows import BY_NAME, ROWS
from seq2sweep.table1.timing import CLOCKS

SMALL = Table1Config(lengths=(8, 16, 80), widths=(8, 64), neighbourhood=5, repeats=3)
ABOUT = {"git.commit": "0" * 40, "hardware.cpu": "a processor", "hardware.cores": "2"}


@pytest.fixture
def few_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derivatives of few positions, of which the test is not."""
    monkeypatch.setattr(measure_module, "BOTH_WAYS", (4,))
    monkeypatch.setattr(measure_module, "CHAIN_LENGTHS", (4,))


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    threads = torch.get_num_threads()
    made = measure(SMALL, ABOUT)
    assert torch.get_num_threads() == threads
    return dict(json.loads(json.dumps(made)))


def test_a_record_is_what_the_report_reads(record: dict[str, Any]) -> None:
    assert problem(record) is None
    assert record["settings"]["lengths"] == [8, 16, 80]
    assert record["about"].items() >= ABOUT.items()
    assert 0 < record["about"]["cpu_share"] <= 1.01
    assert record["about"]["clock"] in CLOCKS


def test_each_layer_is_measured_at_each_size(record: dict[str, Any]) -> None:
    sizes = [(m["layer"], m["n"], m["d"]) for m in record["measurements"]]
    assert len(sizes) == len(set(sizes)) == len(ROWS) * 3 * 2
    for m in record["measurements"]:
        row = BY_NAME[m["layer"]]
        assert m["flops"] == m["flops_counted"] == row.flops(m["n"], m["d"], 3, 5)
        assert m["parameters"] == row.parameters(m["n"], m["d"], 3, 5)
        # Its input is kept by every layer.
        assert m["saved_bytes"] >= 4 * m["n"] * m["d"]
        for what in ("forward", "forward_backward"):
            times = m[what]
            assert 0 < times["low_quartile"] <= times["seconds"] <= times["high_quartile"] < 10


def test_chains_and_paths_of_each_layer(record: dict[str, Any]) -> None:
    for row in ROWS:
        chain = record["chains"][row.name]
        assert list(map(int, chain)) == list(CHAIN_LENGTHS)
        for entry in record["paths"][row.name]:
            assert ("both_by_jacobian" in entry) is (entry["n"] in BOTH_WAYS)
            for way in ("both", "causal"):
                assert entry.get(f"{way}_by_jacobian", entry[way]) == entry[way]
    assert {entry["n"] for entry in record["paths"]["lstm"]} == {*BOTH_WAYS, 8, 16, 80}


def test_paths_of_long_sentences_take_no_search_of_days() -> None:
    """Where there is a closed form: at 65536 tokens the search would take 10^9 steps."""
    for name, known in {"recurrent": 65536, "convolutional": 65535, "restricted": 4369}.items():
        assert _path(BY_NAME[name], 65536, 3, 31, causal=False) == known
    assert _path(BY_NAME["dilated"], LONGEST_SEARCH + 1, 3, 31, causal=False) == 12


@pytest.mark.usefixtures("few_paths")
def test_times_of_all_sizes_are_of_one_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or an exponent would be that of the change from one to the other."""
    before, seen = products.LARGE, set()
    step = measure_module.interleaved

    def timed(*given: Any) -> Any:
        seen.add(products.LARGE)
        return step(*given)

    monkeypatch.setattr(measure_module, "interleaved", timed)
    measure(Table1Config(lengths=(8, 16), widths=(8, 16), neighbourhood=5, repeats=3), ABOUT)
    assert min(seen) > 1 << 60
    assert before == products.LARGE


@pytest.mark.usefixtures("few_paths")
def test_half_precision_is_measured_too() -> None:
    settings = Table1Config(lengths=(4, 80), widths=(4, 8), repeats=3, precision="bf16")
    record = measure(settings, ABOUT)
    saved = [m for m in record["measurements"] if m["layer"] == "convolutional"]
    assert [m["saved_bytes"] for m in saved] == [2 * m["n"] * m["d"] for m in saved]


@pytest.mark.usefixtures("few_paths")
def test_some_layers_alone() -> None:
    settings = Table1Config(layers=("lstm",), lengths=(4, 8), widths=(4, 8), repeats=3)
    record = measure(settings, ABOUT)
    assert {m["layer"] for m in record["measurements"]} == {"lstm"}
    assert record["exponents"].keys() == record["paths"].keys() == {"lstm"}


def test_what_the_memory_does_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Memory:
        available = 2**30

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    settings = Table1Config(lengths=(4, 65536), widths=(4, 4096))
    with pytest.raises(
        UserError, match=r"^table1\.lengths up to 65536 with .*: lower one of them$"
    ):
        measure(settings, ABOUT)
    # Inputs of all sizes are there at once.
    few = Table1Config(lengths=(1024, 2048), widths=(4, 256))
    measure_module.check_memory(few)
    with pytest.raises(UserError, match="lower one of them"):
        measure_module.check_memory(replace(few, lengths=tuple(range(1500, 2049))))


def test_a_container_may_hold_less_than_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Table1Config(lengths=(4, 1024), widths=(4, 256))
    measure_module.check_memory(settings)
    groups = [(2.0**40, 2.0**39), (2.0**30, 2.0**24)]
    monkeypatch.setattr(measure_module, "own_groups", lambda: groups)
    with pytest.raises(UserError, match=r"and 0\.0 GiB of memory are free"):
        measure_module.check_memory(settings)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("lengths", [], "must be two or more whole numbers from 2 to 65536, each larger"),
        ("lengths", [64], "must be two or more whole numbers"),
        ("lengths", [64, 64], "must be two or more whole numbers"),
        ("lengths", [1, 64], "must be two or more whole numbers"),
        ("lengths", [64, 10**9], "must be two or more whole numbers"),
        ("lengths", ["a", "b"], "must be a list of whole numbers"),
        ("widths", [64, 32], "each larger than the one before"),
        ("kernel", 2, "must be an odd number from 3 to 4095, so that it has a middle, not 2"),
        ("kernel", 1, "must be an odd number"),
        ("neighbourhood", 10**6, "must be an odd number"),
        ("repeats", 0, "must be from 3 to 1000, not 0"),
        ("threads", 0, "must be from 1 to 1024, not 0"),
        ("precision", "float16", "must be one of float32, bf16"),
        ("layers", [], "must be all, or one or more that are not repeated"),
        ("layers", ["lstm", "lstm"], "must be all, or one or more that are not repeated"),
        ("layers", ["all", "lstm"], "must be all, or one or more that are not repeated"),
        ("layers", ["ltsm"], "did you mean lstm?"),
    ],
)
def test_hostile_settings_are_one_line(key: str, value: Any, problem: str) -> None:
    config = presets.load("phrasebook").config
    with pytest.raises(UserError) as error:
        configuration.with_changes(config, {f"table1.{key}": value})
    assert problem in str(error.value)
    assert f"table1.{key}" in str(error.value)
    assert "\n" not in str(error.value)


def test_what_the_command_measures_is_allowed() -> None:
    config = presets.load("phrasebook").config
    changes = {
        f"table1.{key}": list(value) if isinstance(value, tuple) else value
        for key, value in FULL.items()
    }
    assert configuration.with_changes(config, changes).table1 == Table1Config(**FULL)
