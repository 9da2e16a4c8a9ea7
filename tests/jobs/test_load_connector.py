"""Where Spark's Kafka connector comes from, and that no jar with another checksum than the known one is used."""

import hashlib
import re
import tomllib
from pathlib import Path

import pytest

from odradek.jobs.load import connector
from odradek.jobs.load.errors import LoadError
from tests.toolchains import REPOSITORY

PATHS = ("org/a/a-1.jar", "org/b/b-1.jar")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two jars, and an empty cache in which they are looked for."""
    root = tmp_path / "maven"
    jars = {}
    for path in PATHS:
        (root / path).parent.mkdir(parents=True)
        (root / path).write_bytes(path.encode())
        jars[path] = hashlib.sha256(path.encode()).hexdigest()
    monkeypatch.setattr(connector, "JARS", jars)
    monkeypatch.setattr(connector, "_CENTRAL", f"{root.as_uri()}/")
    monkeypatch.setattr(connector, "_of_pyspark", lambda: (connector.PYSPARK, False))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return root


def found(reader: str = connector.AUTO, **settings: str) -> tuple[str, dict[str, str]]:
    return connector.find(reader, None, settings)


def test_jars_are_downloaded_once(repository: Path) -> None:
    kind, settings = found()
    files = [Path(path) for path in settings["spark.jars"].split(",")]
    assert kind == connector.KAFKA and [file.read_bytes().decode() for file in files] == list(PATHS)
    for path in PATHS:
        (repository / path).unlink()
    assert found() == (kind, settings)
    assert sorted(files[0].parent.iterdir()) == sorted(files), "no temporary file is left"


@pytest.mark.parametrize("reader", [connector.AUTO, connector.KAFKA])
def test_a_jar_with_another_checksum_is_refused_and_not_kept(repository: Path, tmp_path: Path, reader: str) -> None:
    (repository / PATHS[1]).write_bytes(b"other")
    with pytest.raises(LoadError, match=r"b-1.jar has the SHA-256 [0-9a-f]{64}, and should have"):
        found(reader)
    assert [path.name for path in (tmp_path / "cache").rglob("*.jar*")] == ["a-1.jar"]


def test_a_jar_that_was_changed_in_the_cache_is_refused(repository: Path) -> None:
    first = Path(found()[1]["spark.jars"].split(",")[0])
    first.write_bytes(b"changed")
    with pytest.raises(LoadError, match=r"a-1.jar has the SHA-256"):
        found()


def test_without_the_repository_the_default_reads_in_python(repository: Path) -> None:
    (repository / PATHS[0]).unlink()
    assert found() == (connector.PYTHON, {})
    with pytest.raises(LoadError, match="cannot be downloaded"):
        found(connector.KAFKA)


def test_another_version_of_pyspark_has_no_known_jars(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "_of_pyspark", lambda: ("4.9.9", False))
    assert found() == (connector.PYTHON, {})
    with pytest.raises(LoadError, match=r"known for PySpark .* only, and this is 4.9.9"):
        found(connector.KAFKA)


def test_a_repository_that_the_user_names_is_left_to_spark(repository: Path) -> None:
    settings = connector.find(connector.AUTO, None, {"spark.jars.repositories": "https://maven.example"})[1]
    assert settings == {"spark.jars.packages": f"org.apache.spark:{connector._ARTIFACT}:{connector.PYSPARK}"}


def test_the_known_jars_are_those_of_the_pinned_pyspark() -> None:
    table = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert f"pyspark=={connector.PYSPARK}" in table["project"]["optional-dependencies"]["jobs"]
    assert sum(f"/{connector.PYSPARK}/" in path for path in connector.JARS) == 2
    assert all(re.fullmatch("[0-9a-f]{64}", checksum) for checksum in connector.JARS.values())
