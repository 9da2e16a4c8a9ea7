"""Messages to systemd's journal in its native protocol: fields, large messages, and what happens without the journal."""

import fcntl
import io
import logging
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.processes import logs
from odradek.processes.journal import JournalHandler, encode, send
from odradek.processes.logs import TEXT, Formatter

ALL_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL


class Journal:
    """A socket that receives what would go to journald."""

    def __init__(self, directory: Path) -> None:
        self.address = str(directory / "socket")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.address)
        self.socket.settimeout(30)

    def message(self) -> dict[str, str]:
        """The fields of the next message, also of one that comes as a file."""
        data, fds, _, _ = socket.recv_fds(self.socket, 1 << 20, 1)
        if fds:
            assert data == b"" and fcntl.fcntl(fds[0], fcntl.F_GET_SEALS) == ALL_SEALS
            with open(fds[0], "rb") as file:
                file.seek(0)
                data = file.read()
        return decode(data)


def decode(data: bytes) -> dict[str, str]:
    """The fields of a message, as journald reads them."""
    fields = {}
    while data:
        line, _, rest = data.partition(b"\n")
        if b"=" in line:
            name, _, value = line.partition(b"=")
        else:
            name = line
            (size,) = struct.unpack_from("<Q", rest)
            value, rest = rest[8 : 8 + size], rest[8 + size :]
            assert rest[:1] == b"\n"
            rest = rest[1:]
        assert name.decode() not in fields
        fields[name.decode()] = value.decode()
        data = rest
    return fields


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="j-") as made:  # the path of a socket has at most 107 bytes
        yield Path(made)


@pytest.fixture
def journal(directory: Path) -> Iterator[Journal]:
    made = Journal(directory)
    yield made
    made.socket.close()


def handler(address: str) -> JournalHandler:
    formatter = Formatter(TEXT, True)
    formatter.name("worker-1")
    made = JournalHandler(io.StringIO(), formatter.journal_fields, address)
    made.setFormatter(formatter)
    return made


