"""The parts of the release script: which interpreters it takes, which trees and wheels it refuses, what it writes."""

import hashlib
import itertools
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import pytest

from deploy.debian.package import MAINTAINER, debian_version, maintainer
from deploy.release.checksums import write_checksums
from deploy.release.environment import PT_LOAD, EnvironmentFailed, check_wheel, is_loadable, one_of
from deploy.release.failure import ReleaseFailed
from deploy.release.headers import ARCHIVES, find_headers
from deploy.release.interpreters import find_interpreters
from deploy.release.main import Selection, headers_of, package_tools, replace
from deploy.release.targets import OPTIONAL, TARGETS, VERSIONS, wheel_pattern, write_config
from deploy.release.tree import copy_tree, epoch_of, faults
from deploy.release.wheels import build_sdist, compiled_directory, finish, unpack
from deploy.release.wheels import check_wheel as check_built_wheel
from tests import toolchains


def interpreter(path: Path, version: str, answer: str | None = None) -> Path:
    """A program that answers as an interpreter of `version` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{answer or f'{version} CPython True'}'\n")
    path.chmod(0o755)
    return path


def test_interpreters_are_found_by_variable_then_on_path_then_below_pyenv(tmp_path: Path) -> None:
    named = interpreter(tmp_path / "named/python", "3.11")
    on_path = interpreter(tmp_path / "bin/python3.12", "3.12")
    below = interpreter(tmp_path / "home/.pyenv/versions/3.13.2/bin/python3.13", "3.13")
    interpreter(tmp_path / "bin/python3.11", "3.11")
    environment = {"ODRADEK_PYTHON_3_11": str(named), "PATH": str(tmp_path / "bin"), "HOME": str(tmp_path / "home")}
    found = find_interpreters(("3.11", "3.12", "3.13"), environment)
    assert found == {"3.11": named, "3.12": on_path, "3.13": below}


def test_a_shim_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    shim = tmp_path / "bin/python3.12"
    shim.parent.mkdir()
    shim.write_text("#!/bin/sh\necho 'not chosen here' >&2; exit 127\n")
    shim.chmod(0o755)
    below = interpreter(tmp_path / ".pyenv/versions/3.12.9/bin/python3.12", "3.12")
    assert find_interpreters(("3.12",), {"PATH": str(shim.parent), "HOME": str(tmp_path)}) == {"3.12": below}


def test_missing_interpreters_are_named_with_what_helps(tmp_path: Path) -> None:
    interpreter(tmp_path / "python3.11", "3.11")
    interpreter(tmp_path / "python3.12", "3.12", "3.12 CPython False")
    interpreter(tmp_path / "other", "3.13", "3.10 PyPy True")
    environment = {"PATH": str(tmp_path), "ODRADEK_PYTHON_3_13": str(tmp_path / "other")}
    with pytest.raises(ReleaseFailed) as failed:
        find_interpreters(("3.11", "3.12", "3.13"), environment)
    assert str(failed.value) == (
        f"not found: Python 3.12 ({tmp_path}/python3.12 has no headers (Python.h)), "
        f"Python 3.13 ({tmp_path}/other is PyPy 3.10); "
        "install it, or name it with ODRADEK_PYTHON_3_12 and ODRADEK_PYTHON_3_13"
    )


def headers(directory: Path, version: str, config: str = "/* for all systems */\n") -> Path:
    """A directory with what the release reads of the headers of a CPython."""
    directory.mkdir(parents=True)
    (directory / "Python.h").write_text("")
    (directory / "patchlevel.h").write_text(f'#define PY_VERSION             "{version}.4"\n')
    (directory / "pyconfig.h").write_text(config)
    return directory


def test_every_version_has_an_archive_of_headers_or_is_optional() -> None:
    assert set(VERSIONS) == {*ARCHIVES, *OPTIONAL}
    assert set(ARCHIVES) & set(OPTIONAL) == set()
    assert [version for version, (release, _) in ARCHIVES.items() if not release.startswith(f"{version}.")] == []


def test_headers_are_found_by_variable_in_an_archive_and_by_interpreter(tmp_path: Path) -> None:
    named = headers(tmp_path / "named", "3.12")
    assert find_headers("3.12", tmp_path, {"ODRADEK_HEADERS_3_12": str(named)}) == named
    fetched = headers(tmp_path / f"cpython-{ARCHIVES['3.11'][0]}/include/python3.11", "3.11")
    assert find_headers("3.11", tmp_path, {}) == fetched
    (version,) = OPTIONAL
    own = headers(tmp_path / "own", version)
    python = tmp_path / f"bin/python{version}"
    python.parent.mkdir()
    python.write_text(
        f'#!/bin/sh\ncase "$3" in *machinery*|*implementation*) echo {version} CPython True ;; *) echo {own} ;; esac\n'
    )
    python.chmod(0o755)
    assert find_headers(version, tmp_path, {"PATH": f"{python.parent}:/bin"}) == own


def test_headers_of_debian_are_copied_with_the_configuration_of_one_processor(tmp_path: Path) -> None:
    include = "# include <x86_64-linux-gnu/python3.14/pyconfig.h>\n"
    named = headers(tmp_path / "usr/python3.14", "3.14", config=f"#if defined(__x86_64__)\n{include}#endif\n")
    real = tmp_path / "usr/x86_64-linux-gnu/python3.14/pyconfig.h"
    real.parent.mkdir(parents=True)
    real.write_text("real")
    found = find_headers("3.14", tmp_path / "work", {"ODRADEK_HEADERS_3_14": str(named)})
    assert (found / "pyconfig.h").read_text() == "real"
    assert (found / "Python.h").is_file()


def test_headers_of_another_version_are_refused(tmp_path: Path) -> None:
    environment = {"ODRADEK_HEADERS_3_12": str(headers(tmp_path / "named", "3.13"))}
    with pytest.raises(ReleaseFailed, match=r"has the headers of Python 3\.13, and not of 3\.12"):
        find_headers("3.12", tmp_path, environment)
    with pytest.raises(ReleaseFailed, match="has no headers of Python"):
        find_headers("3.12", tmp_path, {"ODRADEK_HEADERS_3_12": str(tmp_path / "nothing")})


def test_wheels_without_headers_are_named_and_left_out_only_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (optional,) = OPTIONAL
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ODRADEK_HEADERS_3_11", str(headers(tmp_path / "named", "3.11")))
    monkeypatch.setenv("ODRADEK_HEADERS_3_12", str(tmp_path / "nothing"))
    found, left_out = headers_of(Selection(("3.11", optional), ("musllinux-x86_64",), allow_missing=False))
    assert list(found) == ["3.11"]
    assert re.match(
        rf"left out: the wheels for Python {re.escape(optional)} \(musllinux-x86_64\): no archive ", left_out[0]
    )
    assert left_out[0] in capsys.readouterr().err
    with pytest.raises(ReleaseFailed, match=r"no headers of Python 3\.12; --allow-missing leaves its wheels out"):
        headers_of(Selection(("3.11", "3.12"), tuple(TARGETS), allow_missing=False))
    found, left_out = headers_of(Selection(("3.11", "3.12"), tuple(TARGETS), allow_missing=True))
    assert list(found) == ["3.11"]
    assert "has no headers of Python" in left_out[0]


def test_packages_without_their_tools_are_named_and_left_out_only_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ReleaseFailed, match="commands for packages are missing"):
        package_tools(Selection(("3.11",), tuple(TARGETS), allow_missing=False))
    lines = package_tools(Selection(("3.11",), tuple(TARGETS), allow_missing=True))
    assert set(lines) == {"manylinux-x86_64", "manylinux-aarch64", "rpmbuild"} - {f"manylinux-{platform.machine()}"}
    assert set(lines.values()) <= set(capsys.readouterr().err.replace("release: ", "").splitlines())
    interpreter(tmp_path / "rpmbuild", "4")
    for machine in ("x86_64", "aarch64"):
        interpreter(tmp_path / f"{machine}-linux-gnu-strip", "2")
    assert package_tools(Selection(("3.11",), tuple(TARGETS), allow_missing=False)) == {}


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_names_modules_and_wheels_as_its_python_does(name: str, tmp_path: Path) -> None:
    """The same Python gives setuptools the tags and the suffix of another version and system."""
    target = TARGETS[name]
    environment = write_config(tmp_path, target, "3.14", Path("/zig"), Path("/include"))
    script = (
        "import sysconfig; from setuptools.command.bdist_wheel import get_abi_tag; from packaging import tags; "
        "print(sysconfig.get_config_var('EXT_SUFFIX'), tags.interpreter_name() + tags.interpreter_version(), get_abi_tag(), "
        "sysconfig.get_platform(), sysconfig.get_config_var('INCLUDEPY'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PATH": "/usr/bin:/bin"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    suffix = f".cpython-314-{target.machine}-linux-{'musl' if 'musl' in name else 'gnu'}.so"
    assert done.stdout.split() == [suffix, "cp314", "cp314", f"linux-{target.machine}", "/include"]


def test_no_native_module_asks_the_compilers_library_for_the_features_of_the_processor() -> None:
    """That of zig finds none, so that checksums would be computed without the processor's instructions."""
    sources = [path for path in (toolchains.REPOSITORY / "_ext").rglob("*") if path.suffix in (".pyx", ".pxd", ".h")]
    assert sources
    assert [path.name for path in sources if re.search(r"__builtin_cpu_(init|supports|is)\(", path.read_text())] == []


