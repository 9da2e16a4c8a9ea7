"""The targets of wheels: a version of CPython, and a C library with a processor.

One Python builds all wheels, and no Python of a target runs: zig is the C compiler, and `write_config` writes the values of
sysconfig that the target's Python would have. setuptools takes names, options and the tags of the wheel from them (decision
53).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13", "3.14", "3.15")
OPTIONAL = ("3.15",)
"""Versions whose headers no archive of Maven Central has yet. A release contains their wheels where the headers are found."""
CONFIG = "_odradek_target"
"""The name of the module with the values of sysconfig, instead of that of the running Python."""


@dataclass(frozen=True)
class Target:
    """A C library and a processor."""

    machine: str
    """As in the tag of a wheel."""
    system: str
    """The part of a module's name that says on which systems it runs: CPython's name of the system."""
    compiled_for: str
    """The system as zig names it, for glibc with the oldest version on which modules run."""
    libc: str
    """The library that a module names as the C library."""
    tag: str
    """The tag of the newest system that the wheel may need. auditwheel names an older one if the symbols permit it."""


TARGETS = {
    "manylinux-x86_64": Target(
        "x86_64", "x86_64-linux-gnu", "x86_64-linux-gnu.2.28", "libc.so.6", "manylinux_2_28_x86_64"
    ),
    "manylinux-aarch64": Target(
        "aarch64", "aarch64-linux-gnu", "aarch64-linux-gnu.2.28", "libc.so.6", "manylinux_2_28_aarch64"
    ),
    "musllinux-x86_64": Target(
        "x86_64", "x86_64-linux-musl", "x86_64-linux-musl", "libc.musl-x86_64.so.1", "musllinux_1_2_x86_64"
    ),
    "musllinux-aarch64": Target(
        "aarch64", "aarch64-linux-musl", "aarch64-linux-musl", "libc.musl-aarch64.so.1", "musllinux_1_2_aarch64"
    ),
}


LINKING = "-shared -Wl,-s"
"""Modules of a release have no table of symbols, which would be a tenth of the wheel: only the entry points remain."""


def compiler(zig: Path, target: Target) -> str:
    """The command that compiles and links for `target`. zig would insert checks of UBSan, which the wheel does not have."""
    return f"{zig} cc -target {target.compiled_for} -fno-sanitize=all"


def write_config(directory: Path, target: Target, version: str, zig: Path, headers: Path) -> dict[str, str]:
    """Write the values of sysconfig of `target` with CPython `version`; returns the environment in which setuptools uses them.

    :param headers: the directory with the target's ``Python.h``.
    """
    short = version.replace(".", "")
    command = compiler(zig, target)
    values: dict[str, str | int] = {
        "AR": f"{zig} ar",
        "ARFLAGS": "rcs",
        "CC": command,
        "CCSHARED": "-fPIC",
        "CFLAGS": "-fwrapv -DNDEBUG",
        "CONFINCLUDEPY": str(headers),
        "CXX": command,
        "EXT_SUFFIX": f".cpython-{short}-{target.system}.so",
        "INCLUDEPY": str(headers),
        "LDCXXSHARED": f"{command} {LINKING}",
        "LDSHARED": f"{command} {LINKING}",
        "LIBDIR": "",
        "Py_DEBUG": 0,
        "Py_ENABLE_SHARED": 0,
        "SHLIB_SUFFIX": ".so",
        "SOABI": f"cpython-{short}-{target.system}",
        "VERSION": version,
        "py_version_nodot": short,
    }
    directory.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"    {name!r}: {value!r},\n" for name, value in values.items())
    (directory / f"{CONFIG}.py").write_text(f"build_time_vars = {{\n{lines}}}\n")
    return {
        "CC": command,  # setup.py keeps modules of other compilers apart by this variable
        "CFLAGS": f"{values['CFLAGS']} -I{headers}",  # setuptools uses these instead of those of sysconfig
        "LDSHARED": values["LDSHARED"],
        "PYTHONPATH": str(directory),
        "_PYTHON_HOST_PLATFORM": f"linux-{target.machine}",
        "_PYTHON_SYSCONFIGDATA_NAME": CONFIG,
    }


def wheel_pattern(target: Target, version: str) -> str:
    """The regular expression for the name of a wheel of the target: all its tags have the version, library and processor of the
    target."""
    python = f"cp{version.replace('.', '')}"
    family = re.match(r"[a-z]+", target.tag)[0]  # type: ignore[index]
    tag = rf"{family}(?:_?\d+)*_{target.machine}"
    return rf"odradek-[^-]+-{python}-{python}-{tag}(?:\.{tag})*\.whl"
