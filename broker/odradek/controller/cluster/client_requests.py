"""The requests of clients that change topics in a cluster, as the API handlers call them.

Every broker creates topics that clients use for the first time, and changes settings (`ClusterMember`); only the controller
does the rest (`ClusterAdmin`). Runs in the coordinator's store thread.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence

from odradek.controller.assignment import Broker
from odradek.controller.cluster.admin import ClusterAdmin
from odradek.controller.cluster_member import ClusterMember
from odradek.controller.image import ClusterImage
from odradek.controller.outcomes import Charge, Outcome, OutcomesInSteps, free_of_charge
from odradek.controller.policies import Policies
from odradek.controller.topics import NewPartitions, NewTopic


class ClientRequests:
    """See the module. It implements `ClientChanges`."""

    def __init__(self, member: ClusterMember, admin: ClusterAdmin) -> None:
        self._member = member
        self._admin = admin

    @property
    def policies(self) -> Policies:
        """The policies of this broker."""
        return self._member.policies

    @property
    def metadata_version(self) -> int:
        """See `ClusterMember`."""
        return self._member.metadata_version

    @property
    def deleted(self) -> int:
        """See `ClusterAdmin`."""
        return self._admin.deleted

    @property
    def image(self) -> ClusterImage:
        """The topics in the store. Raises StoreError."""
        return self._member.image

    def brokers(self) -> list[Broker]:
        """The live brokers. Raises StoreError."""
        return self._member.brokers()

    def auto_create_in_steps(self, names: Sequence[str]) -> OutcomesInSteps:
        """See `ClusterMember.auto_create`; in one step."""
        return self._member.auto_create(names)
        yield

    def alter_topic(
        self, name: str, change: Callable[[Mapping[str, str]], dict[str, str]], validate_only: bool = False
    ) -> Outcome:
        """See `ClusterMember`."""
        return self._member.alter_topic(name, change, validate_only)

    def write_settings(self, path: str, settings: Mapping[str, str], keep_empty: bool = True) -> None:
        """See `ClusterMember`."""
        self._member.write_settings(path, settings, keep_empty)

    def create_topics_in_steps(
        self, requests: Sequence[NewTopic], validate_only: bool = False, charge: Charge = free_of_charge
    ) -> OutcomesInSteps:
        """See `ClusterAdmin.create_topics`; in one step: the controller creates most partitions in later ones."""
        return self._changed(self._admin.create_topics(requests, validate_only, charge))
        yield

    def create_partitions_in_steps(
        self, requests: Sequence[NewPartitions], validate_only: bool = False, charge: Charge = free_of_charge
    ) -> OutcomesInSteps:
        """See `ClusterAdmin.create_partitions`; in one step: the controller creates most partitions in later ones."""
        return self._changed(self._admin.create_partitions(requests, validate_only, charge))
        yield

    def delete_topics(self, requests: Sequence[str | uuid.UUID], charge: Charge = free_of_charge) -> list[Outcome]:
        """See `ClusterAdmin`."""
        return self._changed(self._admin.delete_topics(requests, charge))

    def _changed(self, outcomes: list[Outcome]) -> list[Outcome]:
        """The topics are read again before the next request: the watches may be called later."""
        self._member.look_again()
        return outcomes
