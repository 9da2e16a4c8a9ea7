"""The commands that connect to a cluster, with Odradek's broker, and the most important ones with Kafka's."""

import json
import re
import socket
import threading

import pytest

from odradek.clients import group_lags, groups, tree_offsets
from odradek.clients.cluster import Cluster
from odradek.clients.wire import Connection
from odradek.testing import Broker
from tests.cli.command import Command
from tests.clients.kafka_peer import Peer
from tests.waiting import until


def fill(odradek, name, records=10, partitions=1):
    odradek("topic", "create", name, "-p", partitions)
    put(odradek, name, records)


def put(odradek, name, records):
    odradek("produce", name, "-p", 0, stdin="".join(f"v{n}\n" for n in range(records)))


def test_a_topic_is_created_altered_and_deleted(odradek, name):
    made = odradek.json("topic", "create", name, "-p", 3, "-c", "retention.ms=7d", "-c", "segment.bytes=2MiB")
    assert (made["topic"], made["created"], made["partitions"]) == (name, True, 3)
    assert name in odradek("topic", "list")
    (row,) = odradek.json("topic", "list", f"{name[:-1]}*", name)[-1:]
    assert row["partitions"] >= 1 and row["health"] == "ok"
    output = odradek.json("topic", "describe", name)
    assert output["configs"] == {"retention.ms": "604800000", "segment.bytes": "2097152"}
    assert [part["partition"] for part in output["partitions"]] == [0, 1, 2]
    assert "5 partitions" in odradek("topic", "alter", name, "-p", 5)
    assert len(odradek.json("topic", "describe", name)["partitions"]) == 5
    odradek.refused("topic", "delete", name, words=["--yes", name])
    assert odradek.json("topic", "delete", name, "--dry-run")[0]["deleted"] is False
    assert odradek.json("topic", "delete", name, "--yes")[0]["deleted"] is True
    assert name not in {row["topic"] for row in odradek.json("topic", "list")}
    assert odradek.json("topic", "delete", name, "--if-exists", "--yes") == []


def test_errors_about_topics_are_one_line(odradek, name):
    odradek("topic", "create", name, "-p", 2)
    odradek.refused("topic", "create", name, words=["already", f"odradek topic describe {name}", "--if-not-exists"])
    assert odradek.json("topic", "create", name, "--if-not-exists")["created"] is False
    odradek.refused("topic", "create", "x y", words=["x y"])
    odradek.refused("topic", "create", f"{name}-x", "-c", "retention.ms=soon", words=["retention.ms", "soon", "7d"])
    odradek.refused("topic", "create", f"{name}-x", "-c", "retension.ms=1", words=["did you mean 'retention.ms'"])
    odradek.refused("topic", "create", f"{name}-x", "-r", 3, words=["was not created"])
    odradek.refused("topic", "describe", f"{name}-x", words=[f"{name}-x", "did you mean 'cli-"])
    odradek.refused("topic", "alter", name, "-p", 2, words=["has 2 partitions"])
    odradek.refused("topic", "alter", name, code=2, words=["nothing to change"])
    odradek.refused("topic", "truncate", name, "-p", 7, words=["no partition 7", "0 to 1"])
    odradek.refused("topic", "create", name, "--assignment", "1;2", code=2, words=["1:2,2:3"])


def test_wrong_command_lines_are_one_line_with_a_hint(odradek):
    odradek.refused("topc", code=2, words=["did you mean 'topic'"])
    odradek.refused("topic", "creat", code=2, words=["did you mean 'create'", "odradek topic --help"])
    odradek.refused("topic", "create", code=2, words=["TOPIC", "odradek topic create --help"])
    odradek.refused("topic", "list", "-b", "localhost:no", words=["localhost:no", "host:port"])
    odradek.refused("-b", "localhost:9092", "start", code=2, words=["no such option '-b'", "odradek start --help"])
    odradek.refused("-b", "topic", code=2, words=["no such option '-b'"])


@pytest.mark.parametrize("option", [["-b", "{}"], ["-b{}"], ["--bootstrap-server", "{}"], ["--bootstrap-server={}"]])
def test_the_bootstrap_server_may_be_named_before_the_command(option, odradek, cli_broker, name):
    odradek("topic", "create", name)
    words = [word.format(cli_broker.bootstrap_servers) for word in option]
    nowhere = Command("127.0.0.1:1")
    assert nowhere.json(*words, "topic", "list", name)[0]["topic"] == name
    assert nowhere.json("topic", *words, "list", name)[0]["topic"] == name
    nowhere.refused("topic", "list", words=["127.0.0.1:1"])


