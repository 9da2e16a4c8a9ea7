"""Key stores and trust stores of all formats, and the errors about those that cannot be read."""

import os
import subprocess

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import pkcs12

from odradek.config.errors import ConfigError
from odradek.security import jks
from odradek.security.keystores import StoreSettings, read_key_store, read_trust_store
from tests.certificates import authority, ca_pem, of_broker, of_client, pem
from tests.toolchains import require_command

SECRET = "geheim-4711"


def settings(location=None, type=None, password=None, key_password=None, inline=None, inline_key=None):
    return StoreSettings(
        None if location is None else str(location),
        type,
        password,
        key_password,
        inline,
        inline_key,
        lambda part: f"x.{part}",
    )


def key_of(certificate):
    return serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)


def chain_of(certificate):
    return [x509.load_pem_x509_certificate(part.bytes()) for part in certificate.cert_chain_pems]


def encrypted(certificate, password=SECRET):
    form = serialization.BestAvailableEncryption(password.encode())
    return (
        key_of(certificate).private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, form).decode()
    )


def refused(read, store, name, reason):
    with pytest.raises(ConfigError) as caught:
        read(store)
    assert caught.value.name == name and reason in str(caught.value)
    assert SECRET not in str(caught.value) and "PRIVATE KEY-----" not in str(caught.value)


def test_a_pem_file_holds_the_key_and_its_chain(tmp_path):
    key, chain = pem(of_broker())
    for number, text in enumerate((key + chain, chain + key, "comment\n" + key + chain)):
        path = tmp_path / f"{number}.pem"
        path.write_text(text)
        for kind in (None, "PEM"):
            pair = read_key_store(settings(path, kind))
            assert list(pair.chain) == chain_of(of_broker()) and not pair.slow
            assert b"BEGIN PRIVATE KEY" in pair.key and "BEGIN" not in repr(pair)


def test_a_pem_key_may_be_encrypted_and_in_the_configuration(tmp_path):
    chain = pem(of_broker())[1]
    path = tmp_path / "b.pem"
    path.write_text(encrypted(of_broker()) + chain)
    inline = {"inline": chain, "inline_key": encrypted(of_broker())}
    for where in ({"location": path}, inline):
        plain = read_key_store(settings(**where, key_password=SECRET)).key
        assert (
            serialization.load_pem_private_key(plain, None).private_numbers() == key_of(of_broker()).private_numbers()
        )
        refused(read_key_store, settings(**where, key_password="wrong"), "x.key.password", "is not the password")
        refused(read_key_store, settings(**where), "x.key.password", "must be set")


def test_wrong_pem_stores_are_refused(tmp_path):
    key, chain = pem(of_broker())
    other_key = pem(of_client())[0]
    path = tmp_path / "b.pem"
    for text, reason in (
        (chain, "contains no PEM private keys"),
        (key + key + chain, "contains 2 PEM private keys"),
        (key, "contains no PEM certificate"),
        (other_key + chain, "does not belong to the first certificate"),
        ("".join(key.splitlines(True)[:1] + key.splitlines(True)[2:]) + chain, "cannot be read"),
        ("nonsense", "is neither PEM nor PKCS12 nor JKS"),
        ("", "is neither PEM nor PKCS12 nor JKS"),
    ):
        path.write_text(text)
        refused(read_key_store, settings(path), "x.location", reason)
    path.write_text(key + chain)
    refused(read_key_store, settings(path, password=SECRET), "x.password", "must not be set for PEM")
    refused(read_key_store, settings(path, "PKCS12"), "x.type", "must be PEM")
    refused(read_key_store, settings(path, "BKS"), "x.type", "must be PEM, PKCS12 or JKS")
    refused(read_key_store, settings(path, inline=chain), "x.certificate.chain", "must not be set together")
    refused(read_key_store, settings(inline=chain), "x.key", "must be set")
    refused(read_key_store, settings(inline_key=key), "x.certificate.chain", "must be set")
    refused(read_key_store, settings(tmp_path / "missing"), "x.location", "cannot be read: No such file")
    refused(read_key_store, settings(tmp_path), "x.location", "cannot be read: Is a directory")
    refused(read_trust_store, settings(inline="nonsense"), "x.certificates", "no PEM certificate")


