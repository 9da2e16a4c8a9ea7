"""The configuration keys that groups use. The coordinator process creates these objects from its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from odradek.groups.metadata_limits import METADATA_SIZES, CurrentSizes
from odradek.quotas.new_names import GROUPS, CurrentLimits


@dataclass(frozen=True)
class GroupSettings:
    """The broker's keys for groups; times in ms.

    :param max_member_bytes: the largest size of a member's subscriptions for all its assignors: a larger one than a batch of
        `__consumer_offsets` could never be stored with a generation.
    :param names: how many groups clients may create, and the longest id of a new group.
    :param metadata: how much text clients may commit with offsets, in all.
    """

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    max_member_bytes: int = 1_048_588
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10_080 * 60_000
    names: CurrentLimits = GROUPS
    metadata: CurrentSizes = METADATA_SIZES


@dataclass(frozen=True)
class ConsumerSettings:
    """The keys for consumer groups (KIP-848); times in ms.

    :param upgrade: whether a classic group with members may become a consumer group; `downgrade`: the reverse.
    :param assignors: the offered assignors, the default first.
    :param assignment_interval_ms: the shortest time between two assignments of a group.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    upgrade: bool = True
    downgrade: bool = True
    assignors: tuple[str, ...] = ("uniform", "range")
    assignment_interval_ms: int = 0

    def of(self, group_id: str) -> ConsumerSettings:
        """Implements `SettingsSource` with constant settings for all groups."""
        return self


class SettingsSource(Protocol):
    """Looks up the settings of a group at each use: they may change at any time."""

    def of(self, group_id: str) -> ConsumerSettings:
        """The current settings of a group."""
