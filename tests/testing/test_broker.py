"""`odradek.testing`: start, stop, kill and restart of a broker, and its errors; the fixtures; the process tree."""

import os
import signal
import socket
import sys
import threading
from importlib.metadata import entry_points

import pytest

from odradek.config.pid_file import start_ticks
from odradek.testing import Broker, BrokerError
from odradek.testing.process_tree import descendants, listens_on, open_pidfds, pss_bytes, wait_for_end
from tests.children import fork
from tests.waiting import PATIENCE_S, until

pytest_plugins = ["pytester"]


def exists(pid):
    """Whether the process runs. A zombie that its new parent has not yet reaped does not."""
    return start_ticks(pid) is not None


def test_a_broker_listens_on_its_address_and_leaves_nothing_behind():
    with Broker(topics={"plain": 3, "tuned": {"partitions": "2", "segment.bytes": "2000000"}}) as broker:
        pids = broker.process_ids()
        assert pids[0] == broker.pid and len(pids) >= 4
        assert broker.bootstrap_servers == f"127.0.0.1:{broker.port}"
        socket.create_connection((broker.host, broker.port), timeout=60).close()
        assert {process["pid"] for process in broker.processes() if process["pid"]} <= set(pids)
        assert 1_000_000 < broker.pss_bytes() < 500_000_000
        assert (broker.data_dir / "plain-2").is_dir() and (broker.data_dir / "tuned-1").is_dir()
        directory = broker.directory
    assert not any(exists(pid) for pid in pids)
    assert not directory.exists()


def test_a_broker_starts_fast(tmp_path):
    """Usually it takes 0.2-0.3 s, which the benchmark measures; the limit here is only far below the start of a JVM.

    On a busy machine, the fastest of several starts counts, or the CPU time of a start if that is less.
    """
    seconds: list[float] = []
    while len(seconds) < 10 and min(seconds, default=9.0) >= 2:
        with Broker(directory=tmp_path / str(len(seconds))) as broker:
            seconds.append(min(broker.start_seconds, sum(map(processor_seconds, broker.process_ids()))))
    assert min(seconds) < 2, seconds


def processor_seconds(pid):
    """The CPU time of a process and of its children that have ended."""
    with open(f"/proc/{pid}/stat", "rb") as stat:
        fields = stat.read().rpartition(b") ")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def test_two_brokers_share_neither_port_nor_processes(tmp_path):
    with Broker(directory=tmp_path / "a") as first, Broker(directory=tmp_path / "b") as second:
        assert first.port != second.port
        assert set(first.process_ids()).isdisjoint(second.process_ids())
    assert (tmp_path / "a" / "broker.log").stat().st_size > 0


@pytest.mark.parametrize("end", ["stop", "kill", "kill_group"])
def test_a_restart_uses_the_same_data_and_port(tmp_path, end):
    with Broker(directory=tmp_path, topics={"t": 1}) as broker:
        port, pids = broker.port, broker.process_ids()
        getattr(broker, end)()
        assert not broker.running and not any(exists(pid) for pid in pids)
        broker.restart()
        assert broker.running and broker.port == port and broker.pid not in pids
        assert broker.status()["partitions"] == 1


def test_a_restart_waits_for_a_port_that_another_process_took(tmp_path):
    with Broker(directory=tmp_path) as broker:
        port = broker.port
        broker.stop()
        with socket.create_server(("127.0.0.1", port)) as taken:
            starting = threading.Thread(target=broker.start, daemon=True)
            starting.start()
            until(lambda: b"the port is in use" in broker.log_file.read_bytes(), "an attempt to use the port")
            taken.close()
            starting.join(PATIENCE_S)
        assert broker.running and broker.port == port


def test_the_port_of_a_stopped_broker_is_reserved(tmp_path):
    with Broker(directory=tmp_path) as broker:
        for end in (broker.stop, broker.kill):
            end()
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((broker.host, broker.port))
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((broker.host, broker.port), timeout=60)
            broker.start()
    assert broker._held is None


