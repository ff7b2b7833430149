"""Every figure that a run prints, recomputed from the weights, translations and journals it left.

No setting that a figure depends on has its default.
"""

from __future__ import annotations

import csv
import json
import math
import re
import statistics
from pathlib import Path
from typing import Any

import mlflow
import pytest
import sacrebleu
from safetensors.torch import load_file

from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.data.bitext import Bitext
from seq2sweep.data.vocabulary import Vocabulary
from seq2sweep.decode.average import average, build
from seq2sweep.evaluate.bleu import score
from seq2sweep.evaluate.evaluation import Data, evaluate
from seq2sweep.evaluate.scorers import BleuScorer
from seq2sweep.evaluate.significance import against_base
from seq2sweep.model.flops import training_flops
from seq2sweep.storage.atomic import sha256
from tests.pipeline.test_repro import Project
from tests.recompute import averaged, perplexity, trained_on

pytestmark = pytest.mark.thorough

STEPS, EVERY = 330, 33
SETTINGS: dict[str, Any] = {
    "data.phrasebook.test": 600,  # some have a hyphen, which the paper's BLEU splits words at
    "prepare.lowercase": True,
    "model.d_model": 64,
    "model.d_ff": 256,
    "model.d_k": 32,
    "model.d_v": 32,
    "model.dropout": 0.05,
    "train.seed": 7,
    "train.steps": STEPS,
    "train.warmup_steps": 70,
    "train.precision": "bf16",
    "train.label_smoothing": 0.2,
    "train.learning_rate_scale": 0.5,
    "train.tokens_per_pass": 400,
    "train.log_every": 7,
    "train.validate_every": EVERY,
    "train.checkpoint_every": EVERY,
    "train.keep_checkpoints": 3,
    "evaluate.average_checkpoints": 2,
    "evaluate.beam": 3,
    "evaluate.alpha": 1.4,
    "evaluate.length_penalty": "power",
    "evaluate.max_extra_tokens": 9,
    "cluster.workers": 1,
    "sweep.base": {"train.steps": 44, "train.validate_every": 11, "train.checkpoint_every": 11},
    "sweep.space": {"model.dropout": [0.0]},
    "sweep.seeds": 2,
    "sweep.scheduler": "none",
}
SEEDS = (7, 8)
T_OF_TWO = 12.7062
"""Student's t for 95 % of two values."""


