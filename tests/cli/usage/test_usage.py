"""`odradek usage` against a simulated /usage of a broker: every number that it prints, and its errors."""

import http.server
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from odradek.cli.framework.output import when
from odradek.cli.inspection.usage_source import Source, UsageError, UsageLocation, check_same_host
from odradek.cli.usage.topic import show_topic
from odradek.cli.usage.view import show_sums
from odradek.clients import configs
from odradek.metrics.pages import NO_API, OTHER, RETIRED, UsageRow
from odradek.metrics.usage import BadQuery, document, entries_of
from odradek.metrics.usage_totals import VALUES, Counts, UsageKey, totals
from tests.cli.command import Command
from tests.metrics import spool_model
from tests.terminals import fill, read_to_the_end
from tests.waiting import until

WRITE = ("1", "64")  # the number of the system call on x86-64 and ARM
NAMES = {0: "Produce", 1: "Fetch", 3: "Metadata"}
AT = 1_792_843_200_000
STATE = [
    {"kind": "topic", "topic": "orders", "id": "00", "partitions": 3, "bytes": 5_000_000, "largest": 3_000_000, "end": 900,
     "start": 100, "retention_ms": 1, "retention_bytes": -1},
    {"kind": "topic", "topic": "quiet", "id": "01", "partitions": 1, "bytes": 0, "largest": 0, "end": 0, "start": 0,
     "retention_ms": 1, "retention_bytes": -1},
    {"kind": "group", "group": "billing", "topic": "orders", "lag": 40, "lag_s": 2.5, "members": 2},
    {"kind": "reader", "principal": "User:b", "client": "etl", "topic": "orders", "lag": 30, "lag_s": 1.5},
]  # fmt: skip


def row(client, topic, api, since=AT - 60_000, *, principal="User:a", page=1, req=0, err=0, size=0, out=0, n=0, read=0):
    return UsageRow(page, principal, client, topic, api, since, AT, req, err, size, out, n, read, 0, 0)


def rows(at):
    """What a broker with two clients counted at its request number `at`, from 1."""
    return [
        row("web", "orders", 0, req=10 * at, size=1_000_000 * at, n=100 * at),
        row("web", "orders", 0, req=5, size=500, n=5, page=2, since=AT - 90_000),
        row("web", None, 0, req=10 * at + 5, size=2000 * at, out=400 * at, err=at),
        row("etl", "orders", 1, principal="User:b", req=at, out=300_000 * at, read=30 * at),
        row("etl", None, 1, principal="User:b", req=at, size=70 * at, out=30 * at),
        row("etl", None, NO_API, principal="User:b"),
        row(RETIRED, None, NO_API, principal=OTHER, size=10_000 * at, req=at),
    ]


