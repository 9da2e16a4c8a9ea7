"""`odradek usage top` on a terminal: its keys, and the terminal after every ending."""

import json
import os
import pty
import re
import select
import signal
import sys
import termios

import pytest

from odradek.cli.usage.top import Quit, Sample, View
from odradek.metrics.usage_totals import VALUES, Counts, UsageKey
from tests.waiting import until

LEFT = "\x1b[?1049l\x1b[?25h"
"""Leaves the alternate screen and shows the cursor."""

PROGRAM = """
import sys
import click
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.usage.top import run_top
from odradek.metrics.usage_totals import FIELDS, Filter

class Source:
    address = "there:9404"
    requests = 0

    def usage(self, query):
        self.requests += 1
        if self.requests == int(sys.argv[1]):
            raise ValueError("as planned")
        entries = [
            [1, "User:a", client, "orders", "Produce", 1, 1, size * self.requests, 0, 0, 0, many * self.requests, 0, 0, 0]
            for client, size, many in (("large", 9000, 1), ("often", 1000, 50))
        ]
        now = 1000 * self.requests
        return {"boot": "b", "began": 0, "at": now, "clock": now, "fields": FIELDS, "entries": entries}

@click.group(cls=LazyGroup)
def main():
    pass

@main.command("top")
def top():
    run_top(Source(), by="client", sort="in", only=Filter(), interval=0.05, limit=20, once=False, as_json=False)

main(["top"], prog_name="odradek")
"""

SHELL = """
import json, os, signal, sys, termios
reports, orders, *job = sys.argv[1:]
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if not child:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpgrp())
    for number in (signal.SIGTTOU, signal.SIGINT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_DFL)
    os.execv(sys.executable, [sys.executable, "-c", *job])
code = None
while code is None:
    status = os.waitpid(child, os.WUNTRACED)[1]
    if not os.WIFSTOPPED(status):
        code = os.waitstatus_to_exitcode(status)
    os.tcsetpgrp(0, os.getpgrp())
    report = {"code": code, "pid": child, "mode": termios.tcgetattr(0)[3]}
    os.write(int(reports), (json.dumps(report) + chr(10)).encode())
    if code is None:
        os.read(int(orders), 1)
        os.tcsetpgrp(0, child)
        os.kill(child, signal.SIGCONT)
"""
"""A shell with one job in the foreground. It reports when the job stops or ends, and does not restore the terminal."""


class Terminal:
    """A terminal with a shell, whose job is the program. :param fails_at: the request that raises an exception."""

    def __init__(self, fails_at=-1):
        self._reports, reports = os.pipe()
        orders, self._orders = os.pipe()
        for descriptor in (reports, orders):
            os.set_inheritable(descriptor, True)
        self._pid, self._main = pty.fork()
        if not self._pid:
            os.environ |= {"TERM": "xterm", "COLUMNS": "120", "LINES": "30"}
            os.execv(sys.executable, [sys.executable, "-c", SHELL, str(reports), str(orders), PROGRAM, str(fails_at)])
        os.close(reports)
        os.close(orders)
        self.mode = termios.tcgetattr(self._main)[3]
        self.shown = ""

    def type(self, text):
        os.write(self._main, text.encode())

    def fg(self):
        """Bring the stopped job back."""
        os.write(self._orders, b"c")

    def read(self):
        """Read what the terminal shows now."""
        while select.select([self._main], [], [], 0.02)[0]:
            try:
                self.shown += os.read(self._main, 65536).decode(errors="replace")
            except OSError:  # EIO: no process has the terminal open
                return

    def waits_for(self, pattern):
        """Read until the terminal has shown the pattern since the last call."""
        self.shown = ""

        def is_shown():
            self.read()
            return re.search(pattern, self.shown)

        until(is_shown, lambda: f"{pattern!r} in {self.shown[-2000:]!r}")

    def report(self):
        """What the shell reports about its job, when it stops or ends."""

        def reported():
            self.read()
            return select.select([self._reports], [], [], 0)[0]

        until(reported, lambda: f"the job stops or ends: {self.shown[-2000:]!r}")
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(self._reports, 1)
        self.read()
        return json.loads(line)

    def close(self):
        for descriptor in (self._main, self._reports, self._orders):
            os.close(descriptor)
        os.waitpid(self._pid, 0)