def test_an_empty_list_of_groups_says_what_it_looked_for(odradek, cli_broker):
    assert "no groups in state Dead (" in odradek.run("group", "list", "--state", "dead").stderr
    assert "in other states)" in odradek.run("group", "list", "--state", "dead").stderr
    listed = odradek.run("group", "list", "--state", "dead", "--state", "assigning", "--type", "consumer").stderr
    assert re.fullmatch(r"no groups in state Dead or Assigning of type Consumer \(\d+ other groups?\)\n", listed)
    others = len({row["group"] for row in odradek.json("group", "list")})
    assert f"({others} group" in odradek.run("group", "list", "--state", "dead").stderr


def test_produce_creates_a_topic_only_with_create():
    with Broker({"num.partitions": 3, "auto.create.topics.enable": "true"}) as broker:
        odradek = Command(broker.bootstrap_servers)
        new = "topic 'orders' does not exist; `odradek topic list` shows all topics; --create creates 'orders'\n"
        assert odradek.refused("produce", "orders", stdin="a\n") == f"odradek: {new}"
        first, second = (odradek.run("produce", "orders", "--create", stdin="a\n") for _ in range(2))
        assert (first.stderr, second.stderr) == (
            "created topic orders\nsent 1 record to orders\n",
            "sent 1 record to orders\n",
        )
        typo = "topic 'ordrs' does not exist; did you mean 'orders'? --create creates 'ordrs'\n"
        assert odradek.refused("produce", "ordrs", stdin="a\n") == f"odradek: {typo}"
        assert [(row["topic"], row["partitions"]) for row in odradek.json("topic", "list")] == [("orders", 3)]


NAMING_A_TOPIC = (
    "topic describe ordrs",
    "topic alter ordrs -p 9",
    "topic delete ordrs",
    "topic truncate ordrs -y",
    "partition explain ordrs-0",
    "partition elect -t ordrs",
    "partition move -t ordrs --balance",
    "partition moves -t ordrs",
    "partition moves -t ordrs --cancel",
    "partition moves -t ordrs --finish",
    "partition moves -t ordrs --wait",
    "produce ordrs",
    "consume ordrs",
    "consume ordrs -g g",
    "config get --topic ordrs",
    "config set --topic ordrs retention.ms=1",
    "config explain --topic ordrs retention.ms=1",
    "group reset-offsets g -t ordrs --to latest",
    "transaction hanging -t ordrs",
    "transaction abort --topic ordrs --partition 0 --start-offset 0",
    "load run ordrs --out /nowhere --dry-run",
)


def test_every_command_that_names_a_topic_says_which_one_may_be_meant(odradek, name):
    """A command creates nothing because of a typo, and shows the topic with a similar name."""
    odradek("topic", "create", "orders")
    for command in NAMING_A_TOPIC:
        odradek.refused(*command.split(), words=["topic 'ordrs' does not exist; did you mean 'orders'?"])
    odradek("topic", "delete", "orders", "--yes")


def test_an_unreachable_broker_is_an_error_of_one_line():
    nobody = Command("127.0.0.1:1")
    for arguments in (
        ["topic", "list"],
        ["group", "list"],
        ["produce", "t"],
        ["consume", "t"],
        ["config", "get", "-t", "t"],
    ):
        nobody.refused(*arguments, words=["127.0.0.1:1", "Connection refused"])
    done = nobody.run("doctor", "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["findings"][0]["subject"] == "cluster"


@pytest.mark.parametrize("command", [["topic", "list"], ["produce", "t"], ["consume", "t"], ["usage", "show"]])
def test_a_server_that_does_not_respond_is_reported_before_the_timeout(command):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = Command(address).run(*command, "--timeout", "3.5")
    assert (done.returncode, done.stdout) == (1, "")
    warning, error = done.stderr.splitlines()
    assert warning == (
        f"odradek: warning: {address} accepted the connection and has not responded to ApiVersions for 3 s;"
        " waiting up to 3.5 s; is it a plain-text listener of a Kafka broker? For one with TLS or SASL use --command-config"
    )
    assert f"{address} did not respond to ApiVersions within 3.5 s" in error


def test_a_timeout_below_the_time_of_the_warning_gives_the_error_only():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        nobody = Command(f"127.0.0.1:{silent.getsockname()[1]}")
        nobody.refused("topic", "list", "--timeout", "0.2", words=["within 0.2 s", "plain-text listener"])


def test_a_server_of_another_protocol_is_named_with_the_beginning_of_its_response():
    def respond(server):
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.recv(1000)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=respond, args=(server,))
        thread.start()
        nobody = Command(f"127.0.0.1:{server.getsockname()[1]}")
        nobody.refused("topic", "list", words=["is not a Kafka broker", "b'HTTP'"])
        thread.join()


