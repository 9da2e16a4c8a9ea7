"""Prints the symbols that the modules of a wheel need, and that neither CPython nor the C library provides.

It is a separate program, because only the environment of the release has pyelftools::

    python symbols.py odradek-....whl [ZIG/lib/libc/musl/libc.S]

Symbols of glibc have versions, which the linker adds when it finds them. Symbols of musl have none, so this program compares
them with zig's list of the symbols of musl.
"""

from __future__ import annotations

import io
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from elftools.elf.elffile import ELFFile

DEFINED = re.compile(r"(?m)^(?:\.globl|\.weak|WEAK\w+) (\w+)$")
"""A symbol in zig's list. Macros (WEAK64, WEAKTIME64) stand for the directives that depend on the processor."""
NEWER_THAN_THE_TAG = {"_Fork", "gettid", "preadv2", "pwritev2", "qsort_r", "reallocarray", "statx"}
"""What musl has since 1.2.2 or later. musllinux_1_2 stands for 1.2.0 and everything after it."""
UNVERSIONED = ("VER_NDX_LOCAL", "VER_NDX_GLOBAL")


def unprovided(module: bytes, of_musl: set[str]) -> Iterator[str]:
    """The names of the symbols that an ELF file needs and no library provides."""
    file = ELFFile(io.BytesIO(module))
    symbols = file.get_section_by_name(".dynsym")
    versions = file.get_section_by_name(".gnu.version")
    for number, symbol in enumerate(symbols.iter_symbols()):
        needed = symbol["st_shndx"] == "SHN_UNDEF" and symbol["st_info"]["bind"] == "STB_GLOBAL"
        versioned = versions is not None and versions.get_symbol(number)["ndx"] not in UNVERSIONED
        if needed and not versioned and not symbol.name.startswith(("Py", "_Py")) and symbol.name not in of_musl:
            yield symbol.name


def main() -> None:
    of_musl = set(DEFINED.findall(Path(sys.argv[2]).read_text())) - NEWER_THAN_THE_TAG if sys.argv[2:] else set()
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        for name in wheel.namelist():
            if name.endswith(".so"):
                for symbol in unprovided(wheel.read(name), of_musl):
                    print(f"{name} needs {symbol}, which no library provides")


if __name__ == "__main__":
    main()
