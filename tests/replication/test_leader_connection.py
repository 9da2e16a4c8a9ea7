"""A question to a leader whose response comes too late."""

import socket

import pytest

from odradek.protocol import encode_frame
from odradek.protocol.schemas import api_versions, list_offsets
from odradek.protocol.schemas.header import ResponseHeader, decode_request_header, response_header_version
from odradek.replication.leader_connection import LeaderConnection, LeaderError
from tests.threaded_server import ThreadedServer, received_frame

VERSION = 4


def serve(client: socket.socket, _: int) -> None:
    """Answer ApiVersions, and nothing else."""
    while frame := received_frame(client):
        header = decode_request_header(frame[4:])[0]
        if header.request_api_key != api_versions.API_KEY:
            continue
        row = api_versions.Response.ApiVersion
        keys = ((api_versions.API_KEY, 3), (list_offsets.API_KEY, VERSION))
        message = api_versions.Response(
            api_keys=[row(api_key=key, min_version=0, max_version=last) for key, last in keys]
        )
        version = header.request_api_version
        answer = encode_frame(
            ResponseHeader(correlation_id=header.correlation_id),
            response_header_version(api_versions.API_KEY, version),
            message,
            version,
        )
        client.sendall(answer)


def test_a_connection_without_a_response_in_time_is_closed() -> None:
    """Else the late response would be taken for that of the next question, about another offset."""
    server = ThreadedServer(serve)
    try:
        connection = LeaderConnection(("127.0.0.1", server.port), "c", 0.2, setup_s=30)
        with pytest.raises(LeaderError, match="no response to ListOffsets"):
            connection.offset_of("t", 0, 0, 1, latest=True)
        assert connection.fileno() == -1
        with pytest.raises(LeaderError):
            connection.offset_of("t", 0, 0, 1, latest=False)
    finally:
        server.close()
