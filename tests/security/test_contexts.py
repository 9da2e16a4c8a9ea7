"""From the configuration of a listener to a handshake: every kind of key, store, version and client authentication."""

import ssl

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import pkcs12

from odradek.config.broker_config import resolve
from odradek.config.errors import ConfigError
from odradek.security.cipher_suites import TLS_1_2, TLS_1_3
from odradek.security.contexts import (
    VERSIONS,
    handshake_with_itself,
    load_listeners,
    server_context,
    warnings,
    why_not_replaced,
)
from tests.certificates import ca_pem, client_context, of_client, pem, write_files
from tests.security.test_keystores import self_signed, text_of


def load(*settings):
    return resolve([(name, value, "test") for name, value in settings])


@pytest.fixture(scope="module")
def keys():
    return {
        "RSA 2048": rsa.generate_private_key(65537, 2048),
        "RSA 4096": rsa.generate_private_key(65537, 4096),
        "P-256": ec.generate_private_key(ec.SECP256R1()),
        "Ed25519": ed25519.Ed25519PrivateKey.generate(),
    }


@pytest.fixture
def files(tmp_path):
    return write_files(tmp_path)


def stored(key, form, directory):
    """The settings of a key store in this form."""
    if form == "inline":
        return [("ssl.keystore.key", text_of(key)), ("ssl.keystore.certificate.chain", self_signed(key))]
    path = directory / "store"
    if form == "PEM":
        path.write_text(text_of(key) + self_signed(key))
        return [("ssl.keystore.location", str(path)), ("ssl.keystore.type", "PEM")]
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(self_signed(key).encode())
    encryption = serialization.BestAvailableEncryption(b"secret")
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"x", key, certificate, None, encryption))
    return [("ssl.keystore.location", str(path)), ("ssl.keystore.password", "secret")]


