"""Results of an experiment that never ran, for the tests of the report."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.presets import table3
from seq2sweep.report import page, samples
from tests.report.made_up_table1 import record as table1_record

BASE_MODEL = {
    "layers": 1,
    "d_model": 128,
    "d_ff": 512,
    "heads": 4,
    "d_k": 32,
    "d_v": 32,
    "dropout": 0.1,
    "positions": "sinusoidal",
    "tie_embeddings": True,
}
BASE_TRAIN = {"label_smoothing": 0.1, "steps": 300, "warmup_steps": 100, "seed": 1}
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def trial(
    name: str,
    model: dict[str, Any] | None = None,
    train: dict[str, Any] | None = None,
    *,
    bleu: float | None = 30.0,
    perplexity: float | None = 6.0,
    status: str = "finished",
    steps: int = 300,
    parameters: int = 790_000,
    cause: str | None = None,
) -> dict[str, Any]:
    model, train = model or {}, train or {}
    changes = {f"model.{key}": value for key, value in model.items()}
    changes |= {f"train.{key}": value for key, value in train.items()}
    end = math.log(perplexity) if perplexity else 4.0
    curve = [
        [step, end + 4.5 * math.exp(-step / 70) - 4.5 * math.exp(-steps / 70)]
        for step in range(25, steps + 1, 25)
    ]
    return {
        "name": name,
        "changes": changes,
        "model": BASE_MODEL | model,
        "train": BASE_TRAIN | train,
        "status": status,
        "cause": cause,
        "steps": steps,
        "valid_perplexity": perplexity,
        "bleu": bleu,
        "signature": SIGNATURE if bleu is not None else None,
        "parameters": parameters,
        "flops": 6.0 * parameters * 2500 * steps,
        "wall_seconds": 40.0 * steps / 300,
        "curve": curve if perplexity else [],
        "mlflow_run_id": "0123456789abcdef0123456789abcdef",
    }


def sweep() -> dict[str, Any]:
    return {
        "method": "one_at_a_time",
        "scheduler": "asha",
        "split": "valid",
        "base": {"model": dict(BASE_MODEL), "train": dict(BASE_TRAIN)},
        "wall_seconds": 312.0,
        "trials": [
            trial("base", bleu=31.4, perplexity=5.91),
            trial("heads 1", {"heads": 1, "d_k": 128, "d_v": 128}, bleu=29.9, perplexity=6.32),
            trial("heads 8", {"heads": 8, "d_k": 16, "d_v": 16}, bleu=31.6, perplexity=5.88),
            trial("d_k 8", {"d_k": 8}, bleu=30.8, perplexity=6.05, parameters=741_000),
            trial("layers 2", {"layers": 2}, bleu=36.9, perplexity=4.70, parameters=1_250_000),
            trial("d_ff 1024", {"d_ff": 1024}, bleu=33.0, perplexity=5.5, parameters=1_052_000),
            trial("dropout 0", {"dropout": 0.0}, bleu=33.3, perplexity=5.31),
            trial(
                "dropout 0.3",
                {"dropout": 0.3},
                bleu=12.1,
                perplexity=14.9,
                status="stopped early",
                steps=100,
            ),
            trial("label_smoothing 0", None, {"label_smoothing": 0.0}, bleu=31.1, perplexity=5.44),
            trial("positions learned", {"positions": "learned"}, bleu=31.3, perplexity=5.95),
            trial(
                "d_model 4096",
                {"d_model": 4096},
                bleu=None,
                perplexity=None,
                status="failed",
                steps=0,
                cause="out of memory:\n a worker | was killed",
            ),
        ],
    }


def search() -> dict[str, Any]:
    """Of BLEU and FLOPs: #3 was #1 again and #7 the base; #5 was refused, #6 stopped early.

    BLEU, units of FLOPs, perplexity: base 30, 2, 6; #1 25, 1, 7; #2 29, 2.5, 5; #4 40, 4, 4; #6 50,
    0.5, 3.
    """
    proposed = {
        1: ({"layers": 1, "d_ff": 256}, 25.0, 1.0, 7.0),
        2: ({"layers": 1, "d_ff": 640}, 29.0, 2.5, 5.0),
        4: ({"layers": 2, "d_ff": 512}, 40.0, 4.0, 4.0),
        6: ({"layers": 2, "d_ff": 128}, 50.0, 0.5, 3.0),
        5: ({"layers": 1, "d_ff": 0}, None, 0.0, None),
    }
    base = trial("base", bleu=30.0, perplexity=6.0) | {"flops": 2e12}
    made = {}
    for number, (model, bleu, cost, perplexity) in proposed.items():
        train = {"warmup_steps": 10 * number}
        name = " ".join(f"{key}={value}" for key, value in (model | train).items())
        one = trial(name, model, train, bleu=bleu, perplexity=perplexity)
        made[number] = one | {"flops": cost * 1e12, "parameters": 1e5 * cost}
    made[6] |= {"status": "stopped early", "steps": 100}
    made[5] |= failed("refused", "model.d_ff must be at least 1, not 0")
    repeated = {3: made[1]["name"], 7: "base"}
    return sweep() | {
        "method": "optuna",
        "scheduler": "none",
        "trials": [base, *made.values()],
        "objectives": [
            {"name": "bleu", "figure": "bleu", "better": "higher"},
            {"name": "flops", "figure": "flops", "better": "lower"},
        ],
        "proposals": [
            {
                "number": number,
                "round": (number + 3) // 4,
                "variant": repeated.get(number) or made[number]["name"],
                "repeats": number in repeated,
            }
            for number in range(1, 8)
        ],
    }


def results() -> page.Results:
    curves: list[dict[str, float | None]] = [
        {
            "step": float(step),
            "loss": 1.9 + 6 * math.exp(-step / 180),
            "learning_rate": 128**-0.5 * min(step**-0.5, step * 300**-1.5),
            "gradient_norm": 1.0,
            "tokens_per_second": 7400.0 + 250 * math.sin(step),
            "valid_loss": 1.1 + 6 * math.exp(-step / 180) if step % 250 == 0 else None,
            "valid_perplexity": math.exp(1.1 + 6 * math.exp(-step / 180))
            if step % 250 == 0
            else None,
        }
        for step in range(50, 1001, 50)
    ]
    translations = [
        samples.Translation(
            f"I see the old house number {number} today .",
            f"Heute sehe ich das alte Haus Nummer {number} .",
            f"Heute sehe ich {'das alte' if number % 3 else 'den alten'} Haus Nummer {number} .",
            ("verb_second", "adjective_ending"),
        )
        for number in range(100)
    ]
    return page.Results(
        dataset="en → de, phrasebook",
        table1=table1_record(),
        prepare={
            "train": {
                "read": 60_000,
                "kept": 57_411,
                "dropped": {
                    "empty": 0,
                    "too_long": 3,
                    "ratio": 12,
                    "duplicate": 2_300,
                    "contamination": 274,
                },
            },
            "valid": {"read": 500, "kept": 500, "dropped": {}},
            "test": {"read": 1000, "kept": 1000, "dropped": {}},
        },
        train={
            "steps": 1000,
            "target_tokens": 2_404_113,
            "source_tokens": 2_291_870,
            "wall_seconds": 331.5,
            "tokens_per_second": 7402.6,
            "padding_share": 0.0312,
            "flops": {"model": 1.93e13, "padded": 2.01e13, "paper_rule": None},
            "flops_per_second": 2.91e10,
            "mfu": 0.341,
            "device_hours": 0.184,
            "energy_kwh": 0.0123,
            "parameters": 1_312_256,
            "vocabulary_size": 3000,
            "mlflow_run_id": "5f0c1c9e6f5d4a5db4c2a7f2d1c7a001",
            "workers": 2,
            "device": "cpu",
            "precision": "bf16",
            "final": {"loss": 1.93, "valid_loss": 1.13, "valid_perplexity": 3.1},
        },
        curves=curves,
        evaluate={
            "bleu": {
                "sacrebleu": {
                    "score": 61.2345,
                    "signature": SIGNATURE,
                    "confidence": {"mean": 61.2, "margin": 1.14, "samples": 1000, "seed": "12345"},
                },
                "paper": {
                    "score": 61.9,
                    "signature": SIGNATURE.replace("13a", "sacremoses-0.2.0-de-compounds"),
                    "tokeniser": "sacremoses 0.2.0",
                },
                "tokenised": {"score": 61.8, "signature": "x", "tokeniser": "sacremoses 0.2.0"},
            },
            "chrf": {
                "score": 78.66,
                "signature": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0",
            },
            "exact_match": 42.5,
            "sentences": 1000,
            "perplexity": 3.17,
            "phenomena": {
                "adjective_ending": {"sentences": 412, "exact_match": 33.7, "bleu": 58.2},
                "negation": {"sentences": 210, "exact_match": 61.9, "bleu": 70.4},
                "separable_verb": {"sentences": 133, "exact_match": 18.0, "bleu": 41.0},
                "verb_second": {"sentences": 640, "exact_match": 55.5, "bleu": 66.6},
                "subordinate_clause": {"sentences": 97, "exact_match": 8.2, "bleu": 35.1},
            },
            "beam": 4,
            "alpha": 0.6,
            "decode_tokens_per_second": 842.7,
            "averaged_checkpoints": [600, 700, 800, 900, 1000],
            "mlflow_run_id": "5f0c1c9e6f5d4a5db4c2a7f2d1c7a002",
        },
        translations=translations,
        tree={"git.commit": "4ad1c0ffee", "git.dirty": "unknown"},  # of $SEQ2SWEEP_COMMIT
        lineage={
            "git.commit": "4ad1c0ffee4ad1c0ffee4ad1c0ffee4ad1c0ffee",
            "git.dirty": "false",
            "params.sha256": "9f" * 32,
            "version.torch": "2.13.0",
        },
        sweep=sweep(),
        attention={
            "reason": None,
            "sentences": [1, 107, 6],
            "measured": 200,
            "heads": 24,
            "cross_attention_entropy": 0.4408,
            "positional": 3,
            "loss_without": 0.0332,
            "removable": 0.375,
            "alignment": None,
        },
    )


def undrawn() -> page.Results:
    """The same without what takes a second to draw: no curves, and no variant that was trained."""
    record = sweep()
    record["trials"] = [one | failed("failed", "out of memory") for one in record["trials"][:2]]
    return dataclasses.replace(results(), curves=[], table1=table1_record("lstm"), sweep=record)


def papers_own_sweep() -> dict[str, Any]:
    """The paper's Table 3 as if it had been measured here, names as a sweep gives them."""
    values = configuration.to_dict(presets.load("base").config)
    base_model, base_train = values["model"], values["train"]
    trials = []
    for row in table3.read().rows:
        changes = {key.rpartition(".")[2]: value for key, value in row.changes.items()}
        name = " ".join(f"{key}={value}" for key, value in changes.items()) or "base"
        made = trial(name, bleu=row.bleu, perplexity=row.perplexity, steps=1000)
        millions = row.parameters_millions or 65
        trials.append(
            made
            | {
                "changes": row.changes,
                "model": base_model | {k: v for k, v in changes.items() if k in base_model},
                "train": base_train | {k: v for k, v in changes.items() if k in base_train},
                "parameters": millions * 1e6,
                "flops": 1.5e10 * millions * changes.get("steps", 100_000) * 10,
            }
        )
    return sweep() | {"base": {"model": base_model, "train": base_train}, "trials": trials}


