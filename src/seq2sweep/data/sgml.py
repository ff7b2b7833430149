"""SGML test sets of WMT: segments by document and segment id.

    <refset setid="newstest2014" ...>
    <doc docid="1009-lemondefr" ...>
    <seg id="1">Spectacular Wingsuit Jump Over Bogota</seg>

Only `doc` and `seg` are markup here. It is not XML: a "&" may stand alone, names of tags and
attributes may be in any case. Every pattern takes time in proportion to the text, whatever it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from seq2sweep.errors import UserError

LONGEST = 64 << 20
"""Characters of the largest test set that is read; all of it is in memory."""

Id = tuple[str, str]
"""Document and segment id."""

_TAG = re.compile(r"<(/?)(doc|seg)(\s[^<>]*)?>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""\b(\w+)\s*=\s*("[^"]*"|'[^']*'|[^\s"']+)""")
_ENTITY = re.compile("&(amp|lt|gt|quot|apos|#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6});")
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_BLANKS = re.compile("[ \t\r\n]+")


def segments(lines: Iterable[str], name: str) -> dict[Id, str]:
    """Segments in the order of the file, by id; `name` is what error messages call the file.

    A run of blanks or line ends becomes one blank, as sacreBLEU has it: four English segments of
    newstest2014 hold two blanks in a row. UserError names document and segment for an id that is
    missing or appears twice and for a tag that is left open, as in half a file.
    """
    text = _whole(lines, name)
    found: dict[Id, str] = {}
    document = segment = None
    start = 0
    for tag in _TAG.finditer(text):
        closing, kind, attributes = tag[1], tag[2].lower(), tag[3] or ""
        where = f"{name}: {_place(document, segment)}"
        depth = (document is not None) + (segment is not None)
        if depth != (kind == "seg") + bool(closing):
            raise UserError(f"{where}: unexpected {tag[0][:100]!r}; {_MEND}")
        if kind == "doc":
            document = None if closing else _id(attributes, "docid", tag[0], where)
        elif not closing:
            segment = _id(attributes, "id", tag[0], where)
            start = tag.end()
        elif document is not None and segment is not None:
            if (document, segment) in found:
                raise UserError(f"{where} appears twice; each must have an id of its own")
            found[document, segment] = _inner(text[start : tag.start()])
            segment = None
    if document is not None:
        raise UserError(f"{name}: the file ends inside {_place(document, segment)}; {_MEND}")
    return found


def aligned(
    source: Mapping[Id, str], source_name: str, target: Mapping[Id, str], target_name: str
) -> Iterator[tuple[str, str]]:
    """Pairs of segments of the same id, in the order of the source.

    UserError for an id that only one side has.
    """
    for one, other, name in ((source, target, target_name), (target, source, source_name)):
        missing = next((key for key in one if key not in other), None)
        if missing is not None:
            other_name = source_name if name == target_name else target_name
            raise UserError(f"{name} has no {_place(*missing)}, which {other_name} has")
    for key, text in source.items():
        yield text, target[key]


_MEND = "fetch the file again, or fix its tags"


def _whole(lines: Iterable[str], name: str) -> str:
    kept, size = [], 0
    for line in lines:
        kept.append(line)
        size += len(line) + 1
        if size > LONGEST:
            raise UserError(f"{name} is larger than {LONGEST >> 20} MiB: no test set is")
    return "\n".join(kept)


def _id(attributes: str, key: str, tag: str, where: str) -> str:
    for attribute in _ATTRIBUTE.finditer(attributes):
        if attribute[1].lower() == key:
            return attribute[2].strip("\"'")
    raise UserError(f"{where}: {tag[:100]!r} has no {key}; {_MEND}")


def _inner(text: str) -> str:
    """The text of a segment in one line."""
    return _BLANKS.sub(" ", _ENTITY.sub(_character, text)).strip(" ")


def _character(entity: re.Match[str]) -> str:
    name = entity[1]
    if not name.startswith("#"):
        return _NAMED[name]
    number = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        return entity[0]  # no character has that number
    return chr(number)


def _place(document: str | None, segment: str | None) -> str:
    if document is None:
        return "outside a document"
    return f"document {document!r}" + (f" segment {segment!r}" if segment is not None else "")
