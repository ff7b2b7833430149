"""What is known of devices by their names: memory, links, watts and prices of infra/prices.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seq2sweep import yaml_text
from seq2sweep.errors import UserError
from seq2sweep.paths import read_text

PRICES = Path("infra/prices.yaml")
KEYS = {"per_hour", "watts", "memory_gb", "memory_gb_per_s", "link_gb_per_s", "network_gbit"}


def read_table(project: Path, *, needed: bool = True) -> dict[str, Any]:
    """infra/prices.yaml: `currency` and `devices`, by name. Empty if it is missing and not needed.

    Raises UserError naming what is wrong in it.
    """
    path = project / PRICES
    if not needed and not path.exists():
        return {"currency": "", "devices": {}}
    try:
        text = read_text(path, "call this in the project's folder, or restore it from git")
        table = dict(yaml_text.read_yaml(text))
        listed = {str(name): dict(values) for name, values in table["devices"].items()}
        currency = str(table["currency"])
    except (*yaml_text.ERRORS, KeyError, AttributeError):
        raise UserError(f"{PRICES} must have `currency` and `devices`, by name") from None
    for name, values in listed.items():
        for key, value in values.items():
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            if key not in KEYS or not plain or value <= 0:
                raise UserError(
                    f"{PRICES}: {name}: {key}: {value!r}: known are {', '.join(sorted(KEYS))}, "
                    "each a number above 0"
                )
    return {"currency": currency, "devices": listed}
