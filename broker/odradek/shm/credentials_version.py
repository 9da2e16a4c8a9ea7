"""The version of the SCRAM credentials, and that of the delegation tokens.

The coordinator raises it after each change of credentials; every worker drops the credentials that it keeps, and confirms the
version. A change that lets a delegation token end earlier raises another version of this kind; workers keep no token.
"""

from odradek.shm.confirmed_version import ConfirmedVersion


class CredentialsVersion(ConfirmedVersion):
    """See the module. The supervisor creates it. :param name: of the memfd."""

    def __init__(self, name: str = "odradek-credentials-version") -> None:
        super().__init__(name)

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


def tokens_version() -> CredentialsVersion:
    """The version of the delegation tokens."""
    return CredentialsVersion("odradek-tokens-version")