def test_an_unreachable_broker_is_reported_with_the_way_to_name_another():
    nobody = Command("127.0.0.1:1")
    for command in (["topic", "list"], ["produce", "t"], ["consume", "t"]):
        nobody.refused(*command, words=["127.0.0.1:1", "ODRADEK_BOOTSTRAP_SERVERS must name a listener"])
        nobody.refused(*command, "-b", "127.0.0.1:2", words=["127.0.0.1:2", "-b must name a listener"])


def test_lines_keys_and_headers_are_read_back_unchanged(odradek, name):
    odradek("topic", "create", name)
    sent = odradek.json("produce", name, "-K", ":", "-H", "from=test", "-z", "lz4", stdin="a:1\nb:2\n")
    assert sent["records"] == 2
    odradek("produce", name, "-k", "c", "--null", stdin="\n")
    records = odradek.lines("consume", name, "--from", "beginning", "-e", "--json")
    assert [(record["key"], record["value"]) for record in records] == [("a", "1"), ("b", "2"), ("c", None)]
    assert records[0]["headers"] == [["from", "test"]] and records[2]["headers"] == []
    assert odradek("consume", name, "--from", 1, "-n", 1, "-f", "{partition}@{offset} {key}={value}\\n") == "0@1 b=2\n"


def test_produce_reads_the_json_that_consume_writes(odradek, name):
    odradek("topic", "create", name, f"{name}-copy", "-c", "retention.ms=-1")  # the record is older than records become
    record = {"key": {"base64": "/w=="}, "value": "ä", "headers": [["h", None]], "timestamp": 1_700_000_000_000}
    odradek("produce", name, "-f", "json", stdin=json.dumps(record) + "\n")
    written = odradek("consume", name, "--from", "beginning", "-e", "--json")
    assert json.loads(written).items() >= record.items()
    odradek("produce", f"{name}-copy", "-f", "json", stdin=written)
    (copy,) = odradek.lines("consume", f"{name}-copy", "--from", "beginning", "-e", "--json")
    assert copy == json.loads(written) | {"topic": f"{name}-copy"}
    odradek.refused("produce", name, "-f", "json", stdin='{"value": "x"}\n{"key": 1}\n', words=["line 2", '"value"'])
    odradek.refused("produce", name, "-K", ":", stdin="nothing\n", words=["line 1", "':'"])


def test_reading_starts_and_ends_at_the_given_positions(odradek, name):
    fill(odradek, name, 10)
    read = ["consume", name, "-e"]
    assert odradek(*read, "--from", "end") == ""
    assert odradek(*read, "--from", "-2").split() == ["v8", "v9"]
    assert odradek(*read, "--from", 7).split() == ["v7", "v8", "v9"]
    assert len(odradek(*read, "--from", "1h ago").split()) == 10
    assert odradek(*read, "--from", "2100-01-01") == ""
    assert odradek(*read, "--from", "beginning", "--until", "1h ago") == ""
    assert odradek(*read, "--from", "beginning", "--grep", "v[35]").split() == ["v3", "v5"]
    assert odradek("consume", f"{name[:-1]}{name[-1]}*", "-e", "--from", 9).split() == [name, "v9"]
    odradek.refused(*read, "--from", "soon", code=2, words=["soon", "beginning"])
    odradek.refused(*read, "-f", "{keys}", code=2, words=["{keys}", "{key}"])
    odradek.refused("consume", f"{name}-x", words=[f"{name}-x", "did you mean 'cli-"])
    odradek.refused("consume", name, "--grep", "(", code=2, words=["regular expression"])
    odradek.refused("produce", f"{name}-x", stdin="x\n", words=[f"--create creates '{name}-x'"])


def test_truncating_deletes_and_reports_the_oldest_records(odradek, name):
    fill(odradek, name, 10)
    assert odradek.json("topic", "truncate", name, "--dry-run")["records"] == 10
    odradek.refused("topic", "truncate", name, words=["10 records", "--yes"])
    assert odradek.json("topic", "truncate", name, "--before-offset", 4, "--yes")["records"] == 4
    assert odradek("consume", name, "--from", "beginning", "-e").split()[0] == "v4"
    assert odradek.json("topic", "truncate", name, "--before-time", "-1h", "--yes")["records"] == 0
    assert odradek.json("topic", "truncate", name, "--yes")["records"] == 6


