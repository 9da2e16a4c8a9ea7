"""The part of the status document about certificates and about logins between brokers. Runs in the supervisor; only brokers
with TLS, or with SASL between brokers, import it.

It reads memory that is shared by the broker's processes: no file is read, and no child is queried.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from odradek.config.broker_config import BrokerConfig
from odradek.shm.published_faults import PublishedFaults

if TYPE_CHECKING:
    from odradek.security.validity import Validity
    from odradek.shm.published_tls import PublishedTls

TRUSTED_SHOWN = 20
"""Authorities of a trust store in the document: those that expire first, and those that are not valid yet."""


def report(config: BrokerConfig, tls: "PublishedTls | None", faults: PublishedFaults) -> dict[str, Any]:
    """Certificates and faults. Times are Unix times in ms.

    `certificates`: for each listener with TLS its own `chain`, and of its trust store, if it is used, those authorities that
    expire first or are not valid yet (`trusted`). `unusable_stores`: listeners whose changed stores cannot be used.
    `failing_logins`: addresses of other brokers to which this broker could not authenticate its last connection.
    """
    listener = config.inter_broker_listener.name if config.clustered else None
    return {
        "certificates": {} if tls is None else {
            name: {"chain": _rows(validity.chain), "trusted": _rows(_first_to_end(validity))}
            for name, validity in _validities(tls, tls.version, listener).items()
        },
        "unusable_stores": [fault._asdict() for fault in faults.stores()],
        "failing_logins": [fault._asdict() for fault in faults.logins()],
    }  # fmt: skip


@lru_cache(maxsize=1)
def _validities(tls: "PublishedTls", version: int, listener: str | None) -> "dict[str, Validity]":
    """:param version: the newest version of the material, so that each version is parsed once."""
    from odradek.security.validity import validities

    return validities(tls.read()[1], listener)


def _first_to_end(validity: "Validity") -> list[Any]:
    by_end = sorted(validity.trusted, key=lambda certificate: certificate.ends_ms)
    by_begin = sorted(validity.trusted, key=lambda certificate: -certificate.begins_ms)
    return list(dict.fromkeys([*by_end[: TRUSTED_SHOWN // 2], *by_begin[: TRUSTED_SHOWN // 2]]))


def _rows(certificates: Any) -> list[dict[str, Any]]:
    return [certificate._asdict() for certificate in certificates]