class Reporter(http.server.ThreadingHTTPServer):
    """A broker's /usage. :param directory: of its spool, or None."""

    def __init__(self, directory=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.boot, self.spool, self.answer = 0, "aa", directory, None
        self.address = f"127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server, url = self.server, urlsplit(self.path)
        server.requests += 1
        about = {
            "odradek": "1", "broker": 1, "boot": server.boot, "began": AT - 90_000, "at": AT + 2000 * server.requests,
            "clock": 2000 * server.requests, "spool": server.spool and {"directory": str(server.spool)},
        }  # fmt: skip
        status, content = 200, b""
        try:
            query = parse_qs(url.query, keep_blank_values=True)
            content = json.dumps(document(query, rows(server.requests), NAMES, STATE, about)).encode()
        except BadQuery as error:
            status, content = 400, json.dumps({"error": str(error)}).encode()
        if server.answer is not None:
            status, content = server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        """Not to the tests' output."""


@pytest.fixture
def reporter(tmp_path):
    with Reporter(tmp_path / "spool") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def usage(reporter, monkeypatch):
    """The command, with the broker in its environment."""
    monkeypatch.setenv("ODRADEK_METRICS", reporter.address)
    return Command("127.0.0.1:1")


def by(output, *names):
    return {tuple(entry[name] for name in names): entry for entry in output["rows"]}


def test_show_sums_pages_and_shows_the_period(usage):
    output = usage.json("usage", "show")
    assert output["by"] == ["principal", "client", "topic"] and (output["from"], output["to"]) == (
        AT - 90_000,
        AT + 2000,
    )
    groups = by(output, "client", "topic")
    assert groups["web", "orders"] == {
        "principal": "User:a", "client": "web", "topic": "orders", "in": 1_000_500, "out": 0, "rin": 105, "rout": 0, "req": 15,
        "err": 0, "thr": 0, "conn": 0, "since": AT - 90_000, "last": AT, "transactions": 0,
    }  # fmt: skip
    assert [entry["in"] for entry in output["rows"]] == sorted((entry["in"] for entry in output["rows"]), reverse=True)
    for name in ("in", "out", "rin", "rout"):
        assert output["sum"][name] == sum(entry[name] for entry in output["rows"])
    assert output["sum"]["in"] == 1_000_500 + 2000 + 70 + 10_000
    assert output["sum"]["req"] == 15 + 1 + 1  # without those that are output by topic once more


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--by", "client"], [("web",), (RETIRED,), ("etl",)]),
        (["--by", "client", "--sort", "out"], [("etl",), ("web",), (RETIRED,)]),
        (["--by", "client", "--sort", "errors", "-n", "1"], [("web",)]),
        (["--by", "api", "--by", "client", "--client", "e*"], [("Fetch", "etl"), ("", "etl")]),
        (["--by", "principal", "--topic", "orders"], [("User:a",), ("User:b",)]),
        (["--by", "topic", "--principal", "User:b"], [(None,), ("orders",)]),
        (["--by", "client", "--api", "Produce"], [("web",)]),
        (["--by", "client", "--client", "nobody"], []),
    ],
)
def test_show_groups_sorts_and_filters(usage, arguments, expected):
    output = usage.json("usage", "show", *arguments)
    assert [tuple(entry[name] for name in output["by"]) for entry in output["rows"]] == expected


def test_show_prints_a_table(usage):
    lines = usage("usage", "show", "--client", "web").splitlines()
    assert lines[0].split()[:5] == ["PRINCIPAL", "CLIENT", "TOPIC", "IN", "OUT"]
    assert lines[1].split()[:6] == ["User:a", "web", "orders", "1.0", "MB", "0"]
    assert lines[2].split()[2] == "(none)"
    assert (
        lines[-1].startswith("Total from 20") and "105 records in" in lines[-1] and "15 requests, 1 error" in lines[-1]
    )


@pytest.mark.parametrize("command", [("show",), ("topic", "orders", "--interval", "0.1")])
def test_tables_fit_a_terminal_and_wide_ones_have_all_columns(usage, command):
    lines = usage("usage", *command).splitlines()
    rows = [line for line in lines if line.startswith(("PRINCIPAL", "User:"))]
    assert max(map(len, rows)) <= 100
    assert rows[0].endswith("LAST USED") and "SINCE" not in rows[0]
    assert all(row.endswith((" ago", " now")) for row in rows if row.startswith("User:"))
    wide = usage("usage", *command, "--wide")
    head = next(line for line in wide.splitlines() if line.startswith("PRINCIPAL"))
    for title in ("SINCE", "LAST", "REQUESTS", "ERRORS", "TRANSACTIONS"):
        assert title in head.split()
    assert "ago" not in wide and f"{when(AT - 90_000)}" in wide


