"""Tables on a terminal and in a pipe, and their colours."""

import os
import pty
import re
import subprocess
import sys

import pytest

from odradek.cli.framework.output import (
    ATTENTION,
    BAD,
    GOOD,
    Amount,
    ago,
    colour_of,
    informative,
    per_second,
    print_table,
    size,
    span,
)
from tests.terminals import read_to_the_end

SCRIPT = """
import sys
from odradek.cli.health.doctor import _print
from odradek.cli.health.finding import Finding
from odradek.cli.framework.output import GroupedNumber, print_table, size
print_table(
    ["topic", "state", "lag", "errors", "size"],
    [["a", "Stable", GroupedNumber(0), 0, size(1_500_000)], ["b", "Dead", GroupedNumber(3000), 2, size(782)],
     ["c", "Empty", None, None, size(None)], ["d", "odd", None, None, None]],
    "",
)
_print([Finding("error", "x", "y", "z", "w")])
"""
PLAIN = [
    "TOPIC  STATE     LAG  ERRORS    SIZE",
    "a      Stable      0       0  1.5 MB",
    "b      Dead    3,000       2   782 B",
    "c      Empty       -       -       -",
    "d      odd         -       -       -",
    "error  x: y",
    "  why it matters: z",
    "  what to do: w",
]


def on_terminal(**environment):
    """The lines that the script writes to a terminal of 80 columns."""
    main, other = pty.openpty()
    own = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    own |= {"TERM": "xterm", "COLUMNS": "80"} | environment
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdin=other, stdout=other, stderr=other, env=own) as process:
        os.close(other)
        shown = read_to_the_end(main)
        assert process.wait(60) == 0
    os.close(main)
    return shown.decode().splitlines()


def in_columns(lines):
    """The lines without escape sequences and without blanks at their ends."""

    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in lines]


def test_a_pipe_gets_the_text_without_colours():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == PLAIN


def test_a_terminal_gets_the_same_text_with_colours():
    lines = on_terminal()
    assert in_columns(lines) == PLAIN
    assert "\x1b[1mTOPIC" in lines[0]
    assert "\x1b[32mStable" in lines[1] and "\x1b[32m    0" in lines[1] and "\x1b[31m" not in lines[1]
    assert "\x1b[31mDead" in lines[2] and "\x1b[33m3,000" in lines[2] and "\x1b[31m     2" in lines[2]
    assert "\x1b[33mEmpty" in lines[3] and "\x1b[3" not in lines[4]
    assert lines[5].startswith("\x1b[31merror\x1b[0m")


def test_without_colours_a_terminal_gets_bold_titles_only():
    lines = on_terminal(NO_COLOR="1")
    assert in_columns(lines) == PLAIN and "\x1b[1mTOPIC" in lines[0]
    assert not [line for line in lines if "\x1b[3" in line]


def test_a_narrow_terminal_folds_cells_and_cuts_none():
    lines = in_columns(on_terminal(COLUMNS="24"))
    assert max(map(len, lines[:-3])) <= 24 and "".join(lines).count("Stable") <= 1
    letters = "".join(sorted("".join(lines).replace(" ", "")))
    assert letters == "".join(sorted("".join(PLAIN).replace(" ", "")))


@pytest.mark.parametrize(
    ("title", "value", "colour"),
    [
        ("health", "ok", GOOD), ("health", "1 under-replicated", ATTENTION), ("health", "2 without leader", BAD),
        ("state", "running", GOOD), ("state", "PreparingRebalance", ATTENTION), ("state", "Ongoing", ""),
        ("state", "not registered", BAD), ("state", None, ""),
        ("lag", 0, GOOD), ("lag", 1, ATTENTION), ("lag", None, ""), ("stopped", "", ""), ("stopped", "reason", BAD),
        ("errors/s", Amount("0"), ""), ("errors/s", Amount("0.5"), BAD), ("lag", Amount("-"), ""),
    ],
)  # fmt: skip
def test_colours_say_what_somebody_must_look_at(title, value, colour):
    assert colour_of(title, value) == colour


@pytest.mark.parametrize(
    ("past_ms", "shown"),
    [(-5000, "now"), (999, "now"), (1999, "1 s ago"), (59_999, "59 s ago"), (60_000, "1 min ago"), (1_920_500, "32 min ago"),
     (3_600_000, "1 h ago"), (86_399_999, "23 h ago"), (90_000_000_000, "1041 d ago")],
)  # fmt: skip
def test_a_time_is_shown_in_its_largest_unit(past_ms, shown):
    assert ago(1 << 50, (1 << 50) + past_ms) == shown


def test_rates_have_one_precision():
    assert [per_second(rate) for rate in (0, 0.04, 1916.648, 129.365, 99.94)] == ["0", "0.0", "1,917", "129", "99.9"]


def test_columns_without_a_value_are_left_out():
    columns = [("a", [1, 2]), ("zero", [0, 0]), ("none", [None, None]), ("some", [0, 3]), ("kept", [0, 0])]
    titles, rows = informative(columns, ("a", "zero", "none", "some"))
    assert (titles, rows) == (["a", "some", "kept"], [[1, 0, 0], [2, 3, 0]])
    assert informative([("a", []), ("b", [])], ("b",)) == (["a"], [])


def test_amounts_are_aligned_as_numbers(capsys):
    assert isinstance(size(1), Amount) and isinstance(span(1), Amount)
    print_table(["of", "for"], [["a", span(1500)], ["b", span(90_000_000)]], "")
    assert capsys.readouterr().out == "OF      FOR\na     1.5 s\nb   1 d 1 h\n"
