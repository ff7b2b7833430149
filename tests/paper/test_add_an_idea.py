"""What docs/add_an_idea.md shows works as it stands there."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import kinds_of_parts
from seq2sweep.model import building, feed_forward, flops
from seq2sweep.sweep.variants import variants
from seq2sweep.train import step

from .models import padded
from .test_flops import counted
from .test_transformer import CPU, Batch

PAGE = (Path(__file__).parents[2] / "docs" / "add_an_idea.md").read_text(encoding="utf-8")


@pytest.fixture
def geglu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's file, in a folder of kinds of its own."""
    (found,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    model = tmp_path / "seq2sweep" / "model"
    folder = model / "feed_forward"
    folder.mkdir(parents=True)
    (folder / "geglu.py").write_text(found, encoding="utf-8")
    (folder / "relu.py").symlink_to(Path(feed_forward.__file__).with_name("relu.py"))
    (folder / "swiglu.py").symlink_to(Path(feed_forward.__file__).with_name("swiglu.py"))
    for part in kinds_of_parts.MODEL.iterdir():
        if part.name != folder.name:
            (model / part.name).symlink_to(part)
    monkeypatch.setattr(kinds_of_parts, "MODEL", model)
    monkeypatch.setattr(feed_forward, "__path__", [str(folder)])
    importlib.invalidate_caches()
    yield
    sys.modules.pop("seq2sweep.model.feed_forward.geglu", None)


@pytest.mark.usefixtures("geglu")
def test_the_page_leads_from_a_file_to_variants_that_train() -> None:
    (line,) = re.findall(r'^    ("model\.feed_forward, model\.d_ff":.*)$', PAGE, re.MULTILINE)
    text = configuration.dump(presets.load("phrasebook").config)
    place = text.index("    model.heads, model.d_k")
    config = configuration.parse(f"{text[:place]}    {line}\n{text[place:]}")
    (found,) = (v for v in variants(config)[0] if v.changes.get("model.feed_forward") == "geglu")
    model_config = found.config.model
    assert counted(model_config, 50, 7, 5, 3)[:2] == [
        flops.parameter_count(model_config, 50),
        flops.forward_flops(model_config, 50, np.full(3, 7), np.full(3, 5)),
    ]
    torch.manual_seed(0)
    model = building.build(model_config, 50)
    part: Any = model.get_submodule("encoder.0.feed_forward")
    x = torch.randn(3, model_config.d_model)
    expected = (F.gelu(x @ part.gate.weight.T) * (x @ part.inner.weight.T)) @ part.outer.weight.T
    torch.testing.assert_close(part(x), expected)
    source, target = padded([5, 3]), padded([4, 6])
    loss, _ = step.sums_of(model, Batch(source, target, target), 0.1, CPU)
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())
