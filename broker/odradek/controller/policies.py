"""Policies of the operator: Python classes that may refuse new topics and changes of settings, as Java classes may in Kafka.

`create.topic.policy.class.name` and `alter.config.policy.class.name` name a class as `package.module:Class`. An object of it is
made in the coordinator, which calls it in its controller thread, one request after the other: one that waits makes all wait.
The same checks are made of requests that only validate. Interfaces are those of Kafka's CreateTopicPolicy (KIP-108) and
AlterConfigPolicy (KIP-133).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from odradek.config.broker_config import BrokerConfig
from odradek.config.plugins import make_plugin
from odradek.controller.topics import NewTopic, Plan, Refusal
from odradek.protocol.errors import ErrorCode

log = logging.getLogger("odradek.controller")

CREATE_TOPIC, ALTER_CONFIG = "create.topic.policy.class.name", "alter.config.policy.class.name"


class PolicyViolation(Exception):
    """For a policy to raise: the request is refused with POLICY_VIOLATION and this message."""


class TopicRequest(NamedTuple):
    """A topic that is to be created. The numbers are None where the replicas are given, and these where they are not.

    :param replicas_assignments: brokers by partition. :param configs: the settings that the request names.
    """

    topic: str
    num_partitions: int | None
    replication_factor: int | None
    replicas_assignments: Mapping[int, Sequence[int]] | None
    configs: Mapping[str, str]


class AlterRequest(NamedTuple):
    """Settings that are to be changed.

    :param resource_type: "TOPIC", "BROKER" or "GROUP". :param name: of the resource; "" for all brokers.
    :param configs: the settings that the request names as they would be; those that it deletes are not in it.
    """

    resource_type: str
    name: str
    configs: Mapping[str, str]


class Policy(Protocol):
    """What a policy's class has. It is made without arguments; `configure` need not be there."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Called once, with the broker's settings that somebody set, passwords left out."""

    def validate(self, request: Any) -> None:
        """Raise PolicyViolation to refuse a `TopicRequest` or an `AlterRequest`."""


def load(config: BrokerConfig, key: str) -> Policy | None:
    """The object of the class that this key names; None if it names none.

    :raises ConfigError: there is no such class, it cannot be made, or it is no policy.
    """
    policy: Policy | None = make_plugin(config, key, "validate", "request")
    return policy


class Policies:
    """Both of them; in the controller thread. Without any, nothing is refused.

    :raises ConfigError: as `load`.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._create_topic = load(config, CREATE_TOPIC)
        self._alter_config = load(config, ALTER_CONFIG)

    def check_topic(self, wish: NewTopic, plan: Plan) -> None:
        """Ask about a topic that could be created. Raises Refusal."""
        if self._create_topic is None:
            return
        partitions = plan.topic.assignment.partitions
        given = dict(partitions) if wish.assignments else None
        configs = {name: value for name, value in wish.configs if value is not None}
        request = TopicRequest(
            wish.name,
            None if given else len(partitions),
            None if given else len(partitions[min(partitions)]),
            given,
            configs,
        )
        _ask(self._create_topic, request, f"topic {wish.name}")

    def checked(
        self, resource_type: str, name: str, named: Sequence[str], change: Callable[[Mapping[str, str]], dict[str, str]]
    ) -> Callable[[Mapping[str, str]], dict[str, str]]:
        """The same change of settings, which raises Refusal if the policy does not want it. :param named: in the request."""
        policy = self._alter_config
        if policy is None:
            return change

        def asked(present: Mapping[str, str]) -> dict[str, str]:
            settings = change(present)
            configs = {key: settings[key] for key in named if key in settings}
            _ask(policy, AlterRequest(resource_type, name, configs), f"settings of {resource_type.lower()} {name}")
            return settings

        return asked


def _ask(policy: Policy, request: TopicRequest | AlterRequest, what: str) -> None:
    try:
        policy.validate(request)
    except PolicyViolation as violation:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION, str(violation) or f"The policy of this broker refuses {what}."
        ) from None
    except Exception as error:  # it is the operator's code
        log.exception("the policy fell over about %s", what)
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, f"The policy fell over about {what}: {error}") from error
