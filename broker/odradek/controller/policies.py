"""Policies of the operator: Python classes that can refuse new topics and changes of settings, like Java classes in Kafka.

`create.topic.policy.class.name` and `alter.config.policy.class.name` name a class as `package.module:Class`. The coordinator
creates one object of it and calls it in the store thread, one request after the other: a slow policy delays all requests
of that thread. Requests with validate_only are checked too. The interfaces are those of Kafka's CreateTopicPolicy (KIP-108)
and AlterConfigPolicy (KIP-133).
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
    """A policy raises this to refuse a request; the client receives POLICY_VIOLATION and the message."""


class TopicRequest(NamedTuple):
    """A topic to create. Either the two numbers are set, or `replicas_assignments`; the others are None.

    :param replicas_assignments: broker ids by partition. :param configs: the settings in the request.
    """

    topic: str
    num_partitions: int | None
    replication_factor: int | None
    replicas_assignments: Mapping[int, Sequence[int]] | None
    configs: Mapping[str, str]


class AlterRequest(NamedTuple):
    """A change of settings.

    :param resource_type: "TOPIC", "BROKER" or "GROUP". :param name: the name of the resource; "" for all brokers.
    :param configs: the new values of the settings in the request, without the settings that it deletes.
    """

    resource_type: str
    name: str
    configs: Mapping[str, str]


class Policy(Protocol):
    """The interface of a policy class. It is instantiated without arguments. `configure` is optional."""

    def configure(self, configs: Mapping[str, str]) -> None:
        """Called once with the settings of the broker that are set, without passwords."""

    def validate(self, request: Any) -> None:
        """Raise PolicyViolation to refuse a `TopicRequest` or an `AlterRequest`."""


def load(config: BrokerConfig, key: str) -> Policy | None:
    """Create the policy that the key names; return None if the key is not set.

    :raises ConfigError: the class does not exist, cannot be instantiated, or has no method `validate`.
    """
    policy: Policy | None = make_plugin(config, key, "validate", "request")
    return policy


class Policies:
    """Both policies, used in the store thread. Without a policy, every request passes.

    :raises ConfigError: see `load`.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._create_topic = load(config, CREATE_TOPIC)
        self._alter_config = load(config, ALTER_CONFIG)

    def check_topic(self, new_topic: NewTopic, plan: Plan) -> None:
        """Call the policy for a topic that passed all other checks. Raises Refusal."""
        if self._create_topic is None:
            return
        partitions = plan.topic.assignment.partitions
        assignments = dict(partitions) if new_topic.assignments else None
        configs = {name: value for name, value in new_topic.configs if value is not None}
        request = TopicRequest(
            new_topic.name,
            None if assignments else len(partitions),
            None if assignments else len(partitions[min(partitions)]),
            assignments,
            configs,
        )
        _validate(self._create_topic, request, f"topic {new_topic.name}")

    def checked(
        self, resource_type: str, name: str, named: Sequence[str], change: Callable[[Mapping[str, str]], dict[str, str]]
    ) -> Callable[[Mapping[str, str]], dict[str, str]]:
        """Wrap a change of settings: it raises Refusal if the policy refuses it. :param named: the keys in the request."""
        policy = self._alter_config
        if policy is None:
            return change

        def checked_change(present: Mapping[str, str]) -> dict[str, str]:
            settings = change(present)
            configs = {key: settings[key] for key in named if key in settings}
            subject = f"the settings of {resource_type.lower()} {name}" if name else "the settings of all brokers"
            _validate(policy, AlterRequest(resource_type, name, configs), subject)
            return settings

        return checked_change


def _validate(policy: Policy, request: TopicRequest | AlterRequest, subject: str) -> None:
    try:
        policy.validate(request)
    except PolicyViolation as violation:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION, str(violation) or f"The policy of this broker refuses {subject}."
        ) from None
    except Exception as error:  # the code of the operator can raise anything
        log.exception(
            "the policy %s raised an error while checking %s; refusing the request", type(policy).__name__, subject
        )
        message = f"The policy raised an unexpected error while checking {subject}: {error}"
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, message) from error
