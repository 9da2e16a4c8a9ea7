"""Families about access control: decisions of the authorizer, and the number of ACLs."""

from collections.abc import Iterator, Mapping, Sequence

from odradek.metrics.exposition import Family, Labels
from odradek.metrics.names import METRICS
from odradek.metrics.processes import single

_RESULTS = {"allowed": "authorizations_allowed", "denied": "authorizations_denied"}


def families(words: Sequence[Mapping[str, int]]) -> Iterator[Family]:
    """Yield the families. :param words: the words of the pages of all processes."""
    decided = METRICS["odradek_authorizations_total"]
    sums = [("", Labels(result=result), sum(page[word] for page in words)) for result, word in _RESULTS.items()]
    yield Family(decided, sums)
    yield single("odradek_acls", max((page["acls"] for page in words), default=0))