def test_pkcs12_stores_are_read_whatever_their_type_is_called(tmp_path):
    path = tmp_path / "b.p12"
    certificate, *others = chain_of(of_broker())
    others = [*others, chain_of(of_client())[0], x509.load_pem_x509_certificate(ca_pem().encode())]
    form = serialization.BestAvailableEncryption(SECRET.encode())
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"b", key_of(of_broker()), certificate, others, form))
    for kind in (None, "PKCS12", "JKS", "jks"):
        pair = read_key_store(settings(path, kind, SECRET))
        assert pair.chain[0] == certificate and pair.chain[-1].subject == chain_of(of_broker())[0].issuer
        assert chain_of(of_client())[0] not in pair.chain
    refused(read_key_store, settings(path, None, "wrong"), "x.password", "is not the password")
    refused(read_key_store, settings(path), "x.password", "must be set")
    refused(read_key_store, settings(path, "PEM", SECRET), "x.type", "must be PKCS12")
    path.write_bytes(path.read_bytes()[:-20])
    refused(read_key_store, settings(path, None, SECRET), "x.password", "or the file is damaged")
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"b", None, None, others, form))
    assert len(read_trust_store(settings(path, None, SECRET))) == len(others)
    refused(read_key_store, settings(path, None, SECRET), "x.location", "contains no private key")


def test_of_a_private_key_in_pkcs12_only_its_own_certificate_is_trusted(tmp_path):
    """As by Java: whoever has a certificate of the same authority is not trusted."""
    path = tmp_path / "b.p12"
    certificate, *others = chain_of(of_broker())
    above = [*others, x509.load_pem_x509_certificate(ca_pem().encode())]
    form = serialization.BestAvailableEncryption(SECRET.encode())
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"b", key_of(of_broker()), certificate, above, form))
    assert read_trust_store(settings(path, None, SECRET)) == (certificate,)


@pytest.mark.parametrize("read", [read_key_store, read_trust_store])
def test_a_store_that_is_no_regular_file_is_refused_at_once(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    refused(read, settings(tmp_path / "pipe"), "x.location", "cannot be read: it is no regular file")
    refused(read, settings("/dev/zero"), "x.location", "cannot be read: it is no regular file")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    refused(read, settings(tmp_path / "link"), "x.location", "cannot be read: it is no regular file")


@pytest.mark.parametrize(
    ("make", "kind", "slow"),
    [
        (lambda: rsa.generate_private_key(65537, 2048), "RSA 2048", False),
        (lambda: rsa.generate_private_key(65537, 3072), "RSA 3072", True),
        (lambda: ec.generate_private_key(ec.SECP256R1()), "EC secp256r1", False),
        (ed25519.Ed25519PrivateKey.generate, "Ed25519", False),
    ],
)
def test_kinds_of_keys(make, kind, slow):
    key = make()
    pair = read_key_store(settings(inline=self_signed(key), inline_key=text_of(key)))
    assert (pair.kind, pair.slow) == (kind, slow)


def text_of(key):
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def self_signed(key):
    from datetime import UTC, datetime, timedelta

    from cryptography.hazmat.primitives import hashes

    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "self")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(subject, subject, key.public_key(), 7, now, now + timedelta(1))
    algorithm = None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(key, algorithm).public_bytes(serialization.Encoding.PEM).decode()


# -- JKS ---------------------------------------------------------------------------------------------------------------


def keytool(*arguments):
    command = require_command("keytool", "default-jdk-headless")
    subprocess.run(
        [command, "-J-XX:TieredStopAtLevel=1", *map(str, arguments)], check=True, capture_output=True, timeout=120
    )