def connect(material, context):
    """A handshake in memory. Returns both ends."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = server_context(material).wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return client, server


@pytest.mark.parametrize("kind", ["RSA 2048", "RSA 4096", "P-256", "Ed25519"])
@pytest.mark.parametrize("form", ["PEM", "PKCS12", "inline"])
def test_every_key_works_with_every_version_and_client_authentication(keys, tmp_path, kind, form):
    store = stored(keys[kind], form, tmp_path)
    for version in VERSIONS:
        for client_auth in ("none", "requested", "required"):
            more = [
                ("ssl.truststore.certificates", ca_pem()),
                ("ssl.client.auth", client_auth),
                ("ssl.enabled.protocols", version),
            ]
            material = load_listeners(load(("listeners", "SSL://:0"), *store, *more))["SSL"]
            assert material.slow == (kind == "RSA 4096")
            context = client_context(certificate=of_client())
            context.load_verify_locations(cadata=material.chain)
            context.check_hostname = False
            client, server = connect(material, context)
            assert client.version() == server.version() == version
            assert (server.getpeercert() is not None) == (client_auth != "none")


def test_a_listener_needs_a_key_store():
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location must be set"):
        load_listeners(load(("listeners", "SSL://:0")))


def test_settings_of_one_listener_have_precedence(files):
    other = of_client("other")
    (files / "other.pem").write_text("".join(pem(other)))
    config = load(
        ("listeners", "SSL://:0,EXTERNAL://:0,PLAINTEXT://:0"),
        ("listener.security.protocol.map", "SSL:SSL,EXTERNAL:SSL,PLAINTEXT:PLAINTEXT"),
        ("ssl.keystore.location", f"{files}/broker.pem"),
        ("listener.name.external.ssl.keystore.location", f"{files}/other.pem"),
    )
    material = load_listeners(config)
    assert set(material) == {"SSL", "EXTERNAL"}
    assert (material["SSL"].subject.split(",")[0], material["EXTERNAL"].subject.split(",")[0]) == (
        "CN=broker",
        "CN=other",
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([("ssl.client.auth", "required")], "ssl.client.auth=required: needs ssl.truststore.location"),
        ([("ssl.enabled.protocols", "TLSv1.1,TLSv1.2")], "ssl.enabled.protocols=TLSv1.1,TLSv1.2: must contain only"),
        ([("ssl.protocol", "SSLv3")], "ssl.protocol=SSLv3: must be one of"),
        ([("ssl.cipher.suites", "TLS_NO_SUCH")], "ssl.cipher.suites=TLS_NO_SUCH: TLS_NO_SUCH is not known"),
        ([("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256")], "cannot be chosen one by one"),
        ([("ssl.cipher.suites", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")], "leaves no suite that the EC secp256r1 key"),
        ([("ssl.cipher.suites", ",".join(TLS_1_3)), ("ssl.enabled.protocols", "TLSv1.2")], "no suite of the enabled versions"),
        ([("ssl.principal.mapping.rules", "RULE:(?=x)/y/")], "ssl.principal.mapping.rules=RULE:(?=x)/y/: the pattern"),
        ([("listener.name.ssl.ssl.protocol", "TLSv1")], "listener.name.ssl.ssl.protocol=TLSv1: must be one of"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused_with_one_line(files, settings, message):
    config = load(("listeners", "SSL://:0"), ("ssl.keystore.location", f"{files}/broker.pem"), *settings)
    with pytest.raises(ConfigError) as caught:
        load_listeners(config)
    assert str(caught.value).startswith(message) or message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_cipher_suites_have_the_names_of_java(files):
    base = [("listeners", "SSL://:0"), ("ssl.keystore.location", f"{files}/broker.pem")]
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    material = load_listeners(load(*base, ("ssl.cipher.suites", suite)))["SSL"]
    assert (material.versions, material.ciphers) == (("TLSv1.2", "TLSv1.2"), "ECDHE-ECDSA-AES256-GCM-SHA384"), (
        "no TLS 1.3 then"
    )
    client, _ = connect(material, client_context())
    assert client.cipher()[0] == "ECDHE-ECDSA-AES256-GCM-SHA384"
    material = load_listeners(load(*base, ("ssl.cipher.suites", ",".join([suite, *TLS_1_3]))))["SSL"]
    assert material.versions == ("TLSv1.2", "TLSv1.3")
    material = load_listeners(load(*base, ("ssl.cipher.suites", ",".join(TLS_1_3))))["SSL"]
    assert material.versions == ("TLSv1.3", "TLSv1.3") and handshake_with_itself(material) == "TLSv1.3"


def test_openssl_knows_all_names_of_suites():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name in TLS_1_2.values():
        context.set_ciphers(f"{name}:@SECLEVEL=0")
        assert name in {cipher["name"] for cipher in context.get_ciphers()}


def test_a_client_certificate_is_asked_for_on_sasl_ssl_only_by_its_own_key(files):
    from odradek.config.listeners import Listener
    from odradek.security.contexts import load_listener

    config = load(
        ("ssl.client.auth", "required"), ("ssl.keystore.location", f"{files}/broker.pem"),
        ("ssl.truststore.location", f"{files}/ca.pem"), ("listener.name.b.ssl.client.auth", "requested"),
    )  # fmt: skip
    auth = {
        name: load_listener(config, Listener(name, "", 0, protocol)).client_auth
        for name, protocol in (("A", "SASL_SSL"), ("B", "SASL_SSL"), ("C", "SSL"))
    }
    assert auth == {"A": "none", "B": "requested", "C": "required"}
    config.listeners = (Listener("A", "", 0, "SASL_SSL"), Listener("B", "", 0, "SASL_SSL"))
    (warning,) = warnings(config)
    assert "does not apply to the SASL_SSL listener A" in warning


def test_tickets_are_off_where_clients_present_certificates(files):
    base = [
        ("listeners", "SSL://:0"),
        ("ssl.keystore.location", f"{files}/broker.pem"),
        ("ssl.truststore.location", f"{files}/ca.pem"),
    ]
    for client_auth, tickets in (("none", 1), ("requested", 0), ("required", 0)):
        context = server_context(load_listeners(load(*base, ("ssl.client.auth", client_auth)))["SSL"])
        assert context.num_tickets == tickets and bool(context.options & ssl.OP_NO_TICKET) == (tickets == 0)
        assert context.options & ssl.OP_NO_RENEGOTIATION and context.options & ssl.OP_NO_COMPRESSION


def test_the_rules_for_new_certificates_are_those_of_kafka(files):
    base = [("listeners", "SSL://:0"), ("ssl.keystore.location", f"{files}/broker.pem")]
    config = load(*base)
    old = load_listeners(config)
    assert why_not_replaced(old, old, config) is None
    renamed = {"SSL": old["SSL"]._replace(subject="CN=other")}
    assert "ssl.allow.dn.changes" in str(why_not_replaced(old, renamed, config))
    assert why_not_replaced(old, renamed, load(*base, ("ssl.allow.dn.changes", "true"))) is None
    fewer = {"SSL": old["SSL"]._replace(names=old["SSL"].names[:1])}
    assert "lacks the alternative name" in str(why_not_replaced(old, fewer, config))
    assert why_not_replaced(fewer, old, config) is None, "more names are allowed"
    assert why_not_replaced(old, fewer, load(*base, ("ssl.allow.san.changes", "true"))) is None
    trusting = {"SSL": old["SSL"]._replace(trust=ca_pem())}
    assert "cannot be added" in str(why_not_replaced(old, trusting, config))
