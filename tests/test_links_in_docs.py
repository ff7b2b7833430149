"""Each link of a page leads somewhere, and each page of docs is reached from the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def links(page: Path) -> list[str]:
    """Those to this project's own files and headings."""
    found = LINK.findall(page.read_text(encoding="utf-8"))
    return [link for link in found if not re.match(r"\w+:", link)]


def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub makes them."""
    found = HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for text in found}


def broken(page: Path) -> list[str]:
    found = []
    for link in links(page):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_each_link_leads_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_the_readme_links_each_page() -> None:
    linked = {(README.parent / link.partition("#")[0]).resolve() for link in links(README)}
    assert {*(ROOT / "docs").glob("*.md")} <= linked
    further = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in linked
        if page.suffix == ".md"
        for link in links(page)
    }
    assert {*(ROOT / "docs").rglob("*.md")} <= linked | further


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# The paper's BLEU (13a)\n[a](page.md) [b](page.md#the-papers-bleu-13a) [c](#the-paper)\n"
        "[d](gone.md) [e](https://example.org/gone.md)\n"
    )
    assert broken(page) == ["#the-paper", "gone.md"]
