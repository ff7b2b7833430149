"""What `seq2sweep doctor` finds, and how it tells it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    where: a node, or what is shared by all; what: the thing; text: how it is; remedy: how to mend
    it, of what is not well.
    """

    where: str
    what: str
    level: Literal["well", "warning", "problem"]
    text: str
    remedy: str = ""

    @classmethod
    def of_error(cls, where: str, what: str, said: str) -> Finding:
        """A problem as an error says it: a reason, a colon, the remedy; without a colon as both."""
        reason, _, remedy = said.rpartition(": ")
        return cls(where, what, "problem", reason or remedy, remedy)


def overview(findings: Sequence[Finding]) -> str:
    """The findings for a reader: place by place, and what is to be mended once more at the end."""
    width = max((len(finding.what) for finding in findings), default=0)
    lines = []
    for place in dict.fromkeys(finding.where for finding in findings):
        lines.append(place)
        lines += [
            f"  {finding.level:7}  {finding.what:{width}}  {finding.text}"
            for finding in findings
            if finding.where == place
        ]
    unwell = [finding for finding in findings if finding.level != "well"]
    if unwell:
        lines += ["", "To fix:"]
        lines += [f"  {f.where}, {f.what}: {f.remedy}" for f in unwell]
    return "\n".join(lines)