def test_truncating_reports_the_freed_space_and_when(odradek, name):
    fill(odradek, name, 10)
    (size,) = [row["bytes"] for row in odradek.json("topic", "list", "--sizes") if row["topic"] == name]
    space = odradek.json("topic", "truncate", name, "--before-offset", 5, "--dry-run")["space"]
    assert space["bytes_at_least"] == 0 < space["bytes_at_most"] < size, "they are in the active segment"
    output = odradek("topic", "truncate", name, "--before-offset", 5, "--dry-run")
    for words in ("between 0 B and", "whole segments", "segment.bytes", "until it is rolled"):
        assert words in output
    output = odradek("topic", "truncate", name, "--yes")
    for words in (f"this frees about {size} B of log files", "within 5 min (log.retention.check.interval.ms)",
                  "1 min later (file.delete.delay.ms)"):  # fmt: skip
        assert words in output
    assert "free" not in odradek("topic", "truncate", name, "--yes"), "there is nothing left to delete"


def test_a_size_limit_below_the_active_segment_frees_no_space(odradek, name):
    fill(odradek, name, 100)
    output = odradek("config", "explain", "-t", name, "retention.bytes=100")
    assert "retention deletes up to" in output and "between 0 B and" in output and "until it is rolled" in output
    output = odradek("config", "explain", "-t", name, "retention.ms=0")
    assert "retention deletes up to 100 records" in output and "between" not in output, (
        "expired records make the segment roll"
    )


def test_a_group_is_listed_described_explained_reset_and_deleted(odradek, name):
    fill(odradek, name, 10)
    assert len(odradek("consume", name, "-g", name, "-n", 6, "-e").split()) == 6
    (row,) = [row for row in odradek.json("group", "list", "--state", "Empty") if row["group"] == name]
    assert (row["state"], row["type"], row["protocol"]) == ("Empty", "Classic", "consumer")
    assert (row["members"], row["lag"]) == (0, 4)
    output = odradek.json("group", "describe", name)
    assert output["lag"] == 4 and output["offsets"][0]["committed"] == 6 and output["members"] == []
    assert "lag 4" in odradek("group", "describe", name)
    explained = odradek.json("group", "explain", name)
    assert [event["kind"] for event in explained["events"]][:3] == ["joined", "rebalance began", "rebalance ended"]
    assert any(event["kind"] == "left" for event in explained["events"])
    assert "rebalance" in odradek("group", "explain", name)
    odradek.refused("group", "reset-offsets", name, "--to", "earliest", words=["6 records again", "--yes"])
    for target, offset in (("-2", 4), ("+1", 5), ("latest", 10), ("3", 3), ("1h ago", 0), ("99", 10), ("earliest", 0)):
        planned = odradek.json("group", "reset-offsets", name, "--to", target, "--dry-run")["offsets"][0]
        done = odradek.json("group", "reset-offsets", name, "--to", target, "--yes")["offsets"][0]
        assert planned == done and done["after"] == offset
    assert odradek.json("group", "describe", name)["lag"] == 10
    odradek.refused("group", "delete", name, words=["1 committed offset", "--yes"])
    assert odradek.json("group", "delete", name, "--yes") == [{"group": name, "deleted": True, "offsets": 1}]


def test_groups_are_listed_with_few_requests_and_sorted_by_lag(odradek, cli_broker, name, monkeypatch):
    fill(odradek, name, 10, partitions=2)
    ids = [f"{name}-{number}" for number in range(5)]
    for number, group_id in enumerate(ids):
        odradek("group", "reset-offsets", group_id, "-t", f"{name}:0", "--to", number, "--yes")
    asked = []
    ask = Connection.ask

    def noting(connection, api, *rest, **options):
        asked.append(api.name)
        return ask(connection, api, *rest, **options)

    monkeypatch.setattr(Connection, "ask", noting)
    monkeypatch.setattr(group_lags, "GROUPS_AT_ONCE", 3)
    with Cluster(cli_broker.bootstrap_servers) as cluster:
        listed = [group for group in groups.list_groups(cluster) if group.group_id in ids]
        asked.clear()
        assert group_lags.members(cluster, listed) == dict.fromkeys(ids, 0)
        lags = group_lags.lags(cluster, group_lags.committed(cluster, listed))
    assert asked == ["DescribeGroups"] * 2 + ["OffsetFetch"] * 2 + ["Metadata", "ListOffsets"]
    first = lags[ids[0]]
    assert [lags[group_id] for group_id in ids] == [first - number for number in range(5)]
    rows = [row for row in odradek.json("group", "list", "--sort", "lag") if row["group"] in ids]
    assert [(row["group"], row["lag"]) for row in rows] == [(group_id, lags[group_id]) for group_id in ids]
    assert [row["group"] for row in odradek.json("group", "list") if row["group"] in ids] == ids
    plain = [row for row in odradek.json("group", "list", "--no-lag") if row["group"] in ids]
    assert all(row["lag"] is None and row["members"] is None for row in plain)