SMALL_MODEL = BASE_MODEL | {
    "layers": 3,
    "d_model": 64,
    "d_ff": 256,
    "heads": 8,
    "d_k": 8,
    "d_v": 8,
}


def table3_sweep(seeds: int = 1, noise: float = 0.4) -> dict[str, Any]:
    """All 20 rows of Table 3 at the demonstration's size, as method table3 writes them.

    Differences to the base are the paper's tripled, with `noise` (a standard deviation) in each
    training; `C-d_model-1024` failed in its last training and `big` was refused.
    """
    chance = random.Random(seeds)
    paper = table3.read().rows
    paper_base = table3.read().base
    trials = []
    for row in paper:
        model, train = dict(SMALL_MODEL), dict(BASE_TRAIN)
        for key, value in row.changes.items():
            section, _, name = key.partition(".")
            scaled = name in ("layers", "d_model", "d_ff", "heads", "d_k", "d_v")
            if section == "model":
                model[name] = value * SMALL_MODEL[name] // paper_base[key] if scaled else value
            else:
                train[name] = 900 if name == "steps" else value
        changes = {
            key: (model if key.startswith("model.") else train)[key.partition(".")[2]]
            for key in row.changes
        }
        width = model["d_model"] * (3000 + 12 * model["layers"] * model["heads"] * model["d_k"])
        parameters = width + 6 * model["layers"] * model["d_model"] * model["d_ff"]
        for seed in range(1, seeds + 1):
            bleu = 62 + 3 * (row.bleu - paper[0].bleu) + chance.gauss(0, noise)
            made = trial(
                row.name + (f" seed={seed}" if seeds > 1 else ""),
                bleu=bleu,
                perplexity=1.9
                + 0.3 * (row.perplexity - paper[0].perplexity)
                + chance.gauss(0, 0.01),
                steps=train["steps"],
                parameters=parameters,
            )
            made |= {
                "variant": row.name,
                "row": row.name,
                "group": row.group,
                "seed": seed,
                "changes": changes,
                "model": model,
                "train": train | {"seed": seed},
                "bleu_paper": bleu + 0.15,
                "chrf": 80.0 + bleu / 10,
                "device_hours": 0.012 * parameters / 4e5 * train["steps"] / 300,
                "mfu": None,
                "energy_kwh": None,
            }
            if row.name == "C-d_model-1024" and seed == seeds:
                made |= failed("failed", "out of memory: a worker was killed")
            if row.name == "big":
                made |= failed("refused", "model.heads 16 of d_k 8 is refused here")
            trials.append(made)
    return {
        "method": "table3",
        "scheduler": "none",
        "budget": "steps",
        "seeds": seeds,
        "split": "valid",
        "dataset": "phrasebook",
        "vocabulary_size": 3000,
        "base": {"model": SMALL_MODEL, "train": BASE_TRAIN},
        "wall_seconds": 1500.0,
        "mlflow_run_id": "0123456789abcdef0123456789abcdef",
        "trials": trials,
        "significance": significance(trials),
    }