@pytest.mark.parametrize(
    ("tags", "matches"),
    [
        ("cp314-cp314-manylinux_2_28_aarch64", True),
        ("cp314-cp314-manylinux2014_aarch64.manylinux_2_17_aarch64", True),
        ("cp313-cp313-manylinux_2_28_aarch64", False),
        ("cp314-cp314-manylinux_2_28_x86_64", False),
        ("cp314-cp314-musllinux_1_2_aarch64", False),
        ("cp314-cp314-linux_aarch64", False),
    ],
)
def test_a_wheel_of_another_target_is_recognized_by_its_name(tags: str, matches: bool) -> None:
    pattern = wheel_pattern(TARGETS["manylinux-aarch64"], "3.14")
    assert (re.fullmatch(pattern, f"odradek-0.1.0-{tags}.whl") is not None) is matches


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "broker/odradek").mkdir(parents=True)
    (root / "broker/odradek/__init__.py").write_text('__version__ = "1.2.0"\n')
    (root / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.0, 2026-11-27\n")
    git(root, "init", "--quiet")
    commit(root)
    return root


def git(root: Path, *words: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", root, *identity, *words], check=True, capture_output=True)


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message=state", "--date=2026-11-27T00:00:00Z")


def test_a_clean_tree_with_its_section_has_no_fault(project: Path) -> None:
    assert list(faults(project)) == []
    assert epoch_of(project) > 0


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("## 1.1.0, 2026-01-01", "CHANGELOG.md has no section of this version: it needs a line '## 1.2.0, DATE'"),
        ("## 1.2.0.1, 2026-01-01", "CHANGELOG.md has no section of this version: it needs a line '## 1.2.0, DATE'"),
        (
            "## 1.2.0, unreleased",
            "CHANGELOG.md calls 1.2.0 unreleased: write the date of the release in '## 1.2.0, DATE'",
        ),
    ],
)
def test_a_changelog_without_the_section_is_a_fault(project: Path, heading: str, expected: str) -> None:
    (project / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading}\n")
    commit(project)
    assert list(faults(project)) == [expected]


