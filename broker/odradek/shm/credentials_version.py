"""The version of the SCRAM credentials.

The coordinator raises it after each change of credentials; every worker drops the credentials that it keeps, and confirms the
version.
"""

from odradek.shm.confirmed_version import ConfirmedVersion


class CredentialsVersion(ConfirmedVersion):
    """See the module. The supervisor creates it."""

    def __init__(self) -> None:
        super().__init__("odradek-credentials-version")

    def enter(self, index: int) -> None:
        """Set the calling process's place in the process table. It has kept no credential yet."""
        self._enter(index, self.version)

    def announce(self) -> int:
        """Credentials changed in the store. Returns the new version; the caller must wake the processes."""
        self._words[0] += 1
        return self._words[0]

    def take_over(self) -> int:
        """Confirm the newest version: this process keeps no older credential. Returns the version."""
        version = self.version
        if self._words[1 + self._index] != version:
            self._taken(version)
        return version
