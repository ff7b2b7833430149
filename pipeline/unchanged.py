"""That a result is of the parameters and the code that DVC will say have made it.

DVC reads both when the stage has ended, which for a training may be days after it has read them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seq2sweep import code_fingerprint, yaml_text
from seq2sweep import config as configuration
from seq2sweep.config import Config
from seq2sweep.errors import UserError
from seq2sweep.jobs import dvc_stages
from seq2sweep.paths import read_text


@contextlib.contextmanager
def unchanged(stage: str, config: Config, params: Path) -> Iterator[None]:
    """Raise UserError at the end of a block in which a dependency of the stage has changed.

    Compared are the values that dvc.yaml names, where there is one, and what the code means.
    config: as it was read from the file `params`.
    """
    recipe = _recipe(stage)
    before = _values(recipe, config) | _code(stage, recipe)
    yield
    now = _values(recipe, configuration.load(params)) | _code(stage, recipe)
    changed = code_fingerprint.differences(before, now)
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise UserError(
            f"changed while this ran: {', '.join(changed[:3])}{more}; the result is of what was "
            "there before: put that back, or leave it for a result of the new, and run "
            "`dvc repro` (a training that was done is found again)"
        )


def _recipe(stage: str) -> Mapping[str, Any]:
    path = Path("dvc.yaml")
    if not path.exists():
        return {}
    try:
        described = yaml_text.read_yaml(read_text(path))
        return dict(described["stages"].get(stage, {}))
    except (*yaml_text.ERRORS, KeyError, AttributeError) as error:
        raise UserError(yaml_text.problem(error, str(path))) from None


def _values(recipe: Mapping[str, Any], config: Config) -> dict[str, Any]:
    named = [f"{key}." for key in recipe.get("params", ()) if isinstance(key, str)]
    return {
        f"params.yaml: {key}": value
        for key, value in configuration.flatten(config).items()
        if any(f"{key}.".startswith(name) for name in named)
    }


def _code(stage: str, recipe: Mapping[str, Any]) -> dict[str, str]:
    return dvc_stages.code(Path.cwd(), stage) if recipe else {}
