"""`odradek quota`: what it sets, shows and refuses; and what the metrics of quotas tell `quota throttled` and `doctor`."""

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from odradek.cli.health.quotas import judge_quotas
from odradek.cli.inspection.throttled_clients import throttled_clients
from odradek.cli.main import main
from odradek.testing import Broker

METRICS = """
# TYPE kafka_server_produce_byte_rate gauge
kafka_server_produce_byte_rate{client_id="a",user="u"} 2000.5
kafka_server_produce_throttle_time{client_id="a",user="u"} 7000
kafka_server_fetch_byte_rate{client_id="b"} 10.0
kafka_server_fetch_throttle_time{client_id="b"} 0
kafka_server_request_request_time{user="u"} 50.0
kafka_server_request_throttle_time{user="u"} 900
odradek_quota_limit{client_id="a",quota="producer_byte_rate",user="u"} 1000.0
odradek_quota_limit{client_id="b",quota="consumer_byte_rate"} 1000.0
odradek_quota_limit{quota="request_percentage",user="u"} 25.0
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker({"num.network.threads": 1}, directory=tmp_path_factory.mktemp("quota-command")) as running:
        yield running


def quota(broker: Broker, command: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["quota", command, "-b", f"{broker.host}:{broker.port}", *arguments])


def test_quotas_are_set_shown_and_removed(broker: Broker) -> None:
    assert quota(broker, "set", "--user", "alice", "--client-id-default", "producer_byte_rate=1000").exit_code == 0
    assert quota(broker, "set", "--ip-default", "connection_creation_rate=50").exit_code == 0
    listed = json.loads(quota(broker, "list", "--json").stdout)
    assert {json.dumps(each["entity"]): each["quotas"] for each in listed} == {
        '{"user": "alice", "client-id": null}': {"producer_byte_rate": 1000.0},
        '{"ip": null}': {"connection_creation_rate": 50.0},
    }
    assert "alice  (default)" in quota(broker, "list").stdout
    shown = quota(broker, "describe", "--user", "alice", "--client-id-default")
    assert shown.exit_code == 0 and "1,000" in shown.stdout
    assert quota(broker, "describe", "--user", "alice").exit_code == 1
    assert quota(broker, "remove", "--user", "alice", "--client-id-default", "consumer_byte_rate").exit_code == 1
    assert quota(broker, "remove", "--user", "alice", "--client-id-default").exit_code == 0
    assert quota(broker, "remove", "--ip-default", "connection_creation_rate").exit_code == 0
    assert json.loads(quota(broker, "list", "--json").stdout) == []


def test_a_dry_run_changes_nothing(broker: Broker) -> None:
    assert quota(broker, "set", "--user", "bob", "--dry-run", "producer_byte_rate=1").exit_code == 0
    assert quota(broker, "describe", "--user", "bob").exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("producer_byte_rate=1",), 1, "name an entity"),
        (("--user", "", "producer_byte_rate=1"), 1, "--user is empty"),
        (("--user", "a", "--user-default", "producer_byte_rate=1"), 1, "cannot be combined"),
        (("--user", "a", "--ip", "10.0.0.1", "producer_byte_rate=1"), 1, "--ip cannot be combined"),
        (("--user", "a", "produce_byte_rate=1"), 2, "did you mean 'producer_byte_rate'"),
        (("--user", "a", "producer_byte_rate=fast"), 2, "is not a number"),
        (("--user", "a", "producer_byte_rate=0"), 2, "greater than 0"),
        (("--user", "a", "producer_byte_rate=nan"), 2, "greater than 0"),
        (("--user", "a", "connection_creation_rate=5"), 1, "connection_creation_rate"),
        (("--ip", "nonsense", "connection_creation_rate=5"), 1, "is not an IP address"),
    ],
)
def test_wrong_entities_and_quotas_are_refused(
    broker: Broker, arguments: tuple[str, ...], code: int, text: str
) -> None:
    result = quota(broker, "set", *arguments)
    assert result.exit_code == code and text in result.stderr, result.output


def test_the_throttled_clients_in_the_metrics() -> None:
    assert [tuple(client) for client in throttled_clients(METRICS)] == [
        ("u", "a", "producer_byte_rate", 1000.0, 2000.5, 7000.0),
        ("u", None, "request_percentage", 25.0, 50.0, 900.0),
    ]


def test_findings_name_clients_that_wait_for_long_and_a_full_table() -> None:
    (finding,) = judge_quotas(METRICS)
    assert finding.subject == "client u/a" and "producer_byte_rate of 1,000" in finding.what and "7 s" in finding.what
    (finding,) = judge_quotas("odradek_quota_overflows_total 12\n")
    assert "full 12 times" in finding.what
    assert list(judge_quotas("odradek_quota_overflows_total 0\n")) == []
