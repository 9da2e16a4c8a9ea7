"""The socket on which the coordinator returns the cut: clients that do not read, and too many of them."""

import asyncio
import json
import socket
from types import SimpleNamespace

import pytest

from odradek.config.pid_file import FILES_OF_A_RUN
from odradek.processes.coordinator import cut_socket
from odradek.processes.coordinator.cut_socket import MOST_CLIENTS, CutSocket
from odradek.testing import Broker
from tests.waiting import until, until_async

LARGE = {"partitions": ["x" * 1000] * 2_000}


@pytest.fixture
def cuts(tmp_path, monkeypatch):
    """The directory of the socket, and the number of cuts that were taken."""
    taken = []

    def take(context):
        taken.append(context)
        return LARGE

    monkeypatch.setattr(cut_socket, "take_cut", take)
    return tmp_path, taken


def connect(directory):
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(directory / "odradek.cut.sock"))
    return client


def read(client):
    with client:
        client.settimeout(60)
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


async def opened(directory):
    server = CutSocket(SimpleNamespace(log_dirs=[directory]), asyncio.get_running_loop())
    server.start()
    return server


def test_clients_that_do_not_read_delay_neither_others_nor_the_stop(cuts):
    directory, taken = cuts

    async def run():
        server = await opened(directory)
        assert (directory / "odradek.cut.sock").stat().st_mode & 0o777 == 0o600
        silent = [connect(directory) for _ in range(MOST_CLIENTS - 1)]
        await until_async(lambda: len(taken) == MOST_CLIENTS - 1, "the first clients are served")
        assert json.loads(await asyncio.to_thread(read, connect(directory))) == LARGE
        server.close()
        with pytest.raises(ConnectionRefusedError):
            connect(directory)
        await asyncio.wait_for(asyncio.get_running_loop().shutdown_default_executor(), 20)  # below SEND_TIMEOUT_S
        for client in silent:
            client.close()

    asyncio.run(run())


def test_too_many_clients_receive_nothing(cuts):
    directory, taken = cuts

    async def run():
        server = await opened(directory)
        silent = [connect(directory) for _ in range(MOST_CLIENTS)]
        await until_async(lambda: len(taken) == MOST_CLIENTS, "all places are taken")
        assert await asyncio.to_thread(read, connect(directory)) == b""
        assert len(taken) == MOST_CLIENTS
        silent.pop().close()
        await until_async(lambda: len(server._clients) < MOST_CLIENTS, "a place is free")
        assert json.loads(await asyncio.to_thread(read, connect(directory))) == LARGE
        server.close()
        for client in silent:
            client.close()

    asyncio.run(run())


def test_a_socket_that_cannot_be_created_is_a_warning(cuts, caplog):
    directory, _ = cuts

    async def run():
        server = await opened(directory / "missing")
        server.close()

    asyncio.run(run())
    assert "cannot create" in caplog.text and "No such file or directory" in caplog.text


def test_the_coordinator_can_close_it_after_its_directory_has_failed(cuts):
    directory, _ = cuts

    async def run():
        server = await opened(directory)
        (directory / "file").touch()
        server._context.log_dirs[0] = directory / "file"  # as a name below it, no file can be looked for or removed
        server.close()

    asyncio.run(run())


def test_a_broker_that_has_stopped_leaves_no_file_of_its_run():
    with Broker() as broker:

        def found() -> set[str]:
            return {path.name for path in broker.data_dir.glob("odradek.*")}

        until(lambda: found() == set(FILES_OF_A_RUN), lambda: f"{found()}")
        broker.stop()
        assert not found()
