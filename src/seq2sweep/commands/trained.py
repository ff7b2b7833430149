"""Which trained model a command works with."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seq2sweep import config as configuration
from seq2sweep.commands.shared import PARAMS

if TYPE_CHECKING:
    from seq2sweep.evaluate.translator import Translator

WEIGHTS = Path("models/train")


def add_trained(command: argparse.ArgumentParser, several: bool = False) -> None:
    """several: whether --model and --weights may come again, for an ensemble."""
    again: dict[str, Any] = {"action": "append"} if several else {}
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
        type=Path,
        default=None if several else WEIGHTS,
        **again,
        help=f"their folder ({WEIGHTS}){more}",
    )
    command.add_argument(
        "--vocabulary",
        type=Path,
        default=Path("data/vocabulary"),
        help="its folder (data/vocabulary)",
    )


def opened(options: argparse.Namespace) -> Translator:
    """What `add_trained` asks for."""
    if options.model is not None:
        return _named(options.model)
    return _trained(options.weights, options)


def opened_together(options: argparse.Namespace) -> Translator:
    """What `add_trained` asks for with `several`: as an ensemble where they are."""
    from seq2sweep.evaluate.translator import Translator

    names = options.model or ()
    weights = options.weights or (() if names else (WEIGHTS,))
    members = [*map(_named, names), *(_trained(folder, options) for folder in weights)]
    return Translator.together(members)


def _named(name: str) -> Translator:
    """By a folder, or by a name of MLflow."""
    from seq2sweep.evaluate.translator import Translator  # here: torch takes seconds to load

    if not name.startswith("models:/") and Path(name).is_dir():
        return Translator.open(Path(name))
    from seq2sweep.tracking.store_reader import model_folder  # and MLflow

    with model_folder(name, configuration.load(PARAMS), Path.cwd()) as folder:
        return Translator.open(folder)


def _trained(weights: Path, options: argparse.Namespace) -> Translator:
    from seq2sweep.evaluate.translator import Translator

    return Translator(weights, options.vocabulary, configuration.load(PARAMS).evaluate)
