"""What long work shows on a terminal while it runs, and that it shows nothing elsewhere."""

import io
import os
import sys
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from odradek.cli.framework.output import bytes_progress, input_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of 100 columns, for standard error."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"x" * 8_000_000)
    return file


def test_a_file_shows_its_share_bytes_rate_and_time(terminal: Terminal, large: Path) -> None:
    """Also if standard input is a terminal, as it is when a user names a file."""
    with redirect_stderr(terminal):
        with large.open("rb", buffering=0) as source, input_progress("sending", source, "records") as advance:
            source.read(2_000_000)
            advance(1000)
        shown = terminal.getvalue()
        assert all(part in shown for part in ("sending", "25%", "2.0/8.0 MB")), shown


def test_a_part_of_a_file_that_was_read_before_counts(terminal: Terminal, large: Path) -> None:
    with redirect_stderr(terminal):
        with large.open("rb", buffering=0) as source:
            source.seek(6_000_000)
            with input_progress("sending", source, "records") as advance:
                advance(1)
        assert "75%" in terminal.getvalue()


def test_a_pipe_shows_the_records(terminal: Terminal) -> None:
    with redirect_stderr(terminal):
        read, write = os.pipe()
        os.close(write)
        with os.fdopen(read, "rb") as source, input_progress("sending", source, "records") as advance:
            advance(1234)
        assert "1,234 records" in terminal.getvalue()


def test_typed_input_shows_nothing(terminal: Terminal) -> None:
    with redirect_stderr(terminal):
        ours, theirs = os.openpty()
        with os.fdopen(theirs, "rb", buffering=0) as source, input_progress("sending", source, "records") as advance:
            advance(1)
        os.close(ours)
        assert terminal.getvalue() == ""


def test_without_a_terminal_nothing_is_shown_and_rich_is_not_imported(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = io.StringIO()
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with redirect_stderr(output):
        with large.open("rb") as source, input_progress("sending", source, "records") as advance:
            advance(1)
        with bytes_progress("copying", 10) as done:
            done(5)
    assert output.getvalue() == ""
