"""The page of attention maps and the figures: what they say, and that they need nothing else."""

from __future__ import annotations

import base64
import html.parser
import json
import re
import shutil
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from seq2sweep.evaluate.attention import head_numbers
from seq2sweep.evaluate.attention.attention_maps import Choice, Maps
from seq2sweep.report.attention import attention_figure, attention_page
from tests.report.test_page import check_boxes

ENCODER, DECODER, MEMORY = (
    "encoder.1.attention",
    "decoder.1.attention",
    "decoder.1.memory_attention",
)
SOURCE = ["▁Th", "e", "▁<script>alert(1)</script>", '▁"', "▁עברית", "▁👩", "</s>"]
TARGET = ["▁Die", "▁&amp;", "▁Ka", "tze", "</s>"]
BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None)


def made(source: list[str] = SOURCE, target: list[str] = TARGET, heads: int = 3) -> Maps:
    draw = np.random.default_rng(5)
    n, m = len(source), len(target)
    weights = {
        layer: draw.dirichlet([0.3] * keys, (heads, rows)) * (np.tri(m) if layer == DECODER else 1)
        for layer, rows, keys in ((ENCODER, n, n), (DECODER, m, m), (MEMORY, m, n))
    }
    scaled = {layer: of / of.sum(-1, keepdims=True) for layer, of in weights.items()}
    arrays = {layer: of.astype(np.float32) for layer, of in scaled.items()}
    return Maps(source, ["<s>", *target[:-1]], target, arrays)


def numbers(one: Maps) -> list[dict[str, Any]]:
    return [entry | {"loss_without": -0.0123} for entry in head_numbers.heads([one])]


