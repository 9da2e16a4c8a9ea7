"""Translation of offsets by what was moved: never past a record that a group has not read, and exact where it can be."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from odradek.mirror.offset_syncs import MOST_AT_ONCE, OffsetSyncs
from odradek.mirror.records import OffsetSync
from odradek.mirror.routes import Moved, Route
from odradek.mirror.translation import Run, Translation

ROUTE = Route(("t", 0), ("a.t", 0))


def translated_by(syncs: OffsetSyncs, group_id: str, offset: int) -> int | None:
    found = syncs.translate(ROUTE.source, group_id, offset)
    assert found is None or found[0] == ROUTE.target
    return None if found is None else found[1]


@dataclass
class Mirrored:
    """A partition and its copy. :ivar pairs: the source and target offset of each record. :ivar runs: as lanes report."""

    pairs: list[tuple[int, int]]
    runs: list[Run]

    def next_target(self, offset: int) -> int:
        """The target offset of the first record at or after a source offset; after the last record, the end."""
        return next((target for source, target in self.pairs if source >= offset), self.pairs[-1][1] + 1)


@st.composite
def mirrored(draw: st.DrawFn) -> Mirrored:
    """Batches with gaps between them (markers, aborted data) on both sides, and inside of them (compaction)."""
    pairs, runs = [], []
    source, target = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 40))):
        source += draw(st.sampled_from((0, 0, 0, 1, 4)))
        target += draw(st.sampled_from((0, 0, 1)))
        kept = draw(st.lists(st.booleans(), min_size=1, max_size=6).map(lambda rest: [True, *rest]))
        offsets = [source + delta for delta, is_kept in enumerate(kept) if is_kept]
        runs.append(Run(source, target, source + len(kept), len(offsets)))
        for offset in offsets:
            pairs.append((offset, target))
            target += 1
        source += len(kept)
    return Mirrored(pairs, runs)


@given(mirrored(), st.integers(4, 12))
def test_no_record_that_a_group_has_not_read_is_skipped(copy: Mirrored, most_runs: int) -> None:
    translation = Translation(most_runs)
    for run in copy.runs:
        translation.add(run)
    assert len(translation) <= most_runs
    for offset in range(copy.runs[-1].end + 3):
        translated = translation.translate(offset)
        assert translated is None or translated <= copy.next_target(offset), offset


@given(mirrored())
def test_translations_rise_with_the_offsets(copy: Mirrored) -> None:
    translation = Translation(5)
    for run in copy.runs:
        translation.add(run)
    known = [translation.translate(offset) for offset in range(copy.runs[-1].end + 3)]
    found = [translated for translated in known if translated is not None]
    assert found == sorted(found)


@given(mirrored())
def test_every_offset_is_exact_while_the_runs_are_remembered_and_have_no_gaps(copy: Mirrored) -> None:
    translation = Translation()
    for run in copy.runs:
        translation.add(run)
    for run in filter(lambda run: run.dense, copy.runs):
        for offset in range(run.upstream, run.end):
            assert translation.translate(offset) == copy.next_target(offset)
    assert translation.translate(copy.runs[-1].end + 7) == copy.pairs[-1][1] + 1


@given(mirrored(), st.integers(1, 5), st.data())
def test_written_syncs_alone_never_skip_a_record(copy: Mirrored, rounds: int, data: st.DataObject) -> None:
    """As MirrorMaker 2 and the next worker see them; the rounds of writing lie anywhere between the batches."""
    syncs, topic = OffsetSyncs(), []
    syncs.progress(ROUTE, 0, 0, 0)
    syncs.load({ROUTE.source}, [])
    written_after = data.draw(st.sets(st.integers(0, len(copy.runs) - 1), max_size=rounds)) | {len(copy.runs) - 1}
    for index, run in enumerate(copy.runs):
        syncs.moved(Moved(ROUTE, run.upstream, run.downstream, run.end, run.records, 100, 0))
        if index in written_after:
            pending = syncs.pending()
            assert len(pending.records) <= MOST_AT_ONCE + 1
            topic += pending.records
            syncs.written(pending.up_to)
            assert not syncs.pending().records
    assert {(sync.upstream, sync.downstream) for sync in topic} <= set(copy.pairs)
    assert [sync.upstream for sync in topic] == sorted({sync.upstream for sync in topic})
    successor = OffsetSyncs()
    successor.assign([ROUTE])
    successor.load(successor.unloaded(), topic)
    assert not successor.unloaded()
    for offset in range(copy.runs[-1].end + 3):
        translated = translated_by(successor, f"group {offset}", offset)
        assert translated is None or translated <= copy.next_target(offset)
    if copy.runs[-1].dense:  # a group that has read everything continues at the end of what was moved
        assert translated_by(successor, "g", copy.runs[-1].end) == copy.pairs[-1][1] + 1


def test_batches_that_follow_each_other_on_both_sides_are_one_run() -> None:
    translation = Translation()
    for first in range(0, 1000, 10):
        translation.add(Run(first, first + 3, first + 10, 10))
    assert len(translation) == 1 and translation.translate(555) == 558


def test_a_topic_that_was_created_again_forgets_what_was_known() -> None:
    syncs = OffsetSyncs()
    syncs.assign([ROUTE])
    syncs.load({ROUTE.source}, [])
    syncs.moved(Moved(ROUTE, 1000, 1000, 1100, 100, 1, 0))
    assert translated_by(syncs, "g", 1050) == 1050
    syncs.written(syncs.pending().up_to)
    syncs.moved(Moved(ROUTE, 0, 1101, 10, 10, 1, 0))
    assert translated_by(syncs, "g", 1050) is None
    assert translated_by(syncs, "other", 5) == 1106
    assert syncs.pending().records == [OffsetSync(("t", 0), 0, 1101), OffsetSync(("t", 0), 9, 1110)]


def test_an_offset_behind_the_end_of_a_truncated_log_is_not_translated() -> None:
    """A group that had read everything has not read what was moved since: its former checkpoint stays."""
    syncs = OffsetSyncs()
    syncs.assign([ROUTE])
    syncs.moved(Moved(ROUTE, 0, 0, 150, 150, 1, 0))
    syncs.progress(ROUTE, 150, 150, 0)
    assert translated_by(syncs, "g", 150) == 150
    syncs.moved(Moved(ROUTE, 100, 150, 120, 20, 1, 0))  # the source lost offsets 100 to 149, and has 20 new records
    syncs.progress(ROUTE, 120, 120, 0)
    assert translated_by(syncs, "g", 150) is None
    assert translated_by(syncs, "g", 120) == 170


def test_the_next_worker_does_not_translate_it_either_before_it_has_seen_the_end_of_the_log() -> None:
    successor = OffsetSyncs()
    successor.assign([ROUTE])
    successor.load({ROUTE.source}, [OffsetSync(ROUTE.source, 100, 150), OffsetSync(ROUTE.source, 119, 169)])
    assert translated_by(successor, "g", 150) is None
    assert translated_by(successor, "g", 120) == 170
    successor.progress(ROUTE, 120, 160, 0)
    assert translated_by(successor, "g", 150) == 170


def test_a_group_before_the_first_record_of_the_copy_continues_at_the_start_of_the_copy() -> None:
    """Also if a former copy had more records: without this, the checkpoint of the former copy would stay."""
    syncs = OffsetSyncs()
    syncs.moved(Moved(ROUTE, 500, 0, 600, 100, 1, 0))
    assert translated_by(syncs, "g", 20) == 0
    syncs.moved(Moved(Route(("t", 1), ("a.t", 1)), 500, 7, 600, 100, 1, 0))
    assert syncs.translate(("t", 1), "g", 20) is None, "records before offset 7 may be older"


def test_syncs_of_a_former_topic_are_not_used() -> None:
    syncs = OffsetSyncs()
    syncs.moved(Moved(ROUTE, 10, 20, 15, 5, 1, 0))
    syncs.load({ROUTE.source}, [OffsetSync(("t", 0), 5, 5), OffsetSync(("t", 0), 900, 900)])
    assert translated_by(syncs, "g", 7) is None


def test_a_partition_that_another_worker_moves_is_forgotten() -> None:
    syncs = OffsetSyncs()
    syncs.moved(Moved(ROUTE, 0, 0, 5, 5, 1, 0))
    other = Route(("t", 1), ("a.t", 1))
    syncs.assign([other])
    assert syncs.unloaded() == {other.source}
    assert translated_by(syncs, "g", 3) is None and not syncs.pending().records


def test_a_group_does_not_go_back_while_what_is_known_becomes_coarser() -> None:
    syncs = OffsetSyncs()
    for first in range(0, 20_000, 10):
        syncs.moved(Moved(ROUTE, first, first + first // 10, first + 10, 10, 1, 0))
        if first == 5000:
            at_5000 = translated_by(syncs, "g", 5005)
    assert at_5000 == 5505
    assert at_5000 <= (translated_by(syncs, "g", 5006) or 0) <= 5506
    assert 0 <= (translated_by(syncs, "g", 100) or 0) <= 110, "a group that goes back is followed"
