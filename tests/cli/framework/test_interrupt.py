"""Ctrl-C and SIGTERM in every command that can take long: one line with what was done, no traceback, status 128 + signal.

Before the signal is sent, each command is brought into a known state, in which it waits for something that does not happen.
"""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.cli.framework.interrupt import Interruption, without_interruption
from odradek.protocol.schemas import (
    consumer_group_describe,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    incremental_alter_configs,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
)
from odradek.testing import Broker
from odradek.testing.process_tree import wait_for_end
from tests.cli.command import Command
from tests.cli.gate import Gate
from tests.waiting import until

MAIN = [sys.executable, "-m", "odradek.cli"]
PATIENCE_S = 90


def start(*arguments, servers="127.0.0.1:1", **options):
    """Start the command with the default handler of SIGINT, as a shell does for a foreground process."""
    return subprocess.Popen(
        [*MAIN, *map(str, arguments)],
        stdin=options.pop("stdin", subprocess.PIPE),
        stdout=subprocess.PIPE,
        stderr=options.pop("stderr", subprocess.PIPE),
        env=os.environ | {"ODRADEK_BOOTSTRAP_SERVERS": servers},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )


def assert_stopped(process, number=signal.SIGINT, *words):
    """Send the signal, and assert that it ends the command with one line that has the words. Returns standard output."""
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    message = err.decode()
    assert process.returncode == 128 + number, (out, message)
    assert message.startswith("odradek: stopped") and message.count("\n") == 1, message
    for word in words:
        assert word in message, message
    return out


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    """A gate in front of a broker that has a topic and a group."""
    with Gate() as gate:
        config = {
            "group.initial.rebalance.delay.ms": 0,
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{gate.port}",
        }
        with Broker(config, directory=tmp_path_factory.mktemp("gate"), topics={"t": 1}) as broker:
            gate.upstream_port = broker.port
            odradek = Command(f"127.0.0.1:{gate.port}")
            odradek("produce", "t", stdin="a\nb\n")
            odradek("group", "reset-offsets", "g", "--topic", "t", "--to", "1", "--yes")
            gate.let_go()
            yield gate


CHANGE = "may still execute it"
WAITING = [
    (["topic", "list"], metadata, ()),
    (["topic", "list", "--sizes"], describe_log_dirs, ()),
    (["topic", "create", "new"], create_topics, ("CreateTopics", CHANGE)),
    (["topic", "describe", "t"], list_offsets, ()),
    (["topic", "alter", "t", "-p", "3"], create_partitions, ("CreatePartitions", CHANGE)),
    (["topic", "truncate", "t", "--yes"], delete_records, ("DeleteRecords", CHANGE)),
    (["topic", "delete", "t", "--yes"], delete_topics, ("DeleteTopics", CHANGE)),
    (["group", "list"], list_groups, ()),
    (["group", "describe", "g"], consumer_group_describe, ()),
    (["group", "explain", "g"], consumer_group_describe, ()),
    (["group", "reset-offsets", "g", "--to", "0", "--yes"], offset_commit, ("OffsetCommit", CHANGE)),
    (["group", "delete", "g", "--yes"], delete_groups, ("DeleteGroups", CHANGE)),
    (["config", "get", "-t", "t"], describe_configs, ()),
    (["config", "set", "-t", "t", "retention.ms=1d"], incremental_alter_configs, ()),
    (["config", "explain", "-t", "t", "retention.ms"], describe_configs, ()),
    (["offsets", "migrate", "g", "--to", "tree"], offset_fetch, ("0 offsets had been copied",)),
    (["doctor"], list_groups, ()),
]


@pytest.mark.parametrize(("arguments", "api", "words"), WAITING, ids=[" ".join(row[0]) for row in WAITING])
def test_a_command_that_waits_for_a_response_ends_and_names_the_pending_change(gate, arguments, api, words):
    gate.hold(api.API_KEY)
    process = start(*arguments, servers=f"127.0.0.1:{gate.port}")
    assert gate.reached.wait(PATIENCE_S)
    assert_stopped(process, signal.SIGINT, *words)
    gate.let_go()


def test_sigterm_ends_a_command_like_ctrl_c_with_status_143(gate):
    gate.hold(metadata.API_KEY)
    process = start("topic", "list", servers=f"127.0.0.1:{gate.port}")
    assert gate.reached.wait(PATIENCE_S)
    assert_stopped(process, signal.SIGTERM)
    gate.let_go()


def test_a_repeating_migration_reports_the_number_of_copied_offsets(gate):
    """The gate holds the second round, so that the first, which copies, is complete."""
    process = start("offsets", "migrate", "g", "--to", "both", "--every", "0.05", servers=f"127.0.0.1:{gate.port}")
    line = process.stdout.readline() + process.stdout.readline()
    assert b"copied" in line
    gate.hold(offset_fetch.API_KEY)
    assert gate.reached.wait(PATIENCE_S)
    assert_stopped(process, signal.SIGINT, "1 offset had been copied")
    gate.let_go()


