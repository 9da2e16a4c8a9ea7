"""Checks of `odradek doctor` on certificates, and on logins between brokers: from a broker's metrics, and with more details
from the status of a broker of this machine."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from odradek.cli.framework.output import abbreviate
from odradek.cli.health.finding import Finding
from odradek.security.faults import EXPIRES_SOON_DAYS, PRESENT_MS

DAY_S = 86_400
REPLACE = "replace the file of ssl.keystore.location; the broker reads it again within odradek.ssl.reload.ms"
LOGINS_FAIL = (
    "without such connections the brokers neither replicate nor receive changes of topics, settings and leaders"
)
OTHER_LOG = "the log of the other broker often has more about it"


SECURITY_METRICS = (
    "odradek_tls_certificate_expiry_timestamp_seconds", "odradek_tls_certificate_start_timestamp_seconds",
    "odradek_tls_truststore_expiry_timestamp_seconds", "odradek_tls_reload_failed", "odradek_failing_broker_logins",
)  # fmt: skip


def judge_certificate(subject: str, ends: float, now: float, name: str = "") -> Iterator[Finding]:
    """A finding if a certificate expires soon. :param ends, now: Unix times in seconds. :param name: of the certificate."""
    left_days = (ends - now) / DAY_S
    if left_days > EXPIRES_SOON_DAYS:
        return
    yield Finding(
        "error" if left_days <= 0 else "warning",
        subject,
        f"its certificate {name and name + ' '}{'has expired' if left_days <= 0 else 'expires'}: {_date(ends)}",
        "clients that verify certificates cannot connect any more"
        if left_days <= 0
        else "clients then cannot connect any more",
        REPLACE,
    )


def judge_begin(subject: str, begins: float, now: float, name: str = "") -> Iterator[Finding]:
    """A finding if a certificate is not valid yet. :param begins, now: Unix times in seconds. :param name: of the
    certificate."""
    if begins > now:
        yield Finding(
            "error",
            subject,
            f"its certificate {name and name + ' '}is not valid before {_date(begins)}",
            "clients that verify certificates cannot connect until then",
            f"check the clocks of the broker's machine and of the machine that issued the certificate; otherwise {REPLACE}",
        )


def judge_security(report: Mapping[str, Any], now: float | None = None) -> Iterator[Finding]:
    """The findings in the part of a supervisor's status about certificates and logins
    (`odradek.processes.supervisor.security_status.report`). :param now: Unix time in seconds; None: the present time."""
    now = time.time() if now is None else now
    for listener, certificates in report["certificates"].items():
        subject = f"listener {listener}"
        for number, row in enumerate(certificates["chain"]):
            name = f"{row['subject']} of its chain" if number else ""
            yield from judge_certificate(subject, row["ends_ms"] / 1000, now, name)
            yield from judge_begin(subject, row["begins_ms"] / 1000, now, name)
        yield from _trust_store(subject, certificates["trusted"], now)
    for fault in report["unusable_stores"]:
        since = f"since {_date(fault['since_ms'] / 1000)}: {fault['reason']}"
        yield _unusable(
            f"listener {fault['listener']}", f"its changed key store or trust store cannot be used, {since}"
        )
    for fault in report["failing_logins"]:
        if now * 1000 - fault["last_ms"] < PRESENT_MS:
            yield Finding(
                "error",
                fault["broker"],
                f"this broker cannot authenticate its connections to {fault['host']}:{fault['port']}, since "
                f"{_date(fault['since_ms'] / 1000)}: {fault['reason']}",
                LOGINS_FAIL,
                f"repair what the reason names; {OTHER_LOG}. New key stores and new SCRAM users are used without a restart",
            )


def judge_security_sample(name: str, listener: str, value: float, now: float) -> Iterator[Finding]:
    """The finding in a sample of the metrics. :param listener: its label `listener`, or empty. :param now: Unix time in
    seconds."""
    subject = f"listener {listener}"
    if name == "odradek_tls_certificate_expiry_timestamp_seconds":
        yield from judge_certificate(subject, value, now)
    elif name == "odradek_tls_certificate_start_timestamp_seconds":
        yield from judge_begin(subject, value, now)
    elif name == "odradek_tls_truststore_expiry_timestamp_seconds":
        yield from _trust_store(subject, [{"subject": "", "begins_ms": 0, "ends_ms": value * 1000}], now)
    elif name == "odradek_tls_reload_failed" and value:
        yield _unusable(subject, "its changed key store or trust store cannot be used")
    elif name == "odradek_failing_broker_logins" and value:
        yield Finding(
            "error",
            "logins at other brokers",
            f"the broker cannot authenticate its connections to {value:g} addresses of other brokers",
            LOGINS_FAIL,
            "ERROR lines of odradek.security in the broker's log name the other broker, its address and the reason, and so "
            f"does `odradek doctor --data-dir` on the broker's machine; {OTHER_LOG}",
        )


def _trust_store(subject: str, authorities: Sequence[Mapping[str, Any]], now: float) -> Iterator[Finding]:
    """Authorities that have expired, expire soon, or are not valid yet. :param now: Unix time in seconds."""
    soon = now + EXPIRES_SOON_DAYS * DAY_S
    for what, severity, moment, earliest, latest in (
        ("have expired", "error", "ends_ms", 0.0, now),
        ("expire soon", "warning", "ends_ms", now, soon),
        ("are not valid yet", "error", "begins_ms", now, math.inf),
    ):
        rows = [row for row in authorities if earliest < row[moment] / 1000 <= latest]
        if rows:
            names = abbreviate(f"{row['subject'] or 'at least one'} ({_date(row[moment] / 1000)})" for row in rows)
            yield Finding(
                severity,
                subject,
                f"authorities in its trust store {what}: {names}",
                "certificates that they have signed, of clients or of other brokers, are "
                + ("refused then" if what == "expire soon" else "refused"),
                "add the new certificate of the authority to the file of ssl.truststore.location, and remove the former one "
                "when no certificate needs it; the broker reads the file again within odradek.ssl.reload.ms",
            )


def _unusable(subject: str, what: str) -> Finding:
    return Finding(
        "error",
        subject,
        what,
        "the former certificates of all listeners stay in use until they expire, and a restart of the broker may fail",
        "the ERROR line in the broker's log names the key and the reason; `odradek certificate FILE` shows what a file "
        "contains. The broker reads the files again when they change",
    )


def _date(unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(unix_s))