def test_errors_about_groups_are_one_line(odradek, name):
    odradek("topic", "create", name)
    for verb in ("describe", "explain", "delete"):
        odradek.refused("group", verb, "?!", words=["group '?!' does not exist; `odradek group list` shows all groups"])
    odradek.refused("group", "reset-offsets", f"{name}-x", "--to", "latest", words=["--topic"])
    reset = ["group", "reset-offsets", f"{name}-x", "-t"]
    odradek.refused(*reset, f"{name}:9", "--to", "latest", words=["no partition 9"])
    odradek.refused(*reset, f"{name}:a", "--to", "latest", words=["orders:0,3"])
    odradek.refused(*reset, name, "--to", "soon", words=["soon", "earliest"])


NAMING_A_GROUP = (
    "group describe zebas",
    "group explain zebas",
    "group delete zebas",
    "group reset-offsets zebas --to latest",
    "group reset-offsets zebas --to latest --dry-run",
    "offsets migrate zebas --to log",
)
MAY_NAME_A_NEW_GROUP = (
    "group reset-offsets {group} -t {topic} --to latest --dry-run",
    "config get --group {group}",
    "config set --group {group} consumer.session.timeout.ms=45000 --dry-run",
    "config explain --group {group} consumer.session.timeout.ms",
)
NAMING_SOMETHING_ELSE = (
    ("user describe mage", "marge"),
    ("user remove mage --yes", "marge"),
    ("quota describe --user hommer", "homer"),
    ("quota remove --user hommer", "homer"),
    ("quota describe --user homer --client-id brt", "bart"),
    ("transaction describe payment-1", "payments-1"),
    ("transaction abort payment-1 --yes", "payments-1"),
)


def test_every_command_that_needs_a_group_says_which_one_may_be_meant(odradek, name):
    odradek("topic", "create", name)
    odradek("group", "reset-offsets", "Zebras", "-t", name, "--to", 0, "--yes")
    for command in NAMING_A_GROUP:
        odradek.refused(*command.split(), words=["group 'zebas' does not exist; did you mean 'Zebras'?"])
    assert "Zebras" in [row["group"] for row in odradek.json("group", "list")]
    for command in MAY_NAME_A_NEW_GROUP:
        for group, meant in (("zebas", " did you mean 'Zebras'?"), ("Zebras", None), ("?!", None)):
            warnings = odradek.run(*command.format(group=group, topic=name).split()).stderr
            assert (meant or "did you mean") in warnings if meant else "did you mean" not in warnings, (command, group)
            created = command.startswith("group reset") and group != "Zebras"
            assert (f"group '{group}' does not exist: the offsets would create it" in warnings) == created, warnings
    odradek("group", "delete", "Zebras", "--yes")


def test_every_command_that_needs_another_name_says_which_one_may_be_meant(odradek, name):
    """Users with SCRAM credentials, users with quotas, client ids, and transactional ids."""
    odradek("topic", "create", name)
    odradek("produce", name, "-X", "transactional.id=payments-1", stdin="a\n")
    odradek("user", "add", "marge", "--password-file", "-", stdin="secret\n")
    odradek("quota", "set", "--user", "homer", "producer_byte_rate=1000000")
    odradek("quota", "set", "--client-id", "bart", "--user", "homer", "producer_byte_rate=1000000")
    for command, meant in NAMING_SOMETHING_ELSE:
        odradek.refused(*command.split(), words=[f"; did you mean '{meant}'?"])
    for command, listing in (
        ("user describe ?!", "`odradek user list` shows all users"),
        ("quota describe --user ?!", "`odradek quota list` shows all"),
        ("quota describe --user homer --client-id ?!", "`odradek quota list` shows all"),
        (
            "quota remove --user homer consumer_byte_rate",
            "has no quota consumer_byte_rate; `odradek quota list` shows all",
        ),
        ("transaction describe ?!", "`odradek transaction list` shows all ids"),
    ):
        odradek.refused(*command.split(), words=[listing])
    odradek("user", "remove", "marge", "--yes")
    odradek("quota", "remove", "--user", "homer")
    odradek("quota", "remove", "--user", "homer", "--client-id", "bart")


