"""Families about access control: decisions of the authorizer, the number of ACLs, and delegation tokens."""

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
    yield single("odradek_delegation_tokens", max((page["delegation_tokens"] for page in words), default=0))
    for event in ("created", "renewed", "expired"):
        yield single(f"odradek_delegation_tokens_{event}_total", sum(page[f"tokens_{event}"] for page in words))
