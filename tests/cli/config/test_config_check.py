"""odradek config check: refuses what a start would refuse, and with --strict also unknown keys."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.cli.config.check import check
from tests.toolchains import REPOSITORY

SHIPPED = REPOSITORY / "deploy" / "systemd" / "server.properties"


def checked(path: Path, text: str, *options: str) -> Result:
    (path / "server.properties").write_text(text)
    return CliRunner().invoke(check, [str(path / "server.properties"), *options])


def test_the_shipped_configuration_can_be_used_and_nothing_is_created(tmp_path: Path) -> None:
    result = checked(tmp_path, SHIPPED.read_text(), "--strict", "--set", f"log.dirs={tmp_path / 'data'}")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["server.properties"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("log.dirs=/x\nnum.network.threads=many\n", ["num.network.threads=many", ":2"]),
        ("log.dirs=/x\nlisteners=SSL://:1\nssl.keystore.location=/none.pem\n", ["ssl.keystore.location=/none.pem"]),
        ("log.dirs=/x\nlisteners=SASL_PLAINTEXT://:1\ninter.broker.listener.name=SASL_PLAINTEXT\n", ["mechanism"]),
        ("log.dirs=/x\ncreate.topic.policy.class.name=none.Policy\n", ["none.Policy"]),
    ],
)
def test_what_a_start_refuses_is_refused(tmp_path: Path, text: str, words: list[str]) -> None:
    result = checked(tmp_path, text)
    assert result.exit_code == 1
    for word in words:
        assert word in result.stderr


def test_an_unknown_key_is_an_error_only_if_strict(tmp_path: Path) -> None:
    text = "log.dirs=/x\nlistener=PLAINTEXT://:1\nlog.dir.=/y\n"
    assert checked(tmp_path, text).exit_code == 0
    strict = checked(tmp_path, text, "--strict")
    assert strict.exit_code == 1
    first, second = strict.stderr.splitlines()
    assert "unknown key listener" in first and "did you mean 'listeners'" in first
    assert "unknown key log.dir." in second


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(check, [str(tmp_path / "none")])
    assert result.exit_code == 1
    assert f"cannot read the configuration file {tmp_path / 'none'}" in result.stderr
