"""A wheel that is built from the sdist holds the whole broker, and runs in an environment in which there is nothing else.

It is compiled once; `auditwheel` then does with it what it does in ``make wheel``.
"""

import platform
import re
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import run
from tests.toolchains import REPOSITORY

pytestmark = [pytest.mark.package, pytest.mark.timeout(2000)]

MOST_BYTES = 9_100_000
"""Of a wheel that is compiled without optimization, as these tests do. One for users (`make wheel`) takes five sixths of it."""


def test_a_wheel_from_the_sdist_holds_every_native_module_and_no_source_of_them(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        native = {Path(name).parent.name: archive.read(name) for name in names if name.endswith(".so")}
    assert [name for name in names if name.startswith("odradek/_ext/testing")] == []  # only tests call it
    sources = [path for path in (REPOSITORY / "_ext").glob("*/*") if path.parent.name != "testing"]
    modules = [path for path in sources if path.suffix == ".pyx"]
    assert set(native) == {path.parent.name for path in modules}
    assert [path for path in modules if f"PyInit_{path.stem}\0".encode() not in native[path.parent.name]] == []
    assert [name for name in names if name.endswith((".c", ".h", ".pyx", ".pxd"))] == []
    assert {Path(name).stem for name in names if name.endswith(".pyi")} == {
        path.stem for path in sources if path.suffix == ".pyi"
    }
    assert [name for name, module in native.items() if b".debug_info" in module] == []
    assert [name for name, module in native.items() if b".symtab" not in module] == []  # names in perf and gdb
    assert wheel.stat().st_size <= MOST_BYTES
    assert "odradek/py.typed" in names


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="manylinux is about glibc")
def test_a_repaired_wheel_names_the_oldest_c_library_that_it_runs_on(repaired: Path) -> None:
    tags = re.fullmatch(r"odradek-[^-]+-cp3\d+-cp3\d+-((?:\.?manylinux_2_\d+_[a-z0-9_]+)+)\.whl", repaired.name)
    assert tags is not None, repaired.name
    named = min(int(minor) for minor in re.findall(r"manylinux_2_(\d+)_", tags[1]))
    with zipfile.ZipFile(repaired) as archive:
        libraries = [name for name in archive.namelist() if ".so" in name]
        needed = {int(minor) for name in libraries for minor in re.findall(rb"GLIBC_2\.(\d+)", archive.read(name))}
    assert max(needed) <= named <= int(platform.libc_ver()[1].split(".")[1])
    assert [name for name in libraries if not name.startswith("odradek/_ext/")] == []  # it brings no other library


def test_a_module_that_needs_a_symbol_of_no_library_is_found(repaired: Path, tmp_path: Path) -> None:
    command = [sys.executable, REPOSITORY / "deploy/release/symbols.py"]
    assert run(*command, repaired, cwd=tmp_path) == ""
    (tmp_path / "a.c").write_text(
        "int missing(void); int Py_Finish(void); int getpid(void);\n"
        "int f(void) { return missing() + Py_Finish() + getpid(); }\n"
    )
    run("gcc", "-shared", "-fPIC", "-o", "a.so", "a.c", cwd=tmp_path)
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as archive:
        archive.write(tmp_path / "a.so", "a.so")
    assert run(*command, "a.whl", cwd=tmp_path) == "a.so needs missing, which no library provides\n"
    (tmp_path / "musl").write_text("WEAKTIME64 missing\n.type missing, %function;\nmissing:\n")
    assert run(*command, "a.whl", "musl", cwd=tmp_path) == ""
    (tmp_path / "musl").write_text(".globl missing\n.weak preadv2\n")  # since musl 1.2.5
    (tmp_path / "a.c").write_text("int preadv2(void); int f(void) { return preadv2(); }\n")
    run("gcc", "-shared", "-fPIC", "-nostdlib", "-o", "a.so", "a.c", cwd=tmp_path)
    with zipfile.ZipFile(tmp_path / "b.whl", "w") as archive:
        archive.write(tmp_path / "a.so", "a.so")
    assert run(*command, "b.whl", "musl", cwd=tmp_path) == "a.so needs preadv2, which no library provides\n"


def lowest_versions() -> str:
    """A constraints file with the lowest versions that the package and its demo allow."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    requirements = project["dependencies"] + project["optional-dependencies"]["demo"]
    return "".join(re.sub(r"^([\w-]+)>=([\w.]+).*$", r"\1==\2\n", requirement) for requirement in requirements)


@pytest.mark.parametrize("versions", ["newest", "lowest"])
def test_the_demo_runs_from_a_wheel_in_an_environment_of_its_own(repaired: Path, tmp_path: Path, versions: str) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    constraints = tmp_path / "constraints.txt"
    constraints.write_text(lowest_versions() if versions == "lowest" else "")
    install = (tmp_path / "env/bin/python", "-m", "pip", "install", "-c", constraints)
    run(*install, f"{repaired}[demo]", cwd=tmp_path)
    output = run(tmp_path / "env/bin/odradek", "demo", "--megabytes", "5", cwd=tmp_path)
    assert "every byte and the order within each file are equal" in output
    assert (tmp_path / "env/share/odradek/grafana/dashboards/odradek-overview.json").is_file()
    assert (tmp_path / "env/share/odradek/deploy/prometheus/rules/alerts.yml").is_file()
