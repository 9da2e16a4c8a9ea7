"""Wheels for every version of CPython and every system, from the release's own functions, of a package with one small module.

The whole broker would take two minutes of CPU time for each. So its modules are only checked for errors, with the C library
that is not that of this machine.
"""

import re
import runpy
import sys
import zipfile
from pathlib import Path

import pytest

from deploy.release.headers import ARCHIVES, find_headers, unpacked
from deploy.release.main import HERE, WORK
from deploy.release.targets import TARGETS
from deploy.release.wheels import build_wheel, make_tools, zig_of
from tests import toolchains
from tests.packaging.conftest import run
from tests.toolchains import REPOSITORY

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(900)]

EPOCH = 1_700_000_000
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "odradek"
version = "0.1.0"

[tool.setuptools]
packages = ["odradek"]
ext-modules = [{name = "odradek.small", sources = ["small.c"]}]
"""
MODULE = """
#include <Python.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
static PyObject *version(PyObject *self, PyObject *none) {
    pthread_mutex_t mutex;
    struct stat status;
    struct timespec now;
    int file = memfd_create("x", 0);
    int failures = pthread_mutex_init(&mutex, NULL) | fstat(file, &status) | clock_gettime(CLOCK_MONOTONIC, &now);
    return PyLong_FromLong(failures == 0 && file > 0 ? PY_VERSION_HEX >> 16 : 0);
}
static PyMethodDef methods[] = {{"version", version, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "small", "", -1, methods};
PyMODINIT_FUNC PyInit_small(void) { return PyModule_Create(&module); }
"""


@pytest.fixture(scope="module")
def tools() -> Path:
    WORK.mkdir(parents=True, exist_ok=True)
    needed = HERE / "requirements-release.txt"
    return make_tools(Path(sys.executable), WORK / "tools", needed, WORK / "tools.log", EPOCH)


@pytest.mark.parametrize("version", ARCHIVES)
def test_a_version_has_a_wheel_for_every_system_that_its_python_loads(
    version: str, tools: Path, tmp_path: Path
) -> None:
    toolchains.require_command("mvn", "maven")
    headers = find_headers(version, WORK, {})
    for name, target in TARGETS.items():
        root, compiled, output = (tmp_path / name / part for part in ("root", "compiled", "output"))
        for directory in (root / "odradek", compiled, output):
            directory.mkdir(parents=True)
        (root / "pyproject.toml").write_text(PROJECT)
        (root / "small.c").write_text(MODULE)
        (root / "odradek/__init__.py").write_text("")
        wheel = build_wheel(
            tools, root, compiled, target, version, headers, output, tmp_path / name / "build.log", EPOCH
        )
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(tmp_path / name / "installed")
        (module,) = (tmp_path / name / "installed").rglob("*.so")
        short = version.replace(".", "")
        assert module.name == f"small.cpython-{short}-{target.system}.so"
        assert re.search(rb"\0" + re.escape(target.libc.encode()) + rb"\0", module.read_bytes())
    # The archives contain a Python for x86-64 and glibc, also of versions that this machine does not have.
    place = unpacked(version, WORK)
    script = "from odradek import small; print(small.version())"
    variables = {"LD_LIBRARY_PATH": str(place), "PYTHONHOME": str(place)}
    variables["PYTHONPATH"] = str(tmp_path / "manylinux-x86_64/installed")
    printed = run(place / f"bin/python{version}", "-c", script, cwd=tmp_path, environment=variables)
    major, minor = map(int, version.split("."))
    assert int(printed) == major << 8 | minor


@pytest.mark.parametrize("name", [name for name in TARGETS if name.startswith("musl")])
def test_every_native_module_is_valid_with_musl(
    name: str, tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """musl has other types than glibc. The C sources are those of `make build`."""
    monkeypatch.chdir(REPOSITORY)
    sources = REPOSITORY / runpy.run_path("setup.py")["C_SOURCES"] / "broker/odradek/_ext"
    modules = [sources / path.relative_to("_ext").with_suffix(".c") for path in sorted(Path("_ext").glob("*/*.pyx"))]
    assert modules
    zig, machine = zig_of(tools), TARGETS[name].machine
    included = zig.parent / "lib/libc/include"
    of_system = (f"{machine}-linux-musl", "generic-musl", f"{machine.split('_')[0]}-linux-any", "any-linux-any")
    check = [
        zig,
        "clang",
        "-fsyntax-only",
        "-Werror",
        "-Wno-macro-redefined",
        "-target",
        TARGETS[name].compiled_for,
        "-nostdinc",
    ]
    for directory in (zig.parent / "lib/include", *(included / system for system in of_system)):
        check += ["-isystem", directory]
    headers = find_headers("3.11", WORK, {})
    run(*check, f"-I{headers}", "-I_ext", *modules, cwd=REPOSITORY)
