"""The card of an exported model, README.md: what it is, what it is made of, how good, at what cost.

The score is that of metrics/evaluate.json in the project's folder, or of a self-trained parser
semi_supervised.json there, if that is of these weights and this search; what is not known is left
out, or said to be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from seq2sweep import config as configuration
from seq2sweep.config.datasets import TREES
from seq2sweep.data import sources
from seq2sweep.decode.model_folder import AGAIN, CONFIG
from seq2sweep.errors import UserError
from seq2sweep.evaluate.translator import Translator
from seq2sweep.export.protocol import SEARCH
from seq2sweep.paths import mismatch, read_json
from seq2sweep.project_files import EVALUATED, STUDENT_EVALUATED

CHANGES_NO_RESULT = "what a person reads of a model"

NAME = "README.md"
ASKED = (*SEARCH, "precision")
"""Keys of `evaluate` that a translation depends on, beside the weights."""
NUMBER = (float, type(None))
COST = ("flops", "device_hours", "energy_kwh")
ABOUT: dict[str, Any] = {
    "score": {
        "name": str,
        "value": float,
        "signature": str,
        "margin": NUMBER,
        "sentences": int,
        "set": {"split": str, "source": str, "target": str},
    },
    "licence": str,
    "cost": {},
    "trained": {},
    "lineage": {},
}
"""Of what a model says of itself, each of which may be missing, as `paths.mismatch` has it."""
_MARKUP = re.compile(r"[\\`<\[\]]")


def facts(translator: Translator) -> dict[str, Any]:
    """`score`: value, name, signature, `set` and sizes; `licence`: as far as known.

    An exported model that is exported again keeps those that it has. Raises UserError where they
    are none: it may be a stranger's.
    """
    if wrong := _wrong(translator.about):
        raise UserError(f"{CONFIG} of the model is damaged (about.{wrong}): {AGAIN}")
    found: dict[str, Any] = {
        key: value for key, value in translator.about.items() if key == "score"
    }
    licence = translator.about.get("licence") or _licence(translator.settings["data"])
    found |= {"licence": licence} if licence else {}
    for path in filter(Path.is_file, (EVALUATED, STUDENT_EVALUATED)):
        metrics = read_json(path)
        if _is_of(metrics.get("made_from", {}), translator):
            found["score"] = _score(metrics, translator)
    return found


def _is_of(made_from: Mapping[str, Any], translator: Translator) -> bool:
    """Whether an evaluation is of these weights and this search."""
    given = made_from.get("evaluate", {})
    # A key that came later is missing in older files.
    asked = {key: given.get(key, configuration.DEFAULTS.get(f"evaluate.{key}")) for key in ASKED}
    return made_from.get("weights") == list(translator.weights) and asked == {
        key: getattr(translator.config, key) for key in ASKED
    }


def _score(metrics: Mapping[str, Any], translator: Translator) -> dict[str, Any]:
    trees = translator.settings["data"]["target"] == TREES
    scored = metrics if trees else metrics["bleu"]["sacrebleu"]
    return {
        "name": "F1" if trees else "BLEU",
        "value": scored["f1" if trees else "score"],
        "signature": scored["signature"],
        "margin": (scored.get("confidence") or {}).get("margin"),
        "sentences": metrics["sentences"],
        "set": metrics["made_from"]["test_set"],
    }


def _wrong(about: Mapping[str, Any]) -> str | None:
    """What the card cannot be made of, in words."""
    known = {key: about[key] for key in ABOUT if about.get(key) is not None}
    cost = known.get("cost", {})
    if wrong := mismatch(known, {key: ABOUT[key] for key in known}):
        return wrong
    if wrong := mismatch(cost, {key: NUMBER for key in COST if key in cost}, "cost"):
        return wrong
    score = known.get("score", {"set": {}})
    for key, text in {**score, **score["set"]}.items():
        if isinstance(text, str) and text != _plain(text):
            return f"score.{key} is no plain text of one line"
    return None


def _plain(text: object) -> str:
    """On one line, where Markdown and HTML in it are no more than text."""
    words = "".join(one if one.isprintable() else " " for one in str(text)).split()
    return _MARKUP.sub(r"\\\g<0>", " ".join(words))


def _number(value: float) -> str:
    """Three digits that say something, and all of those before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _licence(data: Mapping[str, Any]) -> str | None:
    if data["dataset"] == "phrasebook":
        return "sentences made by this project's own program (Apache-2.0)"
    if data["dataset"] == "ptb":
        return "the Penn Treebank, under your own agreement with the LDC: keep the model private"
    if "folder" not in data:  # of a model that was handed on
        return None
    try:
        pair = data["source"], data["target"]
        return sources.load(Path(data["folder"]), data["dataset"], *pair).licence
    except (UserError, OSError):  # files of one's own, or another folder
        return None