def test_a_second_broker_on_the_same_data_fails_with_an_error_in_its_log(tmp_path):
    with Broker(directory=tmp_path) as broker:
        second = Broker({"log.dirs": broker.data_dir}, directory=tmp_path / "second")
        with pytest.raises(BrokerError, match="exit code 1 before it was ready"):
            second.start()
        assert second.log_tail().startswith("odradek: ")
        assert broker.running


def test_the_error_for_a_bad_configuration_contains_the_end_of_the_log():
    broker = Broker({"num.partitions": "many"})
    with pytest.raises(BrokerError, match=r"exit code 1 before it was ready\n.*\n.*num\.partitions=many: must be"):
        broker.__enter__()
    assert not broker.running and not broker.directory.exists()


def test_a_start_that_takes_too_long_leaves_no_process(tmp_path):
    program = tmp_path / "sleeper"
    program.write_text("#!/bin/sh\nsleep 1000 & exec sleep 1000\n")
    program.chmod(0o755)
    broker = Broker(directory=tmp_path / "b", python=str(program), timeout=0.3)
    with pytest.raises(BrokerError, match=r"not ready within 0\.3 s"):
        broker.start()
    assert not broker.running
    members = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if in_group(pid, broker.pid)]  # noqa: PTH208
    assert wait_for_end(open_pidfds(members), 60)  # killed, but perhaps not yet ended


def in_group(pid, group):
    """Whether the process is in the group and runs. A zombie that its new parent has not yet reaped does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return int(fields[2]) == group and fields[0] != b"Z"


def test_a_readiness_message_of_another_process_is_ignored(tmp_path):
    program = tmp_path / "liar"
    send = "import os, socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b'READY=1', os.environ['NOTIFY_SOCKET'])"
    program.write_text(f'#!/bin/sh\n{sys.executable} -c "{send}"\nexit 7\n')
    program.chmod(0o755)
    with pytest.raises(BrokerError, match="exit code 7 before it was ready"):
        Broker(directory=tmp_path / "b", python=str(program)).start()


def test_a_broker_that_was_not_started_cannot_be_signalled(tmp_path):
    with pytest.raises(BrokerError, match="is not running"):
        Broker(directory=tmp_path).signal(signal.SIGTERM)


def test_the_process_tree_is_read_from_the_kernel():
    reader, writer = os.pipe()

    def stay() -> None:
        os.close(writer)
        os.read(reader, 1)

    child = fork(stay)
    os.close(reader)
    assert descendants(os.getpid())[0] == os.getpid() and child in descendants(os.getpid())
    assert pss_bytes([child]) > 0
    (pidfd,) = open_pidfds([child])
    assert not wait_for_end([pidfd], 0)
    os.close(writer)
    assert wait_for_end([pidfd], 60)
    os.waitpid(child, 0)
    os.close(pidfd)
    assert open_pidfds([child]) == [] and pss_bytes([child]) == 0


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_process_that_listens_on_a_port_is_found(family, host):
    with socket.socket(family) as server:
        server.bind((host, 0))
        port = server.getsockname()[1]
        assert not listens_on(os.getpid(), port)
        server.listen(1)
        assert listens_on(os.getpid(), port)
        assert not listens_on(os.getppid(), port)


def test_the_fixtures_return_running_brokers(pytester):
    pytester.makepyfile(
        """
        import socket

        def test_one(odradek_broker):
            socket.create_connection((odradek_broker.host, odradek_broker.port), timeout=60).close()

        def test_several(odradek_broker_factory):
            brokers = [odradek_broker_factory({"node.id": number}, topics={"t": number}) for number in (1, 2)]
            assert [broker.status()["node_id"] for broker in brokers] == [1, 2]

        pids = []

        def test_shared(odradek_shared_broker):
            pids.append(odradek_shared_broker.pid)

        def test_shared_again(odradek_shared_broker):
            assert pids == [odradek_shared_broker.pid]
        """
    )
    installed = any(point.name == "odradek" for point in entry_points(group="pytest11"))
    plugin = () if installed else ("-p", "odradek.testing.pytest_plugin")
    result = pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(passed=4)