def test_changes_that_are_not_committed_are_named(project: Path) -> None:
    (project / "broker/odradek/new.py").write_text("")
    (fault,) = faults(project)
    assert fault == "the tree has changes that are not committed: broker/odradek/new.py"
    for number in range(9):
        (project / f"file{number}").write_text("")
    (fault,) = faults(project)
    assert fault.endswith("and 5 more")


def test_the_copied_tree_has_only_what_git_tracks_with_changes_and_links(project: Path, tmp_path: Path) -> None:
    (project / "link").symlink_to("broker")
    (project / "gone").write_text("")
    commit(project)
    (project / "gone").unlink()
    (project / "untracked").write_text("")
    (project / "CHANGELOG.md").write_text("changed")
    copy_tree(project, tmp_path / "copy")
    copied = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*") if not path.is_dir()}
    assert copied == {"broker/odradek/__init__.py", "CHANGELOG.md"}
    assert (tmp_path / "copy/link").is_symlink()
    assert (tmp_path / "copy/CHANGELOG.md").read_text() == "changed"


def test_compiled_modules_of_other_sources_or_of_an_interrupted_build_are_not_used(tmp_path: Path) -> None:
    native = tmp_path / "tree/broker/odradek/_ext/shm/layout.pyx"
    native.parent.mkdir(parents=True)
    native.write_text("first")
    (tmp_path / "tree/setup.py").write_text("")
    first = compiled_directory(tmp_path / "tree", "tools", tmp_path)
    (first / "native-of-a-target").mkdir()
    finish(first)
    (first / "native-of-another").mkdir()
    (first / "native-of-another/half.o").touch()
    assert compiled_directory(tmp_path / "tree", "tools", tmp_path) == first
    assert [path.name for path in first.iterdir() if path.is_dir()] == ["native-of-a-target"]
    assert compiled_directory(tmp_path / "tree", "other tools", tmp_path) != first
    native.write_text("second")
    assert compiled_directory(tmp_path / "tree", "tools", tmp_path) != first


