"""The SASL settings of listeners: what a broker starts with, and the line with which it does not."""

import pytest

from odradek.config.broker_config import load
from odradek.config.errors import ConfigError
from odradek.security.sasl.settings import all_settings
from tests.sasl import PLAIN_LINE

IN = ["listeners=IN://:9092", "listener.security.protocol.map=IN:SASL_PLAINTEXT", "inter.broker.listener.name=IN"]
SCRAM_LINE = "org.apache.kafka.common.security.scram.ScramLoginModule required username=x password=hidden;"
LINE = f"listener.name.in.plain.sasl.jaas.config={PLAIN_LINE}"


def settings(*lines):
    return all_settings(load(None, [*IN, *lines], to_start=True))["IN"]


def test_the_most_specific_setting_of_a_listener_counts():
    lines = [
        "sasl.enabled.mechanisms=GSSAPI",
        "listener.name.in.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512,PLAIN",
        LINE,
    ]
    lifetimes = ["connections.max.reauth.ms=1", "listener.name.in.connections.max.reauth.ms=2"]
    found = settings(*lines, *lifetimes, "listener.name.in.scram-sha-512.connections.max.reauth.ms=3")
    assert found.mechanisms == ("PLAIN", "SCRAM-SHA-512") and set(found.users) == {"admin", "alice"}
    assert (found.lifetime_ms("PLAIN"), found.lifetime_ms("SCRAM-SHA-512")) == (2, 3)
    assert "alice" not in f"{found} {found!r}"


def test_mechanisms_that_are_not_supported_yet_are_left_out():
    found = settings("sasl.enabled.mechanisms=GSSAPI,SCRAM-SHA-256")
    assert (found.mechanisms, found.missing) == (("SCRAM-SHA-256",), ("GSSAPI",))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            [],
            "sasl.enabled.mechanisms=GSSAPI (the default): listener IN has the protocol SASL_PLAINTEXT, but none",
        ),
        (["listener.name.in.sasl.enabled.mechanisms=GSSAPI"], "must contain at least one of PLAIN, SCRAM-SHA-256"),
        (["sasl.enabled.mechanisms=SCRAM-SHA-1"], "must contain only GSSAPI, PLAIN"),
        (["sasl.enabled.mechanisms=scram-sha-256"], "not 'scram-sha-256'"),
        (["sasl.enabled.mechanisms=PLAIN"], "listener.name.in.plain.sasl.jaas.config: must be set"),
        (
            ["sasl.enabled.mechanisms=PLAIN", f"sasl.jaas.config={PLAIN_LINE}"],
            "listener.name.in.plain.sasl.jaas.config: must be set",
        ),
        (
            ["sasl.enabled.mechanisms=PLAIN", f"listener.name.in.plain.sasl.jaas.config={SCRAM_LINE}"],
            "must name the login module Plain",
        ),
        (["sasl.enabled.mechanisms=PLAIN", LINE[:-1]], "must end with ';'"),
        (
            ["sasl.enabled.mechanisms=SCRAM-SHA-256", f"listener.name.in.scram-sha-256.sasl.jaas.config={PLAIN_LINE}"],
            "must name the login module Scram",
        ),
    ],
)
def test_one_line_says_why_a_listener_cannot_be_used(lines, words):
    with pytest.raises(ConfigError) as caught:
        settings(*lines)
    assert words in str(caught.value) and "hidden;" not in str(caught.value) and "secret" not in str(caught.value)


def test_a_file_of_kafka_with_scram_needs_no_change():
    found = settings(
        "sasl.enabled.mechanisms=SCRAM-SHA-256", f"listener.name.in.scram-sha-256.sasl.jaas.config={SCRAM_LINE}"
    )
    assert found.mechanisms == ("SCRAM-SHA-256",)