@pytest.fixture
def start():
    """Starts terminals, and closes them at the end, which ends their processes."""
    started = []

    def of(**options):
        started.append(Terminal(**options))
        return started[-1]

    yield of
    for terminal in started:
        terminal.close()


def is_restored(terminal, report):
    """Whether the terminal is as it was before the command, and shows the cursor and its main screen."""
    return report["mode"] == terminal.mode and terminal.shown.rindex(LEFT) > terminal.shown.rfind("\x1b[?1049h")


@pytest.mark.parametrize(("typed", "code"), [("q", 0), ("\x03", 130)], ids=["q", "Ctrl-C"])
def test_a_key_ends_the_command_and_restores_the_terminal(start, typed, code):
    terminal = start()
    terminal.waits_for("large(?s:.*)often")
    terminal.type(typed)
    report = terminal.report()
    assert (report["code"], is_restored(terminal, report)) == (code, True)


def test_a_signal_ends_the_command_and_restores_the_terminal(start):
    terminal = start()
    terminal.waits_for("large")
    terminal.type("\x1a")  # tells the process id
    pid = terminal.report()["pid"]
    terminal.fg()
    terminal.waits_for("large")
    os.kill(pid, signal.SIGTERM)
    report = terminal.report()
    assert (report["code"], is_restored(terminal, report)) == (143, True)


def test_an_exception_restores_the_terminal(start):
    terminal = start(fails_at=3)
    report = terminal.report()
    assert (report["code"], is_restored(terminal, report)) == (1, True)
    assert "ValueError: as planned" in terminal.shown.rpartition(LEFT)[2]


def test_ctrl_z_gives_the_terminal_back_until_the_command_continues(start):
    terminal = start()
    for _ in range(3):
        terminal.waits_for("large")
        terminal.type("\x1a")
        report = terminal.report()
        assert (report["code"], is_restored(terminal, report)) == (None, True)
        terminal.fg()
        terminal.waits_for(r"\x1b\[\?1049h(?s:.*)large")
        assert termios.tcgetattr(terminal._main)[3] & (termios.ECHO | termios.ICANON) == 0
    terminal.type("q")
    report = terminal.report()
    assert (report["code"], is_restored(terminal, report)) == (0, True)


def test_keys_sort_and_group(start):
    terminal = start()
    terminal.waits_for("IN/S \u25bc(?s:.*)large(?s:.*)often")
    terminal.type("sss")
    terminal.waits_for("REQUESTS/S \u25bc(?s:.*)often(?s:.*)large")
    terminal.type("\x1b[D\x1b[D\x1b[D")
    terminal.waits_for("IN/S \u25bc(?s:.*)large(?s:.*)often")
    terminal.type("b")
    terminal.waits_for("TOPIC(?s:.*)orders")
    terminal.type("x")  # no key: nothing changes
    terminal.waits_for("TOPIC(?s:.*)orders")


def counts(**values):
    return Counts([values.get(name, 0) for name in VALUES])


def view(rows, **options):
    grown = {UsageKey("User:a", name, "orders", "Produce"): counts(**values) for name, values in rows.items()}
    return View("there:9404", "client", "in", 20, Sample(0, 1.0, grown), **options)


def test_the_bar_is_relative_to_the_largest_row(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    shown = view({"all": {"in": 1000}, "half": {"in": 500}, "none": {"out": 5}}).text().splitlines()
    bars = {line.split()[0]: line.count("\u2588") for line in shown if line.split()}
    assert (bars["all"], bars["half"], bars["none"]) == (12, 6, 0)


def test_names_cannot_control_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    text = view({"a\x1b]0;title\x07b\nc": {"in": 1}}).text()
    assert "a\\x1b]0;title\\x07b\\nc" in text and "\x1b" not in text


def test_without_use_there_is_an_empty_table_and_q_quits(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    empty = view({})
    assert "total" in empty.text()
    for key in ("s", "S", "left", "right", "b", "?", "up"):
        empty.press(key)
        assert "total" in empty.text()
    with pytest.raises(Quit):
        empty.press("q")
