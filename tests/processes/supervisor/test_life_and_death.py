"""The consequences of the death of a process, and the ordered stop."""

import os
import signal
import socket
import time

import pytest

from odradek.testing.process_tree import descendants, open_pidfds, wait_for_end
from tests.waiting import until

CLEAN = ".kafka_cleanshutdown"


@pytest.mark.parametrize("victim", ["worker-0", "worker-1", "coordinator-0", "cleaner-0"])
def test_only_a_killed_process_is_restarted(broker, victim):
    broker.start()
    clients = {client.hello["worker"]: client for client in (broker.connect(), broker.connect())}
    before = broker.pids()
    os.kill(before[victim], signal.SIGKILL)

    def successor():
        """Once it has its handler of SIGTERM."""
        row = next(row for row in broker.processes() if f"{row['kind']}-{row['ordinal']}" == victim)
        return row["state"] == "serving" and row["pid"] not in (None, before[victim])

    until(successor, f"{victim} is there again")
    after = broker.pids()
    assert {name for name in before if before[name] != after[name]} == {victim}
    row = next(row for row in broker.processes() if row["pid"] == after[victim])
    assert row["restarts"] == 1 and row["last_exit"] == "ended by SIGKILL"
    for ordinal, client in clients.items():
        if victim == f"worker-{ordinal}":
            assert client.ended()
        else:
            assert client.ask("echo") == "echo"
    assert broker.stop() == 0 and (broker.data_dir / CLEAN).exists()


def test_an_error_in_a_worker_is_logged_with_its_traceback_and_restarts_only_the_worker(broker):
    broker.start("num.network.threads=1")
    client = broker.connect()
    client.command("raise")
    assert client.ended()
    assert broker.connect().hello["pid"] != client.hello["pid"]
    assert "RuntimeError: the client sent raise" in broker.log() and "fake_mains.py" in broker.log()
    assert f"worker-0 (pid {client.hello['pid']})" in broker.log()
    assert broker.processes("worker")[0]["last_exit"] == "exit code 1"


@pytest.mark.parametrize("fault", ["SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL"])
def test_a_memory_fault_restarts_all_and_the_logs_count_as_unclean(broker, fault):
    broker.start().stop()
    broker.start()
    assert any("clean=[True]" in message for message in broker.messages)
    before, listeners = broker.pids(), broker.listeners
    broker.messages.clear()
    client, other = broker.connect(), broker.connect()
    client.command(fault)
    assert client.ended() and other.ended()
    broker.wait_for("READY=1")
    assert any("clean=[False]" in message for message in broker.messages)
    after = broker.pids()
    assert {name for name in before if before[name] == after[name]} == {"supervisor-0"}
    assert broker.listeners == listeners and broker.connect().ask("echo") == "echo"
    status = broker.status()
    assert status["memory_faults"] == 1 and status["connections"] == 1
    assert f"ended by {fault}: the shared memory cannot be trusted" in broker.log()
    assert broker.stop() == 0 and (broker.data_dir / CLEAN).exists()


def test_a_connection_made_while_all_restart_is_served_afterwards(broker):
    broker.start()
    broker.connect().command("SIGSEGV")
    clients = [broker.connect(greeted=False) for _ in range(5)]
    broker.wait_for("READY=1")
    assert all(client.greeting() is not None or client.ended() for client in clients)
    assert broker.connect().ask("echo") == "echo"


def test_the_stop_is_in_order_and_writes_the_clean_shutdown_marker(broker):
    broker.start()
    port = broker.port
    client = broker.connect()
    assert broker.stop() == 0
    assert client.ended()
    broker.wait_for("coordinator-0 stopping")
    ends = [message.split()[0] for message in broker.messages if " stopping " in message]
    assert sorted(ends[:2]) == ["EVENT=worker-0", "EVENT=worker-1"] and ends[2] == "EVENT=coordinator-0"
    assert sorted(path.name for path in broker.data_dir.glob("odradek*")) == []
    assert (broker.data_dir / CLEAN).exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    assert "killed" not in broker.log()