def test_counts_in_tables_have_separators_and_align_right(capsys):
    counts = Counts([0] * len(VALUES))
    counts.values[VALUES.index("rin")] = 5_424_624
    counts.values[VALUES.index("req")] = 999
    key = UsageKey("User:a", "web", "orders", "Produce")
    options = {"by": ("client",), "sort": "in", "limit": None, "history": None}
    show_sums({key: counts}, (0, 1), as_json=False, **options)
    titles, row, *_, last = capsys.readouterr().out.splitlines()
    assert row.split()[5] == "5,424,624" and "5,424,624 records in" in last
    assert row.index("5,424,624") + len("5,424,624") == titles.index("RECORDS IN") + len("RECORDS IN")
    show_sums({key: counts}, (0, 1), as_json=True, **options)
    assert "5424624" in capsys.readouterr().out


def test_top_shows_the_difference_of_two_requests(usage):
    output = usage.json("usage", "top", "--once", "--interval", "0.1", "--by", "client")
    assert output["seconds"] == 2.0  # by the broker's clock
    groups = by(output, "client")
    assert groups["web",]["in"] == 1_002_000 and groups["web",]["rates"]["in"] == 501_000
    assert groups["web",]["rates"]["req"] == 5 and groups["web",]["rates"]["err"] == 0.5
    assert groups["etl",]["rates"] == {"in": 35, "out": 150_015, "rin": 0, "rout": 15, "req": 0.5, "err": 0}
    assert (RETIRED,) not in groups  # its rate is not meaningful
    assert output["sum"]["rates"]["in"] == 501_035


