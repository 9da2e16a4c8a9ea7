"""The limits of free space on the file systems of the log directories. Pure functions of the configuration, for the cleaner,
which applies them, and the supervisor, which shows them."""

from typing import NamedTuple

from odradek.config.broker_config import BrokerConfig

LEAVE_FULL = 1.25
"""A file system is no longer full when its free space exceeds the hard limit by this factor."""


class Marks(NamedTuple):
    """The configured limits of free space: each is the smaller one of a number of bytes and a percentage of the file system."""

    soft_bytes: int
    soft_percent: float
    hard_bytes: int
    hard_percent: float
    reserve_bytes: int

    @classmethod
    def of(cls, config: BrokerConfig) -> "Marks":
        """The limits of the broker's configuration."""
        return cls(
            config.integer("odradek.log.dir.soft.free.bytes"),
            float(str(config["odradek.log.dir.soft.free.percent"])),
            config.integer("odradek.log.dir.hard.free.bytes"),
            float(str(config["odradek.log.dir.hard.free.percent"])),
            config.integer("odradek.log.dir.reserve.bytes"),
        )

    def soft(self, total: int) -> int:
        """The free bytes below which a file system of `total` bytes is low on space."""
        return max(self.hard(total), min(self.soft_bytes, int(total * self.soft_percent / 100)))

    def hard(self, total: int) -> int:
        """The free bytes below which a file system of `total` bytes is full."""
        return min(self.hard_bytes, int(total * self.hard_percent / 100))

    def reserve(self, total: int) -> int:
        """The bytes reserved for work that must continue on a full disk: at most the hard limit, so that the reserve does not
        fill a small disk."""
        return min(self.reserve_bytes, self.hard(total))

    def leaves_full(self, total: int) -> int:
        """The free bytes with which a file system of `total` bytes is no longer full: the reserve needs its space, too."""
        return int((self.hard(total) + self.reserve(total)) * LEAVE_FULL)