def test_offsets_are_migrated_between_tree_and_log_and_never_decrease(odradek, name):
    fill(odradek, name, 10, partitions=2)
    at = ["group", "reset-offsets", name, "--yes", "-t"]
    odradek(*at, f"{name}:0", "--to", 5)
    odradek(*at, f"{name}:1", "--to", 0)
    move = ["offsets", "migrate", name, "--to"]
    assert {row["outcome"] for row in odradek.json(*move, "tree", "--dry-run")} == {"would copy"}
    assert {row["outcome"] for row in odradek.json(*move, "tree")} == {"copied"}
    odradek(*at, f"{name}:0", "--to", 8)
    assert [row["outcome"] for row in odradek.json(*move, "log")] == ["newer there", "equal"]
    rows = odradek.json(*move, "both")
    assert rows[0].items() >= {"to": "tree", "outcome": "copied", "tree": 5, "log": 8}.items()
    odradek(*at, f"{name}:0", "--to", 2)
    assert odradek.json(*move, "tree")[0]["outcome"] == "newer there"
    assert odradek.json(*move, "tree", "--overwrite")[0]["outcome"] == "copied"
    assert odradek.json(*move, "log", "--dry-run")[0].items() >= {"outcome": "equal", "tree": 2, "log": 2}.items()
    rounds = odradek(*move, "both", "--every", 0.05, "--rounds", 3, "--json").splitlines()
    assert len(rounds) == 3 and {row["outcome"] for row in json.loads(rounds[-1])} == {"equal"}
    odradek.refused(*move, "both", "--overwrite", code=2, words=["--to log"])


def test_groups_in_the_tree_are_listed_described_migrated_and_deleted(odradek, cli_broker, name):
    fill(odradek, name, 10, partitions=2)
    with Cluster(cli_broker.bootstrap_servers) as cluster:
        assert tree_offsets.commit(cluster, name, {(name, 0): 4, (name, 1): 0}) == {}

    def types():
        return [row["type"] for row in odradek.json("group", "list") if row["group"] == name]

    assert types() == ["Tree"]
    (listed,) = [row for row in odradek.json("group", "list", "--type", "tree") if row["group"] == name]
    assert (listed["members"], listed["lag"]) == (None, 6)
    described = odradek.json("group", "describe", name)
    assert (described["type"], described["offsets"], described["members"]) == ("Tree", [], [])
    assert [(row["partition"], row["committed"], row["lag"]) for row in described["tree"]] == [(0, 4, 6), (1, 0, 0)]
    assert "only in the metadata tree" in odradek("group", "describe", name)

    usage = odradek.run("offsets", "migrate", "--to", "log")
    assert usage.returncode == 2 and "--all" in usage.stderr and name in usage.stderr
    assert odradek.run("offsets", "migrate", name, "--all", "--to", "log").returncode == 2
    moved = odradek.json("offsets", "migrate", "--all", "--to", "log")
    assert [row["outcome"] for row in moved if row["group"] == name] == ["copied", "copied"]
    assert types() == ["Classic", "Tree"]
    assert "Offsets in the metadata tree" in odradek("group", "describe", name)

    odradek("group", "delete", name, "--yes")
    assert types() == []
    odradek.refused("group", "describe", name, words=[f"group '{name}' does not exist"])
    with Cluster(cli_broker.bootstrap_servers) as cluster:
        tree_offsets.commit(cluster, name, {(name, 0): 4})
    assert odradek.json("group", "delete", name, "--yes") == [{"group": name, "deleted": True, "offsets": 1}]
    assert types() == []


def test_more_groups_are_looked_up_in_the_tree_than_one_request_may_name(odradek, cli_broker, name):
    odradek("topic", "create", name)
    names = [f"{name}-{number}" for number in range(10_001)]
    with Cluster(cli_broker.bootstrap_servers) as cluster:
        for group_id in (names[0], names[-1]):
            assert tree_offsets.commit(cluster, group_id, {(name, 0): 4}) == {}
        expected = {group_id: {(name, 0): 4} for group_id in (names[0], names[-1])}
        assert tree_offsets.of_groups(cluster, names) == expected


def test_the_cluster_is_described_with_its_brokers(odradek, cli_broker, name):
    odradek("topic", "create", name, "-p", 3)
    output = odradek.json("cluster", "describe")
    assert output["features"]["levels"] == {"transaction.version": 2} and output["features"]["epoch"] >= 0
    assert output["brokers"][0]["features"] == {"transaction.version": [0, 2]}
    (broker,) = output["brokers"]
    assert (output["controller"], output["kraft"]) == (broker["id"], False) and output["cluster"]
    assert f"{broker['host']}:{broker['port']}" == cli_broker.bootstrap_servers
    assert (broker["version"], broker["fenced"], broker["problem"]) == ("Odradek", False, None)
    assert broker["leads"] == broker["replicas"] == output["partitions"] >= 3 and output["topics"] >= 1
    assert broker["apis"]["ApiVersions"][0] == 0 and "ExplainGroup" in broker["apis"]
    text = odradek("cluster", "describe")
    assert "Features    transaction.version 2\n" in text
    assert f"Cluster     {output['cluster']}\n" in text and "KRaft" not in text
    assert text.splitlines()[-1].split()[:4] == [str(broker["id"]), cli_broker.bootstrap_servers, "-", "Odradek"]