def test_a_commit_that_changes_no_native_source_compiles_nothing(tmp_path: Path) -> None:
    """The sources in an sdist have the time of the commit, which is later than that of the objects."""
    tree = tmp_path / "tree"
    package = tree / "broker/odradek/_ext/shm"
    package.mkdir(parents=True)
    (package / "counter.pyx").write_text(
        "cdef extern from 'counter.h':\n    int FIRST\n\ndef first():\n    return FIRST\n"
    )
    (package / "counter.h").write_text("#define FIRST 1\n")
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(toolchains.REPOSITORY / name, tree)
    shutil.copy(toolchains.REPOSITORY / "broker/odradek/__init__.py", package.parent.parent)

    def objects(commit: int) -> dict[Path, int]:
        """When each file was compiled, after a build of the state of the sources that was committed at this time."""
        work = tmp_path / str(commit)
        work.mkdir()
        sdist = build_sdist(Path(sys.executable), tree, work, work / "sdist.log", commit)
        root = unpack(sdist, work / "unpacked")
        compiled = compiled_directory(root, "tools", tmp_path)
        (root / "build").symlink_to(compiled)
        build = [sys.executable, "setup.py", "build_ext", "--build-lib", work / "lib"]
        subprocess.run(build, cwd=root, env=os.environ | {"ODRADEK_QUICK": "1"}, capture_output=True, check=True)
        finish(compiled)
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("counter.*") if path.suffix in (".c", ".o")}

    now = int(time.time())
    first = objects(now - 1000)
    assert {path.suffix for path in first} == {".c", ".o"}
    (tree / "README.md").write_text("changed\n")
    assert objects(now + 1000) == first
    (package / "counter.h").write_text("#define FIRST 2\n")
    assert len(objects(now + 2000)) == 2 * len(first)  # in a directory of their own


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        ({}, "has no native module"),
        ({"odradek/_ext/a.so": b"ELF\0/root/.pyenv/lib\0"}, "contains the path /root/.pyenv/lib of this machine"),
    ],
)
def test_a_wheel_with_a_path_of_this_machine_or_without_modules_is_refused(
    modules: dict[str, bytes], expected: str, tmp_path: Path
) -> None:
    wheel = tmp_path / "odradek-1.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in modules.items():
            archive.writestr(name, content)
    with pytest.raises(ReleaseFailed, match=re.escape(expected)):
        check_built_wheel(wheel)