def seeded_sweep(scores: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Of variants by name, `base` or `attention=additive d_k=4`, with the BLEU of each seed.

    No sentences are compared, so that the seeds alone say what chance explains.
    """
    common = {
        "attention": "scaled_dot_product",
        "d_k": 16,
        "encoder_mixer": "self_attention",
        "decoder_mixer": "self_attention",
    }
    trials = []
    for name, bleus in scores.items():
        parts = [] if name == "base" else [part.split("=") for part in name.split()]
        changes = {key: int(value) if value.isdigit() else value for key, value in parts}
        for seed, bleu in enumerate(bleus, start=1):
            one = trial(f"{name} seed={seed}", common | changes, {"seed": seed}, bleu=bleu)
            one["changes"] = {f"model.{key}": value for key, value in changes.items()}
            trials.append(one | {"variant": name, "seed": seed})
    base = {"model": BASE_MODEL | common, "train": dict(BASE_TRAIN)}
    return sweep() | {"scheduler": "none", "base": base, "trials": trials, "significance": None}


def csv_lines(text: str) -> list[dict[str, str]]:
    """The lines of a file of a table, by their headings."""
    return list(csv.DictReader(io.StringIO(text)))


def failed(status: str, cause: str) -> dict[str, Any]:
    """What is different in a trial without a result."""
    figures = ("valid_perplexity", "bleu", "bleu_paper", "chrf", "signature", "flops")
    nothing = dict.fromkeys((*figures, "device_hours", "mlflow_run_id"))
    return {"status": status, "cause": cause, "steps": 0, "curve": [], **nothing}


def significance(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """As if each difference had a standard error of 0.5 BLEU on the validation set."""
    scores: dict[str, list[float]] = {}
    for one in trials:
        if one["status"] == "finished":
            scores.setdefault(one["variant"], []).append(one["bleu"])
    means = {name: sum(values) / len(values) for name, values in scores.items()}
    result = {}
    for name, value in means.items():
        if name != "base":
            change = value - means["base"]
            p = max(0.002, math.erfc(abs(change) / 0.5 / math.sqrt(2)))
            result[name] = {
                "bleu_difference": change,
                "p": p,
                "low": change - 0.98,
                "high": change + 0.98,
                "seen": p < 0.05,
            }
    return result
