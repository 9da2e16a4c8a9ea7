"""What `odradek doctor` says about certificates, trust stores, and logins between brokers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.health.finding import Finding, merged
from odradek.cli.health.local import examine_broker
from odradek.cli.health.metrics import judge_metrics
from odradek.cli.health.security import DAY_S, judge_certificate, judge_security
from odradek.security.faults import LoginFault, StoreFault
from odradek.shm.published_faults import Area, PublishedFaults
from odradek.testing import Broker
from tests import certificates
from tests.cli.command import Command
from tests.metrics.scraping import scrape
from tests.waiting import until

NOW = 1e9
TLS = "odradek_tls_"


def row(subject: str, begins_days: float, ends_days: float) -> dict[str, Any]:
    """A certificate of the status document. :param begins_days, ends_days: from now."""
    return {
        "subject": subject,
        "begins_ms": (NOW + begins_days * DAY_S) * 1000,
        "ends_ms": (NOW + ends_days * DAY_S) * 1000,
    }


def report(**parts: Any) -> Mapping[str, Any]:
    certificates_of = {"SSL": {"chain": parts.get("chain", []), "trusted": parts.get("trusted", [])}}
    stores, logins = parts.get("stores", []), parts.get("logins", [])
    return {"certificates": certificates_of, "unusable_stores": stores, "failing_logins": logins}


GOOD = row("CN=good", -1, 15)


def test_one_certificate_is_one_finding_although_the_status_and_the_connection_show_it() -> None:
    soon = row("CN=a", -2, 6)
    of_status = list(judge_security(report(chain=[soon]), NOW))
    of_connections = [
        found for broker in ("broker 1", "broker 2") for found in judge_certificate(broker, soon["ends_ms"] / 1000, NOW)
    ]
    other = of_status[0]._replace(what="something else")
    (certificate, last) = merged(of_status, [*of_connections, other])
    assert (certificate.subject, last) == ("listener SSL, broker 1, broker 2", other)
    assert certificate == of_status[0]._replace(subject=certificate.subject)


def test_findings_of_one_check_stay_apart() -> None:
    found = [Finding("warning", f"group {name}", "a", "b", "c") for name in "xy"]
    assert merged([], found) == found


@pytest.mark.parametrize(
    ("parts", "severity", "what"),
    [
        ({"chain": [GOOD], "trusted": [GOOD]}, None, ""),
        ({"chain": [row("CN=a", -2, -1)]}, "error", "its certificate has expired: 2001-09-08 01:46 UTC"),
        ({"chain": [row("CN=a", -2, 13)]}, "warning", "its certificate expires: 2001-09-22 01:46 UTC"),
        ({"chain": [row("CN=a", 1, 90)]}, "error", "its certificate is not valid before 2001-09-10 01:46 UTC"),
        ({"chain": [GOOD, row("CN=i", -9, -1)]}, "error", "its certificate CN=i of its chain has expired"),
        (
            {"trusted": [GOOD, row("CN=b", -9, -1), row("CN=c", -9, -2)]},
            "error",
            "authorities in its trust store have expired: CN=b (2001-09-08 01:46 UTC), CN=c (2001-09-07 01:46 UTC)",
        ),
        ({"trusted": [row("CN=b", -9, 13)]}, "warning", "authorities in its trust store expire soon: CN=b"),
        (
            {"trusted": [row("CN=b", 1, 90)]},
            "error",
            "authorities in its trust store are not valid yet: CN=b (2001-09-10",
        ),
        (
            {"stores": [StoreFault("SSL", int(NOW * 1000), "ssl.keystore.location=/x: no such file")._asdict()]},
            "error",
            "cannot be used, since 2001-09-09 01:46 UTC: ssl.keystore.location=/x: no such file",
        ),
        (
            {"logins": [LoginFault("broker 2", "h", 9091, "its password", 0, int(NOW * 1000) - 599_000)._asdict()]},
            "error",
            "this broker cannot authenticate its connections to h:9091, since 1970-01-01 00:00 UTC: its password",
        ),
        ({"logins": [LoginFault("broker 2", "h", 9091, "gone", 0, int(NOW * 1000) - 601_000)._asdict()]}, None, ""),
    ],
)
def test_what_the_status_shows(parts: dict[str, Any], severity: str | None, what: str) -> None:
    findings = list(judge_security(report(**parts), NOW))
    if severity is None:
        assert findings == []
        return
    (finding,) = findings
    assert finding.severity == severity and what in finding.what and finding.reason and finding.remedy
    assert finding.subject == ("broker 2" if "logins" in parts else "listener SSL")


@pytest.mark.parametrize(
    ("sample", "severity", "what"),
    [
        (f'{TLS}certificate_start_timestamp_seconds{{listener="SSL"}} {NOW - 1}', None, ""),
        (f'{TLS}certificate_start_timestamp_seconds{{listener="SSL"}} {NOW + 1}', "error", "is not valid before"),
        (f'{TLS}truststore_expiry_timestamp_seconds{{listener="SSL"}} {NOW + 15 * DAY_S}', None, ""),
        (f'{TLS}truststore_expiry_timestamp_seconds{{listener="SSL"}} {NOW + 13 * DAY_S}', "warning", "at least one"),
        (
            f'{TLS}truststore_expiry_timestamp_seconds{{listener="SSL"}} {NOW - 1}',
            "error",
            "have expired: at least one",
        ),
        (f'{TLS}reload_failed{{listener="SSL"}} 0.0', None, ""),
        (f'{TLS}reload_failed{{listener="SSL"}} 1.0', "error", "its changed key store or trust store cannot be used"),
        ("odradek_failing_broker_logins 0.0", None, ""),
        ("odradek_failing_broker_logins 2.0", "error", "cannot authenticate its connections to 2 addresses"),
    ],
)
def test_what_the_metrics_show_if_the_status_is_not_known(sample: str, severity: str | None, what: str) -> None:
    findings = list(judge_metrics(sample + "\n", NOW))
    assert [finding.severity for finding in findings] == ([] if severity is None else [severity])
    assert all(what in finding.what for finding in findings)
    assert list(judge_metrics(sample + "\n", NOW, status_judged=True)) == []


def test_the_metrics_listener_is_judged_although_the_status_is_known() -> None:
    sample = f'{TLS}reload_failed{{listener="METRICS"}} 1.0\n'
    assert [one.subject for one in judge_metrics(sample, NOW, status_judged=True)] == ["listener METRICS"]


def test_faults_of_processes_are_joined_and_replaced() -> None:
    faults = PublishedFaults()
    assert faults.stores() == faults.logins() == []
    old, new = LoginFault("broker 2", "h", 1, "old", 1, 2), LoginFault("broker 2", "h", 1, "x" * 1000, 1, 3)
    faults.publish_logins(Area.COORDINATOR_LOGINS, [new])
    faults.publish_logins(Area.REPLICATOR_LOGINS, [old, old._replace(port=2)])
    faults.publish_stores([StoreFault("SSL", 1, "\u2028" * 9)])
    assert faults.logins() == [new._replace(reason="x" * 500), old._replace(port=2)]
    assert faults.stores() == [StoreFault("SSL", 1, "\u2028" * 9)]
    faults.publish_logins(Area.COORDINATOR_LOGINS, [])
    faults.publish_stores([])
    assert faults.logins() == [old, old._replace(port=2)] and faults.stores() == []
    most = [LoginFault("broker 2", "h" * 255, port, "\U0001f600" * 1000, 1, 1) for port in range(256)]
    faults.publish_logins(Area.COORDINATOR_LOGINS, most)
    assert len(faults.logins()) == 256 + 2


def findings_of(broker: Broker) -> dict[str, str]:
    """What the status of a broker shows, by subject."""
    return {finding.subject: finding.what for finding in examine_broker(str(broker.data_dir))}


def test_stores_of_a_broker_are_found_when_they_expire_cannot_be_used_and_are_repaired(tmp_path: Path) -> None:
    files = tmp_path / "stores"
    files.mkdir()
    store, trust = files / "broker.pem", files / "trust.pem"

    def write(path: Path, text: str) -> None:
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(path)

    good = "".join(certificates.pem(certificates.of_broker()))
    write(store, "".join(certificates.pem(certificates.future_broker())))
    write(trust, certificates.ca_pem() + certificates.expired_authority())
    settings = {
        "listeners": "SSL://127.0.0.1:0,OPEN://127.0.0.1:0",
        "listener.security.protocol.map": "SSL:SSL,OPEN:PLAINTEXT",
        "ssl.keystore.location": store,
        "listener.name.ssl.ssl.truststore.location": trust,
        "ssl.client.auth": "required",
        "ssl.allow.dn.changes": "true",
        "ssl.allow.san.changes": "true",
        "odradek.ssl.reload.ms": 100,
        "metrics.listener": "127.0.0.1:0",
    }
    with Broker(settings, directory=tmp_path / "data") as broker:
        whats = [finding.what for finding in examine_broker(str(broker.data_dir))]
        assert len(whats) == 2 and "is not valid before" in whats[0], whats
        assert "authorities in its trust store have expired: CN=an authority of former times" in whats[1], whats
        text = scrape(broker).text
        assert [finding.subject for finding in judge_metrics(text)] == ["listener SSL"] * 2
        write(trust, certificates.ca_pem())
        write(store, good)
        until(lambda: findings_of(broker) == {}, lambda: f"{findings_of(broker)}: {broker.log_tail()}")
        write(store, "no certificate")
        until(lambda: "listener SSL" in findings_of(broker), lambda: broker.log_tail())
        assert f"ssl.keystore.location={store}" in findings_of(broker)["listener SSL"]
        assert scrape(broker).value(f"{TLS}reload_failed", listener="SSL") == 1
        write(store, good)
        until(lambda: findings_of(broker) == {}, lambda: f"{findings_of(broker)}: {broker.log_tail()}")
        assert scrape(broker).value(f"{TLS}reload_failed", listener="SSL") == 0
        assert json.loads(json.dumps(broker.status()["security"]))["failing_logins"] == []


def test_a_wrong_file_of_the_command_is_no_finding_about_the_broker(tmp_path: Path) -> None:
    file = tmp_path / "wrong.properties"
    file.write_text("security.protocol=TLS\n")
    Command("127.0.0.1:1").refused("doctor", "--command-config", file, words=["security.protocol=TLS"])
