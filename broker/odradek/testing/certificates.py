"""Certificates for a broker of a test and its clients: files in a directory, signed by an authority whose key is
thrown away."""

import secrets
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

VALID_FOR = timedelta(days=2)
_USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign",
    "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip
_EARLIER = timedelta(hours=1)  # for clocks that differ


class CertificateFiles(NamedTuple):
    """Paths of PEM files.

    :param ca: the authority's certificate. :param broker, client: a private key with its certificate, in one file.
    :param client_properties: Kafka's client keys for `--command-config`, also of Kafka's own tools.
    """

    ca: Path
    broker: Path
    client: Path
    client_properties: Path

    @property
    def broker_settings(self) -> dict[str, str]:
        """Settings of a broker whose listeners SSL use these files; client certificates are requested, not required."""
        return {
            "ssl.keystore.location": str(self.broker),
            "ssl.truststore.location": str(self.ca),
            "ssl.client.auth": "requested",
        }

    @property
    def librdkafka_settings(self) -> dict[str, str]:
        """Settings of confluent-kafka with the client certificate."""
        return {
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.ca),
            "ssl.certificate.location": str(self.client),
            "ssl.key.location": str(self.client),
        }


def make_certificates(directory: Path, client: str = "client") -> CertificateFiles:
    """Make new files in `directory`: the broker is 127.0.0.1, ::1 and localhost, the client has the subject `CN=<client>`."""
    directory.mkdir(parents=True, exist_ok=True)
    files = CertificateFiles(
        *(directory / name for name in ("ca.pem", "broker.pem", "client.pem", "client.properties"))
    )
    authority = ec.generate_private_key(ec.SECP256R1())
    # With equal names, a client that trusts two authorities would take one for the other.
    ca = _certificate(f"odradek test authority {secrets.token_hex(4)}", authority, None, authority)
    names: list[x509.GeneralName] = [x509.DNSName("localhost")]
    names += [x509.IPAddress(ip_address(address)) for address in ("127.0.0.1", "::1")]
    files.ca.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    for path, name, alternatives in ((files.broker, "localhost", names), (files.client, client, [])):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(name, key, ca, authority, alternatives)
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        path.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, *form) + certificate.public_bytes(serialization.Encoding.PEM)
        )
    files.client_properties.write_text(
        f"security.protocol=SSL\nssl.truststore.location={files.ca}\nssl.truststore.type=PEM\n"
        f"ssl.keystore.location={files.client}\nssl.keystore.type=PEM\n"
    )
    return files


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    authority: ec.EllipticCurvePrivateKey,
    alternatives: list[x509.GeneralName] | None = None,
) -> x509.Certificate:
    """A certificate of `key`; without an issuer, one of an authority."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        subject if issuer is None else issuer.subject,
        subject,
        key.public_key(),
        x509.random_serial_number(),
        now - _EARLIER,
        now + VALID_FOR,
    )
    is_authority = issuer is None
    own, signer = (
        x509.SubjectKeyIdentifier.from_public_key(public) for public in (key.public_key(), authority.public_key())
    )
    usage = dict.fromkeys(_USAGES, False) | ({"key_cert_sign": True} if is_authority else {"digital_signature": True})
    builder = (
        builder.add_extension(x509.BasicConstraints(is_authority, None), True)
        .add_extension(own, False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(signer), False)
        .add_extension(x509.KeyUsage(**usage), True)
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), False)
    return builder.sign(authority, hashes.SHA256())
