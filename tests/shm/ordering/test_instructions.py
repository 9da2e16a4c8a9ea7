"""What the compiler makes of the accesses to shared words on this machine, and that it refuses all others."""

import platform
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.shm.ordering.sources import NATIVE

COMPILER = (sysconfig.get_config_var("CC") or "cc").split()[0]
ORDERED = [
    f"{access}_{order}_{suffix}"
    for suffix in ("64", "i64", "32", "i32", "16", "i16", "8")
    for access, order in (("load", "relaxed"), ("load", "acquire"), ("store", "relaxed"), ("store", "release"))
]


def compiled(code: str, directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Compile C code that may use atomics.h to assembler."""
    source = directory / "accesses.c"
    source.write_text(f'#include "shm/atomics.h"\n{code}')
    command = [
        COMPILER,
        "-O2",
        "-S",
        "-o",
        "-",
        f"-I{NATIVE}",
        "-Werror=incompatible-pointer-types",
        *options,
        str(source),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions are those of x86-64")
def test_no_access_but_a_full_fence_and_an_update_locks_the_bus(tmp_path: Path) -> None:
    uses = "".join(
        f"void *use_{name} = (void *){name};\n" for name in [*ORDERED, "fence_release", "fence_acquire", "count_64"]
    )
    uses += "void *use_fence = (void *)fence; void *use_exchange = (void *)exchange_64; void *use_fill = (void *)fill_words;\n"
    done = compiled(uses, tmp_path)
    assert done.returncode == 0, done.stderr
    functions = dict(re.findall(r"^(\w+):\n(.*?)^\t\.size\t\1", done.stdout, re.M | re.S))
    locking = {name for name, text in functions.items() if re.search(r"\b(lock|mfence|xchg\w*)\b", text)}
    assert set(ORDERED) | {"fence", "exchange_64", "fill_words"} <= set(functions)
    assert locking == {"fence", "exchange_64"}


@pytest.mark.parametrize(
    "code",
    [
        "uint64_t plain; void f(void) { store_release_64(&plain, 1); }",
        "shared_u64 word; uint64_t *f(void) { return &word; }",
        "shared_u32 word; uint64_t f(void) { return load_acquire_64(&word); }",
    ],
    ids=["plain word", "plain pointer", "other size"],
)
def test_the_compiler_refuses_a_pointer_of_another_type(code: str, tmp_path: Path) -> None:
    done = compiled(code, tmp_path)
    assert done.returncode != 0
    assert "incompatible" in done.stderr


@pytest.mark.parametrize(
    "change", ["slot.state = 1", "slot.flushes += 1", "slot.replicas[0] = 1", "followers_at(slot)[0].candidate = 1"]
)
def test_cython_refuses_a_plain_write(change: str, tmp_path: Path) -> None:
    source = tmp_path / "plain_write.pyx"
    source.write_text(
        f"from odradek._ext.shm.slot cimport Slot, followers_at\ncdef void change(Slot* slot) noexcept nogil:\n    {change}\n"
    )
    broker = NATIVE.parent / "broker"
    command = ["cython", "-3", "-I", str(broker), str(source), "-o", str(tmp_path / "plain_write.c")]
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "const" in done.stderr