class Page(html.parser.HTMLParser):
    """Its addresses, its text by element, and which elements it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.scripts: list[str] = []
        self.cells: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self._inside.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href")]
        if tag == "script":
            self.scripts.append("")
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, text: str) -> None:
        if self._inside and self._inside[-1] == "script":
            self.scripts[-1] += text
        if self._inside and self._inside[-1] == "td":
            self.cells[-1] += text


def test_the_page_holds_all_it_needs() -> None:
    one = made()
    page = Page(attention_page.render([one, one], numbers(one), "of <a test>"))
    assert page.addresses == ["data:,"]
    data, program = page.scripts
    assert "://" not in program.replace("http://www.w3.org/2000/svg", "")
    assert "<" not in data
    found = json.loads(data)
    assert [side["tokens"] for side in (found["pairs"][0][k] for k in ("source", "predicted"))] == [
        SOURCE,
        TARGET,
    ]
    assert found["pairs"][1]["read"]["tokens"] == ["<s>", *TARGET[:-1]]
    assert found["pairs"][0]["source"]["texts"][:2] == ["The", "<script>alert(1)</script>"]
    for layer, weights in one.weights.items():
        raw = np.frombuffer(base64.b64decode(found["pairs"][0]["weights"][layer]), np.uint8)
        assert abs(raw.reshape(weights.shape) / 255 - weights).max() <= 0.5 / 255 + 1e-6
    assert [of["kind"] for of in found["layers"]] == ["Encoder", "Decoder", "Decoder to source"]
    assert {of["number"] for of in found["layers"]} == {2}
    assert page.cells[:2] == ["Encoder, layer 2", "1"]
    assert page.cells.count("−0.012") == 9
    # Its other boxes have words and buttons that can be reached by keys.
    check_boxes(attention_page.render([], numbers(one), ""))


def test_a_large_model_stays_below_a_megabyte() -> None:
    draw = np.random.default_rng(0)
    names = (f"{part}.{i}.{kind}" for i in range(6) for part, kind in (
        ("encoder", "attention"), ("decoder", "attention"), ("decoder", "memory_attention"),
    ))  # fmt: skip
    words = [f"▁word{i}" for i in range(59)] + ["</s>"]
    weights = {name: draw.dirichlet([0.2] * 60, (8, 60)).astype(np.float32) for name in names}
    one = Maps(words, ["<s>", *words[:-1]], words, weights)
    assert len(attention_page.render([one], numbers(one), "").encode()) < 1_000_000


def test_without_a_sentence_there_are_the_numbers_and_why() -> None:
    """What draws the maps is not there: it would fail at the first of none."""
    text = attention_page.render([], numbers(made()), "")
    page = Page(text)
    assert (
        "No sentence is shown, as its weights in all heads would make this page too large." in text
    )
    assert page.cells[:2] == ["Encoder, layer 2", "1"]
    (data,) = page.scripts
    assert json.loads(data)["pairs"] == []
    assert not any(f"<{tag}" in text for tag in ("noscript", "form", "svg", "select"))
    assert "No sentence is shown" not in attention_page.render([made()], numbers(made()), "")


def test_json_has_everything() -> None:
    one = made()
    found = json.loads(attention_page.as_json([one], numbers(one)))
    assert found["pairs"][0]["read"] == one.read
    np.testing.assert_array_equal(
        np.array(found["pairs"][0]["weights"][MEMORY], np.float32), one.weights[MEMORY]
    )
    assert len(found["heads"]) == 9


# --- figures -------------------------------------------------------------------------------------


def test_a_figure_shows_the_weights_of_a_row() -> None:
    one = made()
    root = ElementTree.fromstring(attention_figure.draw(one, MEMORY, [0, 2], 2))
    space = "{http://www.w3.org/2000/svg}"
    lines = root.findall(f"{space}line")
    weights = one.by_word(MEMORY)
    expected = [(h, w) for h in (0, 2) for w in weights[h, 2] if w >= attention_figure.FAINTEST]
    assert [float(line.attrib["stroke-opacity"]) for line in lines] == pytest.approx(
        [w for _, w in expected], abs=1e-3
    )
    assert [line.attrib["stroke"] for line in lines] == [
        attention_figure.COLOURS[h] for h, _ in expected
    ]
    assert len({line.attrib["y1"] for line in lines}) == 1
    texts = [text.text for text in root.findall(f"{space}text")]
    assert texts == [*one.texts(one.predicted), *one.texts(one.source)]


def test_a_figure_by_token_and_with_what_xml_may_not_hold() -> None:
    one = made(["▁a\x01", "b", "</s>"])
    root = ElementTree.fromstring(attention_figure.draw(one, ENCODER, [1], words=False))
    texts = [text.text for text in root if text.tag.endswith("text")]
    assert texts == ["▁a\ufffd", "b", "</s>"] * 2
    shown = (one.weights[ENCODER][1] >= attention_figure.FAINTEST).sum()
    assert sum(line.tag.endswith("line") for line in root) == shown


def test_a_figure_has_room_for_full_width_letters() -> None:
    one = made(["▁" + "漢" * 20, "</s>"], ["▁" + "字" * 12, "</s>"])
    root = ElementTree.fromstring(attention_figure.draw(one, MEMORY, [0]))
    size, width = (float(root.attrib[name]) for name in ("font-size", "width"))
    for text in root:
        if text.tag.endswith("text"):
            long = size * len(text.text or "")  # as broad as high
            x = float(text.attrib["x"])
            start = x - long if text.attrib["text-anchor"] == "end" else x
            assert 0 <= start <= start + long <= width


# --- in a browser, offline -----------------------------------------------------------------------


def seen(page: Path) -> str:
    """The document after its program has run, with no network."""
    assert BROWSER is not None
    command = [
        BROWSER, "--no-sandbox", "--headless", "--disable-gpu", "--dump-dom",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={page.parent / 'profile'}",
        page.as_uri(),
    ]  # fmt: skip
    # Into a file: a process of the browser's may hold a pipe open for long.
    with (page.parent / "document").open("wb") as stream:
        subprocess.run(command, stdout=stream, stderr=subprocess.DEVNULL, timeout=120, check=True)
    return (page.parent / "document").read_text(encoding="utf-8")


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
@pytest.mark.parametrize(
    ("layer", "row", "words"),
    [(ENCODER, None, True), (DECODER, 2, True), (MEMORY, 1, True), (MEMORY, 3, False)],
    ids=["all", "decoder", "memory", "by token"],
)
def test_the_browser_draws_what_was_measured(
    layer: str, row: int | None, words: bool, tmp_path: Path
) -> None:
    one = made()
    text = attention_page.render([one], numbers(one), "", Choice(layer, [0, 2], row), words=words)
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    found = seen(tmp_path / "page.html")
    drawn = [
        (int(head), float(opacity))
        for opacity, head in re.findall(r'stroke-opacity="([\d.]+)" data-head="(\d+)"', found)
    ]
    weights = one.by_word(layer) if words else one.weights[layer]
    rows = range(weights.shape[1]) if row is None else [row]
    expected = [(h + 1, float(w)) for h in (0, 2) for i in rows for w in weights[h, i]]
    # In steps of 1/255, several of them in a word; what is near the faintest may be there or not.
    for head in (1, 3):
        ours = sorted((o for h, o in drawn if h == head), reverse=True)
        theirs = sorted((w for h, w in expected if h == head), reverse=True)
        sure = sum(w > 0.05 for w in theirs)
        assert len(ours) >= sure > 0
        assert ours == pytest.approx(theirs[: len(ours)], abs=0.012)
    assert found.count("<canvas") == 3
    # Hostile text is text.
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in found
    assert "עברית" in found
    assert found.count("<script") == 2
    assert re.search('<option [^>]*dir="auto"[^>]*>The', found)


SAVE = """<script>
Blob = class { constructor(parts) { document.body.id = encodeURIComponent(parts.join("")); } };
URL.createObjectURL = () => "";
HTMLAnchorElement.prototype.click = () => {};
document.getElementById("save").click();
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_what_is_saved_is_xml(tmp_path: Path) -> None:
    """HTML would name a no-break space, and has control characters, which XML may not hold."""
    one = made(["▁a\x01", "▁b\xa0c", "▁👩", "</s>"])
    text = attention_page.render([one], numbers(one), "", Choice(ENCODER, [0], None))
    page = tmp_path / "page.html"
    page.write_text(text.replace("</body>", f"{SAVE}</body>"), encoding="utf-8")
    saved = re.search('<body id="([^"]+)"', seen(page))
    assert saved is not None
    root = ElementTree.fromstring(urllib.parse.unquote(saved[1]))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [of.text for of in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts[2:] == ["a\ufffd", "b\xa0c", "👩", "</s>"] * 2
