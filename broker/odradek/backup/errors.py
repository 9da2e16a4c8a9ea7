"""The errors of backups. The message of each is one line for the user."""


class BackupError(Exception):
    """The backup was not made, is not whole, or was not restored."""


class LogsMoved(Exception):
    """Files changed between the cut and the opening of the files: take another cut. The message names the log."""
