"""Modules that a broker imports after its start are of the version that has started."""

import importlib
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

import odradek
from odradek.processes.supervisor import late_imports
from odradek.processes.supervisor.late_imports import LateImports
from odradek.protocol.schemas import elect_leaders
from odradek.testing import Broker
from tests.waiting import until
from tests.wire import Wire

ELECT_LEADERS = 43
LOGGED = re.compile(r" ERROR coordinator-0.* version 9\.9 of odradek was installed while this broker runs version ")
UNUSED = "odradek.api.cluster.elect_leaders"


def install(file: Path, version: str) -> None:
    """Replace a file as installers do: by another file."""
    new = file.with_name("new")
    new.write_text(f'"""A package."""\n\n__version__ = "{version}"\n')
    new.replace(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "__init__.py"
    install(file, "1.0")
    return file


def test_modules_of_the_same_version_are_left_to_other_finders(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    finder = LateImports(file, "1.0")
    assert finder.find_spec("odradek.api.table") is None
    install(file, "1.0")
    assert finder.find_spec("odradek.api.table") is None
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda file: install(file, "1.1"), "version 1.1 of odradek was installed"),
        (lambda file: file.write_text("something else\n"), "version (unknown) of odradek was installed"),
        (Path.unlink, "odradek was removed"),
    ],
)
def test_modules_of_another_version_are_refused_and_it_is_logged_once(
    file: Path, caplog: pytest.LogCaptureFixture, change, text: str
) -> None:
    finder = LateImports(file, "1.0")
    change(file)
    for _ in range(2):
        with pytest.raises(ImportError) as refused:
            finder.find_spec("odradek.api.table")
        assert str(refused.value) == (
            f"{text} while this broker runs version 1.0: restart the broker; cannot import odradek.api.table"
        )
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert caplog.messages[0].startswith(f"{text} while this broker runs version 1.0: restart the broker; ")
    assert finder.find_spec("json") is None and finder.find_spec("odradek_of_others") is None
    install(file, "1.0")
    assert finder.find_spec("odradek.api.table") is None


def test_the_finder_is_there_while_a_broker_runs_and_refuses_an_import(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    monkeypatch.setattr(odradek, "__file__", str(file))
    before = list(sys.meta_path)
    monkeypatch.delitem(sys.modules, UNUSED, raising=False)
    with late_imports.refused_after_upgrade():
        install(file, "1.0")
        with pytest.raises(ImportError, match=r"version 1\.0 of odradek was installed"):
            importlib.import_module(UNUSED)
        assert UNUSED not in sys.modules
    assert sys.meta_path == before
    importlib.import_module(UNUSED)


def test_a_package_that_is_no_directory_is_not_watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(odradek, "__file__", str(tmp_path / "program.zip/odradek/__init__.py"))
    before = list(sys.meta_path)
    with late_imports.refused_after_upgrade():
        assert sys.meta_path == before


def test_a_broker_whose_program_was_replaced_says_so_and_serves_what_it_has_loaded(tmp_path: Path) -> None:
    copy = tmp_path / "program"
    shutil.copytree(
        Path(odradek.__file__).parent, copy / "odradek", ignore=shutil.ignore_patterns("*.c", "*.pyx", "*.pxd")
    )
    environment = {"PYTHONPATH": os.pathsep.join([str(copy), *sys.path])}
    with Broker({"num.network.threads": 1}, {"orders": 1}, environment=environment) as broker:
        install(copy / "odradek/__init__.py", "9.9")
        with Wire.to(broker) as wire:
            wire.send(elect_leaders.Request(topic_partitions=None), ELECT_LEADERS, 2)
            assert wire.closed_by_broker()
        with Wire.to(broker) as wire:
            assert wire.create("more")
            assert {topic.name for topic in wire.metadata("orders", "more").topics} == {"orders", "more"}
        until(lambda: LOGGED.search(broker.log_file.read_text()), broker.log_file.read_text)
