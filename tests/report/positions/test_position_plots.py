"""The sinusoids as the model computes them, and what is drawn of them and of scores by length."""

from __future__ import annotations

import base64
import io
import re
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from seq2sweep.model import layers
from seq2sweep.report import plots
from seq2sweep.report.aggregate import aggregate
from seq2sweep.report.positions import length_scores, position_plots
from tests.report.made_up_results import table3_sweep
from tests.report.parsing_sweep import of_parsing
from tests.report.positions.made_up_lengths import positions_sweep
from tests.report.test_sweep_plots import texts

SINUSOIDAL = {"positions": "sinusoidal", "d_model": 32}


# --- sinusoids -----------------------------------------------------------------------------------


@pytest.mark.parametrize("d_model", [2, 6, 64, 512, 1024])
def test_sinusoids_are_those_of_the_model(d_model: int) -> None:
    ours, theirs = position_plots.sinusoids(400, d_model), layers.sinusoids(400, d_model).numpy()
    assert ours.shape == theirs.shape == (400, d_model)
    # Both are computed in float64 from their own form of the equation; the model's are rounded.
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=np.finfo(np.float32).eps)


def test_sinusoids_by_hand() -> None:
    found = position_plots.sinusoids(3, 4)
    np.testing.assert_array_equal(found[0], [0, 1, 0, 1])
    np.testing.assert_allclose(found[2], [0.909297, -0.416147, 0.019999, 0.999800], atol=1e-6)


def test_the_picture_shows_each_value_at_its_place() -> None:
    section = position_plots.section(SINUSOIDAL)
    assert section is not None
    [encoded] = re.findall(r'href="data:image/png;base64,\s*([^"]+)"', section["plots"][0]["svg"])
    picture = matplotlib.image.imread(io.BytesIO(base64.b64decode(encoded)), format="png")
    values = position_plots.sinusoids(position_plots.POSITIONS, 32)
    assert picture.shape == (*values.shape, 4)
    blue = picture[..., 2] > picture[..., 0]
    clear = np.abs(values) > 0.1
    # A row a position, from the top; blue is above 0; opacity is the size, in steps of 1/16.
    np.testing.assert_array_equal(blue[clear], values[clear] > 0)
    np.testing.assert_allclose(picture[..., 3], np.abs(values), atol=1 / 32 + 1 / 255)


def test_the_section_of_sinusoids_has_two_light_drawings() -> None:
    section = position_plots.section(SINUSOIDAL | {"d_model": 1024})
    assert section is not None
    assert "d_model = 1024" in section["text"]
    assert len(section["plots"]) == 2
    drawings = [plot["svg"] for plot in section["plots"]]
    assert sum(map(len, drawings)) < 100_000
    for drawing in drawings:
        assert not re.findall(r"#[0-9a-f]{6}\b", drawing)
    assert {"0", "128", "256", "384"} <= set(texts(drawings[1]))
    assert section == position_plots.section(SINUSOIDAL | {"d_model": 1024})


def test_learned_positions_are_said_to_be_so() -> None:
    section = position_plots.section({"positions": "learned", "d_model": 32})
    assert section is not None
    assert section["plots"] == []
    assert "learns a vector for each position" in section["text"]


@pytest.mark.parametrize(
    "model",
    [
        None,
        {},
        {"architecture": "recurrent", "d_model": 32},
        {"positions": "sinusoidal"},
        {"positions": "sinusoidal", "d_model": "wide"},
        {"positions": "sinusoidal", "d_model": 0},
        {"positions": ["sinusoidal"], "d_model": 8},
        3,
    ],
)
def test_without_positions_there_is_no_section(model: Any) -> None:
    assert position_plots.section(model) is None


# --- scores by length ----------------------------------------------------------------------------


def drawn(record: dict[str, Any]) -> dict[str, str] | None:
    return position_plots.scores_by_length(aggregate(record), length_scores.read(record))


def test_scores_are_drawn_for_each_variant() -> None:
    found = drawn(positions_sweep())
    assert found is not None
    shown = set(texts(found["svg"]))
    assert {"base", "positions=learned", "5–8", "beyond: 17–29", "n = 490"} <= shown
    assert "longer than any sentence trained on" in found["caption"]
    assert not re.findall(r"#[0-9a-f]{6}\b", found["svg"])
    without = drawn(positions_sweep(bins=[(5, 8, 340), (9, 12, 640)]))
    assert without is not None
    assert "longer than any" not in without["caption"]
    assert "alone are drawn" not in without["caption"]


def test_of_many_variants_only_those_of_positions_are_drawn() -> None:
    record = table3_sweep()
    scores = {"bins": [30.0, 20.0], "within": 30.0}
    record["by_length"] = positions_sweep(bins=[(5, 8, 340), (17, 20, 90)])["by_length"]
    record["by_length"]["bleu"] = {trial["name"]: scores for trial in record["trials"]}
    assert len(aggregate(record)) > len(plots.SERIES)
    found = drawn(record)
    assert found is not None
    shown = set(texts(found["svg"]))
    assert {"base", "E-learned-positions"} <= shown
    assert "A-heads-1" not in shown
    said = "Of all variants only base and those that change positions alone are drawn."
    assert said in found["caption"]
    assert 'aria-label="BLEU of variants by the length of the source"' in found["svg"]


def test_there_is_nothing_to_draw_without_scores() -> None:
    record = positions_sweep()
    for trial in record["trials"]:
        trial["status"] = "stopped early"
    assert drawn(record) is None
    assert drawn(positions_sweep(bins=[(5, 8, 340)])) is None
    record = positions_sweep()
    del record["by_length"]
    assert drawn(record) is None


def test_scores_of_parsing_are_drawn_as_f1() -> None:
    found = drawn(of_parsing(positions_sweep()))
    assert found is not None
    assert "F1 (dev)" in found["svg"]
    assert "BLEU" not in "".join(found.values())
    assert found["caption"].startswith("Corpus F1 over the validation sentences")
