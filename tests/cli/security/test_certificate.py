"""`odradek certificate`, and what `odradek doctor` says about certificates."""

import json

import pytest
from click.testing import CliRunner

from odradek.cli.health.metrics import judge_metrics
from odradek.cli.health.security import DAY_S
from odradek.cli.main import main
from odradek.testing import Broker
from tests.certificates import ca_pem, of_client, pem


def run(*arguments):
    return CliRunner().invoke(main, ["certificate", *map(str, arguments)])


def test_a_file_is_shown_with_its_principal(tmp_path):
    path = tmp_path / "c.pem"
    path.write_text("".join(pem(of_client())) + ca_pem())
    result = run(path, "--rules", "RULE:^CN=([^,]+),OU.*$/$1/U")
    assert result.exit_code == 0 and "User:ALICE" in result.output and "- (no rule applies)" in result.output
    assert "PRIVATE" not in result.output
    rows = json.loads(run(path, "--json").output)["certificates"]
    assert len(rows) == 2 and rows[0]["principal"].startswith("User:CN=alice,") and rows[0]["days_left"] > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("no-such-file",), "cannot connect to no-such-file:9092"),
        (("127.0.0.1:x",), "a file of this name does not exist either"),
        (("127.0.0.1:1", "--rules", "x"), "--rules:"),
    ],
)
def test_errors_are_one_line(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 1 and message in result.output and result.output.count("\n") == 1


def test_a_listener_is_shown_with_its_chain():
    with Broker({"ssl.client.auth": "none"}, tls=True) as broker:
        shown = json.loads(run(broker.bootstrap_servers, "--json").output)
    assert shown["version"] == "TLSv1.3"
    assert (
        shown["certificates"][0]["subject"] == "CN=localhost"
        and "IPAddress:127.0.0.1" in shown["certificates"][0]["names"]
    )


def test_doctor_reports_certificates_that_expire():
    def findings(left_days):
        line = f'odradek_tls_certificate_expiry_timestamp_seconds{{listener="SSL"}} {1e9 + left_days * DAY_S}\n'
        return [(finding.severity, finding.subject) for finding in judge_metrics(line, 1e9)]

    assert findings(15) == []
    assert findings(13) == [("warning", "listener SSL")]
    assert findings(-1) == [("error", "listener SSL")]


def test_doctor_reports_a_listener_without_keys_for_tokens():
    def findings(keys):
        return [
            (one.severity, one.subject) for one in judge_metrics(f'odradek_jwks_keys{{listener="OA"}} {keys}\n', 1e9)
        ]

    assert findings(1) == []
    assert findings(0) == [("error", "listener OA")]
