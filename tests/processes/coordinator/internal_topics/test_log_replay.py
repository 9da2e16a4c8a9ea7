"""Reading the log of an internal topic: native and Python code read the same, wherever a piece of the file ends."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek._ext.records.replayed_batches import read_batches
from odradek.coordination.environment import NO_PRODUCER, LogBatch
from odradek.processes.coordinator.internal_topics import log_replay
from odradek.processes.coordinator.internal_topics.log_replay import _join, _read_batch, _read_file
from odradek.storage.batch import ABORT, COMMIT, CONTROL, TRANSACTIONAL, Record, build_batch, build_end_marker

GZIP = 1
keys = st.none() | st.binary(max_size=20)
records = st.lists(
    st.builds(Record, keys, keys, st.integers(0, 100), st.just((("h", None),)) | st.just(())), max_size=4
)


@st.composite
def logs(draw):
    """Batches in ascending order of offsets, some with gaps, as compaction leaves them."""
    batches, offset = [], draw(st.integers(0, 5))
    for kind in draw(
        st.lists(st.sampled_from(("plain", "transactional", "gzip", "marker", "other control")), max_size=8)
    ):
        producer_id = draw(st.integers(0, 2))
        if kind == "marker":
            outcome = draw(st.sampled_from((ABORT, COMMIT)))
            batches.append(
                build_end_marker(
                    outcome,
                    base_offset=offset,
                    producer_id=producer_id,
                    producer_epoch=0,
                    coordinator_epoch=1,
                    timestamp=1,
                )
            )
            offset += 1
            continue
        content = [
            Record(record.key, record.value, record.timestamp, tuple((b"h", value) for _, value in record.headers))
            for record in draw(records)
        ]
        deltas = list(
            itertools.accumulate(draw(st.lists(st.integers(1, 3), min_size=len(content), max_size=len(content))))
        )
        last = (deltas[-1] if deltas else 0) + draw(st.integers(0, 2))
        attributes = {"transactional": TRANSACTIONAL, "other control": CONTROL | TRANSACTIONAL}.get(kind, 0)
        batches.append(
            build_batch(
                content,
                base_offset=offset,
                offset_deltas=deltas,
                last_offset_delta=last,
                codec=GZIP if kind == "gzip" else 0,
                attributes=attributes,
                producer_id=producer_id if attributes else -1,
            )
        )
        offset += last + 1 + draw(st.integers(0, 2))
    return batches, offset


def expected(batches, start, end):
    piece, reached = [], 0
    for data in batches:
        if int.from_bytes(data[:8], "big") >= end:
            break
        last, batch = _read_batch(data, start, end)
        _join(piece, [batch])
        reached = last + 1
    return reached, flat(piece)


def flat(batches):
    """Batches with what matters of them: the records in order, each with its transaction, and the markers."""
    found = []
    for batch in batches:
        if batch.commits is not None:
            found.append((batch.producer_id, batch.commits))
        elif batch.producer_id == NO_PRODUCER:
            found += batch.records
        else:
            found += [(record, batch.producer_id, at) for record, at in zip(batch.records, batch.offsets, strict=True)]
    return found


@given(logs(), st.integers(0, 20), st.integers(0, 40), st.sampled_from((17, 60, 100, 1 << 20)))
def test_native_code_reads_what_python_reads(tmp_path_factory, log, start, end, piece_bytes):
    batches, _ = log
    path = tmp_path_factory.mktemp("log") / "00000000000000000000.log"
    path.write_bytes(b"".join(batches))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_replay, "PIECE_BYTES", piece_bytes)
        reached, found = 0, []
        for reached, piece in _read_file(path, start, end):  # noqa: B007
            found += piece
    assert (reached, flat(found)) == expected(batches, start, end)


@given(logs())
def test_native_code_stops_at_what_it_does_not_read(log):
    batches, end = log
    data = b"".join(batches)
    for cut in range(0, len(data), 7):
        at, _, read = read_batches(data[:cut], 0, 0, end)
        ends = list(itertools.accumulate(map(len, batches), initial=0))
        assert at in ends
        assert at <= cut
        whole = [batch for batch, stop in zip(batches, ends[1:], strict=True) if stop <= at]
        assert flat(map(LogBatch._make, read)) == expected(whole, 0, end)[1]


@pytest.mark.parametrize("at", [17, 30, 70, -1])
def test_a_corrupt_batch_is_an_error(tmp_path, at):
    data = bytearray(build_batch([Record(b"key", b"value", 1)], base_offset=0))
    data[at] ^= 1
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    with pytest.raises(OSError, match="corrupt batch"):
        list(_read_file(path, 0, 10))


@pytest.mark.parametrize("cut", [1, 20, 40])
def test_a_file_that_ends_within_a_batch_is_an_error(tmp_path, cut):
    data = build_batch([Record(b"key", b"value", 1)], base_offset=0)
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data + data[:-cut])
    with pytest.raises(OSError, match="corrupt batch"):
        list(_read_file(path, 0, 10))