def render(translator: Translator, found: Mapping[str, Any]) -> str:
    """Markdown, with YAML before it as the Hugging Face Hub reads it."""
    front = yaml.safe_dump(
        _front(translator, found), sort_keys=False, allow_unicode=True, width=10_000
    )
    return f"---\n{front}---\n\n" + "\n".join(_body(translator, found))


def _name(translator: Translator) -> str:
    data, model = (translator.settings[key] for key in ("data", "model"))
    return _plain(f"{model['architecture']} {data['dataset']} {data['source']}-{data['target']}")


def _front(translator: Translator, found: Mapping[str, Any]) -> dict[str, Any]:
    data = translator.settings["data"]
    trees = data["target"] == TREES
    known = "apache-2.0" if data["dataset"] == "phrasebook" else "other"
    front: dict[str, Any] = {
        "language": [data["source"]] + [data["target"]] * (not trees),
        "license": known if found.get("licence") else "unknown",
        "library_name": "seq2sweep",
        "pipeline_tag": "token-classification" if trees else "translation",
        "datasets": [data["dataset"]],
    }
    if score := found.get("score"):
        metric = {
            "type": score["name"].lower(),
            "value": score["value"],
            "name": f"{score['name']} ({score['signature']})",
        }
        of = {"name": data["dataset"], "type": data["dataset"], "split": score["set"]["split"]}
        task = {"type": front["pipeline_tag"]}
        results = [{"task": task, "dataset": of, "metrics": [metric]}]
        front["model-index"] = [{"name": _name(translator), "results": results}]
    return front


def _body(translator: Translator, found: Mapping[str, Any]) -> Iterator[str]:
    data, asked = translator.settings["data"], translator.config
    steps = ", ".join(map(_plain, translator.steps))
    yield f"# {_name(translator)}\n"
    yield f"The mean of checkpoints {steps} of one training, by seq2sweep. To use it:\n"
    yield '    echo "A sentence." | seq2sweep translate --model FOLDER\n'
    yield "FOLDER is this one, and needs no other. Its files' sha256 are in manifest.json: one that"
    yield "was changed is refused.\n"
    yield "## How good\n"
    yield from _scores(translator, found)
    yield "## At what cost\n"
    cost = translator.about.get("cost") or {}
    flops, hours, energy = (cost.get(key) for key in COST)
    device = (translator.about.get("trained") or {}).get("device")
    count = sum(parameter.numel() for parameter in translator.model.parameters())
    yield f"- parameters: {count:,}"
    yield f"- training: {'not recorded' if flops is None else f'{flops:.3g} FLOPs'}" + (
        "" if hours is None else f", {_number(hours)} hours of {_plain(device)}"
    )
    yield f"- energy: {'not measured' if energy is None else f'{_number(energy)} kWh'}\n"
    yield "## What it is made from\n"
    yield "- data: " + _plain(f"{data['dataset']}, {data['source']} to {data['target']}")
    yield f"- licence of the data: {_plain(found.get('licence', 'not known'))}"
    lineage = translator.about.get("lineage") or {}
    for key in ("data.dataset", "data.vocabulary", "input.raw", "input.clean", "git.commit"):
        if key in lineage:
            yield f"- {key}: `{_plain(lineage[key])}`"
    for step, sum_of in zip(translator.steps, translator.weights, strict=False):
        yield f"- weights of step {_plain(step)}: sha256 `{_plain(sum_of)}`"
    penalty = "((5 + n) / 6)" if asked.length_penalty == "paper" else "n"
    yield f"\nIt searches with beam {asked.beam} by log P / {penalty} ** {asked.alpha}, stopping"
    yield f"{asked.stopping}, in {asked.precision}."
    yield "All settings are in config.json.\n"


def _scores(translator: Translator, found: Mapping[str, Any]) -> Iterator[str]:
    score, data = found.get("score"), translator.settings["data"]
    if not score:
        yield "No score of these weights was at hand when the model was exported.\n"
        return
    margin = f" ± {score['margin']:.2f}" if score["margin"] is not None else ""
    yield f"{score['name']} {score['value']:.2f}{margin} on {score['sentences']} sentences"
    yield f"(`{score['signature']}`).\n"
    if data["target"] != TREES:
        yield "To compute it again, where data/clean is the test set:\n"
        yield "    seq2sweep translate data/clean/test.source.txt --model FOLDER > translations.txt"
        lowercase = " --lowercase" if translator.settings["prepare"]["lowercase"] else ""
        yield (
            "    seq2sweep score translations.txt data/clean/test.target.txt "
            f"--to {data['target']}{lowercase}\n"
        )
    yield f"- sha256 of its sources: `{score['set']['source']}`"
    yield f"- sha256 of its references: `{score['set']['target']}`\n"
