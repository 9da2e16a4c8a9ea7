"""Names and records that others choose cannot control the terminal of whoever runs a command, nor forge lines of its output."""

import ast
import json
import os
import pty
import re
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import complain, fail, warn
from odradek.cli.framework.interrupt import Interruption
from odradek.cli.framework.output import cell, echo_json, print_table
from odradek.cli.machine import log_verify
from odradek.cli.machine.log_dump import line_of
from odradek.cli.records.direct_reading import for_terminal, output_to
from odradek.printable import in_json, one_cell, one_line, printable, several_lines

ROOT = Path(__file__).parents[3]
CONTROLS = [chr(code) for code in (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0))]
UNSEEN = list("\xad\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202e\u2060\u2066\u2069\ufeff\udcff\U000e0041")
NAME = "grüße 日本 👩‍👩‍👧"


@pytest.mark.parametrize("character", [*CONTROLS, *UNSEEN], ids=lambda character: f"{ord(character):x}")
def test_no_text_keeps_a_character_that_controls_a_terminal_or_hides(character: str) -> None:
    text = f"{NAME}{character}b"
    for function in (one_line, several_lines, one_cell, printable):
        shown = function(text)
        assert character not in shown and shown.startswith(NAME) and shown.encode()
    if character >= "\x7f":
        assert character not in in_json(json.dumps(text, ensure_ascii=False))
    written = in_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(written) == text and NAME in written


def test_line_breaks_stay_only_where_they_belong() -> None:
    assert one_line("a\nb\tc") == r"a\nb" + "\tc" and one_cell("a\nb\tc") == r"a\nb\tc"
    assert several_lines("a\nb\tc") == "a\nb\tc" and several_lines("a\r\nb") == "a\\r\nb"


EVIL = "evil\x1b[2K\x1b]0;owned\x07\x9b1A\u202e\r"
HARMLESS = re.compile(r"[\x20-\x7e\n]*")


@pytest.mark.parametrize(
    "show",
    [
        lambda: print_table(["group", "state"], [[f"{EVIL}\nforged-row", "Empty"], [[EVIL], EVIL]], ""),
        lambda: echo_json({EVIL: [EVIL]}),
        lambda: echo(f"group {EVIL}"),
        lambda: echo(f"group {EVIL}", err=True),
        lambda: warn(f"group {EVIL}\nforged"),
        lambda: complain(f"group {EVIL}\nforged"),
        lambda: fail(f"group {EVIL}\nforged"),
        lambda: log_verify.print_findings(
            log_verify.Console(), [log_verify.Finding(True, EVIL, f"{EVIL}\nforged", None, None)]
        ),
        lambda: print(line_of({"type": "record", "key": f"{EVIL}\nforged", "offset": 1})),
    ],
    ids=["table", "json", "line", "stderr", "warning", "complaint", "error", "log verify", "log dump"],
)
def test_what_prints_escapes(show, capsys) -> None:
    try:
        show()
    except SystemExit as end:
        assert end.code == 1
    printed = "".join(capsys.readouterr())
    assert "evil" in printed.lower() and HARMLESS.fullmatch(printed), printed
    assert not re.search(r"^forged", printed, re.M)


def test_a_cell_is_one_line() -> None:
    assert cell("a\nb") == r"a\nb" and cell(["a\x1b", 2]) == r"a\x1b,2" and cell(NAME) == NAME


def test_a_terminal_shows_records_without_control_characters_and_a_pipe_gets_their_bytes() -> None:
    data = b"\x1b]52;c;ZXZpbA==\x07 line\nnext\tcolumn \xff " + NAME.encode() + b"\n"
    reading, writing = os.pipe()
    with Interruption() as interruption:
        output_to(writing, interruption)(data)
        os.close(writing)
        assert os.read(reading, 1000) == data
        os.close(reading)
        master, slave = pty.openpty()
        tty.setraw(slave)
        output_to(slave, interruption)(data)
        assert os.read(master, 1000) == for_terminal(data)
        os.close(master)
        os.close(slave)
    shown = for_terminal(data).decode()
    assert shown == r"\x1b]52;c;ZXZpbA==\x07 line" + "\nnext\tcolumn " + r"\xff " + f"{NAME}\n"


ALLOWED = {
    "__main__.py": "the version",
    "cluster/wait.py": "clears the line of its progress on a terminal",
    "machine/completion.py": "a script",
    "framework/echo.py": "the one place",
    "framework/interrupt.py": "ends the line that the terminal has begun",
    "machine/log_dump.py": "escapes by itself",
    "machine/log_verify.py": "escapes by itself",
    "framework/output.py": "tables and JSON, which escape",
}


def raw_prints(path: Path) -> Iterator[int]:
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call | ast.Attribute):
            continue
        text = ast.unparse(node.func if isinstance(node, ast.Call) else node)
        if text in ("click.echo", "click.secho", "print", "sys.stdout.write", "sys.stderr.write", "console.print"):
            yield node.lineno


def test_commands_print_with_echo() -> None:
    commands = ROOT / "broker/odradek/cli"
    raw = {str(path.relative_to(commands)): sorted(raw_prints(path)) for path in commands.rglob("*.py")}
    assert {name for name, lines in raw.items() if lines} == set(ALLOWED), "use odradek.cli.framework.echo"
