"""listeners, advertised.listeners and listener.security.protocol.map."""

import os

import pytest

from odradek.config.broker_config import load
from odradek.config.errors import ConfigError
from odradek.config.listeners import Listener


def listen(text, *more):
    return load(None, [f"listeners={text}", *more])


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("PLAINTEXT://127.0.0.1:9092", Listener("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")),
        ("plaintext://:0", Listener("PLAINTEXT", "", 0, "PLAINTEXT")),
        ("PLAINTEXT://[::1]:9092", Listener("PLAINTEXT", "::1", 9092, "PLAINTEXT")),
        ("PLAINTEXT://[fe80::1%eth0]:1", Listener("PLAINTEXT", "fe80::1%eth0", 1, "PLAINTEXT")),
        ("PLAINTEXT://kafka-1.example.org:65535", Listener("PLAINTEXT", "kafka-1.example.org", 65535, "PLAINTEXT")),
    ],
)
def test_addresses(text, listener):
    config = listen(text)
    assert config.listeners == (listener,)
    assert str(listener).upper() == text.upper()


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1:9092",
        "PLAINTEXT://127.0.0.1",
        "PLAINTEXT://127.0.0.1:",
        "PLAINTEXT://::1:9092",
        "PLAINTEXT://[127.0.0.1]:9092",
        "PLAINTEXT://h:65536",
        "PLAINTEXT://h:-1",
        "PLAINTEXT://h:9092/path",
        "PLAINTEXT://a b:9092",
        "://h:9092",
        "PLAINTEXT://h:٣",
        "",
        "PLAINTEXT://:1,,PLAINTEXT2://:2",
    ],
)
def test_malformed_addresses_are_refused(text):
    with pytest.raises(ConfigError, match=r"^listeners=.*\(--set\)$"):
        listen(text)


def test_several_listeners_need_names_in_the_protocol_map():
    protocols = "listener.security.protocol.map=IN:PLAINTEXT,OUT:PLAINTEXT"
    config = listen("IN://127.0.0.1:9092,OUT://[::1]:9093", protocols)
    assert [listener.name for listener in config.listeners] == ["IN", "OUT"]
    assert config.inter_broker_listener.name == "IN"
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map must contain OTHER:PROTOCOL"):
        listen("IN://:1,OTHER://:2", protocols)


def test_a_bad_protocol_map_is_refused():
    for bad in ("IN:TLS", "IN", "IN:SSL,in:SSL"):
        with pytest.raises(ConfigError, match=r"^listener.security.protocol.map=.*\(--set\)"):
            load(None, [f"listener.security.protocol.map={bad}"])


def test_a_name_twice_and_a_port_twice_are_refused():
    with pytest.raises(ConfigError, match="PLAINTEXT is used twice"):
        listen("PLAINTEXT://:1,PLAINTEXT://:2")
    protocols = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"
    for addresses in ("A://:9092,B://:9092", "A://127.0.0.1:9092,B://127.0.0.2:9092", "A://:9092,B://[::1]:9092"):
        with pytest.raises(ConfigError, match="port 9092 is used twice"):
            listen(addresses, protocols)


def test_one_port_may_serve_an_ipv4_and_an_ipv6_address_and_zero_is_free():
    protocols = "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT"
    assert len(listen("A://127.0.0.1:9092,B://[::1]:9092", protocols).listeners) == 2
    assert len(listen("A://127.0.0.1:0,B://127.0.0.1:0", protocols).listeners) == 2


def test_all_interfaces_are_advertised_by_the_machine_s_name():
    for host in ("", "0.0.0.0", "[::]"):
        assert listen(f"PLAINTEXT://{host}:9092").advertised_listeners[0].host == os.uname().nodename
    assert listen("PLAINTEXT://127.0.0.1:9092").advertised_listeners[0].host == "127.0.0.1"