@pytest.fixture
def silent():
    """A listener that accepts and never responds: HOST:PORT, and a function that waits until a request has arrived."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        opened = []

        def arrived():
            connection, _ = listener.accept()
            opened.append(connection)
            assert connection.recv(1)

        yield f"127.0.0.1:{listener.getsockname()[1]}", arrived
        for connection in opened:
            connection.close()


@pytest.mark.parametrize("arguments", [["top"], ["top", "--json"], ["show"], ["topic", "t"]], ids="-".join)
def test_usage_that_waits_for_a_response_ends(silent, arguments):
    address, arrived = silent
    process = start("usage", *arguments, "--metrics", address)
    arrived()
    assert_stopped(process)


def test_a_report_that_waits_for_prometheus_ends(silent, tmp_path):
    pytest.importorskip("pyspark")
    address, arrived = silent
    process = start("report", "usage", "--prometheus", f"http://{address}", "--out", tmp_path)
    arrived()
    assert_stopped(process)


@contextlib.contextmanager
def handled(number, handler):
    """Handle the signal so in this process for a while."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def held_segment(log, number):
    """Hold a lease of a segment, at which a process that opens it waits. Returns a function that waits for such a process.

    The function returns a descriptor; closing it lets the process continue. (In a pipe, a reader would wait as well, but not
    one that reads with `pread`.)
    """
    held = os.open(log / f"{number:020}.log", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        os.close(held)
        pytest.skip(f"the file system of {log} has no leases: {error}")

    def opened():
        until(lambda: fcntl.fcntl(held, fcntl.F_GETLEASE) != fcntl.F_WRLCK, f"a process that opens a segment of {log}")
        return held

    return opened


@pytest.fixture
def no_lease_signals():
    """The kernel sends SIGIO to the holder of a lease, which would end this process."""
    with handled(signal.SIGIO, signal.SIG_IGN):
        yield


@pytest.mark.usefixtures("no_lease_signals")
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("to_all", [False, True], ids=["to-one", "to-the-group"])
def test_a_verification_ends_with_its_processes(tmp_path, processes, to_all):
    """On Ctrl-C, a terminal sends the signal to the foreground process group; `kill` sends it to one process."""
    opened = []
    for partition in range(2):
        log = tmp_path / f"t-{partition}"
        log.mkdir()
        for number in range(200):  # as many as one process reads at a time
            (log / f"{number + 1:020}.log").touch()
        opened.append(held_segment(log, 0))
    process = start("log", "verify", "--processes", processes, tmp_path, start_new_session=True)
    writers = [reader() for reader in opened[:processes]]
    if to_all:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    for writer in writers:
        os.close(writer)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (130, b""), err
    assert err == b"odradek: stopped; 0 B of 0 B had been checked\n"


@pytest.mark.usefixtures("no_lease_signals")
def test_an_interrupted_adoption_has_changed_nothing(tmp_path):
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n")
    log = tmp_path / "t-0"
    log.mkdir()
    opened = held_segment(log, 0)
    process = start("adopt", "--yes", tmp_path)
    writer = opened()
    assert_stopped(process, signal.SIGINT, "nothing was changed")
    os.close(writer)
    assert {path.name for path in tmp_path.iterdir()} == {"meta.properties", "t-0", ".lock"}


STUBBORN = """
import signal, sys
from odradek.config.pid_file import write_pid_file
held = open(sys.argv[1] + "/.lock", "w")
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
write_pid_file(sys.argv[1], [])
print("ready", flush=True)
signal.sigwait({signal.SIGTERM})
print("signalled", flush=True)
sys.stdin.read()
"""


def test_an_interrupted_stop_names_the_broker(tmp_path):
    command = [sys.executable, "-c", STUBBORN, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as stubborn:
        assert stubborn.stdout.readline() == b"ready\n"
        process = start("stop", "--data-dir", tmp_path)
        assert stubborn.stdout.readline() == b"signalled\n"
        assert_stopped(process, signal.SIGINT, f"SIGTERM was sent to broker {stubborn.pid}")
        stubborn.stdin.close()


def test_a_constructor_is_not_interrupted():
    made = []

    def make():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            made.append("whole")
        except KeyboardInterrupt:
            raise TypeError("what confluent-kafka makes of it") from None

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` may have it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            without_interruption(make)
    finally:
        signal.signal(signal.SIGINT, before)
    assert made == ["whole"]


def test_an_interrupted_demo_ends_its_broker():
    process = start("demo", "--megabytes", "3")
    lines = [process.stdout.readline() for _ in range(2)]
    assert lines[1].startswith(b"broker    process "), lines
    broker = int(lines[1].split()[2])
    pidfd = os.pidfd_open(broker)
    os.killpg(broker, signal.SIGSTOP)  # so that the demo cannot finish
    process.send_signal(signal.SIGINT)
    os.killpg(broker, signal.SIGCONT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, err) == (130, b"odradek: stopped\n"), out
    assert wait_for_end([pidfd], PATIENCE_S)
    os.close(pidfd)


def process_state(pid):
    """The state of a process as a letter, as in `ps`."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_an_interrupted_confirmation_changes_nothing(gate):
    main, other = os.openpty()
    process = start("topic", "delete", "t", servers=f"127.0.0.1:{gate.port}", stdin=other)
    os.close(other)
    prompt = b""
    while b"[y/N]: " not in prompt:
        prompt += process.stderr.read1()
    until(lambda: process_state(process.pid) == "S", "the command waits for an answer")
    assert_stopped(process, signal.SIGINT, "nothing was changed")
    os.close(main)
    gate.let_go()


@pytest.fixture
def default_sigint():
    """The handler of SIGINT that Python sets; a shell may have started the tests with SIGINT ignored."""
    with handled(signal.SIGINT, signal.default_int_handler):
        yield


@pytest.mark.usefixtures("default_sigint")
def test_a_deferred_signal_ends_a_blocking_call_after_its_limit():
    """For example, a command blocks in the middle of a request if the broker does not read."""
    ours, theirs = socket.socketpair()
    before = signal.getsignal(signal.SIGALRM)
    with ours, theirs, pytest.raises(KeyboardInterrupt), Interruption(at_latest_s=0.05):
        os.kill(os.getpid(), signal.SIGINT)
        ours.settimeout(PATIENCE_S)
        ours.recv(1)
    assert signal.getsignal(signal.SIGALRM) == before and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
