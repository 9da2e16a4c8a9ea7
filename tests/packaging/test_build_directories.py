"""setup.py keeps compiled modules apart by everything that determines them, so that a wheel gets none with other options."""

import os
import runpy
from pathlib import Path
from typing import Any

import pytest
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

from tests.toolchains import REPOSITORY

VARIABLES = ("ODRADEK_DEBUG", "ODRADEK_SANITIZE", "ODRADEK_QUICK", "CC", "CFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED")


def load(monkeypatch: pytest.MonkeyPatch, **environment: str) -> dict[str, Any]:
    """The names of setup.py as a build with these variables sees them; nothing is built."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    return runpy.run_path(str(REPOSITORY / "setup.py"))


@pytest.mark.parametrize(
    "environment",
    [
        {"ODRADEK_QUICK": "1"},
        {"ODRADEK_DEBUG": "1"},
        {"ODRADEK_SANITIZE": "address"},
        {"ODRADEK_SANITIZE": "address,undefined"},
        {"CC": "other-cc"},
        {"CFLAGS": "-O0"},
        {"CPPFLAGS": "-DNDEBUG"},
        {"LDFLAGS": "-s"},
    ],
    ids=str,
)
def test_what_changes_the_compiled_modules_has_a_directory_for_them(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, changed = load(monkeypatch), load(monkeypatch, **environment)
    assert changed["COMPILED"] != plain["COMPILED"]
    same_c_sources = "ODRADEK_DEBUG" not in environment
    assert (changed["C_SOURCES"] == plain["C_SOURCES"]) == same_c_sources


def test_the_same_variables_give_the_same_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch, CFLAGS="-O3")["COMPILED"] == load(monkeypatch, CFLAGS="-O3")["COMPILED"]


def test_a_module_that_was_compiled_with_other_options_is_replaced_though_it_is_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = load(monkeypatch)
    monkeypatch.chdir(tmp_path)
    command = build["BuildNativeModules"](Distribution({"ext_modules": [Extension("odradek._ext.net.frames", [])]}))
    command.ensure_finalized()
    module = command.get_ext_filename("odradek._ext.net.frames")
    compiled, present = build["COMPILED"] / "modules" / module, Path("broker") / module
    for path, content in ((compiled, b"these options"), (present, b"other options")):
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    os.utime(compiled, (1, 1))
    loaded = present.open("rb")
    command.copy_extensions_to_source()
    with loaded:
        assert loaded.read() == b"other options"  # a process that runs keeps its file
    assert present.read_bytes() == b"these options"
    assert [path.name for path in present.parent.iterdir()] == [present.name]
    inode = present.stat().st_ino
    command.copy_extensions_to_source()
    assert present.stat().st_ino == inode  # the same file is not copied again


@pytest.mark.parametrize("inplace", [False, True])
def test_only_a_build_in_the_tree_compiles_native_code_for_tests(
    inplace: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = load(monkeypatch)
    monkeypatch.chdir(REPOSITORY)
    command = build["BuildNativeModules"](Distribution({"ext_modules": build["native_modules"]()}))
    command.inplace = inplace
    command.ensure_finalized()
    names = {module.name for module in command.extensions}
    assert "odradek._ext.shm.layout" in names
    assert any(name.startswith(build["FOR_TESTS"]) for name in names) == inplace


@pytest.mark.parametrize("present", [0, 1, 10])
def test_the_progress_of_what_is_compiled_is_shown(
    present: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """:param present: modules that are up to date, which are not counted."""
    build = load(monkeypatch)
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "module.c"
    source.touch()
    modules = [Extension(f"odradek._ext.net.m{number}", [str(source)]) for number in range(45)]
    command = build["BuildNativeModules"](Distribution({"ext_modules": modules}))
    command.parallel = 3
    command.ensure_finalized()
    for module in modules[:present]:
        path = Path(command.get_ext_fullpath(module.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, (1 << 32, 1 << 32))
    compiled: list[str] = []
    monkeypatch.setattr(build_ext, "build_extension", lambda _, module: compiled.append(module.name))
    monkeypatch.setitem(command.build_extensions.__globals__, "cythonize", lambda modules, **_: modules)
    command.build_extensions()
    assert len(compiled) == 45
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        f"compiled {number} of {45 - present} native modules" for number in (20, 40) if number <= 45 - present
    ]