def test_advertised_addresses_must_be_listened_on_and_reachable():
    with pytest.raises(ConfigError, match="listeners does not contain SSL"):
        listen("PLAINTEXT://:9092", "advertised.listeners=SSL://h:9092")
    with pytest.raises(ConfigError, match="reach"):
        listen("PLAINTEXT://:9092", "advertised.listeners=PLAINTEXT://0.0.0.0:9092")
    two = listen("PLAINTEXT://:9092", "advertised.listeners=PLAINTEXT://lb.example.org:31000")
    assert two.advertised_listeners == (Listener("PLAINTEXT", "lb.example.org", 31000, "PLAINTEXT"),)


def test_the_listener_among_brokers_must_be_advertised():
    with pytest.raises(ConfigError, match="advertised listener: PLAINTEXT"):
        listen("PLAINTEXT://:9092", "inter.broker.listener.name=OTHER")
    with pytest.raises(ConfigError, match="together"):
        listen("PLAINTEXT://:1", "inter.broker.listener.name=PLAINTEXT", "security.inter.broker.protocol=PLAINTEXT")


def test_the_listener_among_brokers_has_any_protocol():
    cluster = ["zookeeper.connect=h:2181", "broker.id=1", "listeners=SSL://h:9093,PLAINTEXT://h:9092"]
    assert load(None, cluster).inter_broker_listener.name == "PLAINTEXT"
    for setting in ("security.inter.broker.protocol=SSL", "inter.broker.listener.name=SSL"):
        assert load(None, [*cluster, setting]).inter_broker_listener == Listener("SSL", "h", 9093, "SSL")
    with pytest.raises(ConfigError, match="must be the protocol of an advertised listener"):
        load(None, [*cluster, "security.inter.broker.protocol=SASL_SSL"])
    alone = load(None, ["listeners=SSL://h:9093"])
    assert alone.inter_broker_listener.name == "SSL", "there is no other broker"


def test_a_value_of_a_listener_has_precedence_over_the_general_one_and_that_of_a_mechanism_over_both():
    config = load(
        None,
        [
            "ssl.client.auth=requested",
            "listener.name.ext.ssl.client.auth=required",
            "connections.max.reauth.ms=1",
            "listener.name.ext.connections.max.reauth.ms=2",
            "listener.name.ext.scram-sha-256.connections.max.reauth.ms=3",
        ],
    )
    assert config.listener_value("EXT", "ssl.client.auth") == "required"
    assert config.listener_value("INT", "ssl.client.auth") == "requested"
    assert config.listener_value("EXT", "ssl.protocol") == "TLSv1.3"
    key = "connections.max.reauth.ms"
    values = [config.listener_value(name, key, mechanism) for name, mechanism in (
        ("INT", "SCRAM-SHA-256"), ("EXT", None), ("EXT", "PLAIN"), ("EXT", "SCRAM-SHA-256"),
    )]  # fmt: skip
    assert values == [1, 2, 2, 3]
    assert config.listener_key("EXT", key, "scram-sha-256") == f"listener.name.ext.scram-sha-256.{key}"


@pytest.mark.parametrize("prefix", ["client", "CLIENTS"])
def test_keys_of_a_listener_that_does_not_exist_cause_a_warning(prefix):
    settings = ["listeners=CLIENTS://:9092", "listener.security.protocol.map=CLIENTS:PLAINTEXT"]
    config = load(None, [*settings, f"listener.name.{prefix}.max.connections=5"])
    (line,) = [line for line in config.warnings if "listener.name" in line]
    assert f"ignoring all keys listener.name.{prefix}.*" in line and "lower case, are clients" in line


@pytest.mark.parametrize("prefix", ["clients", "metrics"])
def test_keys_of_a_listener_that_exists_cause_no_warning(prefix):
    settings = ["listeners=CLIENTS://:9092", "listener.security.protocol.map=CLIENTS:PLAINTEXT"]
    config = load(None, [*settings, f"listener.name.{prefix}.ssl.client.auth=none"])
    assert not [line for line in config.warnings if "listener.name" in line]
