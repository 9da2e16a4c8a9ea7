"""Random sequences of take, done, commit and rewind on one partition, compared with a simple model."""

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.clients.offset_manager import OffsetManager


class Model(RuleBasedStateMachine):
    """The model: a list of [offset, processed] of all taken records, and the committed offset."""

    def __init__(self):
        super().__init__()
        self.begin()

    def begin(self):
        self.ours = OffsetManager()
        self.records = []
        self.coordinator = None

    def safe(self):
        """The offset below which all records are processed."""
        processed = list(itertools.takewhile(lambda record: record[1], self.records))
        if processed:
            return processed[-1][0] + 1
        return self.records[0][0] if self.records else None

    @rule(gap=st.integers(1, 4))
    def take(self, gap):
        offset = (self.records[-1][0] if self.records else 9) + gap
        assert not self.ours.is_rewind(offset)
        self.ours.take(offset)
        self.records.append([offset, False])

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def go_back(self, data):
        offset = data.draw(st.integers(0, self.records[-1][0]))
        assert self.ours.is_rewind(offset)
        with pytest.raises(ValueError, match="offset"):
            self.ours.take(offset)

    @rule()
    def assign_anew(self):
        self.begin()

    @precondition(lambda self: any(not done for _, done in self.records))
    @rule(data=st.data())
    def finish(self, data):
        record = data.draw(st.sampled_from([one for one in self.records if not one[1]]))
        self.ours.done(record[0])
        record[1] = True
        with pytest.raises(KeyError):
            self.ours.done(record[0])

    @rule()
    def commit(self):
        offset = self.ours.to_commit
        if offset is not None:
            self.ours.committed(offset)
            self.coordinator = offset
        assert self.ours.to_commit is None

    @invariant()
    def the_model_agrees(self):
        safe = self.safe()
        assert self.ours.to_commit == (safe if safe != self.coordinator else None)
        assert self.ours.begun_uncommitted == (bool(self.records) and self.coordinator is None)
        assert self.ours.waiting == len(
            [offset for offset, _ in self.records if offset >= safe] if self.records else ()
        )
        if self.coordinator is not None:
            assert all(done for offset, done in self.records if offset < self.coordinator)  # a crash loses nothing


Model.TestCase.settings = settings(max_examples=200, stateful_step_count=60)
TestModel = Model.TestCase


def test_the_example_of_the_document():
    offsets = OffsetManager()
    offsets.take(0)
    offsets.take(1)
    assert offsets.to_commit == 0
    offsets.done(1)
    assert offsets.to_commit == 0
    offsets.done(0)
    assert offsets.to_commit == 2
