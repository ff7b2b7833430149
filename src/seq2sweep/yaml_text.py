"""YAML as people write it by hand, read within bounds: nothing in it can take forever."""

from __future__ import annotations

import copy
import functools
import re
from typing import Any

import yaml

CHANGES_NO_RESULT = "how YAML is read: its values are parameters"

MOST_BYTES = 256 << 10
DEEPEST = 20
"""Levels of nesting, aliases written out."""
MOST_VALUES = 20_000
"""Values in all, aliases written out: nine short lines of aliases stand for a billion."""
LONGEST_NUMBER = 100
"""Characters. Reading a number takes time that grows with the square of its digits."""

_MISREAD = re.compile("[-+]?0[0-9_]+|.*:.*")
"""Numbers that PyYAML takes for octal or sexagesimal, and other readers for something else."""
_UNWRITABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, tabs and ends of lines apart, and halves of surrogate pairs."""

ERRORS = (yaml.YAMLError, ValueError, TypeError, OverflowError)
"""What `read_yaml` raises. PyYAML lets errors of Python's own constructors through, as for the
date 2020-13-45."""


def read_yaml(text: str, times: int = 1) -> Any:
    """What YAML text holds; raises one of ERRORS where it holds nothing that can be used.

    times: how many times as long it may be as a file that people write.

    Refused besides what is no YAML: a key that appears twice (PyYAML keeps the last without a
    word), more than the bounds above, an alias inside of what it stands for, whole numbers of more
    than 63 bits, numbers with a leading zero or a colon (0500 would be 320, and 8:20 would be 500),
    and characters that no file name or line of text can have.
    """
    return copy.deepcopy(_read(text, times))  # who asks may change what it gets


@functools.lru_cache(maxsize=8)
def _read(text: str, times: int) -> Any:
    """Once: to tell what stages mean asks for params.yaml and dvc.yaml a dozen times each."""
    if len(text.encode("utf-8", "surrogatepass")) > times * MOST_BYTES:
        raise yaml.YAMLError(f"it is longer than {times * MOST_BYTES >> 10} KiB")
    loader = _Loader(text)
    loader.most_values = times * MOST_VALUES
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def problem(error: Exception, name: str) -> str:
    """What `read_yaml` raised, in one line; `name` is what it calls the text."""
    mark = getattr(error, "problem_mark", None)
    where = f"{name} line {mark.line + 1}" if mark else name
    said = " ".join(str(getattr(error, "problem", None) or error).split())
    return f"{where}: not valid YAML ({said[:200]})"


class _Loader(yaml.SafeLoader):
    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.most_values = MOST_VALUES
        self._depth = 0
        self._measured: dict[int, tuple[int, int]] = {}
        """Values in a node, itself counted, and levels of them, by the node's id."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            node = super().compose_node(parent, index)
            if id(node) not in self._measured:
                raise _wrong(f"*{event.anchor} stands inside of what it names", event)
            return node
        if isinstance(event, yaml.ScalarEvent) and (found := _UNWRITABLE.search(event.value)):
            raise _wrong(f"a text with the character U+{ord(found.group()):04X}", event)
        self._depth += 1
        if self._depth > DEEPEST:  # before it is read, which is recursive
            raise _wrong(f"nested deeper than {DEEPEST} levels", event)
        node = super().compose_node(parent, index)
        self._depth -= 1
        parts = [self._measured[id(part)] for part in _parts(node)]
        count = 1 + sum(values for values, _ in parts)
        levels = 1 + max((below for _, below in parts), default=0)
        if count > self.most_values:
            raise _wrong(f"more than {self.most_values:,} values, aliases written out", event)
        if levels > DEEPEST:
            raise _wrong(f"nested deeper than {DEEPEST} levels, aliases written out", event)
        self._measured[id(node)] = count, levels
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (KeyError, IndexError, AttributeError):  # PyYAML's own, as of `!!bool x`
            raise _wrong(f"{node.value!r} is no {node.tag.rpartition(':')[2]}", node) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":  # "<<", whose keys may be replaced
                continue
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise _wrong(f"key {key!r} appears twice", key_node)
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """Whole or not."""
        if len(node.value) > LONGEST_NUMBER:
            raise _wrong(f"a number of {len(node.value)} characters", node)
        if _MISREAD.fullmatch(node.value):
            raise _wrong("a number with a leading zero or a colon", node)
        if node.tag == "tag:yaml.org,2002:float":
            return float(self.construct_yaml_float(node))
        whole = int(self.construct_yaml_int(node))
        if not -(2**63) <= whole < 2**63:
            raise _wrong("a whole number of more than 63 bits", node)
        return whole


for _tag in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.construct_number)


def _parts(node: yaml.Node | None) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _wrong(what: str, place: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=what, problem_mark=place.start_mark)