class Finished(Project):
    """A project that has run from end to end, and where its files are."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.set(SETTINGS)
        _, self.output = self.repro()
        self.config: Config = configuration.load(folder / "params.yaml")
        self.data = Data(*(folder / f"data/{name}" for name in ("clean", "vocabulary", "encoded")))
        self.pieces = len(Vocabulary.open(self.data.vocabulary))
        self.client: Any = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")

    def journal(self, file: Path, kind: str) -> list[dict[str, Any]]:
        lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
        return [line for line in lines if line["kind"] == kind]

    def metrics(self, run_id: str) -> dict[str, float]:
        """The newest of each in MLflow."""
        found: dict[str, float] = self.client.get_run(run_id).data.metrics
        return found

    def rows(self) -> list[list[str]]:
        text = (self.folder / "reports/translations.tsv").read_text(encoding="utf-8")
        return [line.split("\t") for line in text.split("\n")[1:-1]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return Finished(tmp_path_factory.mktemp("figures") / "clone")


# --- train ---------------------------------------------------------------------------------------


def test_train(project: Finished) -> None:
    found, receipt = project.json("metrics/train.json"), project.json("models/train/receipt.json")
    (journal,) = project.folder.glob("runs/train-*/journal.jsonl")
    (finished,) = project.journal(journal, "finished")
    logged, validated = (project.journal(journal, kind) for kind in ("logged", "validated"))
    bitext = Bitext.open(project.data.encoded, "train")
    seen = trained_on(bitext, STEPS, 7, project.config.train.tokens_per_update)
    assert {key: found[key] for key in seen} == seen
    assert (found["steps"], found["workers"], found["precision"]) == (STEPS, 1, "bf16")
    seconds = finished["train_seconds"]
    assert found["tokens_per_second"] == pytest.approx(seen["target_tokens"] / seconds)
    assert found["device_hours"] == pytest.approx(seconds / 3600)
    assert seconds < found["wall_seconds"]
    assert found["flops_per_second"] == pytest.approx(found["flops"]["model"] / seconds)
    weights = load_file(
        project.folder / "models/train/checkpoints" / receipt["checkpoints"][-1]["file"]
    )
    assert found["parameters"] == sum(tensor.numel() for tensor in weights.values())
    assert found["vocabulary_size"] == project.pieces
    last = {"loss": logged[-1]["loss"]} | {
        key: validated[-1][key] for key in ("valid_loss", "valid_perplexity")
    }
    assert found["final"] == last
    assert last["valid_perplexity"] == pytest.approx(math.exp(last["valid_loss"]))
    assert found["peak_rss_bytes"] == finished["peak_rss_bytes"] >= finished["rss_bytes"]
    # Validation sees no averaged weights, and in bf16.
    model = averaged(project.config.model, [checkpoint(project, -1)], project.pieces)
    known = perplexity(model, Bitext.open(project.data.encoded, "valid"))
    assert last["valid_perplexity"] == pytest.approx(known, rel=0.02)
    assert [entry["step"] for entry in validated] == list(range(EVERY, STEPS + 1, EVERY))
    assert len({entry["valid_perplexity"] for entry in validated}) == len(validated)


def checkpoint(project: Finished, number: int) -> Path:
    entry = project.json("models/train/receipt.json")["checkpoints"][number]
    file: Path = project.folder / "models/train/checkpoints" / entry["file"]
    assert sha256(file) == entry["sha256"]
    return file


def test_flops_of_train_are_those_of_its_sentences(project: Finished) -> None:
    found = project.json("metrics/train.json")["flops"]
    bitext = Bitext.open(project.data.encoded, "train")
    every = training_flops(
        project.config.model, project.pieces, bitext.source_lengths, bitext.target_lengths
    )
    seen = trained_on(bitext, STEPS, 7, project.config.train.tokens_per_update)
    share = seen["target_tokens"] / int(bitext.target_lengths.sum())
    assert found["model"] == pytest.approx(every * share, rel=0.01)
    assert 1 < found["padded"] / found["model"] < 1.1


def test_curves(project: Finished) -> None:
    (journal,) = project.folder.glob("runs/train-*/journal.jsonl")
    expected: dict[int, dict[str, Any]] = {}
    for kind in ("logged", "validated"):
        for entry in project.journal(journal, kind):
            expected.setdefault(entry["step"], {}).update(entry)
    with (project.folder / "metrics/curves.csv").open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["step"]) for row in rows] == sorted(expected)
    run = project.json("metrics/train.json")["mlflow_run_id"]
    for row in rows:
        entry = expected[int(row["step"])]
        shown = {key: float(value) for key, value in row.items() if value}
        assert shown == {key: entry[key] for key in row if key in entry}
    for name in ("loss", "perplexity", "learning_rate", "valid_loss", "valid_perplexity"):
        history = project.client.get_metric_history(run, f"train/{name}")
        assert {point.step: point.value for point in history} == {
            step: entry[name] for step, entry in expected.items() if name in entry
        }


def test_train_in_mlflow_dvc_and_on_the_console(project: Finished) -> None:
    found = project.json("metrics/train.json")
    shown = project.metrics(found["mlflow_run_id"])
    assert shown["cost/parameters"] == found["parameters"]
    assert shown["cost/flops"] == found["flops"]["model"]
    assert shown["cost/padded_flops"] == found["flops"]["padded"]
    for name in ("device_hours", "flops_per_second"):
        assert shown[f"cost/{name}"] == found[name]
    assert project.json("metrics/dvc/train.json") == {
        "steps": STEPS,
        "parameters": found["parameters"],
        "tokens_per_second": found["tokens_per_second"],
        "flops": found["flops"]["model"],
        "valid_ppl": found["final"]["valid_perplexity"],
    }
    assert (
        f"{found['tokens_per_second']:,.0f} target tokens/s, valid perplexity "
        f"{found['final']['valid_perplexity']:.2f}; 3 checkpoints"
    ) in project.output
    assert f"{found['parameters'] / 1e6:.2f}M parameters at a vocabulary of {project.pieces}" in (
        project.output
    )


# --- evaluate ------------------------------------------------------------------------------------


def test_evaluate(project: Finished) -> None:
    found = project.json("metrics/evaluate.json")
    sources, references, translations, tags = zip(*project.rows(), strict=True)
    assert list(sources) == project.data.lines("test", "source")
    assert list(references) == project.data.lines("test", "target")
    known = sacrebleu.corpus_bleu(translations, [references], lowercase=True).score
    assert found["bleu"]["sacrebleu"]["score"] == pytest.approx(known, abs=6e-5)
    chrf = sacrebleu.corpus_chrf(
        [line.lower() for line in translations], [[line.lower() for line in references]]
    ).score
    assert found["chrf"]["score"] == pytest.approx(chrf, abs=6e-5)
    assert found["bleu"] == score(translations, references, "de", lowercase=True)["bleu"]
    exact = [a == b for a, b in zip(translations, references, strict=True)]
    assert found["exact_match"] == pytest.approx(100 * sum(exact) / len(exact), abs=6e-5)
    assert found["averaged_checkpoints"] == [STEPS - EVERY, STEPS]
    model = averaged(
        project.config.model, [checkpoint(project, -2), checkpoint(project, -1)], project.pieces
    )
    known = perplexity(model, Bitext.open(project.data.encoded, "test"))
    assert found["perplexity"] == pytest.approx(known, rel=0.02)
    for name, figures in found["phenomena"].items():
        own = [i for i, tag in enumerate(tags) if name in tag.split()]
        assert figures["sentences"] == len(own)
        known = sacrebleu.corpus_bleu(
            [translations[i] for i in own], [[references[i] for i in own]], lowercase=True
        ).score
        assert figures["bleu"] == pytest.approx(known, abs=6e-5)
    settings = {"beam": 3, "alpha": 1.4, "length_penalty": "power", "stopping": "exact"}
    settings["search_precision"] = "float32"
    assert {key: found[key] for key in settings} == settings
    done = project.call("seq2sweep", "evaluate", "--check")
    assert done.returncode == 0, done.stdout
    assert re.fullmatch(r"(\d+) of \1 metrics are those of the files\n", done.stdout)


def test_evaluate_in_mlflow_dvc_and_on_the_console(project: Finished) -> None:
    found = project.json("metrics/evaluate.json")
    expected = {
        "bleu": found["bleu"]["sacrebleu"]["score"],
        "bleu_paper": found["bleu"]["paper"]["score"],
        "chrf": found["chrf"]["score"],
        "exact_match": found["exact_match"],
        "test_perplexity": found["perplexity"],
        "decode_tokens_per_second": found["decode_tokens_per_second"],
    }
    assert len(set(expected.values())) == len(expected)
    recorded = {
        f"{'cost' if name == 'decode_tokens_per_second' else 'score'}/{name}": value
        for name, value in expected.items()
    }
    assert project.metrics(found["mlflow_run_id"]) == recorded
    (model,) = project.client.search_logged_models(
        [project.client.get_run(found["mlflow_run_id"]).info.experiment_id],
        filter_string=f"source_run_id = '{found['mlflow_run_id']}'",
    )
    assert {metric.key: metric.value for metric in model.metrics} == recorded
    parent = project.metrics(project.json("metrics/train.json")["mlflow_run_id"])
    assert recorded.items() <= parent.items()
    assert project.json("metrics/dvc/evaluate.json").items() <= expected.items()
    for line in (
        f"BLEU {expected['bleu']:.2f} ({found['bleu']['sacrebleu']['signature']})",
        f"paper's tokenised BLEU {expected['bleu_paper']:.2f}, chrF {expected['chrf']:.2f}, "
        f"perplexity {expected['test_perplexity']:.3f}, "
        f"{expected['decode_tokens_per_second']:,.0f} tokens/s",
    ):
        assert line in project.output
    end = project.call("python", "-m", "seq2sweep.stages.summary").stdout
    assert (
        f"BLEU {expected['bleu']:.2f} ({found['bleu']['sacrebleu']['signature']})\n"
        f"paper's tokenised BLEU {expected['bleu_paper']:.2f}, chrF {expected['chrf']:.2f}, "
        f"perplexity {expected['test_perplexity']:.3f}\n"
    ) in end


# --- sweep ---------------------------------------------------------------------------------------


def trials(project: Finished) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = project.json("reports/sweep.json")["trials"]
    assert [trial["status"] for trial in found] == ["finished"] * 4
    assert sorted(trial["seed"] for trial in found) == sorted(2 * SEEDS)
    return found


def test_each_trial(project: Finished) -> None:
    references = project.data.lines("valid", "target")
    bitext = Bitext.open(project.data.encoded, "train")
    tokens = project.config.train.tokens_per_update
    for trial in trials(project):
        file = project.folder / trial["translations"]["file"]
        assert sha256(file) == trial["translations"]["sha256"]
        lines = file.read_text(encoding="utf-8").splitlines()
        known = sacrebleu.corpus_bleu(lines, [references], lowercase=True).score
        assert trial["bleu"] == pytest.approx(known, abs=6e-5)
        scored = score(lines, references, "de", lowercase=True)
        assert trial["bleu_paper"] == scored["bleu"]["paper"]["score"]
        assert trial["chrf"] == scored["chrf"]["score"]
        journal = file.parent / "journal.jsonl"
        (finished,) = project.journal(journal, "finished")
        validated = project.journal(journal, "validated")
        assert trial["curve"] == [[entry["step"], entry["valid_loss"]] for entry in validated]
        assert [step for step, _ in trial["curve"]] == [11, 22, 33, 44]
        assert trial["valid_perplexity"] == validated[-1]["valid_perplexity"]
        weights = file.parent / "step-00000044/model.safetensors"
        model = averaged(project.config.model, [weights], project.pieces)
        known = perplexity(model, Bitext.open(project.data.encoded, "valid"))
        assert trial["valid_perplexity"] == pytest.approx(known, rel=0.02)
        assert trial["parameters"] == sum(p.numel() for p in model.parameters())
        seen = trained_on(bitext, 44, trial["seed"], tokens)
        assert finished["target_tokens"] == seen["target_tokens"]
        assert trial["device_hours"] == pytest.approx(finished["train_seconds"] / 3600)
        run = project.metrics(trial["mlflow_run_id"])
        for name in ("bleu", "bleu_paper", "chrf"):
            assert run[f"score/valid_{name}"] == trial[name]
        assert run["train/valid_perplexity"] == trial["valid_perplexity"]
        for name in ("flops", "device_hours", "parameters"):
            assert run[f"cost/{name}"] == trial[name]
        assert run["cost/target_tokens"] == seen["target_tokens"]
        for name, step in (("score/valid_bleu", 0), ("cost/flops", 0), ("train/loss", 44)):
            points = project.client.get_metric_history(trial["mlflow_run_id"], name)
            assert max(point.step for point in points) == step
        params = project.client.get_run(trial["mlflow_run_id"]).data.params
        assert (params["train.seed"], params["model.dropout"]) == (
            *(str(trial["seed"]), str(trial["model"]["dropout"])),
        )
        assert f"{trial['name']}: BLEU {trial['bleu']:.2f} on the validation set" in project.output


def test_trials_are_scored_as_they_say(project: Finished) -> None:
    greedy = configuration.with_changes(project.config, {"evaluate.beam": 1})
    vocabulary = Vocabulary.open(project.data.vocabulary)
    other = 0
    for trial in trials(project):
        file = project.folder / trial["translations"]["file"]
        weights = file.parent / "step-00000044/model.safetensors"
        model = build(project.config.model, average([weights]), len(vocabulary))
        found = evaluate(project.config, model, project.data, "valid").translations
        assert file.read_text(encoding="utf-8").splitlines() == found
        other += evaluate(greedy, model, project.data, "valid").translations != found
    assert other, "a smaller beam would not be noticed"


def test_variants_are_means_of_their_seeds(project: Finished) -> None:
    sweep = project.json("reports/sweep.json")
    texts: dict[str, list[list[str]]] = {}
    by_variant: dict[str, list[dict[str, Any]]] = {}
    for trial in trials(project):
        by_variant.setdefault(trial["variant"], []).append(trial)
        file = project.folder / trial["translations"]["file"]
        texts.setdefault(trial["variant"], []).append(file.read_text("utf-8").splitlines())
    base, other = by_variant
    assert base == "base"
    references = project.data.lines("valid", "target")
    tested = against_base(texts[base], texts[other], BleuScorer(references, "de", lowercase=True))
    assert sweep["significance"] == {other: tested}
    with (project.folder / "reports/table3.csv").open(encoding="utf-8") as stream:
        table = {row["variant"]: row for row in csv.DictReader(stream)}
    markdown = (project.folder / "reports/table3.md").read_text(encoding="utf-8")
    means = {}
    for variant, found in by_variant.items():
        row = table[variant]
        run = project.client.get_run(found[0]["mlflow_run_id"])
        pooled = project.metrics(run.data.tags["mlflow.parentRunId"])
        for figure in ("valid_perplexity", "bleu", "bleu_paper", "chrf", "device_hours"):
            values = [trial[figure] for trial in found]
            mean, deviation = statistics.mean(values), statistics.stdev(values)
            assert float(row[figure]) == pytest.approx(mean)
            assert float(row[f"{figure}_sd"]) == pytest.approx(deviation)
            margin = T_OF_TWO * deviation / math.sqrt(2)
            assert float(row[f"{figure}_margin"]) == pytest.approx(margin, rel=1e-4)
            name = {
                "valid_perplexity": "train/valid_perplexity",
                "device_hours": "cost/device_hours",
            }.get(figure, f"score/valid_{figure}")
            assert pooled[name] == pytest.approx(mean)
            assert pooled[f"{name}_std"] == pytest.approx(deviation)
        means[variant] = statistics.mean(trial["bleu"] for trial in found)
        assert f"{statistics.mean(trial['valid_perplexity'] for trial in found):.2f}" in markdown
        assert f"{means[variant]:.1f}" in markdown
    difference = means[other] - means[base]
    assert float(table[other]["bleu_difference"]) == pytest.approx(difference)
    assert float(table[other]["bleu_difference_p"]) == tested["p"]
    best = max(means, key=lambda name: means[name])
    summary = project.json("metrics/sweep.json")
    assert (summary["best"]["variant"], summary["best"]["bleu"]) == (
        *(best, pytest.approx(means[best])),
    )
    assert summary["bleu"] == {trial["name"]: trial["bleu"] for trial in trials(project)}
    assert project.json("metrics/dvc/sweep.json") == {
        "finished": 4,
        "failed": 0,
        "best_bleu": summary["best"]["bleu"],
    }
    of_sweep = project.metrics(sweep["mlflow_run_id"])
    assert of_sweep["score/valid_bleu"] == summary["best"]["bleu"]
    assert of_sweep["sweep/finished"] == 4
    assert f"best: {best}, BLEU {means[best]:.2f} on valid" in project.output


# --- report --------------------------------------------------------------------------------------


def test_the_page_shows_what_the_files_say(project: Finished) -> None:
    page = (project.folder / "reports/index.html").read_text(encoding="utf-8")
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))
    found, trained = project.json("metrics/evaluate.json"), project.json("metrics/train.json")
    for shown in (
        f" BLEU {found['bleu']['sacrebleu']['score']:.1f} ± ",
        f" BLEU as in the paper {found['bleu']['paper']['score']:.1f} Moses",
        f" chrF {found['chrf']['score']:.1f} ",
        f" Exactly right {found['exact_match']:.1f}",
        f" Perplexity {found['perplexity']:.2f} per",
        f" Validation perplexity {trained['final']['valid_perplexity']:.2f} ",
        f" Parameters {trained['parameters'] / 1e6:.2f} M",
        f" Steps {trained['steps']} ",
        f" Checkpoints averaged {STEPS - EVERY}, {STEPS} ",
        " Decoding beam 3, α 1.4 (length penalty power), stopping exact, in float32 ",
    ):
        assert shown in text