def test_checksums_are_those_that_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"2")
    (tmp_path / "a").write_bytes(b"1")
    write_checksums(tmp_path)
    listed = write_checksums(tmp_path).read_text()  # a second list does not contain the first
    assert listed == "".join(
        f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in (("a", b"1"), ("b", b"2"))
    )
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)


def test_results_replace_those_of_an_earlier_release_and_nothing_else(tmp_path: Path) -> None:
    output, results = tmp_path / "dist", tmp_path / "results"
    output.mkdir()
    results.mkdir()
    for name in ("odradek-0.1.0.tar.gz", "odradek_0.1.0-1_amd64.deb", "SHA256SUMS", "notes.txt"):
        (output / name).write_text("old")
    for name in ("odradek-0.2.0.tar.gz", "SHA256SUMS"):
        (results / name).write_text("new")
    replace(output, results)
    assert {path.name: path.read_text() for path in output.iterdir()} == {
        "odradek-0.2.0.tar.gz": "new",
        "SHA256SUMS": "new",
        "notes.txt": "old",
    }


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.1.0", "0.1.0"),
        ("0.2.0rc1", "0.2.0~rc1"),
        ("0.2.0.dev3", "0.2.0~~dev3"),
        ("0.2.0.post1", "0.2.0.post1"),
        ("0.2.0+local.1", "0.2.0+local.1"),
    ],
)
def test_versions_of_python_become_versions_of_debian(version: str, expected: str) -> None:
    assert debian_version(version) == expected