def test_top_counts_from_the_start_of_a_restarted_broker(usage, reporter):
    command = [sys.executable, "-m", "odradek.cli.main", "usage", "top", "--json", "--interval", "0.3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        try:
            assert json.loads(process.stdout.readline())["seconds"] == 2.0
            reporter.boot = "bb"
            later = (
                json.loads(process.stdout.readline())["seconds"] for _ in range(100)
            )  # the command chooses the time of its requests
            assert any(seconds > 90 for seconds in later)  # since the start of the new broker
        finally:
            process.terminate()


@pytest.mark.parametrize("what", ["client", "principal", "topic", "api"])
def test_top_without_a_terminal_prints_one_table(usage, what):
    lines = usage("usage", "top", "--interval", "0.1", "--by", what, "--sort", "out").splitlines()
    assert lines[0].split()[0] == what.upper() and "IN/S" in lines[0]
    assert lines[-1].startswith("Total: 501.0 kB in/s, 150.2 kB out/s")


def test_topic_shows_writers_and_readers(usage):
    output = usage.json("usage", "topic", "orders", "--interval", "0.1")
    (writer,), (reader,) = output["writers"], output["readers"]
    assert (writer["principal"], writer["client"], writer["since"], writer["last"]) == (
        "User:a",
        "web",
        AT - 90_000,
        AT,
    )
    assert (writer["bytes"], writer["records"], writer["bytes_per_s"]) == (2_000_500, 205, 500_000)
    assert (reader["client"], reader["bytes"], reader["records"], reader["records_per_s"]) == ("etl", 600_000, 60, 15)
    assert (reader["lag"], reader["lag_s"]) == (30, 1.5)
    assert output["groups"] == [{"group": "billing", "lag": 40, "lag_s": 2.5, "members": 2}]
    assert output["topic"]["bytes"] == 5_000_000 and not output["folded"]
    text = usage("usage", "topic", "orders", "--interval", "0")
    assert (
        "orders: 5.0 MB stored in 3 partitions (the largest has 3.0 MB), 800 offsets from log start to log end" in text
    )
    quiet = usage.run("usage", "topic", "quiet", "--interval", "0")
    assert "no client wrote to the topic" in quiet.stderr and "no client read from the topic" in quiet.stderr


def test_an_unknown_topic_is_an_error_with_the_closest_name(usage):
    usage.refused("usage", "topic", "order", words=["topic 'order' does not exist", "did you mean 'orders'?"])
    usage.refused("usage", "topic", "xyz", words=["topic 'xyz' does not exist", "odradek topic list"])


def test_history_is_read_from_the_spool_that_the_broker_reports(usage, reporter):
    clock = spool_model.Clock()
    writer = spool_model.spool(reporter.spool, clock=clock)
    for number in range(1, 121):
        clock.advance(60_000)
        assert writer.write([spool_model.usage(1, "User:old", "gone", "orders", 0, AT, [number] * 8)])
    output = usage.json(
        "usage", "show", "--since", str(spool_model.NOON + 30 * 60_000), "--until", str(clock.now - 60_000)
    )
    (row,) = output["rows"]
    assert row["in"] == 89 and row["client"] == "gone"
    assert (output["from"], output["to"]) == (spool_model.NOON + 30 * 60_000, clock.now - 60_000)
    output = usage.json("usage", "topic", "orders", "--interval", "0", "--since", "0")
    assert output["counted_until"] == clock.now  # the end of the newest interval of the spool
    text = usage.run("usage", "topic", "orders", "--interval", "0", "--since", "0").stdout
    assert "These counts are from the spool. The time of the last use, the lag, and the groups" in text
    assert [entry["client"] for entry in output["writers"]] == ["web", "gone"] and output["writers"][1]["bytes"] == 120
    assert output["writers"][-1]["since"] == AT and output["writers"][-1]["last"] == clock.now
    with next(reporter.spool.glob("*.jsonl")).open("ab") as file:
        file.write(b'{"kind":"usage"')
    done = usage.run("usage", "show", "--spool", reporter.spool)
    assert done.returncode == 0 and "ends in the middle of an interval" in done.stderr
    assert str(reporter.spool) in done.stderr and done.stderr.count("\n") == 1


def test_errors_name_the_wrong_value_and_the_remedy(usage, reporter, tmp_path):
    usage.refused("usage", "show", "--spool", tmp_path, words=[f"no spool in {tmp_path};"])
    (tmp_path / "usage-20260131T12-b0.jsonl").touch()
    usage.refused(
        "usage", "show", "--since", "yesterday", "--spool", tmp_path, words=["--since 'yesterday' is not a time", "-1h"]
    )
    usage.refused("usage", "show", "--spool", tmp_path / "no", words=[f"no spool in {tmp_path}/no", "--spool DIR"])
    usage.refused("usage", "show", "--since", "-1h", words=["not on this machine", str(reporter.spool)])
    reporter.spool = None
    usage.refused("usage", "show", "--since", "-1h", words=["has no spool", "usage.spool.max.bytes"])
    usage.refused("usage", "show", "-m", "host", words=["--metrics 'host' is not HOST:PORT", "127.0.0.1:9404"])
    usage.refused("usage", "show", "-m", "host:0", words=["not HOST:PORT"])
    usage.refused("usage", "show", "--data-dir", tmp_path / "data", words=["no broker runs on", "odradek.pid"])
    usage.refused("usage", "top", "--by", "host", code=2, words=["'host' is not one of"])
    usage.refused("usage", "shwo", code=2, words=["did you mean 'show'?"])


def test_an_address_without_a_listener_is_an_error_with_a_hint(usage):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        for words in (["top", "--once"], ["show"], ["topic", "orders"]):
            usage.refused(
                "usage", *words, "-m", address, words=[f"nothing listens on {address}", "--metrics", "--data-dir"]
            )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((404, b"not found"), ["is not the metrics.listener of an Odradek broker", "404"]),
        ((200, b"<html>"), ["is not the metrics.listener of an Odradek broker", "200"]),
        ((200, b"[]"), ["is not the metrics.listener of an Odradek broker"]),
        ((500, b'{"error": "the pages move"}'), ["responded with 500: the pages move"]),
    ],
)
def test_a_server_that_is_no_odradek_is_an_error(usage, reporter, answer, words):
    reporter.answer = answer
    usage.refused("usage", "show", words=[reporter.address, *words])


