"""Test certificates: made once in a process, with `trustme`, which keeps everything in memory."""

import datetime
import functools
import ssl

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from odradek.security.contexts import ListenerMaterial


@functools.cache
def _authority(name):
    return trustme.CA(organization_name=f"odradek test {name}")


@functools.cache
def _issued(ca, name, identities):
    return _authority(ca).issue_cert(*identities, common_name=name)


def authority(name="ca"):
    """A certificate authority. The same name gives the same one."""
    return _authority(name)


def of_broker(name="broker", ca="ca"):
    """A certificate for a broker at 127.0.0.1 and localhost."""
    return _issued(ca, name, ("127.0.0.1", "localhost"))


@functools.cache
def expired_broker(ca="ca"):
    """A certificate for a broker that expired yesterday."""
    yesterday = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    return _authority(ca).issue_cert("127.0.0.1", "localhost", common_name="broker", not_after=yesterday)


@functools.cache
def future_broker(ca="ca"):
    """A certificate for a broker that is valid from tomorrow on."""
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    return _authority(ca).issue_cert(
        "127.0.0.1", "localhost", common_name="broker", not_before=now + day, not_after=now + 30 * day
    )


@functools.cache
def expired_authority():
    """The certificate (PEM) of an authority that expired yesterday."""
    key, day = ec.generate_private_key(ec.SECP256R1()), datetime.timedelta(days=1)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "an authority of former times")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now - 9 * day, now - day)
    made = made.add_extension(x509.BasicConstraints(True, None), True)
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def of_client(name="alice", ca="ca"):
    """A client certificate."""
    return _issued(ca, name, (f"{name}@example.org",))


def pem(certificate):
    """(private key, chain) of a certificate as PEM texts."""
    chain = b"".join(part.bytes() for part in certificate.cert_chain_pems)
    return certificate.private_key_pem.bytes().decode(), chain.decode()


def ca_pem(name="ca"):
    return authority(name).cert_pem.bytes().decode()


def material(
    client_auth="none", *, rules="DEFAULT", versions=("TLSv1.2", "TLSv1.3"), ciphers="", slow=False, name="SSL"
):
    """The material of a listener."""
    key, chain = pem(of_broker())
    trust = ca_pem() if client_auth != "none" else ""
    return ListenerMaterial(
        name, True, key, chain, trust, client_auth, versions, ciphers, rules, slow, 1 << 42, "CN=broker", ()
    )


def client_context(version=None, certificate=None):
    """A client's context that trusts the authority. :param version: an `ssl.TLSVersion`; None: the newest."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=ca_pem())
    if version is not None:
        context.minimum_version = context.maximum_version = version
    if certificate is not None:
        certificate.configure_cert(context)
    return context


def write_files(directory, client="alice"):
    """Write broker.pem, ca.pem, client.pem (key and chain), and client.properties for `--command-config`; returns the
    directory."""
    for name, parts in (
        ("broker.pem", pem(of_broker())),
        ("client.pem", pem(of_client(client))),
        ("ca.pem", (ca_pem(),)),
        ("client-key.pem", pem(of_client(client))[:1]),
        ("client-chain.pem", pem(of_client(client))[1:]),
    ):
        (directory / name).write_text("".join(parts))
    (directory / "client.properties").write_text(
        f"security.protocol=SSL\nssl.truststore.location={directory}/ca.pem\nssl.keystore.location={directory}/client.pem\n"
    )
    return directory


def broker_settings(directory, client_auth="none", listeners="SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"):
    """Settings of a broker with TLS from the files of `write_files`."""
    return {
        "listeners": listeners,
        "ssl.keystore.location": f"{directory}/broker.pem",
        "ssl.truststore.location": f"{directory}/ca.pem",
        "ssl.client.auth": client_auth,
        "num.network.threads": "1",
    }
