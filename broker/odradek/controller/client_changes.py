"""The interface of a controller for requests of clients: the methods that the handlers call.

`Controller` implements `ClientChanges` with the embedded store, `controller.cluster.client_requests.ClientRequests` implements
it in a cluster. Runs in the coordinator's store thread.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from odradek.controller.assignment import Broker
from odradek.controller.image import ClusterImage
from odradek.controller.outcomes import Charge, Outcome, OutcomesInSteps, free_of_charge
from odradek.controller.policies import Policies
from odradek.controller.topics import NewPartitions, NewTopic


class SettingsWriter(Protocol):
    """Writes settings to the metadata store."""

    def write_settings(self, path: str, settings: Mapping[str, str], keep_empty: bool = True) -> None:
        """Store the settings of a node; create its parents. Without settings, the node is deleted, unless `keep_empty`.

        Raises StoreError, NotController.
        """
        ...


class TopicSettings(SettingsWriter, Protocol):
    """Writes settings, and applies those of topics."""

    def configure_all(self) -> None:
        """Apply the settings of all topics again after a change of the broker's defaults."""
        ...


class ClientChanges(SettingsWriter, Protocol):
    """See the module."""

    @property
    def policies(self) -> Policies:
        """The policies of this broker."""
        ...

    @property
    def metadata_version(self) -> int:
        """The metadata version that contains all changes so far: a worker waits for it before it answers. 0: no worker has
        to wait."""
        ...

    @property
    def deleted(self) -> int:
        """The number of topics that were deleted while this broker was the controller."""
        ...

    @property
    def image(self) -> ClusterImage:
        """The topics in the store. Raises StoreError."""
        ...

    def brokers(self) -> list[Broker]:
        """The live brokers. Raises StoreError."""
        ...

    def auto_create_in_steps(self, names: Sequence[str]) -> OutcomesInSteps:
        """Create topics whose names a client used, with the broker's defaults; existing topics are no error.

        Internal topics get the settings that their coordinators need.
        """
        ...

    def create_topics_in_steps(
        self, requests: Sequence[NewTopic], validate_only: bool = False, charge: Charge = free_of_charge
    ) -> OutcomesInSteps:
        """Create topics independently of each other; one outcome for each distinct name, in the order of the requests."""
        ...

    def create_partitions_in_steps(
        self, requests: Sequence[NewPartitions], validate_only: bool = False, charge: Charge = free_of_charge
    ) -> OutcomesInSteps:
        """Add partitions to topics, independently of each other; one outcome for each distinct name."""
        ...

    def alter_topic(
        self, name: str, change: Callable[[Mapping[str, str]], dict[str, str]], validate_only: bool = False
    ) -> Outcome:
        """Change the settings of a topic.

        :param change: receives the present settings and returns the new ones; if it raises Refusal, that is the outcome.
        """
        ...

    def delete_topics(self, requests: Sequence[str | uuid.UUID], charge: Charge = free_of_charge) -> list[Outcome]:
        """Delete topics by name or id; one outcome for each request, in order, with an empty ``name`` for an unknown id."""
        ...
