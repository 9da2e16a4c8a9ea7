"""Names of cipher suites: those of IANA, which Java and Kafka use, and those of OpenSSL. Constants and pure functions."""

from collections.abc import Sequence
from typing import NamedTuple

TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""The suites of TLS 1.3, which this version of Python cannot choose from."""


def _openssl_name(exchange: str, cipher: str) -> str:
    prefix = "" if exchange == "RSA" else f"{exchange.replace('_', '-')}-"
    if cipher.startswith("CHACHA20"):
        return f"{prefix}CHACHA20-POLY1305"
    algorithm, size, mode, digest = cipher.split("_")
    return f"{prefix}{algorithm}{size}-{digest}" if mode == "CBC" else f"{prefix}{algorithm}{size}-{mode}-{digest}"


_CIPHERS = {
    "ECDHE_ECDSA": ("AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256", "AES_128_CBC_SHA256",
                    "AES_256_CBC_SHA384", "AES_128_CBC_SHA", "AES_256_CBC_SHA"),
    "ECDHE_RSA": ("AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256", "AES_128_CBC_SHA256",
                  "AES_256_CBC_SHA384", "AES_128_CBC_SHA", "AES_256_CBC_SHA"),
    "DHE_RSA": ("AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256", "AES_128_CBC_SHA256",
                "AES_256_CBC_SHA256", "AES_128_CBC_SHA", "AES_256_CBC_SHA"),
    "RSA": ("AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "AES_128_CBC_SHA256", "AES_256_CBC_SHA256", "AES_128_CBC_SHA",
            "AES_256_CBC_SHA"),
}  # fmt: skip
TLS_1_2 = {
    f"TLS_{exchange}_WITH_{cipher}": _openssl_name(exchange, cipher)
    for exchange, ciphers in _CIPHERS.items()
    for cipher in ciphers
}
"""OpenSSL's names of the suites of TLS 1.2, by IANA's names."""


class Suites(NamedTuple):
    """A choice of suites. :param openssl: the suites of TLS 1.2, in OpenSSL's names; empty: none of TLS 1.2.

    :param tls_1_3: whether the suites of TLS 1.3 are among them.
    """

    openssl: str
    tls_1_3: bool


def chosen(names: Sequence[str]) -> Suites:
    """The suites with these names, IANA's or OpenSSL's. Raises ValueError for an unknown name, or for only some of TLS 1.3."""
    of_openssl = set(TLS_1_2.values())
    unknown = [name for name in names if name not in TLS_1_2 and name not in of_openssl and name not in TLS_1_3]
    if unknown:
        raise ValueError(f"{unknown[0]} is not known; must be among {', '.join([*TLS_1_3, *TLS_1_2])}")
    new = [name for name in names if name in TLS_1_3]
    if new and len(set(new)) < len(TLS_1_3):
        missing = ", ".join(name for name in TLS_1_3 if name not in new)
        raise ValueError(
            f"the suites of TLS 1.3 cannot be chosen one by one with this version of Python: add {missing}, or remove"
            f" {', '.join(new)}, which disables TLS 1.3"
        )
    return Suites(":".join(TLS_1_2.get(name, name) for name in names if name not in TLS_1_3), bool(new))