def record(message: str, *arguments: object, level: int = logging.WARNING, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("odradek.cleaner", level, "/a/file.py", 7, message, arguments, None, "clean")
    vars(made).update(fields)
    return made


def test_a_message_has_fields(journal: Journal) -> None:
    made = handler(journal.address)
    made.emit(record("%d of %s", 3, "four", connection_id=7, client_id="app", client_address="1.2.3.4:5"))
    assert journal.message() == {
        "MESSAGE": "worker-1: 3 of four",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "odradek",
        "ODRADEK_PROCESS": "worker-1",
        "ODRADEK_COMPONENT": "odradek.cleaner",
        "ODRADEK_LEVEL": "WARN",
        "CODE_FILE": "/a/file.py",
        "CODE_LINE": "7",
        "CODE_FUNC": "clean",
        "ODRADEK_CONNECTION_ID": "7",
        "ODRADEK_CLIENT_ID": "app",
        "ODRADEK_CLIENT_ADDRESS": "1.2.3.4:5",
    }
    assert made.stream.getvalue() == ""


def test_a_traceback_is_in_the_message_and_in_a_field(journal: Journal) -> None:
    try:
        raise ValueError("one\ntwo")
    except ValueError:
        handler(journal.address).emit(record("it failed", exc_info=sys.exc_info(), level=logging.ERROR))
    fields = journal.message()
    assert fields["MESSAGE"].startswith("worker-1: it failed\nTraceback") and fields["MESSAGE"].endswith("one\ntwo")
    assert fields["ODRADEK_EXCEPTION"].startswith("Traceback") and fields["PRIORITY"] == "3"


def test_a_client_cannot_forge_a_field(journal: Journal) -> None:
    made = handler(journal.address)
    made.emit(record("client %s", "x\nPRIORITY=0", client_id="a\nPRIORITY=0\nODRADEK_PROCESS=x", client_address=None))
    fields = journal.message()
    assert fields["PRIORITY"] == "4" and fields["ODRADEK_PROCESS"] == "worker-1"
    assert fields["MESSAGE"] == r"worker-1: client x\nPRIORITY=0"
    assert fields["ODRADEK_CLIENT_ID"] == "a\nPRIORITY=0\nODRADEK_PROCESS=x"
    assert "ODRADEK_CLIENT_ADDRESS" not in fields


def test_bytes_that_are_no_text_and_arguments_that_do_not_fit_lose_nothing(journal: Journal) -> None:
    made = handler(journal.address)
    made.emit(record(b"\xff".decode(errors="surrogateescape")))
    assert journal.message()["MESSAGE"] == r"worker-1: \udcff"
    made.emit(record("%d", "x"))
    assert journal.message()["MESSAGE"] == "worker-1: '%d' cannot be formatted with 'x'"


def test_an_argument_that_cannot_be_shown_loses_nothing(journal: Journal) -> None:
    class Silent:
        def __repr__(self) -> str:
            raise ValueError("not shown")

    handler(journal.address).emit(record("%r and %d", Silent(), 3))
    assert journal.message()["MESSAGE"] == "worker-1: '%r and %d' cannot be formatted with a Silent, 3"


def test_a_message_larger_than_a_datagram_is_sent_as_a_file(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LONGEST_MESSAGE", 1 << 22)
    text = "x" * 3_000_000
    handler(journal.address).emit(record(text))
    assert journal.message()["MESSAGE"] == f"worker-1: {text}"
    links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [link for link in links if "odradek-journal" in link]


def test_without_the_socket_messages_go_to_the_stream(directory: Path) -> None:
    made = handler(str(directory / "missing"))
    made.emit(record("a message"))
    assert made.stream.getvalue() == "<4>worker-1: a message\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as closed:
        closed.bind(str(directory / "closed"))
    made = handler(str(directory / "closed"))
    made.emit(record("another"))
    assert made.stream.getvalue() == "<4>worker-1: another\n"


def test_a_journal_that_does_not_read_neither_blocks_nor_hides_the_loss(journal: Journal) -> None:
    made = handler(journal.address)
    for number in range(10_000):
        made.emit(record("message %d", number))
        if made.lost == 3:
            break
    assert made.lost == 3, "the socket never became full"
    sent = number - 2
    for expected in range(sent):
        assert journal.message()["MESSAGE"] == f"worker-1: message {expected}"
    made.emit(record("after"))
    loss, after = journal.message(), journal.message()
    assert loss["MESSAGE"] == "worker-1: 3 messages were lost, because the journal did not read them"
    assert (loss["PRIORITY"], after["MESSAGE"], made.lost) == ("4", "worker-1: after", 0)


def test_the_encoding_of_values_with_and_without_line_breaks() -> None:
    data = encode([("A", "x=y"), ("B", "1\n2"), ("C", 3)])
    assert data == b"A=x=y\nB\n\x03\x00\x00\x00\x00\x00\x00\x001\n2\nC=3\n"
    assert decode(data) == {"A": "x=y", "B": "1\n2", "C": "3"}


def test_a_missing_socket_raises_for_the_handler(directory: Path) -> None:
    with pytest.raises(FileNotFoundError):
        send(b"", str(directory / "missing"))


def test_a_broker_uses_the_journal_only_if_systemd_reads_its_stream(tmp_path: Path) -> None:
    """Two processes: JOURNAL_STREAM names the standard error stream of the first and another one of the second."""
    code = """
import logging, os, sys
from odradek.config.broker_config import load
from odradek.processes import logs
status = os.fstat(2)
os.environ["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino + int(sys.argv[1])}"
logs.set_up("supervisor", load(None, ["log.format=journal"]))
print(type(logging.getLogger().handlers[0]).__name__)
logging.getLogger("odradek").warning("a line")
"""
    for offset, expected in ((0, "JournalHandler"), (1, "StreamHandler")):
        with open(tmp_path / f"err-{offset}", "w+") as stream:
            done = subprocess.run(
                [sys.executable, "-c", code, str(offset)],
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                timeout=60,
                check=True,
            )
            stream.seek(0)
            text = stream.read()
        assert done.stdout.strip() == expected
        if offset:
            assert "WARN supervisor[" in text and text.endswith("odradek: a line\n")
