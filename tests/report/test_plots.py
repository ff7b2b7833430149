"""Plots as SVG: the same each time, in the colours of the page."""

from __future__ import annotations

import re

from seq2sweep.report import plots


def test_a_plot_is_deterministic_and_takes_the_pages_colours() -> None:
    curves = {"a & $b$": [(1, 2.0), (2, 1.0)], "c": [(1, 3.0), (2, 2.0)]}
    drawing, again = (
        plots.lines(curves, 'loss of "a" & b', from_zero=False, name="one") for _ in range(2)
    )
    assert drawing == again
    assert not re.findall(r"#[0-9a-f]{6}\b", drawing)
    assert "var(--series-1)" in drawing
    assert "var(--series-2)" in drawing
    assert ">a &amp; $b$</text>" in drawing
    assert 'aria-label="loss of &quot;a&quot; &amp; b against training steps"' in drawing
    assert "http" not in drawing


def test_identifiers_have_the_plots_name() -> None:
    curves = {"a": [(1, 2.0), (2, 1.0)]}
    drawing = plots.lines(curves, "loss", from_zero=True, name="one")
    identifiers = re.findall(r'\bid="([^"]*)"', drawing)
    assert identifiers
    assert all(name.startswith("one-") for name in identifiers)
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', drawing)) <= set(identifiers)
