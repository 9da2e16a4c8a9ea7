"""A finding of ``odradek doctor``, and how its texts abbreviate lists of names."""

from collections.abc import Iterable
from typing import NamedTuple

SHOWN = 5


class Finding(NamedTuple):
    """A problem, why it matters, and its remedy.

    :param severity: "error" or "warning".
    :param subject: the object with the problem: a broker, a topic, a group, a process, a directory.
    :param what: what was observed, as a sentence.
    :param reason: why it matters.
    :param remedy: what to do.
    """

    severity: str
    subject: str
    what: str
    reason: str
    remedy: str


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """The findings in their order; those that differ only in their subject are one: two checks see the same certificate."""
    subjects: dict[Finding, list[str]] = {}
    for finding in findings:
        subjects.setdefault(finding._replace(subject=""), []).append(finding.subject)
    return [finding._replace(subject=abbreviate(dict.fromkeys(names))) for finding, names in subjects.items()]


def abbreviate(names: Iterable[str]) -> str:
    """The first `SHOWN` names, separated by commas, and the number of the others."""
    words = list(names)
    return ", ".join(words[:SHOWN]) + (f" and {len(words) - SHOWN} more" if len(words) > SHOWN else "")