def test_settings_are_shown_with_their_source_and_explained(odradek, name):
    odradek("topic", "create", name, "-c", "retention.ms=1h")
    assert odradek.json("config", "get", "-t", name, "--changed") == [
        {"key": "retention.ms", "value": "3600000", "source": "topic", "read_only": False, "sensitive": False}
    ]
    output = odradek.json("config", "explain", "-t", name, "retention.ms")
    assert output["value"] == "3600000" and output["chain"][0]["source"] == "topic" and output["documentation"]
    table = odradek.json("config", "explain", "retention.ms")
    assert table["default"] == "604800000" and "log.retention.hours" in table["comes_from"]
    assert "integer" in table["allowed"]
    assert odradek("config", "get", "-t", name, "--changed").split("\n")[1].split()[:4] == [
        "retention.ms",
        "3600000",
        "(1",
        "h)",
    ]
    assert "  default    604800000 (7 d)\n" in odradek("config", "explain", "retention.ms")
    explained = odradek("config", "explain", "-t", name, "retention.ms")
    for words in (
        "value      3600000 (1 h)\n",
        "taken from retention.ms=3600000 (1 h)  (topic)",
        "effect of retention.ms=3600000 (1 h) now:",
    ):
        assert words in explained, explained
    assert "\n  retention.ms=3600000 (1 h)\n" in odradek("topic", "describe", name)
    assert "604800000 (7 d)" in odradek("config", "set", "-t", name, "--unset", "retention.ms", "--dry-run")
    odradek.refused("config", "get", "-t", name, "retention.m", words=["did you mean 'retention.ms'"])
    odradek.refused("config", "explain", "retention.m", words=["did you mean 'retention.ms'"])
    odradek.refused("config", "set", "-t", name, "segment.bytes=big", words=["segment.bytes", "big", "512MiB"])
    done = odradek.run("config", "explain", "-t", name, "retention.ms=1d")
    assert "retention deletes nothing" in done.stdout and not done.stderr
    odradek.refused(
        "config", "get", "-t", f"{name}-x", words=[f"topic '{name}-x' does not exist", "did you mean 'cli-"]
    )
    odradek.refused("config", "get", code=2, words=["--topic TOPIC"])
    odradek.refused("config", "get", "--broker", 77, words=["no broker 77"])


def test_a_change_of_retention_first_reports_the_records_it_deletes(odradek, name):
    fill(odradek, name, 10)
    deletes = odradek.json("config", "explain", "-t", name, "retention.ms=0")["deletes"]
    assert deletes["records_at_most"] == 10 and deletes["with"] == "0"
    assert odradek.json("config", "explain", "-t", name, "retention.ms")["deletes"]["records_at_most"] == 0
    change_settings(odradek, name)


def test_levels_of_loggers_are_shown_changed_and_reset(odradek):
    of = ("--loggers", 1)
    levels = {row["key"]: row["value"] for row in odradek.json("config", "get", *of)}
    assert levels["root"] == levels["odradek.requests"] == "INFO"
    odradek("config", "set", *of, "odradek.requests=ERROR")
    assert odradek.json("config", "get", *of, "odradek.requests")[0]["value"] == "ERROR"
    output = odradek.json("config", "explain", *of, "odradek.requests")
    assert output["documentation"].startswith("Requests of clients") and output["source"] == "broker's logger"
    odradek("config", "set", *of, "--unset", "odradek.requests")
    assert odradek.json("config", "get", *of, "odradek.requests")[0]["value"] == "INFO"
    odradek.refused("config", "set", *of, "odradek.request=INFO", words=["odradek.request", "does not exist"])
    odradek.refused("config", "set", *of, "root=LOUD", words=["LOUD", "FATAL, ERROR, WARN"])
    odradek.refused("config", "get", "--loggers", 77, words=["no broker 77"])


def test_exact_retention_is_explained_and_reports_the_records_it_deletes(odradek, name):
    fill(odradek, name, 10)
    output = odradek("config", "explain", "odradek.retention.exact")
    assert "log start offset" in output and "odradek.retention.exact" in output
    odradek("config", "set", "-t", name, "retention.ms=1", "--yes")
    output = odradek("config", "set", "-t", name, "odradek.retention.exact=true", "--dry-run")
    assert "retention deletes 10 records" in output
    odradek.refused("config", "set", "-t", name, "odradek.retention.exact=true", words=["10 records", "--yes"])
    deletes = odradek.json("config", "explain", "-t", name, "odradek.retention.exact=true")["deletes"]
    assert deletes["exact"] and deletes["records_at_most"] == 10
    assert not odradek.json("config", "explain", "-t", name, "retention.ms")["deletes"]["exact"]


