"""The headers of requests and responses by API and version, and the registry of APIs."""

from __future__ import annotations

import struct

import pytest

from odradek.protocol import ProtocolError, encode, registry
from odradek.protocol.schemas.header import (
    RequestHeader,
    decode_request_header,
    request_header_version,
    response_header_version,
)


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (0, 8, 1, 0),
        (0, 9, 2, 1),
        (7, 0, 0, 0),
        (7, 1, 1, 0),
        (7, 3, 2, 1),
        (17, 1, 1, 0),
        (18, 2, 1, 0),
        (18, 3, 2, 0),
        (18, 4, 2, 0),
        (18, 99, 2, 0),
        (47, 0, 1, 0),
        (60, 0, 2, 1),
    ],
)
def test_the_version_of_a_header_follows_from_the_api_and_its_version(
    key: int, version: int, request_header: int, response_header: int
) -> None:
    assert request_header_version(key, version) == request_header
    assert response_header_version(key, version) == response_header


def test_a_request_header_is_decoded_in_the_version_of_its_api() -> None:
    for key, version in ((3, 1), (3, 12), (7, 0), (18, 3), (18, 1000)):
        head = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=-5)
        header_version = request_header_version(key, version)
        if header_version:
            head.client_id = "client"
        data = encode(head, header_version)
        assert decode_request_header(b"..." + data + b"body", 3) == (head, 3 + len(data))


def test_the_header_of_an_unknown_api_is_decoded_as_far_as_possible() -> None:
    fixed = struct.pack(">hhi", 999, 3, 42)
    with_client, _ = decode_request_header(fixed + b"\0\3abc\0rest")
    assert (with_client.request_api_key, with_client.correlation_id, with_client.client_id) == (999, 42, "abc")
    for rest in (b"", b"\x7f\xff", b"\0\1\xff"):
        without, _ = decode_request_header(fixed + rest)
        assert (without.request_api_version, without.correlation_id, without.client_id) == (3, 42, "")


@pytest.mark.parametrize("size", range(14))
def test_a_request_header_cut_short_is_refused(size: int) -> None:
    data = encode(RequestHeader(request_api_key=3, request_api_version=9, client_id="abc"), 2)
    assert len(data) == 14
    with pytest.raises(ProtocolError):
        decode_request_header(data[:size])


def test_a_negative_version_is_read_with_the_old_header() -> None:
    data = encode(RequestHeader(request_api_key=3, request_api_version=-1, client_id="abc"), 1)
    assert decode_request_header(data)[0].request_api_version == -1


def test_apis_are_found_by_key() -> None:
    schema = registry.by_key(3)
    assert (schema.key, schema.name, schema.min_version, schema.max_version, schema.flexible_since) == (
        3,
        "Metadata",
        0,
        13,
        9,
    )
    assert registry.by_key(3) is schema
    for key in registry.ALL_KEYS:
        assert registry.by_key(key).key == key
    for key in (-1, 93, 32767):
        with pytest.raises(registry.UnknownApiError, match=str(key)):
            registry.by_key(key)
