"""SGML test sets: segments by document and segment id."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest

from seq2sweep.data import reading, sgml
from seq2sweep.data.archives import Text
from seq2sweep.errors import UserError

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
TEST_SET = SHARED / "statmt_mirror" / "wmt14" / "test-full.tgz"
PLAIN = SHARED / "newstest"


def document(name: str, **segments: str) -> str:
    inside = "".join(f'<seg id="{key[1:]}">{text}</seg>\n' for key, text in segments.items())
    return f'<doc docid="{name}" origlang="en">\n<p>\n{inside}</p>\n</doc>\n'


def write(path: Path, *documents: str) -> Path:
    content = f'<refset setid="x" srclang="any">\n{"".join(documents)}</refset>\n'.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def texts(content: str) -> list[str]:
    return list(sgml.segments(content.split("\n"), "x.sgm").values())


def error_of(content: str) -> str:
    with pytest.raises(UserError) as caught:
        texts(content)
    message = str(caught.value)
    assert message.startswith("x.sgm")
    assert message.isprintable()
    return message


@pytest.mark.parametrize("name", ["a.sgm", "a.sgm.gz"])
def test_segments_are_the_lines(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, document("d1", s1="one", s2="two"), document("d2", s1="three"))
    assert list(reading.read_lines(path)) == ["one", "two", "three"]


def test_tags_and_attributes_in_any_case_order_and_quotes() -> None:
    content = """\
<SRCSET><DOC sysid="ref" DocID='a' genre=news><hl><SEG lang="en" ID=1> one </SEG></hl>
<Seg
 id="2">two</seg ></DOC>
