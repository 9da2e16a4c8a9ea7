"""When the certificates of a listener are valid: those of its key store, and those of its trust store that are used. Pure
functions."""

from collections.abc import Mapping
from typing import NamedTuple

from cryptography import x509

from odradek.security.contexts import ListenerMaterial


class Certificate(NamedTuple):
    """:param subject: in the form of RFC 4514. :param begins_ms, ends_ms: Unix times between which it is valid."""

    subject: str
    begins_ms: int
    ends_ms: int


class Validity(NamedTuple):
    """:param chain: the certificates of the key store, the listener's own first. :param trusted: those of the trust store, if
    it is used to check certificates."""

    chain: tuple[Certificate, ...]
    trusted: tuple[Certificate, ...]


def validities(materials: Mapping[str, ListenerMaterial], between_brokers: str | None) -> dict[str, Validity]:
    """The validity of each listener's certificates, by name.

    :param between_brokers: the inter-broker listener, whose trust store also checks other brokers; None without a cluster.
    """
    return {
        name: Validity(
            _certificates(material.chain),
            _certificates(material.trust)
            if material.trust and (material.client_auth != "none" or name == between_brokers)
            else (),
        )
        for name, material in materials.items()
    }


def _certificates(pem: str) -> tuple[Certificate, ...]:
    return tuple(
        Certificate(
            certificate.subject.rfc4514_string(),
            int(certificate.not_valid_before_utc.timestamp() * 1000),
            int(certificate.not_valid_after_utc.timestamp() * 1000),
        )
        for certificate in x509.load_pem_x509_certificates(pem.encode())
    )