def test_a_process_signalled_before_the_supervisor_waits_for_the_ordered_stop(broker):
    broker.start()
    broker.process.send_signal(signal.SIGSTOP)
    os.killpg(broker.process.pid, signal.SIGTERM)
    time.sleep(1.5)  # the fault itself: how long the supervisor hears of nothing
    broker.process.send_signal(signal.SIGCONT)
    assert broker.end() == 0
    assert (broker.data_dir / CLEAN).exists() and "out of order" not in broker.log()


def test_a_service_ignores_a_hang_up_and_an_interrupt_stops_it_in_order(broker, hang_up_by_default):
    broker.start()
    os.killpg(broker.process.pid, signal.SIGHUP)
    until(lambda: "received SIGHUP and ignored it" in broker.log(), "the supervisor logs the signal")
    assert broker.connect().ask("echo") == "echo"
    os.killpg(broker.process.pid, signal.SIGINT)  # as a terminal does
    assert broker.end() == 0
    assert (broker.data_dir / CLEAN).exists() and "ended by" not in broker.log()


def test_a_second_signal_kills_the_remaining_processes(broker):
    broker.start()
    assert broker.connect().ask("stubborn") == "stubborn now"
    broker.process.send_signal(signal.SIGTERM)
    broker.wait_for(" stubborn ")
    broker.process.send_signal(signal.SIGINT)
    assert broker.end() == 0
    assert "a further signal arrived: killing worker-" in broker.log() and (broker.data_dir / CLEAN).exists()


def test_a_process_that_does_not_stop_in_time_is_killed(broker):
    broker.start("odradek.stop.timeout.ms=200")
    assert broker.connect().ask("stubborn") == "stubborn now"
    assert broker.stop() == 0
    assert "processes did not end within 0.2 s: killing worker-" in broker.log()


def test_a_memory_fault_during_the_stop_leaves_no_clean_shutdown_marker(broker):
    broker.start("num.network.threads=1")
    client = broker.connect()
    assert client.ask("stubborn") == "stubborn now"
    broker.process.send_signal(signal.SIGTERM)
    broker.wait_for(" stubborn ")
    os.kill(client.hello["pid"], signal.SIGSEGV)
    assert broker.end() == 1
    assert not (broker.data_dir / CLEAN).exists() and not list(broker.data_dir.glob("odradek*"))


def test_a_process_whose_loop_does_not_run_is_replaced(broker):
    broker.start("odradek.stuck.process.ms=5000")  # the cleaner shows once a second that it turns, when it is let
    client = broker.connect()
    before = broker.pids()
    client.command("hang")
    broker.messages.clear()
    name = f"worker-{client.hello['worker']}"
    hung = before.pop(name)
    while broker.wait_for_pid(f"{name} serving") == hung:
        continue  # what it said at its own start came late
    assert "its event loop has not run for 5 s" in broker.log()
    after = broker.pids()
    assert all(after[name] == pid for name, pid in before.items())


def test_children_end_with_a_killed_supervisor_and_free_the_directory(broker):
    broker.start()
    pidfds = open_pidfds(descendants(broker.process.pid))
    broker.process.kill()
    broker.end()
    try:
        assert wait_for_end(pidfds, 90)
    finally:
        for pidfd in pidfds:
            os.close(pidfd)
    assert not (broker.data_dir / CLEAN).exists()
    broker.messages.clear()
    assert broker.start().connect().ask("echo") == "echo"
    assert any("clean=[False]" in message for message in broker.messages)


def test_a_stop_while_logs_are_loaded_leaves_them_to_be_recovered(broker, tmp_path):
    os.mkfifo(tmp_path / "gate")
    broker.launch(environment={"GATE": str(tmp_path / "gate")})
    broker.wait_for("loader-0")
    assert broker.stop() == 0
    assert not (broker.data_dir / CLEAN).exists() and not list(broker.data_dir.glob("odradek*"))


def test_a_process_that_never_serves_fails_the_start(broker):
    broker.launch(mains="coordinator=hopeless")
    assert broker.end() == 1
    lines = [line for line in broker.log().splitlines() if line.startswith("odradek: ")]
    assert lines == ["odradek: coordinator-0 cannot start (exit code 1): see its messages above"]
    assert broker.log().count("RuntimeError: this process never starts") == 6
