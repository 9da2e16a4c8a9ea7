"""Reading a partition of `__consumer_offsets` for a load: all of it, or an error; never a part that looks like all."""

import pytest

from broker.processes import offsets_log
from broker.processes.offsets_log import LogMoved, read_records
from broker.storage.batch import Record, build_batch


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A log whose files and state are the test's."""
    return Log(tmp_path, monkeypatch)


class Log:
    def __init__(self, directory, monkeypatch):
        self.state = {
            "log_dir": 0,
            "topic": "__consumer_offsets",
            "partition": 0,
            "log_start_offset": 0,
            "log_end_offset": 0,
            "generation": 1,
        }
        self.directory = directory / "__consumer_offsets-0"
        self.directory.mkdir()
        monkeypatch.setattr(offsets_log.slots, "describe", lambda slot: dict(self.state))

    def segment(self, base, *offsets):
        """A file with a batch for each offset; returns its bytes by batch."""
        parts = [build_batch([Record(b"%d" % one, b"v", 1)], base_offset=one) for one in offsets]
        (self.directory / f"{base:020}.log").write_bytes(b"".join(parts))
        return parts

    def keys(self):
        return [int(key) for piece in read_records(7, [self.directory.parent]) for key, _ in piece]


def test_an_empty_log_has_nothing(log):
    assert log.keys() == []
    log.segment(0)
    assert log.keys() == []
    log.state.update(log_start_offset=5, log_end_offset=5)
    assert log.keys() == []


def test_segments_are_read_in_order_from_the_start_to_the_end(log):
    log.segment(0, 0, 1, 2)
    log.segment(3, 3, 4, 5)
    log.state.update(log_start_offset=1, log_end_offset=5)  # offset 5 came after the look
    assert log.keys() == [1, 2, 3, 4]


def test_gaps_of_compaction_are_no_loss(log):
    """Also where the last records of a segment are gone and the next one has none yet."""
    log.segment(0, 0)
    log.segment(10, 12)
    log.segment(20)
    log.state.update(log_end_offset=20)
    assert log.keys() == [0, 12]


@pytest.mark.parametrize("present", [(), (0,), (0, 1)])
def test_a_log_that_ends_early_is_an_error(log, present):
    if present:
        log.segment(0, *present)
    log.state.update(log_end_offset=3)
    with pytest.raises(OSError, match=rf"reaches to offset {len(present)} and should to 3"):
        log.keys()


@pytest.mark.parametrize("harm", [lambda data: data[:-1], lambda data: data[:-1] + bytes([data[-1] ^ 1])])
def test_a_spoilt_batch_is_an_error_that_names_the_file(log, harm):
    parts = log.segment(0, 0, 1)
    file = log.directory / f"{0:020}.log"
    file.write_bytes(parts[0] + harm(parts[1]))
    log.state.update(log_end_offset=2)
    with pytest.raises(OSError, match="no sound batch") as raised:
        log.keys()
    assert raised.value.filename == str(file)


def test_files_that_change_meanwhile_are_told(log):
    log.segment(0, 0)
    log.segment(1, 1)
    log.state.update(log_end_offset=2)
    pieces = read_records(7, [log.directory.parent])
    next(pieces)
    (log.directory / f"{1:020}.log").unlink()
    with pytest.raises(LogMoved, match="is gone"):
        next(pieces)
    log.segment(1, 1)
    pieces = read_records(7, [log.directory.parent])
    next(pieces)
    log.state.update(generation=2)
    with pytest.raises(LogMoved, match="segments changed"):
        list(pieces)
