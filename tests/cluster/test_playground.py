"""`make cluster`: where it finds ZooKeeper, and what it needs to be installed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import playground
from tests.toolchains import REPOSITORY

IMPORTED = "import sys, tests.cluster.playground; print(*{name.partition('.')[0] for name in sys.modules})"


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A directory of programs that has none, in a machine without Debian's ZooKeeper."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("ZOOKEEPER", raising=False)
    monkeypatch.setattr(playground, "OF_DEBIAN", tmp_path / "zookeeper.jar")
    return programs


def install(programs: Path, *names: str) -> None:
    for name in names:
        (programs / name).write_text("")
        (programs / name).chmod(0o755)


def test_it_imports_nothing_that_only_developers_install() -> None:
    found = subprocess.run([sys.executable, "-c", IMPORTED], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    assert "odradek" in found.stdout.split()
    assert not {"pytest", "hypothesis", "pyspark", "kio", "numpy", "pandas"} & set(found.stdout.split())


def test_a_machine_without_java_is_told_how_to_get_it(nothing_installed: Path) -> None:
    with pytest.raises(SystemExit, match="default-jre-headless"):
        playground.class_path()


def test_a_machine_without_zookeeper_is_told_three_ways_to_get_it(nothing_installed: Path) -> None:
    install(nothing_installed, "java")
    with pytest.raises(SystemExit, match=r"libzookeeper-java.*ZOOKEEPER=DIRECTORY.*Maven"):
        playground.class_path()


def test_the_jar_of_debian_is_used(nothing_installed: Path) -> None:
    install(nothing_installed, "java")
    playground.OF_DEBIAN.write_text("")
    assert playground.class_path() == str(playground.OF_DEBIAN)


def test_a_download_takes_precedence_and_a_wrong_directory_is_refused(
    nothing_installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(nothing_installed, "java")
    playground.OF_DEBIAN.write_text("")
    download = tmp_path / "apache-zookeeper-3.8.4-bin"
    monkeypatch.setenv("ZOOKEEPER", str(download))
    with pytest.raises(SystemExit, match="no zookeeper-"):
        playground.class_path()
    (download / "lib").mkdir(parents=True)
    (download / "lib/zookeeper-3.8.4.jar").write_text("")
    assert playground.class_path() == f"{download}/lib/*"
