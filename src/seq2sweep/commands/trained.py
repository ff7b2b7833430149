"""Which trained model a command works with."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2sweep import config as configuration
from seq2sweep import presets
from seq2sweep.config import ClusterConfig
from seq2sweep.config.datasets import LANGUAGE, TARGET
from seq2sweep.config.fields import Rule
from seq2sweep.errors import UserError
from seq2sweep.project_files import MODEL, PARAMS, VOCABULARY

if TYPE_CHECKING:
    from seq2sweep.evaluate.translator import Translator


def add_trained(command: argparse.ArgumentParser, several: bool = False) -> None:
    """several: whether --model and --weights may come again, for an ensemble: `members` then has
    both in their order, as the first one's settings count: models by name, weights by path."""
    members: dict[str, Any] = {"action": "append", "dest": "members", "default": []}
    again = members if several else {}
    more = " (again for an ensemble, of one vocabulary)" if several else ""
    command.add_argument(
        "--model",
        metavar="MODEL",
        **again,
        help="instead of --weights and --vocabulary, and with its own settings: a folder that "
        "`seq2sweep export FOLDER --format safetensors` wrote, a model of MLflow "
        f"(models:/NAME@ALIAS, models:/NAME/VERSION), or the id of a run{more}",
    )
    command.add_argument(
        "--weights",
        metavar="WEIGHTS",
        type=Path,
        **again,
        help=f"their folder ({MODEL}){more}",
    )
    command.add_argument(
        "--vocabulary",
        type=Path,
        default=VOCABULARY,
        help=f"its folder ({VOCABULARY})",
    )


def opened(options: argparse.Namespace) -> Translator:
    """What `add_trained` asks for."""
    if options.model is not None:
        if options.weights is not None:
            raise UserError("--model and --weights name two models: give one of them")
        return _named(options.model)
    return _trained(options.weights or MODEL, options)


def opened_together(options: argparse.Namespace) -> Translator:
    """What `add_trained` asks for with `several`: as an ensemble where they are.

    Raises UserError for a model that the `engine` of the options does not know.
    """
    from seq2sweep.evaluate.translator import Translator

    members: Sequence[str | Path] = options.members or [MODEL]
    found = Translator.together(
        [_trained(one, options) if isinstance(one, Path) else _named(one) for one in members]
    )
    if getattr(options, "engine", "own") == "ctranslate2":
        from seq2sweep.export.protocol import other_architecture

        if reason := other_architecture("CTranslate2", found.model, "leave out --engine"):
            raise UserError(reason)
    return found


def cluster_of(options: argparse.Namespace) -> ClusterConfig:
    """`cluster` of params.yaml, read before a model is opened; where there is no such file, and
    --model names each model, which needs none, that of the phrasebook: $RAY_ADDRESS, or here."""
    if PARAMS.exists() or not options.members or any(isinstance(n, Path) for n in options.members):
        return configuration.load(PARAMS).cluster
    return presets.load("phrasebook").config.cluster


def _named(name: str) -> Translator:
    """By a folder, or by a name of MLflow."""
    from seq2sweep.evaluate.translator import Translator  # here: torch takes seconds to load
    from seq2sweep.serving.cpu_quota import keep_to_quota

    keep_to_quota()
    if not name.startswith("models:/"):
        if Path(name).is_dir():
            return _checked(Translator.open(Path(name)))
        if not re.fullmatch("[0-9a-f]{4,32}", name):
            raise UserError(
                f"--model {name}: there is no such folder, and it is neither models:/NAME@ALIAS "
                "nor the id of a run, or its first 4 characters or more"
            )
    from seq2sweep.tracking.store_reader import model_folder  # and MLflow

    with model_folder(name, configuration.load(PARAMS), Path.cwd()) as folder:
        return _checked(Translator.open(folder))


def _checked(translator: Translator) -> Translator:
    """It may be a stranger's, and its languages become part of a command that people copy."""
    from seq2sweep.decode.model_folder import AGAIN, CONFIG

    rules: dict[str, Rule] = {"dataset": ("a name", bool), "source": LANGUAGE, "target": TARGET}
    for key, (what, holds) in rules.items():
        value = translator.settings["data"].get(key)
        if not isinstance(value, str) or not holds(value):
            raise UserError(
                f"{CONFIG} of the model is damaged (config.data.{key} is not {what}): {AGAIN}"
            )
    return translator


def _trained(weights: Path, options: argparse.Namespace) -> Translator:
    for option, folder in (("--weights", weights), ("--vocabulary", options.vocabulary)):
        if folder not in (MODEL, VOCABULARY) and not folder.is_dir():
            raise UserError(f"{option} {folder}: there is no such folder")
    from seq2sweep.evaluate.translator import Translator
    from seq2sweep.serving.cpu_quota import keep_to_quota

    keep_to_quota()
    return Translator(weights, options.vocabulary, configuration.load(PARAMS).evaluate)