<doc docid = "b"><seg id="1">three</seg></doc>"""
    assert sgml.segments(content.split("\n"), "x") == {
        ("a", "1"): "one",
        ("a", "2"): "two",
        ("b", "1"): "three",
    }


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ("  a  b\t c\t", "a b c"),
        ("one\n  two \r\n\n three", "one two three"),
        ("", ""),
        ("Q&amp;A &lt;b&gt; &quot;x&quot; &apos;", 'Q&A <b> "x" \''),
        ("AT&T & Co; &nbsp; &amp", "AT&T & Co; &nbsp; &amp"),
        ("&amp;lt;", "&lt;"),
        ("&#228;&#xe4;&#XE4;", "äää"),
        ("&#xD800; &#x110000; &#99999999;", "&#xD800; &#x110000; &#99999999;"),
        ("one&#10;two", "one two"),
        ("a < b > c <b>bold</b> <segment>", "a < b > c <b>bold</b> <segment>"),
        ("\u00a0a\u2028b\u0085", "\u00a0a\u2028b\u0085"),
        ("nul \0", "nul \0"),
    ],
)
def test_the_inner_text_changes_in_blanks_and_entities_only(inner: str, text: str) -> None:
    assert texts(document("d", s1=inner)) == [text]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (document("d", s1="a", s01="b").replace("01", "1"), "'d' segment '1' appears twice"),
        (document("d", s1="a") * 2, "document 'd' segment '1' appears twice"),
        ("<doc><seg id='1'>a</seg></doc>", "'<doc>' has no docid"),
        ("<doc docid='d'><seg>a</seg></doc>", "document 'd': '<seg>' has no id"),
        ("<doc docid='d'><seg lid='1'>a</seg></doc>", "has no id"),
        ("<seg id='1'>a</seg>", "outside a document: unexpected"),
        ("<doc docid='d'></seg></doc>", "document 'd': unexpected '</seg>'"),
        ("<doc docid='d'><seg id='1'>a<seg id='2'>b</seg></doc>", "segment '1': unexpected \"<seg"),
        ("<doc docid='d'><seg id='1'>a</doc>", "segment '1': unexpected '</doc>'"),
        ("<doc docid='d'><doc docid='e'></doc>", "document 'd': unexpected \"<doc"),
        ("</doc>", "unexpected '</doc>'"),
        ("<doc docid='d'><seg id='1'>a", "the file ends inside document 'd' segment '1'"),
        ("<doc docid='d'><seg id='1'>a</seg>", "the file ends inside document 'd'"),
        ("<doc docid='a\nb'><seg>", "has no id"),
    ],
)
def test_what_is_at_fault_is_named_by_document_and_segment(content: str, problem: str) -> None:
    assert problem in error_of(content)


def test_a_file_without_segments_is_empty(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.sgm has no segment"):
        list(reading.read_lines(write(tmp_path / "a.sgm")))


def test_wrong_utf8_is_found_by_line(tmp_path: Path) -> None:
    path = tmp_path / "a.sgm"
    path.write_bytes(b"<doc docid='d'>\n<seg id='1'>\xff</seg>\n</doc>\n")
    with pytest.raises(UserError, match=r"a\.sgm line 2: not UTF-8 at byte 13"):
        list(reading.read_lines(path))


def test_pairs_are_aligned_by_id_in_the_order_of_the_source(tmp_path: Path) -> None:
    source = write(tmp_path / "s.sgm", document("a", s1="one", s2="two"), document("b", s1="three"))
    target = write(
        tmp_path / "t.sgm", document("b", s1="drei"), document("a", s2="zwei", s1="eins")
    )
    pairs = list(reading.read_pairs(source, target))
    assert pairs == [("one", "eins"), ("two", "zwei"), ("three", "drei")]


def test_a_segment_that_only_one_side_has_is_named(tmp_path: Path) -> None:
    more = write(tmp_path / "more.sgm", document("a", s1="one", s2="two"))
    less = write(tmp_path / "less.sgm", document("a", s1="eins"))
    for source, target in ((more, less), (less, more)):
        with pytest.raises(UserError) as caught:
            list(reading.read_pairs(source, target))
        assert str(caught.value) == f"{less} has no document 'a' segment '2', which {more} has"


def test_sgml_and_plain_text_are_aligned_by_line(tmp_path: Path) -> None:
    source = write(tmp_path / "s.sgm", document("a", s1="one", s2="two"))
    target = tmp_path / "t"
    target.write_text("eins\nzwei\n")
    assert list(reading.read_pairs(source, target)) == [("one", "eins"), ("two", "zwei")]


def test_a_test_set_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    content = document("d", s1="a" * 1000)
    monkeypatch.setattr(sgml, "LONGEST", len(content) + 1)
    assert len(texts(content)) == 1
    monkeypatch.setattr(sgml, "LONGEST", len(content))
    assert "is larger than" in error_of(content)


@pytest.mark.parametrize(
    "unit", ["<seg ", "<doc a=", '<seg id="', "<", "</seg", "&#", "&amp", "a ", "\n"]
)
def test_time_is_in_proportion_to_the_text(unit: str) -> None:
    content = unit * (2_000_000 // len(unit))
    start = time.process_time()
    for hostile in (content, document("d", s1=content), f"<doc {content}>"):
        message = ""
        try:
            texts(hostile)
        except UserError as error:
            message = str(error)
        assert len(message) < 500
    assert time.process_time() - start < 10


@pytest.mark.skipif(not TEST_SET.exists(), reason="the true newstest2014 is not here")
@pytest.mark.parametrize(
    ("pair", "one", "other"),
    [("deen", "en", "de"), ("deen", "de", "en"), ("fren", "en", "fr"), ("fren", "fr", "en")],
)
def test_newstest2014_equals_its_plain_text(pair: str, one: str, other: str) -> None:
    source = Text(TEST_SET, f"test-full/newstest2014-{pair}-src.{one}.sgm")
    target = Text(TEST_SET, f"test-full/newstest2014-{pair}-ref.{other}.sgm")
    pairs = list(reading.read_pairs(source, target))
    assert len(pairs) == 3003
    for side, text, language in ((0, source, one), (1, target, other)):
        lines = list(reading.read_lines(text))
        assert [pair[side] for pair in pairs] == lines
        if pair == "deen":
            assert lines == list(reading.read_lines(PLAIN / f"newstest2014.{language}.gz"))
