"""Nodes with garbage: every decoder reports them in one way, and a wrong node costs only what it describes."""

import inspect
import logging

import pytest

from odradek.metadata import corrupt_nodes, znodes
from odradek.metadata.corrupt_nodes import usable

GARBAGE = (
    b"no json", b"\xff\xfe", b"{", b"[]", b"[1]", b"null", b"1", b'"text"', b"{}", b"NaN", b"[" * 100_000,
    b'{"version":1}', b'{"partitions":[]}', b'{"partitions":{"0":1}}', b'{"partitions":{"x":[1]}}',
    b'{"partitions":{"0":[null]}}',    b'{"partitions":{"0":[1e999]}}', b'{"version":3,"partitions":{},"topic_id":"x"}',
    b'{"partitions":{},"topic_id":7}',
    b'{"config":[]}', b'{"config":7}', b'{"config":null}', b'{"version":1e999,"entity_path":"x"}', b'{"version":1}',
    b'{"endpoints":["nonsense"],"timestamp":"1","jmx_port":1}', b'{"endpoints":[7],"timestamp":"1","jmx_port":1}',
    b'{"endpoints":["P://h:70000"],"timestamp":"1","jmx_port":1}', b'{"endpoints":[],"timestamp":"x","jmx_port":1}',
    b'{"endpoints":["P://h:1"],"listener_security_protocol_map":7,"timestamp":"1","jmx_port":1}',
    b'{"brokerid":1e999}', b'{"brokerid":"x"}', b'{"broker":1,"block_start":"1","block_end":"x"}',
    b'{"controller_epoch":1,"leader":1e999,"leader_epoch":1,"isr":[1]}',
    b'{"controller_epoch":1,"leader":1,"leader_epoch":1,"isr":7}',
)  # fmt: skip

DECODERS = {
    "decode_topic": lambda data: znodes.decode_topic("t", data),
    "decode_state": lambda data: znodes.decode_state("t", 0, data),
    "decode_config": lambda data: znodes.decode_config("/config/topics/t", data),
    "decode_config_change": lambda data: znodes.decode_config_change("/config/changes/config_change_1", data),
    "decode_broker": lambda data: znodes.decode_broker(1, data),
    "decode_controller": znodes.decode_controller,
    "decode_controller_epoch": znodes.decode_controller_epoch,
    "decode_cluster_id": znodes.decode_cluster_id,
    "decode_producer_id_block": znodes.decode_producer_id_block,
}
"""All decoders of nodes."""


def test_the_table_has_all_decoders():
    defined = {
        name for name, function in inspect.getmembers(znodes, inspect.isfunction)
        if name.startswith("decode_") and function.__module__ == znodes.__name__
    }  # fmt: skip
    assert defined - {"decode_name", "decode_uuid"} == set(DECODERS)


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_reports_garbage_in_one_way(name):
    refused = 0
    for data in GARBAGE:
        try:
            DECODERS[name](data)
        except znodes.CorruptNode:
            refused += 1
    assert refused > 5


def test_an_error_is_logged_once_for_each_content(caplog, monkeypatch):
    monkeypatch.setattr(corrupt_nodes, "_logged", {})

    def read(data):
        return usable("/config/topics/t", lambda: znodes.decode_config("/config/topics/t", data), None, "it has none")

    with caplog.at_level(logging.ERROR):
        assert [read(b"x"), read(b"x"), read(b"y"), read(b""), read(b"x")] == [None, None, None, {}, None]
    assert len(caplog.records) == 3
    assert "it has none until the node is correct" in caplog.text


def test_names_that_are_no_broker_ids_are_ignored():
    assert znodes.broker_ids(["1", "x", "-1", "02x", "10", ""]) == [1, 10]
