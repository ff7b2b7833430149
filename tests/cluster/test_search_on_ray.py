"""A search by real trials: cut off in the middle, begun again, and with a trial that fails."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seq2sweep import config as configuration
from seq2sweep.cluster.tune_runner import run_sweep
from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext
from seq2sweep.sweep.search import Proposal, search
from seq2sweep.sweep.trial_record import OnTrial, TrialResult
from seq2sweep.sweep.variants import Refused, Variant
from tests.cluster import scoring
from tests.conftest import Corpus


@pytest.fixture
def config(tiny_config: Config) -> Config:
    """Two rounds; in the first, by this seed, one cannot be built and one is refused."""
    return configuration.with_changes(
        tiny_config,
        {
            "sweep.method": "optuna",
            "sweep.objectives": ["perplexity", "flops"],
            "sweep.scheduler": "none",
            "sweep.space": {
                "model.d_model, model.d_ff": [[32, 64], [32, 128], [33, 64], [32, 10**13]],
                "train.learning_rate_scale": {"low": 0.1, "high": 2.0, "log": True},
            },
            "sweep.samples": 6,
            "sweep.round": 3,
            "sweep.seed": 4,
            "sweep.max_failures": 0,
        },
    )


def searched(
    config: Config, corpus: Corpus, project: Path, on_trial: OnTrial = lambda *told: None
) -> tuple[list[TrialResult], list[Proposal]]:
    def run(variants: Sequence[Variant], hear: OnTrial) -> list[TrialResult]:
        return run_sweep(
            config,
            variants,
            encoded=corpus.encoded,
            project=project,
            name="sweep",
            score=scoring.score,
            final=True,
            on_trial=hear,
        )

    data = Bitext.open(corpus.encoded, "train")
    return search(config, data, run, on_trial=on_trial, on_round=lambda asked: None)


def ends(results: list[TrialResult]) -> list[Any]:
    """All but times and places."""
    figures = ("valid_perplexity", "flops", "bleu")
    return [
        (r.variant.name, r.status, r.cause, r.steps, [r.metrics.get(f) for f in figures])
        for r in results
    ]


@pytest.mark.thorough
def test_a_search_begun_again_goes_on_where_it_was(
    cluster: None,
    config: Config,
    tiny_corpus: Corpus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Figures decide from the second round on.
    monkeypatch.setattr("seq2sweep.sweep.optuna_search.STARTUP", 1)
    heard = Heard()
    undisturbed, proposals = searched(config, tiny_corpus, tmp_path, heard)
    assert [type(proposal.made) for proposal in proposals].count(Refused) >= 1
    failed, *_ = [result for result in undisturbed if result.status == "failed"]
    assert "can't allocate memory" in str(failed.cause)
    assert heard.of(failed.variant.name) == ["started", "failed"], "not tried by the next rounds"
    for found in undisturbed:
        assert heard.of(found.variant.name).count("started") == 1
    finished = [result.variant.name for result in undisturbed if result.status == "finished"]
    last = finished[-1]
    assert last in [p.variant for p in proposals if p.round == proposals[-1].round]

    # As if the driver had been killed when the last trial stood at step 9.
    folder = next(found for found in undisturbed if found.variant.name == last).journal.parent
    (folder / "result.json").unlink()
    journal = folder / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    journal.write_text("".join(line for line in lines if json.loads(line)["step"] <= 9))
    shutil.rmtree(folder / "step-00000012")
    causes = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("failure.json")}
    assert len(causes) >= 1
    heard = Heard()
    resumed, same = searched(config, tiny_corpus, tmp_path, heard)
    assert [p.variant for p in same] == [p.variant for p in proposals]
    assert ends(resumed) == ends(undisturbed)
    assert {name for event, name in heard.events if event == "result"} == {last}
    assert {path: path.stat().st_mtime_ns for path in causes} == causes, "failed for good"


class Heard:
    """Remembers what was told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def __call__(self, event: str, variant: Variant, figures: dict[str, Any]) -> None:
        self.events.append((event, variant.name))

    def of(self, name: str) -> list[str]:
        return [event for event, variant in self.events if variant == name]
