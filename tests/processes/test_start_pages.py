"""What a process gives back after its start, and how the supervisor's memory is prepared for the forks. Each test has its own
process, whose memory nothing else uses."""

import json
import subprocess
import sys
import textwrap
from typing import Any

import pytest

MEASURE = """
import json, re, sys
from pathlib import Path

def memory_kb(chosen, kind="Rss"):
    total, counts = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if match := re.match(r"([0-9a-f]+)-([0-9a-f]+) (\\S+) \\S+ \\S+ \\S+\\s*(.*)", line):
            counts = chosen(int(match[1], 16), int(match[2], 16), match[3], match[4])
        elif counts and line.startswith(kind + ":"):
            total += int(line.split()[1])
    return total
"""


def run(code: str) -> Any:
    """What a new Python process that runs the code prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE + textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_pages_of_code_are_given_back_and_written_pages_stay() -> None:
    figures = run("""
        import odradek.processes.worker.worker
        from odradek._ext.shm.process import release_start_pages
        from odradek.storage.batch import Record, build_batch

        def code():
            return memory_kb(lambda begin, end, rights, file: "w" not in rights and "_native." in file)

        def written():
            return memory_kb(lambda begin, end, rights, file: "_native." in file, "Anonymous")

        batch = build_batch([Record(value=b"a", timestamp=1)])
        before = code(), written()
        release_start_pages()
        after = code(), written()
        print(json.dumps([before, after, batch == build_batch([Record(value=b"a", timestamp=1)])]))
    """)
    (code_before, written_before), (code_after, written_after), same = figures
    assert code_before > 2000
    assert code_after < code_before / 4
    assert written_after == written_before
    assert same


def test_the_unused_buffer_of_a_loop_is_given_back_and_works_afterwards() -> None:
    before, after, received = run("""
        import asyncio, socket
        import uvloop
        from odradek._ext.shm.process import release_start_pages

        SIZE = 3 << 20

        async def receive():
            loop = asyncio.get_running_loop()

            def kept():
                return memory_kb(lambda begin, end, rights, file: begin <= id(loop) < end)

            before = kept()
            release_start_pages(loop)
            after = kept()
            ours, theirs = socket.socketpair()
            reader, writer = await asyncio.open_connection(sock=ours)
            sending = loop.run_in_executor(None, theirs.sendall, bytes(range(256)) * (SIZE // 256))
            content = await reader.readexactly(SIZE)
            await sending
            writer.close()
            return before, after, content == bytes(range(256)) * (SIZE // 256)

        print(json.dumps(uvloop.run(receive())))
    """)
    assert before - after >= 200
    assert received


@pytest.mark.parametrize("filled", [False, True])
def test_filled_holes_let_new_objects_be_next_to_each_other(filled: bool) -> None:
    adjacent = run(f"""
        from odradek.processes.supervisor.children import fill_holes
        sizes = range(48, 513, 16)
        imported = [bytes(size - 33) for _ in range(500) for size in sizes]
        del imported[::2]
        fillers = fill_holes() if {filled} else []
        made = {{size: [bytes(size - 33) for _ in range(10)] for size in sizes}}
        pairs = [(id(a) + size == id(b)) for size, row in made.items() for a, b in zip(row, row[1:])]
        print(json.dumps(sum(pairs) / len(pairs)))
    """)
    assert (adjacent > 0.9) is filled
