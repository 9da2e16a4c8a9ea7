"""The settings of the connection to ZooKeeper that a start checks: each error is one line with the key and a remedy."""

import ssl
import subprocess

import pytest

from odradek.config import zookeeper_client
from odradek.config.broker_config import load
from odradek.config.errors import ConfigError
from odradek.config.zookeeper_client import openssl_suite, tls_context
from tests.toolchains import require_command

CONNECT = "zookeeper.connect=zk1:2181"
TLS = "zookeeper.ssl.client.enable=true"


def errors_of(*settings):
    try:
        load(None, [CONNECT, *settings], to_start=True)
    except ConfigError as error:
        return [str(line) for line in error.errors]
    return []


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    """A file with a private key, whose password is `secret`, and its certificate for localhost."""
    openssl = require_command("openssl", "openssl")
    directory = tmp_path_factory.mktemp("pem")
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-passout", "pass:secret", "-subj", "/CN=localhost"]
    subprocess.run(
        [*command, "-keyout", directory / "key", "-out", directory / "certificate"], check=True, capture_output=True
    )
    path = directory / "both.pem"
    path.write_bytes((directory / "key").read_bytes() + (directory / "certificate").read_bytes())
    return path


def test_settings_of_zookeeper_matter_only_in_a_cluster():
    wrong = ["inter.broker.protocol.version=2.8", "odradek.zookeeper.auth=digest", TLS, "zookeeper.ssl.protocol=SSLv3"]
    assert len(errors_of(*wrong)) == 4
    load(None, [CONNECT, *wrong, "metadata.store=embedded"], to_start=True)
    load(None, [CONNECT, *wrong])


@pytest.mark.parametrize("version", ["0.11.0-IV2", "2.8", "3.8", "3.8-IV0", "3.0.1"])
def test_an_older_protocol_version_is_refused(version):
    (line,) = errors_of(f"inter.broker.protocol.version={version}")
    assert line.startswith(f"inter.broker.protocol.version={version}: is below 3.9")


@pytest.mark.parametrize("version", ["3.9", "3.9-IV0", "3.9.1", "4.0"])
def test_the_protocol_version_of_the_requests_is_accepted(version):
    assert errors_of(f"inter.broker.protocol.version={version}") == []


def test_an_unknown_listener_name_is_one_line():
    (line,) = errors_of("inter.broker.listener.name=INTERNAL", "listeners=PLAINTEXT://:9092")
    assert line.startswith("inter.broker.listener.name=INTERNAL: must be ")
    (line,) = errors_of("listeners=INTERNAL://:9092")
    assert line.startswith("listeners=INTERNAL://:9092: ")


USER, PASSWORD = "odradek.zookeeper.username=alice", "odradek.zookeeper.password=secret"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([USER], ["odradek.zookeeper.username=alice: requires odradek.zookeeper.auth"]),
        ([PASSWORD], ["odradek.zookeeper.password=[hidden]: requires odradek.zookeeper.auth"]),
        (
            ["odradek.zookeeper.auth=digest"],
            ["odradek.zookeeper.username: must be", "odradek.zookeeper.password: must be set"],
        ),
        (
            ["odradek.zookeeper.auth=digest", "odradek.zookeeper.username=a:b", PASSWORD],
            ["odradek.zookeeper.username=a:b: must be a name without a colon"],
        ),
        (["odradek.zookeeper.auth=kerberos"], ["odradek.zookeeper.auth=kerberos: must be one of digest, sasl"]),
        (["odradek.zookeeper.auth=digest", USER, PASSWORD], []),
        (["zookeeper.set.acl=true"], ["zookeeper.set.acl=true: requires"]),
        (["zookeeper.set.acl=true", TLS], ["zookeeper.set.acl=true: requires"]),
        (["zookeeper.set.acl=true", "odradek.zookeeper.auth=digest", USER, PASSWORD], []),
    ],
)
def test_an_identity_must_be_complete(settings, expected):
    lines = errors_of(*settings)
    assert len(lines) == len(expected)
    assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True)), lines
    assert not any("secret" in line for line in lines)


