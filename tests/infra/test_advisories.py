"""constraints.txt against infra/advisories.yaml: no pin is older than a fix without a reason."""

from __future__ import annotations

import re
from typing import Any

import pytest
from packaging.version import Version

from tests.infra.files import INFRA, ROOT, documents, pinned

(ADVISORIES,) = documents(INFRA / "advisories.yaml")
ID = r"(?:CVE-\d{4}-\d{4,}|PYSEC-\d{4}-\d+|GHSA(?:-[0-9a-z]{4}){3})"


def behind(advisories: dict[str, Any], pins: dict[str, str]) -> list[str]:
    """Pins below a fixed version, and vulnerabilities without a fix, that nobody has excused."""
    versions = {name.lower(): version for name, version in pins.items()}
    found = []
    for name, known in advisories["packages"].items():
        for each in known:
            version, ids = versions[name], ", ".join(each["ids"])
            open_ = each["fixed"] is None or Version(version) < Version(str(each["fixed"]))
            if open_ and not each.get("why"):
                fix = f"fixed in {each['fixed']}" if each["fixed"] else "no fix is known"
                found.append(f"{name}=={version}: {ids}, {fix}")
    return found


def test_no_pin_is_behind_a_fix_without_a_reason() -> None:
    assert behind(ADVISORIES, pinned()) == []


@pytest.mark.parametrize(
    ("name", "change", "fault"),
    [
        ("ray", {"pin": "2.51.0"}, r"ray==2\.51\.0: CVE-2025-62593, fixed in 2\.52\.0"),
        ("aiohttp", {"pin": "3.14.2"}, r"aiohttp==3\.14\.2: GHSA-.*, fixed in 3\.14\.3"),
        ("diskcache", {"why": ""}, r"diskcache==.*: CVE-2025-69872, .*, no fix is known"),
    ],
)
def test_a_pin_that_is_behind_is_found(name: str, change: dict[str, str], fault: str) -> None:
    known = [each | {"why": change.get("why")} for each in ADVISORIES["packages"][name]]
    pins = pinned() | {name: change.get("pin", pinned()[name])}
    found = behind({"packages": {name: known}}, pins)
    assert any(re.fullmatch(fault, line) for line in found), found
    with_reason = [each | {"why": "a reason"} for each in known]
    assert behind({"packages": {name: with_reason}}, pins) == []


def test_each_entry_names_what_it_is_of() -> None:
    names = list(ADVISORIES["packages"])
    assert names == sorted(names)
    for known in ADVISORIES["packages"].values():
        for each in known:
            assert set(each) <= {"fixed", "ids", "why"}
            assert each["ids"]
            assert all(re.fullmatch(ID, one) for one in each["ids"]), each


def test_what_remains_is_on_the_security_page() -> None:
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    assert f"**{ADVISORIES['checked']}**" in page
    for name, known in ADVISORIES["packages"].items():
        for each in known:
            if each.get("why"):
                assert re.search(rf"^\| {name} {re.escape(pinned()[name])} ", page, re.MULTILINE), (
                    name
                )
                assert each["ids"][0] in page
