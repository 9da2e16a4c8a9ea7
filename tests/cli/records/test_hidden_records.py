"""Records behind the last stable offset are those of open transactions, and not those that arrive meanwhile."""

from types import SimpleNamespace

from odradek.cli.records import reading
from odradek.clients import topics

PLACE = ("t", 0)


class GrowingLog:
    """Each request finds a record more. :param open_from: the first offset of an open transaction; None without one."""

    def __init__(self, open_from=None):
        self.open_from = open_from
        self.end = 10

    def list_offsets(self, cluster, partitions, time_ms, committed_only=False):
        assert time_ms == topics.LATEST
        self.end += 1
        stable = self.open_from if committed_only and self.open_from is not None else self.end
        return {PLACE: SimpleNamespace(offset=stable, error=0)}


def hidden_in(log, monkeypatch):
    monkeypatch.setattr(topics, "list_offsets", log.list_offsets)
    return reading.hidden(SimpleNamespace(), [])


def test_records_that_arrive_between_the_requests_are_not_hidden(monkeypatch):
    assert hidden_in(GrowingLog(), monkeypatch) == {}


def test_records_of_an_open_transaction_are_hidden(monkeypatch):
    assert hidden_in(GrowingLog(open_from=7), monkeypatch) == {PLACE: 4}