def change_settings(odradek, name):
    dry = odradek.json("config", "set", "-t", name, "retention.ms=0", "--dry-run")
    assert dry["deletes"]["records_at_most"] == 10 and dry["changes"][0]["after"] == "0"
    odradek.refused("config", "set", "-t", name, "retention.ms=0", "--json", words=["10 records", "--yes"])
    assert odradek.json("config", "get", "-t", name, "retention.ms")[0]["source"] == "default"
    done = odradek.json("config", "set", "-t", name, "retention.ms=2d", "max.message.bytes=2MiB")
    assert [row["after"] for row in done["changes"]] == ["172800000", "2097152"]

    def changed():
        """Kafka's broker learns of the change from its controller, a moment after the response."""
        values.update((row["key"], row["value"]) for row in odradek.json("config", "get", "-t", name, "--changed"))
        return values.items() >= {"retention.ms": "172800000", "max.message.bytes": "2097152"}.items()

    values = {}
    until(changed, lambda: f"the changed values: {values}")
    back = odradek.json("config", "set", "-t", name, "--unset", "retention.ms", "--yes")
    assert back["changes"] == [{"key": "retention.ms", "before": "172800000", "after": "604800000"}]
    odradek.refused("config", "set", "-t", name, "retention.ms=soon", words=["retention.ms"])
    odradek.refused("config", "set", "-t", name, "retention=1", words=["no setting 'retention'"])
    odradek.refused("config", "set", "-t", name, "retention.ms", code=2, words=["KEY=VALUE"])


def test_the_doctor_reports_reason_and_remedy(odradek, name, cli_broker):
    fill(odradek, name, 10)
    odradek("consume", name, "-g", name, "-n", 3, "-e")
    output = json.loads(odradek.run("doctor", "--data-dir", cli_broker.data_dir, "--json").stdout)
    assert len(output["checked"]) == 2
    (finding,) = [finding for finding in output["findings"] if finding["subject"] == f"group {name}"]
    assert finding["severity"] == "warning" and "7 records" in finding["what"] and "group delete" in finding["remedy"]
    odradek("topic", "truncate", name, "--before-offset", 5, "--yes")
    done = odradek.run("doctor")
    assert done.returncode == 1 and f"group {name}: 2 records" in done.stdout and "what to do" in done.stdout
    odradek("group", "delete", name, "--yes")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    config = {
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "log.retention.check.interval.ms": 300000,
    }
    with Peer(tmp_path_factory.mktemp("kafka"), config) as peer:
        yield Command(peer.bootstrap_servers)


@pytest.mark.java
@pytest.mark.timeout(900)
@pytest.mark.xdist_group("cli-kafka")
def test_the_same_commands_work_against_kafka(kafka):
    kafka("topic", "create", "t")
    until(lambda: kafka.run("topic", "describe", "t").returncode == 0, "the broker has the controller's metadata")
    put(kafka, "t", 10)
    assert kafka.json("topic", "list", "--sizes")[0]["bytes"] > 0
    kafka.refused("topic", "create", "t", words=["already"])
    assert kafka.json("topic", "describe", "t")["partitions"][0]["records"] == 10
    assert kafka("consume", "t", "--from", "-1", "-e") == "v9\n"
    assert len(kafka("consume", "t", "-g", "g", "-n", 6, "-e").split()) == 6
    assert kafka.json("group", "describe", "g")["lag"] == 4
    kafka("group", "reset-offsets", "g", "--to", "earliest", "--yes")
    assert kafka.json("group", "describe", "g")["lag"] == 10
    described = kafka.json("cluster", "describe")
    (broker,) = described["brokers"]
    assert described["kraft"] and broker["version"] == "Kafka 4.3" and broker["features"]["metadata.version"][1] == 30
    assert "forwards to the KRaft controllers" in kafka("cluster", "describe")
    kafka.refused("group", "explain", "g", words=["only Odradek does", "odradek group describe g"])
    kafka.refused("offsets", "migrate", "g", "--to", "tree", words=["OffsetFetch", "4.0"])
    kafka.refused("group", "describe", "nobody", words=["group 'nobody' does not exist"])
    deletes = kafka.json("config", "explain", "-t", "t", "retention.ms=0")["deletes"]
    assert deletes["records_at_most"] == 10 and deletes["partitions"][0]["size"] > 0
    change_settings(kafka, "t")
    assert json.loads(kafka.run("doctor", "--json").stdout)["findings"][0]["subject"] == "group g"
    output = kafka.json("topic", "truncate", "t", "--yes")
    assert output["records"] == 10
    assert output["space"]["bytes_at_least"] == 0 < output["space"]["bytes_at_most"], "Kafka keeps the active segment"
    kafka("group", "delete", "g", "--yes")
    kafka("topic", "delete", "t", "--yes")
    until(lambda: kafka.json("topic", "list") == [], "the topic is deleted")
