"""KAFKA_CREATE_TOPICS, and the program of the image as a process: first topics, health, commands, errors."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from odradek.backoff import Waits
from odradek.cli.container import first_topics
from odradek.cli.container.first_topics import FirstTopic, parse
from odradek.cli.container.health import check, not_ready
from odradek.clients.cluster import Cluster
from odradek.config.broker_config import load
from odradek.config.errors import ConfigError
from odradek.testing.status import read_status
from tests import toolchains
from tests.ports import reserved
from tests.waiting import until

COMMAND = [sys.executable, "-m", "odradek.cli.container"]


@pytest.mark.parametrize(
    ("text", "topics"),
    [
        ("", []),
        ("orders:3:1", [FirstTopic("orders", 3, 1, {})]),
        ("orders", [FirstTopic("orders", -1, -1, {})]),
        ("a:1:1:compact,b:2:1", [FirstTopic("a", 1, 1, {"cleanup.policy": "compact"}), FirstTopic("b", 2, 1, {})]),
        (" a:1:1 ,\n b:2:1\n", [FirstTopic("a", 1, 1, {}), FirstTopic("b", 2, 1, {})]),
        (
            "a:1:1:retention.ms=1000;cleanup.policy=delete",
            [FirstTopic("a", 1, 1, {"retention.ms": "1000", "cleanup.policy": "delete"})],
        ),
        ("a::1:", [FirstTopic("a", -1, 1, {})]),
    ],
)
def test_the_form_of_first_topics(text: str, topics: list[FirstTopic]) -> None:
    assert parse({"KAFKA_CREATE_TOPICS": text}) == topics


def test_another_separator() -> None:
    given = {"KAFKA_CREATE_TOPICS": "a:1:1:compact|b:2:1", "KAFKA_CREATE_TOPICS_SEPARATOR": "|"}
    assert [topic.name for topic in parse(given)] == ["a", "b"]
    assert parse({}) == []


@pytest.mark.parametrize("text", ["a:x:1", "a:0:1", "a:1:-2", ":1:1"])
def test_a_malformed_topic_is_refused(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"must be NAME:PARTITIONS:REPLICAS.*environment variable KAFKA_CREATE_TOPICS"
    ):
        parse({"KAFKA_CREATE_TOPICS": f"good:1:1,{text}"})


def test_topics_that_cannot_be_created_before_the_deadline_are_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    waits = Waits(0.01, 0.01, 0.05)
    config = load(None, [f"log.dirs={tmp_path}"])
    assert first_topics._address(config, waits) is None
    assert not first_topics._create(FirstTopic("orders", 1, 1, {}), "127.0.0.1:1", waits, clustered=False)
    assert caplog.messages[-1].startswith("cannot create topic orders of KAFKA_CREATE_TOPICS: ")


@contextmanager
def started(directory: Path, variables: dict[str, str], *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    """The program of the image, with a file of settings."""
    file = directory / "server.properties"
    file.write_text(
        f"listeners=PLAINTEXT://127.0.0.1:0\nlog.dirs={directory / 'data'}\nmetrics.listener=\nlog.format=json\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "ODRADEK_"))}
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [*COMMAND, "--config", str(file), *options],
            env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def messages(directory: Path) -> list[str]:
    return [json.loads(line)["message"] for line in (directory / "log").read_text().splitlines()]


def test_the_broker_is_healthy_when_it_serves_and_has_created_the_first_topics(tmp_path: Path) -> None:
    topics = {"KAFKA_CREATE_TOPICS": "orders:3:1,events:1:1:compact", "KAFKA_NUM_PARTITIONS": "2"}
    with started(tmp_path, topics | {"KAFKA_HEAP_OPTS": "-Xmx1G"}) as process:
        supervisor = Path(f"/proc/{process.pid}")
        until(lambda: check(supervisor) is None, lambda: (tmp_path / "log").read_text())
        (listener,) = read_status(str(tmp_path / "data"))["listeners"]
        with Cluster(f"127.0.0.1:{listener['port']}") as cluster:
            found = {name: len(topic.partitions) for name, topic in cluster.metadata().topics.items()}
            assert found == {"orders": 3, "events": 1}
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    logged = messages(tmp_path)
    assert "created topic orders of KAFKA_CREATE_TOPICS" in logged
    assert "these environment variables have no effect: KAFKA_HEAP_OPTS" in logged
    with started(
        tmp_path, {"KAFKA_CREATE_TOPICS": "orders:3:1,wrong:1:3"}
    ) as process:  # once more, and one that is refused
        until(lambda: check(Path(f"/proc/{process.pid}")) is None, lambda: (tmp_path / "log").read_text())
    logged = messages(tmp_path)
    assert "topic orders of KAFKA_CREATE_TOPICS exists already" in logged
    assert [line for line in logged if line.startswith("cannot create topic wrong of KAFKA_CREATE_TOPICS: ")] != []


def test_the_advertised_address_need_not_be_reachable_from_the_container(tmp_path: Path) -> None:
    with reserved() as port:
        variables = {
            "KAFKA_CREATE_TOPICS": "orders:1:1",
            "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:0",
            "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",  # of the host
        }
        with started(tmp_path, variables) as process:
            until(lambda: check(Path(f"/proc/{process.pid}")) is None, lambda: (tmp_path / "log").read_text())
    assert "created topic orders of KAFKA_CREATE_TOPICS" in messages(tmp_path)


def test_the_broker_is_not_healthy_before_it_serves(tmp_path: Path) -> None:
    (tmp_path / "fd").mkdir()
    nothing = tmp_path / "processes"
    nothing.mkdir()
    assert (
        check(tmp_path, nothing) == "process 1 has no log directory open: the broker is starting, or is another program"
    )
    assert str(check(tmp_path / "ended", nothing)).startswith("the files of process 1 cannot be read: ")
    assert not_ready({"state": "starting"}) == "the broker is starting"
    assert (
        not_ready({"state": "serving", "cluster": {"brokers": []}})
        == "the broker waits for the controller of its cluster"
    )
    assert not_ready({"state": "serving", "cluster": {"brokers": [{"id": 1}]}}) is None
    assert not_ready({"state": "serving"}) is None


def test_the_process_of_first_topics_is_not_healthy_until_it_ends(tmp_path: Path) -> None:
    with started(tmp_path, {}) as process:
        supervisor = Path(f"/proc/{process.pid}")
        processes = tmp_path / "processes"
        (processes / "7").mkdir(parents=True)
        (processes / "7/stat").write_text("7 (odradek-topics) S 1 7 7 0\n")
        until(
            lambda: check(supervisor, processes) == "the first topics are being created", lambda: str(check(supervisor))
        )
        (processes / "7/stat").write_text("7 (odradek-topics) Z 1 7 7 0\n")
        assert check(supervisor, processes) is None


@pytest.mark.parametrize(("parent", "found"), [(1, True), (0, True), (2, False)])
def test_the_broker_is_found_below_the_init_of_a_runtime(parent: int, found: bool, tmp_path: Path) -> None:
    processes = tmp_path / "processes"
    for pid in ("1", "7"):
        (processes / pid).mkdir(parents=True)
        (processes / pid / "stat").write_text(f"{pid} (a) b) S {parent if pid == '7' else 0} 7 7 0\n")
    with started(tmp_path, {}) as process:
        until(lambda: check(Path(f"/proc/{process.pid}")) is None, lambda: (tmp_path / "log").read_text())
        (processes / "7/fd").symlink_to(f"/proc/{process.pid}/fd")
        reasons = ["the files of process 1 cannot be read: ", "process 1 has no log directory open: "]
        for reason in reasons:  # the first is that of another user
            assert str(check(processes / "1", processes)).startswith("None" if found else reason)
            (processes / "1/fd").mkdir(exist_ok=True)


def test_a_listener_with_logins_cannot_have_first_topics(tmp_path: Path) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";'
    variables = {
        "KAFKA_CREATE_TOPICS": "orders:3:1",
        "KAFKA_LISTENERS": "SASL_PLAINTEXT://127.0.0.1:0",
        "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN",
        "KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "PLAIN",
        "KAFKA_LISTENER_NAME_SASL__PLAINTEXT_PLAIN_SASL_JAAS_CONFIG": jaas,
    }
    with started(tmp_path, variables) as process:
        until(lambda: check(Path(f"/proc/{process.pid}")) is None, lambda: (tmp_path / "log").read_text())
        expected = (
            "cannot create the topics of KAFKA_CREATE_TOPICS: "
            "no listener is PLAINTEXT; create them with `odradek topic create`"
        )
        assert expected in messages(tmp_path)


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"KAFKA_NUM_PARTITIONS": "x"}, "num.partitions=x: "),
        ({"KAFKA_CLIENT_USERS": "alice"}, "KAFKA_CLIENT_USERS: is not supported"),
        ({"KAFKA_CREATE_TOPICS": "a:b:c"}, "KAFKA_CREATE_TOPICS=a:b:c: must be NAME"),
        ({"KAFKA_CREATE_TOPICS": "a", "START_TIMEOUT": "10m"}, "START_TIMEOUT=10m: must be a number of seconds"),
    ],
)
def test_a_wrong_variable_ends_the_start(variables: dict[str, str], text: str, tmp_path: Path) -> None:
    with started(tmp_path, variables) as process:
        assert process.wait(60) == 1
    assert text in (tmp_path / "log").read_text()


def test_the_first_process_of_a_container_ends_at_a_signal_before_the_broker_starts(tmp_path: Path) -> None:
    in_container = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*in_container, "true"], capture_output=True, check=False).returncode != 0:
        toolchains.unavailable("needs namespaces of users and processes (unshare)")
    secret = tmp_path / "secret"
    os.mkfifo(secret)
    with subprocess.Popen(
        [*in_container, *COMMAND, "--config", "/dev/null"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "KAFKA_SSL_KEY_PASSWORD_FILE": str(secret)},
    ) as container:
        try:
            with secret.open("wb"):  # the program reads its variables
                (first,) = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
                os.kill(int(first), signal.SIGTERM)
                assert container.wait(30) == 128 + signal.SIGTERM
        finally:
            container.kill()


@pytest.mark.parametrize(
    ("arguments", "output"), [(["--help"], "Usage: odradek start"), (["topic", "--help"], "Usage: odradek topic"),
                              (["start", "--help"], "Usage: odradek start")]
)  # fmt: skip
def test_arguments_are_those_of_start_or_another_command(arguments: list[str], output: str) -> None:
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout[: len(output)]) == (0, output)


@pytest.mark.parametrize("way", ["KAFKA_OPTS", "file"])
def test_clients_log_in_as_the_variables_of_the_stack_say(way: str, tmp_path: Path) -> None:
    module = 'org.apache.kafka.common.security.plain.PlainLoginModule required\n user_alice="of;alice";'
    (tmp_path / "jaas.conf").write_text(
        f"KafkaServer {{\n{module}\n}};\n" if way == "KAFKA_OPTS" else f"{module}\n".replace("\n ", " ")
    )
    variables = {
        "KAFKA_LISTENERS": "SASL_PLAINTEXT://127.0.0.1:0",
        "KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN",
        "KAFKA_SASL_MECHANISM_INTER_BROKER_PROTOCOL": "PLAIN",
    }
    if way == "KAFKA_OPTS":
        variables["KAFKA_OPTS"] = f"-Xmx1G -Djava.security.auth.login.config={tmp_path / 'jaas.conf'}"
    else:
        variables["KAFKA_LISTENER_NAME_SASL__PLAINTEXT_PLAIN_SASL_JAAS_CONFIG_FILE"] = str(tmp_path / "jaas.conf")
    with started(tmp_path, variables) as process:
        until(lambda: check(Path(f"/proc/{process.pid}")) is None, lambda: (tmp_path / "log").read_text())
        (listener,) = read_status(str(tmp_path / "data"))["listeners"]
        login = {
            "bootstrap.servers": f"127.0.0.1:{listener['port']}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
        }
        brokers = AdminClient(login | {"sasl.password": "of;alice"}).list_topics(timeout=30).brokers
        assert [broker.port for broker in brokers.values()] == [listener["port"]]
        with pytest.raises(KafkaException):
            AdminClient(login | {"sasl.password": "wrong"}).list_topics(timeout=3)
    assert "of;alice" not in (tmp_path / "log").read_text()
