"""The end of a Spark session whose Java is gone: systemd and a shell send a signal to all processes of a command."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.jobs.usage_report import session


class Builder:
    """Takes the place of SparkSession.builder; what it makes cannot be stopped."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self

    def getOrCreate(self) -> Any:
        def stop() -> None:
            raise ConnectionRefusedError("Java is gone")

        return SimpleNamespace(conf=SimpleNamespace(set=lambda *_: None), stop=stop)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("pyspark.sql.SparkSession", SimpleNamespace(getActiveSession=lambda: None, builder=Builder()))
    monkeypatch.setattr(session, "check_java", lambda: None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    return tmp_path / "spark.log"


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_ended_the_job_is_told_and_not_that_spark_could_not_be_stopped(
    log: Path, tmp_path: Path, error: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        pytest.raises(error, match="the first"),
        session.spark_session("local[1]", log, tmp_path, "1g", True),
    ):
        raise error("the first")
    assert "Spark could not be stopped: ConnectionRefusedError('Java is gone')" in capsys.readouterr().err


def test_a_session_that_cannot_be_stopped_after_its_job_is_an_error(log: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(ConnectionRefusedError, match="Java is gone"),
        session.spark_session("local[1]", log, tmp_path, "1g", True),
    ):
        pass
