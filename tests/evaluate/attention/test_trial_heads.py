"""What a trial of a sweep says of its heads, beside its scores."""

from __future__ import annotations

import math
import pickle
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.errors import UserError
from seq2sweep.evaluate.attention import head_numbers, trial_heads
from seq2sweep.evaluate.evaluation import Data, validation_scores
from seq2sweep.model import building
from tests.conftest import Corpus


@pytest.mark.parametrize(
    ("architecture", "heads"), [("transformer", 6), ("recurrent", 1), ("bytenet", 0)]
)
def test_a_trial_has_its_heads_beside_its_scores(
    architecture: str,
    heads: int,
    tiny_corpus: Corpus,
    tiny_config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes: dict[str, Any] = {"evaluate.beam": 1, "evaluate.max_extra_tokens": 1}
    if architecture != "transformer":
        changes |= {"model.architecture": architecture, "model.layers": 2}
    config = configuration.with_changes(tiny_config, changes)
    torch.manual_seed(2)
    model = building.build(config.model, tiny_corpus.size).eval()
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    save_file(weights, tmp_path / "model.safetensors")
    given = (config, tmp_path, tiny_corpus.encoded)
    folders = {"clean": tiny_corpus.clean, "vocabulary": tiny_corpus.vocabulary}
    # Eight of the 40 sentences of the validation set.
    monkeypatch.setattr(trial_heads, "SENTENCES", 8)
    newest = {"valid_perplexity": 7.5 if heads else math.inf}
    progress = SimpleNamespace(newest=newest)
    monkeypatch.setattr(trial_heads, "read_progress", lambda folder: progress)
    found = trial_heads.score_with_heads(*given, **folders)
    assert found.pop("valid_perplexity") == (7.5 if heads else None)
    said = found.pop("heads")
    data = Data(tiny_corpus.clean, tiny_corpus.vocabulary, tiny_corpus.encoded)
    assert found == validation_scores(config, model, data)
    bitext = Bitext.open(tiny_corpus.encoded, "valid")
    pairs = [head_numbers.pair(bitext, i) for i in range(0, 40, 5)]
    pieces = Vocabulary.open(tiny_corpus.vocabulary)
    expected = head_numbers.summary(head_numbers.measure(model, pieces, pairs))
    assert said == {k: v if v is None else pytest.approx(v, abs=1e-6) for k, v in expected.items()}
    assert said["heads"] == heads
    assert (said["removable"] is None) == (architecture != "transformer")
    assert (said["cross_attention_entropy"] is None) == (architecture == "bytenet")


@pytest.fixture
def project(tiny_corpus: Corpus, tmp_path: Path) -> Data:
    """Folders of their own."""
    for folder in (tiny_corpus.clean, tiny_corpus.vocabulary, tiny_corpus.encoded):
        shutil.copytree(folder, tmp_path / "project" / folder.name)
    return Data(*(tmp_path / "project" / name for name in ("clean", "vocabulary", "encoded")))


def test_a_node_that_does_not_see_the_project_scores_the_same(
    project: Data,
    tiny_corpus: Corpus,
    tiny_config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = configuration.with_changes(
        tiny_config, {"evaluate.beam": 1, "evaluate.max_extra_tokens": 1}
    )
    model = building.build(config.model, tiny_corpus.size)
    save_file(dict(model.named_parameters()), tmp_path / "model.safetensors")
    progress = SimpleNamespace(newest={})
    monkeypatch.setattr(trial_heads, "read_progress", lambda folder: progress)
    monkeypatch.setattr(trial_heads, "SENTENCES", 8)
    given = (config, tmp_path, tiny_corpus.encoded)
    expected = trial_heads.score_with_heads(
        *given, clean=tiny_corpus.clean, vocabulary=tiny_corpus.vocabulary
    )
    travels = pickle.dumps(trial_heads.TrialScorer.read(project))
    shutil.rmtree(project.clean.parent)
    node = tmp_path / "node"
    node.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(node))
    assert pickle.loads(travels)(*given) == expected
    assert list(node.iterdir()) == []


def test_what_is_to_be_scored_against_is_verified_before_any_training(project: Data) -> None:
    text = project.clean / "valid.target.txt"
    text.write_text(text.read_text().lower())
    with pytest.raises(UserError, match=f"^{text} has changed since it was written"):
        trial_heads.TrialScorer.read(project)
