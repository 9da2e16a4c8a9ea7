"""The machines that tests of deployment use: they boot, know each other, keep files over a loss of power, leave nothing."""

from pathlib import Path

import pytest

from tests.deploy.machines import CommandFailed, Machine, Network, machine


def test_two_machines_talk_to_each_other_and_lose_their_power(tmp_path: Path) -> None:
    with Network() as network, machine("one", tmp_path / "one") as one, Machine("two", tmp_path / "two") as two:
        network.attach(one, 2)
        assert network.attach(two, 3) == "10.77.0.3"
        serve = (
            "import socket; s = socket.create_server(('two', 7)); print('up', flush=True); s.accept()[0].send(b'hello')"
        )
        with two.popen("python3", "-c", serve) as server:
            assert server.stdout is not None
            assert server.stdout.readline() == "up\n"
            ask = "import socket; print(socket.create_connection(('two', 7)).makefile().read())"
            assert one.output("python3", "-c", ask) == "hello"
        two.put("kept\n", "/var/lib/some/file", mode=0o600)
        two.run("sync")
        two.kill()
        assert two.start() is None
        assert two.read("/var/lib/some/file") == "kept\n"
        assert two.output("stat", "--format=%a", "/var/lib/some/file") == "600"
        assert not one.exists("/var/lib/some/file")
        with pytest.raises(CommandFailed, match=r"two: false ended with 1"):
            two.run("false")
    assert not (tmp_path / "one").exists()
