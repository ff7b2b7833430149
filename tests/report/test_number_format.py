"""Numbers as people write them."""

from __future__ import annotations

import math

from seq2sweep.report import number_format, table
from seq2sweep.report.aggregate import Estimate


def test_settings_are_shown_as_in_params_yaml() -> None:
    settings = (0.1, 512, "learned", True, False)
    assert [*map(number_format.plain, settings)] == ["0.1", "512", "learned", "true", "false"]


def test_numbers_as_people_write_them() -> None:
    assert number_format.whole(1234567.4) == "1\u202f234\u202f567"
    assert number_format.powers(3.28e18) == "3.3\u202f×\u202f10¹⁸"
    assert [number_format.signed(x, 1) for x in (0.9, -0.9, 0.04, -0.04, None)] == [
        *("+0.9", "−0.9", "0.0", "0.0", number_format.MISSING),
    ]
    assert [number_format.millions(n) for n in (831_000, 12_340_000, 65_400_000)] == [
        "0.83",
        "12.3",
        "65",
    ]
    assert number_format.percent(0.0512) == "5.1\u202f%"
    assert number_format.fixed(math.inf, 2) == number_format.MISSING
    # Neither a hyphen for a minus, nor a minus before what is shown as zero.
    assert [number_format.fixed(x, 3) for x in (-0.0021, -0.0004, -0.0, 0.0021)] == [
        *("−0.002", "0.000", "0.000", "0.002"),
    ]
    assert table.with_margin(Estimate(-0.0021, 3, 0.001, 0.0013), 3) == "−0.002 ± 0.001"
    # A training that diverged has a perplexity of up to 305 digits.
    assert [number_format.fixed(x, 2) for x in (999_999.25, 1e6, -1e150)] == [
        *("999999.25", "1.0\u202f×\u202f10⁶", "−1.0\u202f×\u202f10¹⁵⁰"),
    ]
    assert [number_format.signed(x, 2) for x in (1e150, -1e6)] == [
        *("+1.0\u202f×\u202f10¹⁵⁰", "−1.0\u202f×\u202f10⁶"),
    ]
    large = Estimate(1e150, 3, 2e150, 5e150)
    assert table.with_margin(large, 2) == "1.0\u202f×\u202f10¹⁵⁰ ± 5.0\u202f×\u202f10¹⁵⁰"
    assert [number_format.p_value(p) for p in (0.0312, 0.0004, 1.0, None)] == [
        *("0.031", "< 0.001", "1.000", number_format.MISSING),
    ]
    # What is seen is below 0.05, and shown so.
    assert [number_format.p_value(p) for p in (0.0498, 0.0495, 0.0494, 0.05)] == [
        *("0.0498", "0.0495", "0.049", "0.050"),
    ]
    assert table.with_margin(Estimate(25.34, 3, 0.2, 0.44), 1) == "25.3 ± 0.4"
    assert table.with_margin(Estimate(25.34), 1) == "25.3"
    assert table.with_margin(None, 1) == number_format.MISSING
