"""The `seq2sweep` command."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from seq2sweep import config as configuration
from seq2sweep import console, presets
from seq2sweep.errors import EXIT_INTERRUPTED, EXIT_USER_ERROR, UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand. Exit status: 0 done, 2 the input is wrong (one line says what)."""
    console.quiet_environment()
    options = _parser().parse_args(arguments)
    try:
        options.work(options)
    except UserError as error:
        print(f"seq2sweep {options.command}: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (`| head`) has seen enough; keep the interpreter from flushing into it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seq2sweep",
        description="The Transformer paper as a living experiment. `dvc repro` runs the pipeline.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    preset = commands.add_parser("preset", help="list experiments, or write params.yaml from one")
    preset.add_argument("name", nargs="?", help="the preset; without it all are listed")
    preset.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a value, such as --set model.heads=8 (again for more)",
    )
    preset.set_defaults(work=_preset)

    score = commands.add_parser("score", help="BLEU and chrF of any two text files, as JSON")
    score.add_argument("hypothesis", type=Path, help="translations, one a line (plain or .gz)")
    score.add_argument("reference", type=Path, help="reference translations, line by line")
    score.add_argument("--to", required=True, metavar="LANGUAGE", help="their language, such as de")
    score.set_defaults(work=_score)
    return parser


def _preset(options: argparse.Namespace) -> None:
    if options.name is None:
        if options.set:
            raise UserError("--set needs the name of a preset to start from")
        for name in presets.names():
            preset = presets.load(name)
            print(f"{name}\n    {preset.summary}")
            print(f"    BLEU {preset.bleu} · {preset.time} · {preset.hardware}")
        return
    config = presets.load(options.name).config
    config = configuration.with_changes(config, _changes(options.set), "--set")
    path = Path("params.yaml")
    beside = path.with_name(".params.yaml.partial")
    beside.write_text(configuration.dump(config), encoding="utf-8")
    beside.replace(path)
    print(f"params.yaml is now {options.name}; `dvc repro` runs it")


def _changes(assignments: Sequence[str]) -> dict[str, object]:
    changes = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator:
            raise UserError(f"--set wants KEY=VALUE, not {assignment}")
        try:
            changes[key] = yaml.safe_load(text)
        except yaml.YAMLError:
            raise UserError(f"--set {key}: {text} is not a YAML value") from None
    return changes


def _score(options: argparse.Namespace) -> None:
    from seq2sweep.evaluate.bleu import score_files

    result = score_files(options.hypothesis, options.reference, options.to)
    print(json.dumps(result, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    sys.exit(main())
