"""setup.py keeps compiled modules apart by everything that determines them, so that a wheel gets none with other options. It
compiles only what changed."""

import gc
import os
import runpy
from pathlib import Path
from typing import Any

import pytest
from setuptools import Distribution, Extension

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


def packages(build: dict[str, Any], *names: str) -> Any:
    """The build command for these packages, whose sources are m0.pyx to m2.pyx."""
    extensions = [
        Extension(
            f"odradek._ext.{name}.{build['LINKED']}",
            [f"broker/odradek/_ext/{name}/m{number}.pyx" for number in range(3)],
        )
        for name in names
    ]
    command = build["BuildNativeModules"](Distribution({"ext_modules": extensions}))
    command.ensure_finalized()
    return command


def test_a_package_that_was_compiled_with_other_options_is_replaced_though_it_is_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = load(monkeypatch)
    monkeypatch.chdir(tmp_path)
    command = packages(build, "net")
    package = command.get_ext_filename(f"odradek._ext.net.{build['LINKED']}")
    compiled, present = build["COMPILED"] / "packages" / package, Path("broker") / package
    for path, content in ((compiled, b"these options"), (present, b"other options")):
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    of_older_build = present.with_name(present.name.replace(build["LINKED"], "frames"))
    of_older_build.touch()
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
    command = build["BuildNativeModules"](Distribution({"ext_modules": build["native_packages"]()}))
    command.inplace = inplace
    command.ensure_finalized()
    modules = {module.name for package in command.extensions for module in build["modules_of"](package)}
    assert "odradek._ext.shm.layout" in modules
    assert any(name.startswith("odradek._ext.testing.") for name in modules) == inplace


class FakeCompiler:
    """Notes what is compiled and linked. An object is a file with the name of its source in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.compiled: list[str] = []
        self.unoptimized: list[str] = []
        self.linked: dict[str, list[str]] = {}

    def object_filenames(self, sources: list[str], output_dir: str) -> list[str]:
        return [str(self._directory / source.replace("/", ".")) for source in sources]

    def compile(self, sources: list[str], **options: Any) -> None:
        assert "-fvisibility=hidden" in options["extra_postargs"]
        self.compiled += sources
        if "-O0" in options["extra_postargs"]:
            self.unoptimized += sources

    def link_shared_object(self, objects: list[str], path: str, **options: Any) -> None:
        assert "-Wl,-Bsymbolic" in options["extra_postargs"]
        self.linked[Path(path).parent.name] = [Path(name).name for name in objects]


@pytest.mark.parametrize("present", [0, 1, 10])
def test_what_changed_is_compiled_with_lines_about_the_progress_and_packages_are_linked(
    present: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """:param present: modules that are up to date, which are not compiled."""
    build = load(monkeypatch)
    monkeypatch.chdir(tmp_path)
    names = [f"p{number:02}" for number in range(15)]
    command = packages(build, *names)
    sources = [source for package in command.extensions for source in package.sources]
    for source in sources:
        path = Path(source)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    command.parallel = 3
    command.compiler = compiler = FakeCompiler(tmp_path)
    for path in compiler.object_filenames(sources[:present], ""):
        Path(path).touch()
        os.utime(path, (1 << 32, 1 << 32))
    translated: list[int] = []

    def cythonize(modules: list[Extension], **options: Any) -> list[Extension]:
        assert not gc.isenabled()
        translated.append(len(modules))
        return modules

    monkeypatch.setitem(command.build_extensions.__globals__, "cythonize", cythonize)
    command.build_extensions()
    assert gc.isenabled()
    assert translated == [30, 15]
    assert compiler.unoptimized == []
    assert sorted(compiler.compiled) == sources[present:]
    assert list(compiler.linked) == names
    assert compiler.linked["p01"] == [f"broker.odradek._ext.p01.m{number}.pyx" for number in range(3)]
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        *(f"the C sources of {number} of 45 native modules are up to date" for number in (30, 45)),
        *(f"compiled {number} of {45 - present} native modules" for number in (20, 40) if number <= 45 - present),
    ]


@pytest.mark.parametrize(("environment", "unoptimized"), [({}, True), ({"ODRADEK_DEBUG": "1"}, False)], ids=str)
def test_native_code_for_tests_is_not_optimized(
    environment: dict[str, str], unoptimized: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = load(monkeypatch, **environment)
    monkeypatch.chdir(tmp_path)
    command = packages(build, "net", "testing")
    command.extensions = command.distribution.ext_modules  # also what a build in the source tree alone compiles
    for package in command.extensions:
        for source in map(Path, package.sources):
            source.parent.mkdir(parents=True, exist_ok=True)
            source.touch()
    command.parallel = 1
    command.compiler = compiler = FakeCompiler(tmp_path)
    monkeypatch.setitem(command.build_extensions.__globals__, "cythonize", lambda modules, **_: modules)
    command.build_extensions()
    assert len(compiler.compiled) == 6
    assert compiler.unoptimized == (command.extensions[1].sources if unoptimized else [])