def test_versions_keep_their_order() -> None:
    toolchains.require_command("dpkg", "dpkg")
    ordered = ["0.1.0", "0.2.0.dev3", "0.2.0a1", "0.2.0b1", "0.2.0rc1", "0.2.0", "0.2.0.post1", "0.10.0"]
    for lower, higher in itertools.pairwise(ordered):
        compared = ["dpkg", "--compare-versions", debian_version(lower), "lt", debian_version(higher)]
        assert subprocess.run(compared, check=False).returncode == 0, (lower, higher)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("odradek-0.1.0.tar.gz", "is not a wheel of Odradek"),
        ("odradek-0.1.0-cp39-cp39-manylinux_2_34_x86_64.whl", "is for CPython 3.9, but"),
    ],
)
def test_an_environment_is_made_of_a_wheel_for_its_python_only(name: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    with pytest.raises(EnvironmentFailed, match=expected):
        check_wheel(tmp_path / name, "{}.{}".format(*sys.version_info))


def test_of_the_wheels_of_a_release_an_environment_has_the_one_for_this_machine() -> None:
    wheels = [Path(f"odradek-0.1.0-cp311-cp311-{target.tag}.whl") for target in TARGETS.values()]
    (here,) = [wheel for wheel in wheels if wheel.name.endswith(f"-manylinux_2_28_{platform.machine()}.whl")]
    assert one_of(wheels) == here
    others = [wheel for wheel in wheels if wheel != here]
    assert one_of(others[:1]) == others[0]  # made for another machine
    for none_or_two in (others, [here, here]):
        with pytest.raises(EnvironmentFailed, match=r"[02] of these wheels are for glibc and "):
            one_of(none_or_two)


@pytest.mark.parametrize(
    ("offset", "address", "alignment", "loadable"),
    [
        (0x2000, 0x403000, 0x1000, True),
        (0x2123, 0x403123, 0x1000, True),
        (0x2000, 0x400000, 0x200000, False),  # equal within a small page, but not within the one that the file demands
        (0x2008, 0x403000, 0x1000, False),
        (0x2000, 0x403000, 0x8, False),
    ],
)
def test_a_library_whose_segments_cannot_be_mapped_is_recognized(
    offset: int, address: int, alignment: int, loadable: bool
) -> None:
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    segments = [(PT_LOAD + 3, 1, 2, 8), (PT_LOAD, offset, address, alignment)]  # the first is a note
    table = b"".join(
        struct.pack("<IIQQQQQQ", kind, 5, at, place, place, 16, 16, aligned) for kind, at, place, aligned in segments
    )
    assert is_loadable(header + table) is loadable


def test_a_program_that_runs_is_loadable() -> None:
    assert is_loadable(Path(sys.executable).resolve().read_bytes())


def test_every_dependency_is_pinned_with_a_hash() -> None:
    directory = toolchains.REPOSITORY / "deploy/release"
    pinned = {}
    for kind in ("", "-report", "-build", "-release", "-sbom"):
        name = f"requirements{kind}.txt"
        entries = re.findall(
            r"(?m)^([a-z][a-z0-9.-]*)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})*)", (directory / name).read_text()
        )
        assert [entry[0] for entry in entries if not entry[2]] == []
        pinned[name] = {entry[0]: entry[1] for entry in entries}
    assert {"click", "confluent-kafka", "uvloop"} <= set(pinned["requirements.txt"])
    assert "cyclonedx-bom" in pinned["requirements-sbom.txt"]
    assert pinned["requirements.txt"].items() <= pinned["requirements-report.txt"].items()


def test_every_dependency_of_the_package_is_pinned() -> None:
    project = tomllib.loads((toolchains.REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["clients"], *extras["zookeeper-sasl"]]
    names = {re.match(r"[A-Za-z0-9-]+", text)[0].lower() for text in wanted}
    text = (toolchains.REPOSITORY / "deploy/release/requirements.txt").read_text()
    assert names - set(re.findall(r"(?m)^([a-z][a-z0-9-]*)==", text)) == set()


@pytest.mark.parametrize(
    ("extra", "file"), [("wheel", "requirements-build.txt"), ("release", "requirements-release.txt")]
)
def test_what_builds_wheels_is_pinned(extra: str, file: str) -> None:
    table = tomllib.loads((toolchains.REPOSITORY / "pyproject.toml").read_text())
    wanted = [*table["build-system"]["requires"], *table["project"]["optional-dependencies"][extra]]
    names = {re.match(r"[A-Za-z0-9-]+", text)[0].lower() for text in wanted}
    text = (toolchains.REPOSITORY / "deploy/release" / file).read_text()
    assert names - set(re.findall(r"(?m)^([a-z][a-z0-9-]*)==", text)) == set()


@pytest.mark.parametrize(
    ("name", "address", "expected"),
    [
        ("", "", MAINTAINER),
        ("Platform team", "platform@example.net", "Platform team <platform@example.net>"),
        ("", "Platform team <platform@example.net>", "Platform team <platform@example.net>"),
    ],
)
def test_a_site_names_the_maintainer_of_its_package(
    name: str, address: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEBFULLNAME", name)
    monkeypatch.setenv("DEBEMAIL", address)
    assert maintainer() == expected


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("Platform team", ""),
        ("", "platform@example.net"),
        ("Platform team", "platform"),
        ("Two\nlines", "a@example.net"),
    ],
)
def test_half_of_a_maintainer_is_refused(name: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEBFULLNAME", name)
    monkeypatch.setenv("DEBEMAIL", address)
    with pytest.raises(EnvironmentFailed, match=r"(?s)DEBFULLNAME=.* and DEBEMAIL="):
        maintainer()