def test_a_port_without_http_or_without_a_response_is_an_error(usage):
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        usage.refused(
            "usage", "show", "-m", address, "--timeout", "0.3", words=[f"{address} did not respond within 0.3 s"]
        )

        def speak():
            for _ in range(2):  # the first is the connection that timed out
                connection, _ = listening.accept()
                with connection:
                    try:
                        connection.recv(1000)
                        connection.sendall(b"220 mail\r\n")
                    except OSError:
                        pass

        thread = threading.Thread(target=speak)
        thread.start()
        usage.refused("usage", "show", "-m", address, words=["the response is not HTTP"])
        thread.join()


TOP = ("top", "--interval", "0.1", "--by", "topic")


def usage_on_a_terminal(other, *arguments):
    """Start `odradek usage` on a terminal, with the default handler of SIGINT: a shell may start the tests with it ignored."""
    command = [sys.executable, "-m", "odradek.cli.main", "usage", *arguments]
    return subprocess.Popen(
        command,
        stdin=other,
        stdout=other,
        stderr=other,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "30"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.fixture
def terminal():
    """Both ends of a pseudo-terminal: the one of the terminal emulator, and the one of the command."""
    ours, other = pty.openpty()
    with open(ours, "rb", closefd=True), open(other, "wb", closefd=True) as command_end:
        yield ours, command_end


@pytest.mark.usefixtures("usage")
def test_top_on_a_terminal_draws_until_ctrl_c(reporter, terminal):
    ours, command_end = terminal
    with usage_on_a_terminal(command_end, *TOP) as process:
        command_end.close()
        shown = b""
        while shown.count(b"orders") < 3:  # three samples
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        text = (shown + read_to_the_end(ours)).decode()
        code = process.wait(60)
    assert code == 130 and "Traceback" not in text
    assert "orders" in text and "500.0 kB" in text and "q: quit" in text and reporter.address in text


def blocks_in_a_write(pid):
    """Whether the process is in the system call write, to standard output."""
    number, *arguments = Path(f"/proc/{pid}/syscall").read_text().split()
    return number in WRITE and arguments[0] == "0x1"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("arguments", [TOP, ("show",)], ids=["top", "show"])
@pytest.mark.usefixtures("usage")
def test_a_signal_ends_a_command_on_a_terminal_that_does_not_read(terminal, number, arguments):
    """The output that blocks is discarded, so that the command can leave the alternate screen and print its last line."""
    ours, command_end = terminal
    fill(ours, command_end.fileno())
    with usage_on_a_terminal(command_end, *arguments) as process:
        try:
            until(lambda: blocks_in_a_write(process.pid), "the command writes to the full terminal")
            process.send_signal(number)
            code = process.wait(60)
        finally:
            process.kill()
        command_end.close()
    text = read_to_the_end(ours).decode(errors="replace")
    assert code == 128 + number and "Traceback" not in text, text[-3000:]
    assert text.endswith("odradek: stopped\r\n")
    assert "\x1b[?1049l" in text or arguments is not TOP


def test_usage_imports_only_what_it_needs(usage):
    code = (
        "import sys; from odradek.cli.main import main\n"
        "try: main(['usage', 'show'])\n"
        "finally: print([module for module in sys.modules if module.split('.')[0] in"
        " ('rich', 'confluent_kafka', 'prometheus_client', 'uvloop', 'pyspark', 'kazoo')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == "[]\n"


LISTENERS = [
    ("127.0.0.1:9404", ("127.0.0.1", 9404)),
    (":9405", ("127.0.0.1", 9405)),
    ("[::]:9406", ("127.0.0.1", 9406)),
    ("10.1.1.1:9407", ("10.1.1.1", 9407)),
]


@pytest.mark.parametrize(("value", "expected"), LISTENERS, ids=[row[0] for row in LISTENERS])
def test_the_metrics_address_is_read_from_the_broker_at_a_kafka_listener(cli_broker, monkeypatch, value, expected):
    entry = configs.Entry("metrics.listener", value, 4, True, False, 2, None, ())
    monkeypatch.setattr(configs, "describe", lambda *_: {"metrics.listener": entry})
    location = UsageLocation(None, None, (), None, None, cli_broker.bootstrap_servers)
    source = Source(location, 10.0)
    assert (source.host, source.port) == expected


def test_a_selected_broker_is_never_replaced_by_the_default_address(reporter, cli_broker, monkeypatch):
    monkeypatch.delenv("ODRADEK_METRICS", raising=False)
    silent = Command(cli_broker.bootstrap_servers)
    silent.refused("usage", "top", "--once", words=["metrics.listener", cli_broker.bootstrap_servers, "is empty"])
    Command("127.0.0.1:1").refused("usage", "show", words=["127.0.0.1:1", "--metrics"])
    monkeypatch.setenv("ODRADEK_METRICS", reporter.address)
    typed = ("usage", "show", "-b", cli_broker.bootstrap_servers)
    Command("127.0.0.1:1").refused(*typed, words=["is empty"])
    assert Command("127.0.0.1:1").json(*typed, "-m", reporter.address)["rows"]


class TransactionalClients:
    """A source of usage with a client that has ended 12 transactions, in two workers, and one that has not."""

    def usage(self, query):
        usage = [
            row("payments", "orders", 0, req=40, size=900, n=40),
            row("payments", None, 26, req=9),
            row("payments", None, 26, req=3, page=2),
            row("web", "orders", 0, req=5, size=100, n=5),
        ]
        about = {"boot": "aa", "began": AT - 90_000, "at": AT, "clock": 1000, "spool": None}
        return document({name: [value] for name, value in query.items()}, usage, NAMES | {26: "EndTxn"}, STATE, about)


def test_writers_are_shown_with_their_transactions(capsys):
    show_topic(TransactionalClients(), "orders", 0, None, as_json=True)
    writers = json.loads(capsys.readouterr().out)["writers"]
    assert {writer["client"]: writer["transactions"] for writer in writers} == {"payments": 12, "web": 0}
    show_topic(TransactionalClients(), "orders", 0, None, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    (head,) = [line for line in lines if "TRANSACTIONS" in line]
    assert head.startswith("PRINCIPAL") and "12" in next(line for line in lines if "payments" in line).split()


@pytest.mark.parametrize("by", [("client",), ("principal", "client", "topic")])
def test_sums_of_a_client_have_the_number_of_its_transactions(capsys, by):
    sums = totals(entries_of(TransactionalClients().usage({})))
    show_sums(sums, (AT - 90_000, AT), by=by, sort="in", limit=None, as_json=True, history=None)
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert sorted(row["transactions"] for row in rows)[-2:] == [0, 12]
    show_sums(sums, (AT - 90_000, AT), by=by, sort="in", limit=None, as_json=False, history=None)
    assert "TRANSACTIONS" in capsys.readouterr().out
    without = {key: counts for key, counts in sums.items() if key.client == "web"}
    show_sums(without, (AT - 90_000, AT), by=by, sort="in", limit=None, as_json=False, history=None)
    assert "TRANSACTIONS" not in capsys.readouterr().out


def test_a_broker_cannot_send_the_credentials_to_another_host():
    for servers, host in (
        ("b1.example:9092", "b1.example"),
        ("localhost:9092", "127.0.0.1"),
        ("[::1]:9092", "localhost"),
    ):
        check_same_host(servers, host)
    with pytest.raises(
        UsageError, match=r"names evil as the host .* not sent there unless --metrics HOST:PORT names it"
    ):
        check_same_host("b1.example:9092,evil:9092", "evil")
    with pytest.raises(UsageError, match=r"names 10\.0\.0\.9 as"):
        check_same_host("localhost:9092", "10.0.0.9")
