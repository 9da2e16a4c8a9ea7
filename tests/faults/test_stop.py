"""The ordered stop under many connections, and what the next start does after it and after a kill."""

import contextlib
import os
import signal
import time

import pytest

from odradek.protocol.schemas import api_versions, fetch
from odradek.testing import Broker
from tests.waiting import until
from tests.wire import FETCH_VERSION, Wire, batch, fetch_request

TOPIC, PARTITIONS = "stopped", 2
CONNECTIONS, POLLING = 500, 200
POLL_MS = 200_000
CONFIG = {"num.network.threads": 2, "log.segment.bytes": 1 << 20}
CLEAN = ".kafka_cleanshutdown"
RECOVERED = "was not shut down cleanly"

pytestmark = [pytest.mark.timeout(300)]


def append(broker, count, partition=0):
    """Write records, one per batch; return the last offset."""
    with Wire.to(broker) as connection:
        for _ in range(count):
            result = connection.produce(TOPIC, batch(b"kept" * 50), partition)
            assert result.error_code == 0
        return result.base_offset


def log_since(broker, at):
    return broker.log_file.read_bytes()[at:].decode(errors="replace")


def test_a_stop_with_500_connections_answers_the_long_polls_and_is_quick(tmp_path):
    with Broker(CONFIG, {TOPIC: PARTITIONS}, directory=tmp_path) as broker, contextlib.ExitStack() as stack:
        last = append(broker, 5)
        connections = [stack.enter_context(Wire.to(broker)) for _ in range(CONNECTIONS)]
        polls = {
            connection: connection.send(
                fetch_request([(TOPIC, 0, last + 1)], wait_ms=POLL_MS), fetch.API_KEY, FETCH_VERSION
            )
            for connection in connections[:POLLING]
        }
        for connection in connections[POLLING:]:  # after these are answered, each worker has read what came before
            connection.ask(api_versions.Request(), api_versions.API_KEY, 0)
        until(lambda: broker.status()["connections"] == CONNECTIONS, "all others are closed, the supervisor knows")
        began = time.monotonic()
        broker.stop()
        took = time.monotonic() - began
        for connection, correlation_id in polls.items():
            (topic,) = connection.receive(correlation_id).responses
            part = topic.partitions[0]
            assert (part.error_code, bytes(part.records or b""), part.high_watermark) == (0, b"", last + 1)
        assert [connection.to_end() for connection in connections] == [b""] * CONNECTIONS
        print(f"\nstopped in {took:.2f} s with {CONNECTIONS} connections, {POLLING} of them in a long poll")
        assert took < 90  # the polls would wait for longer
        log = broker.log_file.read_text()
        assert "killed" not in log and "Traceback" not in log and "in time" not in log
        assert (broker.data_dir / CLEAN).exists()


def test_a_signal_to_the_whole_group_stops_in_order_too(tmp_path):
    with Broker(CONFIG, {TOPIC: PARTITIONS}, directory=tmp_path) as broker:
        append(broker, 5)
        for pid in broker.process_ids():
            with contextlib.suppress(ProcessLookupError):  # one that was quick
                os.kill(pid, signal.SIGTERM)
        ended = os.waitid(os.P_PID, broker.pid, os.WEXITED | os.WNOWAIT)  # one more signal would hasten it
        assert ended is not None and (ended.si_code, ended.si_status) == (os.CLD_EXITED, 0)
        log = broker.log_file.read_text()
        assert "out of order" not in log and "Traceback" not in log
        assert (broker.data_dir / CLEAN).exists()


def test_a_start_after_an_orderly_stop_recovers_nothing(tmp_path):
    with Broker(CONFIG, {TOPIC: PARTITIONS}, directory=tmp_path) as broker:
        last = append(broker, 50)
        assert RECOVERED not in broker.log_file.read_text()  # there was nothing in a new directory
        broker.stop()
        at = broker.log_file.stat().st_size
        files = {path: path.stat().st_mtime_ns for path in broker.data_dir.glob(f"{TOPIC}-*/*.log")}
        broker.start()
        assert RECOVERED not in log_since(broker, at)
        assert not (broker.data_dir / CLEAN).exists()  # taken: what follows now is not closed in order
        assert {path: path.stat().st_mtime_ns for path in files} == files
        assert append(broker, 1) == last + 1


@pytest.mark.parametrize("way", ["kill", "kill_group"])
def test_a_start_after_a_kill_recovers(tmp_path, way):
    with Broker(CONFIG, {TOPIC: PARTITIONS}, directory=tmp_path) as broker:
        last = append(broker, 50)
        getattr(broker, way)()
        assert not (broker.data_dir / CLEAN).exists()
        (path,) = broker.data_dir.glob(f"{TOPIC}-0/*.log")
        end = batches_end(path, last + 1)
        torn = batch(b"never acknowledged" * 20)[:100]  # as an append cut off by the death of its writer
        with path.open("r+b") as log:
            log.seek(end)
            log.write(torn)
        at = broker.log_file.stat().st_size
        broker.start()
        assert f"{broker.data_dir} {RECOVERED}" in log_since(broker, at)
        assert path.read_bytes()[end : end + len(torn)] in (b"", bytes(len(torn)))
        assert append(broker, 1) == last + 1
        with Wire.to(broker) as connection:
            for offset in range(last + 2):
                part = connection.fetch(TOPIC, offset)
                assert part.error_code == 0 and int.from_bytes(bytes(part.records)[:8], "big") == offset


def batches_end(path, count):
    """The position after the first `count` batches of a segment."""
    data, at = path.read_bytes(), 0
    for _ in range(count):
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return at
