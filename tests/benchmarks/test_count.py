"""What an update asks of a GPU: limits, on a machine without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import fake_cuda
from seq2sweep.presets import table3

LIMITS = {
    # Of an update of 25 000 + 25 000 tokens in one pass: what is reached, and no more.
    "base": {"launches": 820, "gigabytes": 63.6, "milliseconds": 26.9, "slices": 66},
    "big": {"launches": 820, "gigabytes": 121.6, "milliseconds": 69.3, "slices": 66},
}
"""Lower them when a change lowers the counts (`python -m benchmarks.count`)."""


def run_with_it(module: str, *arguments: str) -> None:
    try:
        status = fake_cuda.run_with_it(module, arguments)
    except fake_cuda.UnavailableError as why:
        pytest.skip(f"no tensors of a GPU without one: {why}")
    assert status == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of what one process counts: it takes long to start."""
    folder = tmp_path_factory.mktemp("counts")
    updates = ("base", "big", "--updates", "2", "--warm-up", "1")
    run_with_it(
        "tests.benchmarks.known_operations",
        str(folder / "known.json"),
        *updates,
        "--json",
        str(folder / "updates.json"),
    )
    return folder


# --- the counter ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def known(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "known.json").read_text())
    return found


def total(of: dict[str, Any], what: str) -> float:
    return float(sum(part[what] for part in of["parts"].values()))


def test_products_are_those_by_hand(known: dict[str, Any]) -> None:
    products = known["product"]["parts"]["products"]
    assert products["launches"] == 2
    assert products["flops"] == 2 * 2 * 64 * 32 * 16
    # Forward a and b to ab, backward a and the gradient of ab to that of b.
    sizes = {"a": 64 * 32, "b": 32 * 16, "ab": 64 * 16}
    assert products["read"] == 2 * (sizes["a"] + sizes["b"] + sizes["a"] + sizes["ab"])
    assert products["written"] == 2 * (sizes["ab"] + sizes["b"])
    assert products["seconds"] == pytest.approx(2 * 2e-6)


def test_bytes_are_those_that_are_there(known: dict[str, Any]) -> None:
    # Made: 8 numbers of 4 bytes; read again as they are, written a hundred times.
    assert total(known["expanded"], "written") == 4 * 8 + 4 * 800
    assert total(known["expanded"], "read") == 4 * 8
    assert total(known["expanded"], "launches") == 2
    assert known["on_the_cpu"]["parts"] == {}
    assert known["on_the_cpu"]["waits"] == 0


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("number", {"waits": 2}),
        ("from_python", {"copies_in": 1, "pageable": 1}),
        ("pinned", {"copies_in": 1}),
        ("out", {"waits": 2}),
        ("checkpoint", {}),
        ("sizes", {"size_from_data": 1, "waits": 1}),
        ("logits", {"wide": 2}),
        ("sliced", {"slices": 1}),
        ("product", {}),
    ],
)
def test_what_should_not_be_is_seen(
    known: dict[str, Any], operation: str, expected: dict[str, int]
) -> None:
    names = ("copies_in", "pageable", "waits", "size_from_data", "wide", "slices")
    assert {name: n for name in names if (n := known[operation][name])} == expected


@pytest.mark.parametrize(
    ("fault", "name"), [("waiting", "waits"), ("copying", "pageable"), ("widening", "wide")]
)
def test_a_fault_in_an_update_is_seen(known: dict[str, Any], fault: str, name: str) -> None:
    planted = known["planted"]
    assert planted[fault][name] == planted["accumulate"][name] + 1
    assert planted["accumulate"]["waits"] == planted["accumulate"]["pageable"] == 0


# --- the updates ---------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["base", "big"])
def test_an_update_asks_for_no_more_than_it_did(model: str, folder: Path) -> None:
    found = json.loads((folder / "updates.json").read_text())[model]
    assert found["updates"] == 2
    for never in ("pageable", "waits", "size_from_data", "wide"):
        assert found[never] == 0, never
    assert found["copies_in"] == 1  # one a pass
    total, limits = found["total"], LIMITS[model]
    assert 0 < total["launches"] <= limits["launches"]
    assert 0 < (total["read"] + total["written"]) / 1e9 <= limits["gigabytes"]
    assert 0 < 1000 * total["seconds"] <= limits["milliseconds"]
    assert found["slices"] <= limits["slices"]


@pytest.mark.thorough
def test_an_update_of_each_row_of_table_3_runs_on_a_gpu(tmp_path: Path) -> None:
    """Forward, backward and Adam, as far as shapes, types and devices go."""
    file = tmp_path / "counts.json"
    updates = ("rows", "--updates", "1", "--warm-up", "0", "--json", str(file))
    run_with_it("benchmarks.count", *updates)
    found = json.loads(file.read_text())
    assert list(found) == [f"row {row.name}" for row in table3.read().rows]
    assert all(each["waits"] == each["pageable"] == 0 for each in found.values())
    assert all(each["parts"]["optimizer"]["launches"] for each in found.values())
