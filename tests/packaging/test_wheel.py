"""A wheel that is built from the sdist holds the whole broker, and runs in an environment in which there is nothing else."""

import sys
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import run
from tests.toolchains import REPOSITORY

pytestmark = [pytest.mark.package, pytest.mark.timeout(2000)]

MOST_BYTES = 8_000_000


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `pip install` builds an sdist: in an environment that has only what `build-system.requires` names.

    Without pip's cache: it would return the wheel of an earlier sdist of the same path.
    """
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "--no-cache-dir", "wheel", "--no-deps", "--wheel-dir", directory, sdist]
    run(*build, cwd=directory, environment={"ODRADEK_QUICK": "1"})
    (built,) = directory.glob("odradek-*.whl")
    return built


def test_a_wheel_from_the_sdist_holds_every_native_module_and_no_source_of_them(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        native = {Path(name).name.partition(".")[0]: archive.read(name) for name in names if name.endswith(".so")}
    assert set(native) == {path.stem for path in (REPOSITORY / "_ext").glob("*/*.pyx")}
    assert [name for name in names if name.endswith((".c", ".h", ".pyx", ".pxd"))] == []
    assert [name for name, module in native.items() if b".debug_info" in module] == []
    assert [name for name, module in native.items() if b".symtab" not in module] == []  # names in perf and gdb
    assert wheel.stat().st_size <= MOST_BYTES
    assert "odradek/py.typed" in names


def test_the_demo_runs_from_a_wheel_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    run(tmp_path / "env/bin/python", "-m", "pip", "install", f"{wheel}[demo]", cwd=tmp_path)
    output = run(tmp_path / "env/bin/odradek", "demo", "--megabytes", "5", cwd=tmp_path)
    assert "every byte and the order within each file: all equal" in output
    assert (tmp_path / "env/share/odradek/grafana/dashboards/odradek-overview.json").is_file()
    assert (tmp_path / "env/share/odradek/deploy/prometheus/rules/alerts.yml").is_file()
