"""The broker's keys, and a group's own, that groups go by. The coordinator process makes them of its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class GroupSettings:
    """The broker's keys that groups go by; times in ms.

    :param max_member_bytes: the largest subscription, of all its assignors together, that a member may bring: one that is
        larger than a batch of `__consumer_offsets` could never be stored with a generation.
    """

    initial_rebalance_delay_ms: int = 3000
    min_session_timeout_ms: int = 6000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    max_member_bytes: int = 1_048_588
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 10_080 * 60_000


@dataclass(frozen=True)
class ConsumerSettings:
    """The broker's keys for these groups; times in ms.

    :param upgrade: whether a living classic group may become one of these; `downgrade`: and back.
    :param assignors: those offered, the default first.
    :param assignment_interval_ms: the least time between two assignments of a group.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    upgrade: bool = True
    downgrade: bool = True
    assignors: tuple[str, ...] = ("uniform", "range")
    assignment_interval_ms: int = 0

    def of(self, group_id: str) -> ConsumerSettings:
        """As `SettingsSource` says: the same for all groups, and for good."""
        return self


class SettingsSource(Protocol):
    """Where a group's settings are looked up whenever they are needed: they may change at any time."""

    def of(self, group_id: str) -> ConsumerSettings:
        """The settings of a group, as they are now."""
