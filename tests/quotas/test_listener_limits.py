"""Limits of connections that are configured for one listener, in a running broker."""

from pathlib import Path

from odradek.protocol.schemas import api_versions
from odradek.testing import Broker
from tests.ports import reserved
from tests.waiting import readable
from tests.wire import Wire


def served(wire: Wire) -> bool:
    return bool(wire.ask(api_versions.Request(), 18, 0).error_code == 0)


def test_a_listener_that_is_full_waits_and_others_serve(tmp_path: Path) -> None:
    with reserved() as port:
        listener_is_full(tmp_path, port)


def listener_is_full(tmp_path: Path, port: int) -> None:
    config = {
        "num.network.threads": 1,
        "listeners": f"PLAINTEXT://127.0.0.1:0,SMALL://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SMALL:PLAINTEXT",
        "listener.name.small.max.connections": 2,
        "listener.name.small.max.connection.creation.rate": 1000,
    }
    with Broker(config, directory=tmp_path) as broker:
        first, second = (Wire("127.0.0.1", port) for _ in range(2))
        assert served(first) and served(second)
        waiting = Wire("127.0.0.1", port)
        waiting.send(api_versions.Request(), 18, 0)
        with Wire.to(broker) as other:
            assert served(other)
        assert not readable(waiting.socket, 0.2)
        first.socket.close()
        assert waiting.receive().error_code == 0, "it is served when another one was closed"
        for wire in (second, waiting):
            wire.socket.close()
