"""That a result is of the parameters and the code that DVC will say have made it.

DVC reads both when the stage has ended, which for a training may be days after it has read them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seq2sweep import config as configuration
from seq2sweep import yaml_text
from seq2sweep.config import Config
from seq2sweep.data.files import sha256
from seq2sweep.errors import UserError
from seq2sweep.paths import read_text

CODE = ("pipeline/", "src/")


@contextlib.contextmanager
def unchanged(stage: str, config: Config, params: Path) -> Iterator[None]:
    """Raise UserError at the end of a block in which a dependency of the stage has changed.

    Compared are the values and the code that dvc.yaml names, where there is one. config: as it was
    read from the file `params`.
    """
    recipe = _recipe(stage)
    before = _values(recipe, config) | _sums(recipe)
    yield
    now = _values(recipe, configuration.load(params)) | _sums(recipe)
    # A file that is new cannot have had a part in it.
    changed = [name for name, value in before.items() if now.get(name) != value]
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
    named = [f"{key}." for key in recipe.get("params", ())]
    return {
        f"params.yaml: {key}": value
        for key, value in configuration.flatten(config).items()
        if any(f"{key}.".startswith(name) for name in named)
    }


def _sums(recipe: Mapping[str, Any]) -> dict[str, str]:
    places = [Path(dep) for dep in recipe.get("deps", ()) if dep.startswith(CODE)]
    files = [file for place in places for file in (place, *place.rglob("*")) if file.is_file()]
    return {str(file): sha256(file) for file in files if "__pycache__" not in file.parts}