@pytest.fixture(scope="module")
def jks_files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("jks")
    common = ("-genkeypair", "-alias", "brökér", "-dname", "CN=b", "-keyalg", "EC", "-storetype")
    keytool(*common, "JKS", "-keystore", directory / "k.jks", "-storepass", "storepass", "-keypass", "keypassword")
    keytool(*common, "PKCS12", "-keystore", directory / "k.p12.jks", "-storepass", "storepass")
    (directory / "ca.pem").write_text(ca_pem())
    for alias in ("one", "two"):
        keytool(
            "-importcert", "-noprompt", "-alias", alias, "-file", directory / "ca.pem", "-storetype", "JKS", "-keystore",
            directory / "t.jks", "-storepass", "storepass",
        )  # fmt: skip
    return directory


@pytest.mark.java
def test_stores_of_keytool_are_read(jks_files):
    pair = read_key_store(settings(jks_files / "k.jks", "JKS", "storepass", "keypassword"))
    assert pair.kind.startswith("EC ") and pair.chain[0].subject.rfc4514_string() == "CN=b"
    renamed = read_key_store(settings(jks_files / "k.p12.jks", "JKS", "storepass"))
    assert renamed.chain[0].subject.rfc4514_string() == "CN=b"
    trusted = read_trust_store(settings(jks_files / "t.jks", None, "storepass"))
    assert [pem_of.subject for pem_of in trusted] == [x509.load_pem_x509_certificate(ca_pem().encode()).subject] * 2
    assert read_trust_store(settings(jks_files / "t.jks")) == trusted, "without a password the integrity is not checked"
    assert read_trust_store(settings(jks_files / "k.jks", None, "storepass"))[0] == pair.chain[0]


@pytest.mark.java
def test_wrong_jks_stores_are_refused(jks_files, tmp_path):
    store = jks_files / "k.jks"
    refused(read_key_store, settings(store, None, "wrong", "keypassword"), "x.password", "is not the password")
    refused(
        read_key_store,
        settings(store, None, "storepass", SECRET),
        "x.key.password",
        "is not the password of the private key",
    )
    refused(read_key_store, settings(store, None, "storepass"), "x.password", "is not the password of the private key")
    refused(read_key_store, settings(store), "x.password", "must be set")
    refused(read_key_store, settings(jks_files / "t.jks", None, "storepass"), "x.location", "contains no private keys")
    damaged = tmp_path / "d.jks"
    data = store.read_bytes()
    damaged.write_bytes(jks.JCEKS_MAGIC + data[4:])
    refused(read_key_store, settings(damaged, None, "storepass"), "x.location", "JCEKS")
    for at in range(0, len(data), 11):  # never another exception, whatever the bytes are
        for changed in (data[:at], data[:at] + b"\xff" + data[at + 1 :]):
            damaged.write_bytes(changed)
            try:
                read_key_store(settings(damaged, None, None, "keypassword"))
            except ConfigError:
                continue


def test_no_length_in_a_jks_store_is_believed():
    head = jks.MAGIC + (2).to_bytes(4, "big")
    for rest in (
        (1 << 31).to_bytes(4, "big"),
        (1).to_bytes(4, "big") + (1).to_bytes(4, "big") + b"\0\1a" + bytes(8) + (1 << 30).to_bytes(4, "big"),
        (1).to_bytes(4, "big") + (3).to_bytes(4, "big") + b"\0\1a" + bytes(8),
    ):
        with pytest.raises(jks.JksError):
            jks.read(head + rest + bytes(20), None)


def test_trusted_certificates_of_pem(tmp_path):
    path = tmp_path / "ca.pem"
    path.write_text(ca_pem() + ca_pem("other"))
    assert len(read_trust_store(settings(path))) == len(read_trust_store(settings(inline=path.read_text()))) == 2
    assert authority().cert_pem.bytes().decode() in path.read_text()
