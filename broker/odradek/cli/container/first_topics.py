"""Creates the topics that KAFKA_CREATE_TOPICS names, as the images of wurstmeister do: `orders:3:1,events:1:1:compact`.

`create_in_background` forks a process before the broker starts. It waits until the broker serves, creates the topics that do
not exist over a listener without TLS and logins, and ends. It also ends if the broker ends. The health check fails until it has
ended.
"""

import logging
import os
import re
import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.backoff import Waits
from odradek.cli.container.health import PROCESS_NAME, not_ready
from odradek.cli.container.variables import FIRST_TOPICS, SEPARATOR
from odradek.config.broker_config import Environment
from odradek.config.errors import ConfigError, raise_all

if TYPE_CHECKING:
    from odradek.config.broker_config import BrokerConfig

log = logging.getLogger("odradek.container")

TIMEOUT = "START_TIMEOUT"
TIMEOUT_S = 600.0
POLL_S = 0.05
RETRY_S = 1.0
FORM = (
    "must be NAME:PARTITIONS:REPLICAS, or NAME:PARTITIONS:REPLICAS:CONFIG with a cleanup.policy or KEY=VALUE;KEY=VALUE"
)


class FirstTopic(NamedTuple):
    """A topic to create. -1 means the broker's default."""

    name: str
    partitions: int
    replicas: int
    configs: Mapping[str, str]


def parse(variables: Mapping[str, str]) -> list[FirstTopic]:
    """The topics of KAFKA_CREATE_TOPICS, separated by white space, and by KAFKA_CREATE_TOPICS_SEPARATOR (default: a comma).

    Raises ConfigError with one line for each topic that cannot be read.
    """
    separator = variables.get(SEPARATOR, "").strip() or ","
    topics: list[FirstTopic] = []
    errors: list[ConfigError] = []
    for text in re.split(rf"(?:{re.escape(separator)}|\s)+", variables.get(FIRST_TOPICS, "")):
        if text:
            try:
                topics.append(_topic(text))
            except ValueError:
                errors.append(ConfigError(FIRST_TOPICS, text, FORM, f"environment variable {FIRST_TOPICS}"))
    if topics:
        _time_limit(variables)
    raise_all(errors)
    return topics


def _time_limit(variables: Mapping[str, str]) -> float:
    """START_TIMEOUT in seconds. Raises ConfigError."""
    text = variables.get(TIMEOUT, "").strip()
    if not text:
        return TIMEOUT_S
    if not text.isascii() or not text.isdecimal():
        raise ConfigError(TIMEOUT, text, "must be a number of seconds", f"environment variable {TIMEOUT}")
    return float(text)


def _topic(text: str) -> FirstTopic:
    name, partitions, replicas, config = (*text.split(":", 3), "", "", "")[:4]
    if not name:
        raise ValueError
    configs: dict[str, str] = {}
    for setting in filter(None, config.split(";")):
        key, equals, value = setting.partition("=")
        configs |= {key: value} if equals else {"cleanup.policy": setting}
    return FirstTopic(name, _number(partitions), _number(replicas), configs)


def _number(text: str) -> int:
    number = int(text or -1)
    if number < 1 and number != -1:
        raise ValueError
    return number


def create_in_background(topics: Sequence[FirstTopic], options: Sequence[str], environment: Environment) -> None:
    """Fork the process that creates the topics.

    :param options: of `odradek start`, from which the process reads the broker's configuration.
    """
    parent = os.getpid()
    if os.fork():
        return
    code = 1
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        code = _run(topics, options, environment, parent)
    except BaseException:
        log.exception("the first topics were not created")
    finally:
        logging.shutdown()
        os._exit(code)


def _run(topics: Sequence[FirstTopic], options: Sequence[str], environment: Environment, parent: int) -> int:
    from odradek._ext.shm.process import die_with_parent, set_name
    from odradek.cli.main import start
    from odradek.config.broker_config import load
    from odradek.processes import logs

    if not die_with_parent(signal.SIGTERM, parent):
        return 0
    set_name(PROCESS_NAME.encode())
    try:
        given = start.make_context("start", list(options)).params
        config = load(given["config_file"], given["overrides"], to_start=True, environment=environment)
    except (ConfigError, SystemExit):
        return 1  # the broker reports it
    logs.set_up("first-topics", config)
    if all(listener.protocol != "PLAINTEXT" for listener in config.listeners):
        log.error(
            "cannot create the topics of %s: no listener is PLAINTEXT; create them with `odradek topic create`",
            FIRST_TOPICS,
        )
        return 1
    seconds = _time_limit(os.environ)
    waits = Waits(POLL_S, RETRY_S, seconds)
    server = _address(config, waits)
    if server is None:
        log.error("the topics of %s were not created: the broker does not serve after %g s", FIRST_TOPICS, seconds)
        return 1
    return sum(not _create(topic, server, waits, config.clustered) for topic in topics)


def _address(config: "BrokerConfig", waits: Waits) -> str | None:
    """Wait until the broker serves, and return HOST:PORT of a PLAINTEXT listener: the one for brokers if possible, because in a
    cluster its addresses can be reached from here. None after the deadline."""
    from odradek.testing.status import read_status

    while True:
        try:
            status = read_status(config.log_dirs[0])
            if not_ready(status) is None:
                plain = [row for row in status["listeners"] if row["protocol"] == "PLAINTEXT"]
                return _reachable(
                    next((row for row in plain if row["name"] == config.inter_broker_listener.name), plain[0])
                )
        except (OSError, ValueError) as error:
            log.debug("no status of the broker yet: %s", error)
        if not waits.wait():
            return None


def _reachable(listener: Mapping[str, Any]) -> str:
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(listener["host"], listener["host"])
    return f"[{host}]:{listener['port']}" if ":" in host else f"{host}:{listener['port']}"


def _create(topic: FirstTopic, server: str, waits: Waits, clustered: bool) -> bool:
    """Create a topic, and return whether it exists. In a cluster, retry until the deadline, because the controller and other
    brokers may start later. With a single broker, send all requests to `server`: the advertised address may be the host's."""
    from odradek.clients.cluster import Cluster
    from odradek.clients.errors import ClientError, RefusedError
    from odradek.clients.topics import create
    from odradek.protocol.errors import ErrorCode

    of_cluster = {ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT}
    passing = of_cluster if clustered else set()
    while True:
        try:
            with Cluster(server, single=not clustered) as cluster:
                create(cluster, topic.name, topic.partitions, topic.replicas, topic.configs)
        except ClientError as error:
            code = error.code if isinstance(error, RefusedError) else None
            if code == ErrorCode.TOPIC_ALREADY_EXISTS:
                log.info("topic %s of %s exists already", topic.name, FIRST_TOPICS)
                return True
            if (code is not None and code not in passing) or not waits.wait():
                log.error("cannot create topic %s of %s: %s", topic.name, FIRST_TOPICS, error)
                return False
        else:
            log.info("created topic %s of %s", topic.name, FIRST_TOPICS)
            return True
