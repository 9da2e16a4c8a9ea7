"""Policies that refuse new topics and changes of settings: their requests, the errors of clients, and loading errors."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import alter_configs, create_topics, incremental_alter_configs
from odradek.testing import Broker
from tests.wire import Wire

pytestmark = pytest.mark.xdist_group("policies")

CODE = """
from odradek.controller.policies import PolicyViolation

class Topics:
    def configure(self, configs):
        self.node = configs["node.id"]

    def validate(self, request):
        if request.topic == "echo":
            raise PolicyViolation(f"{self.node} {request[1:]}")
        if request.topic.startswith("bad"):
            raise PolicyViolation
        if request.topic == "broken":
            raise KeyError("policy")

class Settings:
    def validate(self, request):
        if request.configs.get("retention.ms") == "7":
            raise PolicyViolation(f"{request.resource_type} {request.name!r} {dict(request.configs)}")
        if "retention.bytes" in request.configs:
            raise PolicyViolation(f"the request contains a deleted setting: {request}")

class NoPolicy:
    pass
"""


@pytest.fixture(scope="module")
def policy_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("policies")
    (directory / "policies_of_a_test.py").write_text(CODE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(directory), prepend=":")
        yield "policies_of_a_test"


@pytest.fixture(scope="module")
def wire(policy_module: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    config = {
        "node.id": 3,
        "create.topic.policy.class.name": f"{policy_module}:Topics",
        "alter.config.policy.class.name": f"{policy_module}:Settings",
    }
    with (
        Broker(config, {"good": 1}, directory=tmp_path_factory.mktemp("data")) as broker,
        Wire(broker.host, broker.port) as wire,
    ):
        yield wire


def create(wire: Wire, name: str, validate_only: bool = False, **fields: object) -> tuple[int, str | None]:
    topic = create_topics.Request.CreatableTopic(name=name, **({"num_partitions": 2, "replication_factor": 1} | fields))
    request = create_topics.Request(topics=[topic], timeout_ms=9000, validate_only=validate_only)
    (result,) = wire.ask(request, 19, 5).topics
    return result.error_code, result.error_message


def alter(wire: Wire, kind: int, name: str, **settings: str | None) -> tuple[int, str | None]:
    make = incremental_alter_configs.Request
    configs = [
        make.AlterableConfig(name=key.replace("_", "."), config_operation=0 if value else 1, value=value)
        for key, value in settings.items()
    ]
    resource = make.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    (result,) = wire.ask(make(resources=[resource]), 44, 1).responses
    return result.error_code, result.error_message


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_topic_that_the_policy_refuses_is_not_made(wire: Wire, validate_only: bool) -> None:
    code, message = create(wire, "bad-one", validate_only)
    assert code == ErrorCode.POLICY_VIOLATION and message
    assert wire.metadata("bad-one").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert create(wire, f"fine-{validate_only}", validate_only)[0] == 0


def test_a_topic_request_has_numbers_or_replicas_and_settings(wire: Wire) -> None:
    config = create_topics.Request.CreatableTopicConfig(name="retention.ms", value="5")
    assert create(wire, "echo", configs=[config]) == (
        ErrorCode.POLICY_VIOLATION,
        "3 (2, 1, None, {'retention.ms': '5'})",
    )
    replicas = [
        create_topics.Request.CreatableReplicaAssignment(partition_index=index, broker_ids=[3]) for index in (0, 1)
    ]
    refusal = create(wire, "echo", num_partitions=-1, replication_factor=-1, assignments=replicas)
    assert refusal == (ErrorCode.POLICY_VIOLATION, "3 (None, None, {0: [3], 1: [3]}, {})")


def test_an_unexpected_error_in_a_policy_is_an_unknown_server_error(wire: Wire) -> None:
    code, message = create(wire, "broken")
    assert code == ErrorCode.UNKNOWN_SERVER_ERROR and "broken" in (message or "")


def test_a_policy_checks_changes_of_topics_brokers_and_groups(wire: Wire) -> None:
    assert alter(wire, 2, "good", retention_ms="8") == (0, None)
    expected = "TOPIC 'good' {'retention.ms': '7'}"
    assert alter(wire, 2, "good", retention_ms="7", segment_bytes=None) == (ErrorCode.POLICY_VIOLATION, expected)
    assert alter(wire, 2, "good", retention_bytes=None) == (0, None), "the request contains no deleted settings"
    assert alter(wire, 4, "", log_retention_ms="9") == (0, None)
    make = alter_configs.Request
    config = make.AlterableConfig(name="retention.ms", value="7")
    resource = make.AlterConfigsResource(resource_type=2, resource_name="good", configs=[config])
    (result,) = wire.ask(make(resources=[resource]), 33, 1).responses
    assert (result.error_code, result.error_message) == (ErrorCode.POLICY_VIOLATION, expected)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("com.example.Policy", "contains no class name (Java classes cannot be loaded)"),
        ("no_such_module:Policy", "ModuleNotFoundError"),
        ("policies_of_a_test:Nothing", "AttributeError"),
        ("policies_of_a_test:NoPolicy", "has no method validate(request)"),
    ],
)
def test_a_policy_that_cannot_be_loaded_stops_the_start_with_one_line(
    policy_module: str, text: str, reason: str, tmp_path: Path
) -> None:
    settings = {"create.topic.policy.class.name": text, "log.dirs": tmp_path / "data", "metrics.listener": ""}
    arguments = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "odradek.cli.main", "start", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"odradek: create.topic.policy.class.name={text}") and reason in line
    assert "package.module:Class" in line