def test_sasl_needs_its_package(monkeypatch):
    settings = ["odradek.zookeeper.auth=sasl", USER, PASSWORD]
    find = zookeeper_client.importlib.util.find_spec
    monkeypatch.setattr(
        zookeeper_client.importlib.util, "find_spec", lambda name: None if name == "puresasl" else find(name)
    )
    (line,) = errors_of(*settings)
    assert line.startswith("odradek.zookeeper.auth=sasl: requires the Python package pure-sasl: pip install")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("keystore.type=JKS", "keystore.type=JKS: is not supported; must be PEM; convert it"),
        ("truststore.type=PKCS12", "truststore.type=PKCS12: is not supported; must be PEM; convert it"),
        ("crl.enable=true", "crl.enable=true: is not supported"),
        ("ocsp.enable=true", "ocsp.enable=true: is not supported"),
        ("endpoint.identification.algorithm=LDAPS", "endpoint.identification.algorithm=LDAPS: must be HTTPS or empty"),
        ("protocol=TLSv1.1", "protocol=TLSv1.1: must contain only TLSv1.2 and TLSv1.3"),
        ("enabled.protocols=TLSv1.2,SSLv3", "enabled.protocols=TLSv1.2,SSLv3: must contain only"),
        (
            "cipher.suites=TLS_NO_SUCH_SUITE",
            "cipher.suites=TLS_NO_SUCH_SUITE: must contain suites that OpenSSL supports",
        ),
        (
            "cipher.suites=TLS_AES_256_GCM_SHA384",
            "cipher.suites=TLS_AES_256_GCM_SHA384: must not contain suites of TLSv1.3",
        ),
    ],
)
def test_tls_settings_that_cannot_be_used_are_refused(tmp_path, setting, expected):
    stores = [f"zookeeper.ssl.{store}.location={tmp_path / 'x.jks'}" for store in ("keystore", "truststore")]
    extra = [store for store in stores if setting.partition(".")[0] in store]
    (line,) = errors_of(TLS, f"zookeeper.ssl.{setting}", *extra)
    assert line.startswith(f"zookeeper.ssl.{expected}"), line
    assert errors_of(f"zookeeper.ssl.{setting}", *extra) == [], "without TLS they have no effect"


@pytest.mark.parametrize("store", ["keystore", "truststore"])
def test_key_stores_must_be_readable_pem_files(tmp_path, store):
    location = f"zookeeper.ssl.{store}.location="
    (line,) = errors_of(TLS, f"{location}/kafka/client.jks")
    assert line.startswith(f"{location}/kafka/client.jks: must be a file in PEM format") and "openssl pkcs12" in line
    (line,) = errors_of(TLS, f"{location}{tmp_path}/missing.pem")
    assert line.endswith("No such file or directory (--set)")
    (tmp_path / "wrong").write_text("no PEM")
    (line,) = errors_of(TLS, f"{location}{tmp_path}/wrong", f"zookeeper.ssl.{store}.type=pem")
    assert "in PEM format" in line


@pytest.mark.parametrize("password", [None, "wrong", "secret"])
def test_an_encrypted_key_needs_its_password(pem, password):
    settings = [TLS, f"zookeeper.ssl.keystore.location={pem}", "zookeeper.set.acl=true"]
    if password is not None:
        settings.append(f"zookeeper.ssl.keystore.password={password}")
    lines = errors_of(*settings)
    assert len(lines) == (password != "secret")
    assert not any("wrong" in line for line in lines)


@pytest.mark.parametrize(
    ("settings", "versions"),
    [
        ([], ("TLSv1_2", "TLSv1_2")),
        (["protocol=TLSv1.3"], ("TLSv1_3", "TLSv1_3")),
        (["enabled.protocols=TLSv1.3,TLSv1.2"], ("TLSv1_2", "TLSv1_3")),
        (["enabled.protocols=TLSv1.3", "protocol=TLSv1.2"], ("TLSv1_3", "TLSv1_3")),
    ],
)
def test_versions_are_kafkas(settings, versions):
    context = tls_context(load(None, [CONNECT, TLS, *(f"zookeeper.ssl.{setting}" for setting in settings)]))
    assert (context.minimum_version.name, context.maximum_version.name) == versions
    assert context.verify_mode == ssl.CERT_REQUIRED and context.check_hostname


def test_the_host_name_is_not_checked_if_the_algorithm_is_empty():
    context = tls_context(load(None, [CONNECT, TLS, "zookeeper.ssl.endpoint.identification.algorithm="]))
    assert context.verify_mode == ssl.CERT_REQUIRED and not context.check_hostname


def test_without_tls_there_is_no_context():
    assert tls_context(load(None, [CONNECT])) is None


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", "ECDHE-RSA-AES256-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", "DHE-RSA-AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_javas_names_of_suites_are_translated(java, openssl):
    assert openssl_suite(java) == openssl
    context = tls_context(load(None, [CONNECT, TLS, f"zookeeper.ssl.cipher.suites={java}"]))
    assert openssl in [suite["name"] for suite in context.get_ciphers()]


def test_ids_of_operators_are_not_above_the_reserved_ones():
    (line,) = errors_of("broker.id=1001")
    assert line.startswith("broker.id=1001: must not be above reserved.broker.max.id=1000, because ZooKeeper generates")
    assert errors_of("node.id=1001")[0].startswith("node.id=1001: must not")
    generation = "broker.id.generation.enable"
    for accepted in (
        ["broker.id=1000"],
        ["broker.id=9", "reserved.broker.max.id=9"],
        ["broker.id=1001", f"{generation}=false"],
    ):
        assert errors_of(*accepted) == []
    assert errors_of(f"{generation}=false") == ["broker.id: must be set, because broker.id.generation.enable=false"]
