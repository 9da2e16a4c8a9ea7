"""odradek user: on a running broker, and on a stopped one for its first user."""

import os
import stat

import pytest

from odradek.security.sasl.client import Credentials
from odradek.testing import Broker
from tests.cli.command import Command
from tests.sasl import SaslWire, settings

pytestmark = pytest.mark.xdist_group("users")


def test_the_first_user_is_added_to_a_stopped_broker_and_others_to_the_running_one(tmp_path):
    data = tmp_path / "data"
    stopped = Command("127.0.0.1:1")
    assert "user 'root'" in stopped(
        "user", "add", "root", "--data-dir", data, "--password-file", "-", stdin="root-secret\n"
    )
    assert stopped.json("user", "list", "--data-dir", data) == [
        {"user": "root", "mechanism": f"SCRAM-SHA-{bits}", "iterations": 4096} for bits in (256, 512)
    ]
    with Broker(settings(), directory=tmp_path) as broker:
        root = Credentials("SCRAM-SHA-512", "root", "root-secret")
        with SaslWire.on(broker) as wire:
            wire.log_in(root)
        words = ["stop that broker", "without --data-dir"]
        stopped.refused("user", "add", "x", "--data-dir", data, "--password-file", "-", stdin="x\n", words=words)
        running = Command(broker.bootstrap_servers)
        secret = tmp_path / "password"
        secret.write_text("bob secret\n")
        options = ("--mechanism", "scram-sha-256", "--iterations", 8192)
        added = running.json("user", "add", "bob", *options, "--password-file", secret)
        assert added == {"user": "bob", "mechanisms": ["SCRAM-SHA-256"], "iterations": 8192}
        assert running.json("user", "describe", "bob") == [
            {"user": "bob", "mechanism": "SCRAM-SHA-256", "iterations": 8192}
        ]
        assert "bob" in running("user", "list") and "root" in running("user", "list")
        with SaslWire.on(broker) as wire:
            wire.log_in(Credentials("SCRAM-SHA-256", "bob", "bob secret"))
        assert running.json("user", "remove", "bob", "--yes") == {"user": "bob", "removed": ["SCRAM-SHA-256"]}
        running.refused("user", "remove", "bob", "--yes", words=["user 'bob' has no SCRAM credential"])
        running.refused("user", "describe", "bob", words=["user 'bob' has no SCRAM credential"])
        running.refused("user", "remove", "root", words=["add --yes"])
        assert "secret" not in broker.log_file.read_text()
    assert stopped("user", "remove", "root", "--yes", "--data-dir", data, "--mechanism", "SCRAM-SHA-256")
    assert [one["mechanism"] for one in stopped.json("user", "describe", "root", "--data-dir", data)] == [
        "SCRAM-SHA-512"
    ]


def test_nobody_else_can_read_the_store_that_the_command_makes(tmp_path):
    data, former = tmp_path / "new" / "data", os.umask(0o022)
    try:
        Command("127.0.0.1:1")("user", "add", "root", "--data-dir", data, "--password-file", "-", stdin="secret\n")
    finally:
        os.umask(former)
    assert stat.S_IMODE(data.stat().st_mode) == 0o750
    store = data / "odradek-metadata.db"
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    store.chmod(0o644)  # as former versions made it
    with Broker(settings(), directory=tmp_path / "new"):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in data.glob("odradek-metadata.db*")}
    assert len(modes) >= 3 and not any(mode & 0o007 for mode in modes.values()), modes


def test_wrong_uses(tmp_path):
    command = Command("127.0.0.1:1")
    command.refused("user", "list", "--data-dir", tmp_path, words=["has no metadata store"])
    command.refused("user", "add", "x", words=["--password-file"])
    command.refused("user", "add", "x", "--password-file", "-", stdin="\n", words=["contains no password"])
    command.refused(
        "user", "add", "", "--data-dir", tmp_path, "--password-file", "-", stdin="x\n", words=["must not be empty"]
    )
    command.refused("user", "describe", "x", "--data-dir", tmp_path, words=["user 'x' has no SCRAM credential"])
