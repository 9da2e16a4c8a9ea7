"""A finding of ``odradek doctor``."""

from collections.abc import Iterable
from typing import NamedTuple


class Finding(NamedTuple):
    """A problem, why it matters, and its remedy.

    :param severity: "error" or "warning".
    :param subject: the object with the problem: a broker, a topic, a group, a process, a directory.
    :param what: what was observed, as a sentence.
    :param reason: why it matters.
    :param remedy: what to do.
    :param consequences: other problems that end when this one does, each with its subject and why it matters.
    """

    severity: str
    subject: str
    what: str
    reason: str
    remedy: str
    consequences: tuple[str, ...] = ()

    @property
    def as_consequence(self) -> str:
        """This finding among the consequences of another one, which has the remedy."""
        return f"{self.subject}: {self.what}; {self.reason}"


def merged(known: Iterable[Finding], more: Iterable[Finding]) -> list[Finding]:
    """Merge the findings of two checks. Findings that differ only in their subject become one with both subjects: a listener
    and the broker to which the command connects may have the same certificate."""
    found, others = list(known), []
    for finding in more:
        alike = (
            place for place, other in enumerate(found) if other._replace(subject="") == finding._replace(subject="")
        )
        place = next(alike, None)
        if place is None:
            others.append(finding)
        else:
            found[place] = found[place]._replace(subject=f"{found[place].subject}, {finding.subject}")
    return found + others
