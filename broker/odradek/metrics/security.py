"""The metrics of certificates, and of faults of TLS and of logins between brokers. Pure functions."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from odradek.metrics.exposition import Family, Labels
from odradek.metrics.names import METRICS
from odradek.metrics.processes import single
from odradek.security.faults import LoginFault, is_present


class CertificateTimes(NamedTuple):
    """Of the certificates of a listener, as Unix times in ms.

    :param begins_ms: when all of the chain are valid. :param ends_ms: when the first one of the chain expires.
    :param trust_ends_ms: when the first authority of the trust store expires; None if no certificates are checked against it.
    """

    begins_ms: int
    ends_ms: int
    trust_ends_ms: int | None = None


class SecurityFaults(NamedTuple):
    """:param stores: for each listener with TLS whether its changed stores cannot be used. :param logins: None if this broker
    does not log in to other brokers."""

    stores: Mapping[str, bool] = {}
    logins: Sequence[LoginFault] | None = None


def certificate_families(certificates: Mapping[str, CertificateTimes]) -> Iterator[Family]:
    """:param certificates: by the name of the listener."""
    for name, field in (
        ("odradek_tls_certificate_start_timestamp_seconds", "begins_ms"),
        ("odradek_tls_certificate_expiry_timestamp_seconds", "ends_ms"),
        ("odradek_tls_truststore_expiry_timestamp_seconds", "trust_ends_ms"),
    ):
        values = {listener: getattr(times, field) for listener, times in certificates.items()}
        yield Family(
            METRICS[name],
            [("", Labels(listener=listener), ms / 1000) for listener, ms in values.items() if ms is not None],
        )


def fault_families(faults: SecurityFaults, now_ms: int) -> Iterator[Family]:
    """:param now_ms: the present Unix time."""
    yield Family(
        METRICS["odradek_tls_reload_failed"],
        [("", Labels(listener=listener), int(failed)) for listener, failed in faults.stores.items()],
    )
    if faults.logins is not None:
        yield single("odradek_failing_broker_logins", sum(is_present(fault, now_ms) for fault in faults.logins))
