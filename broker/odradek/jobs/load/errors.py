"""The error that ends a load: one line that says what is wrong and what would be right."""

from odradek.jobs.usage_report.errors import INSTALL as INSTALL  # the same packages

INSTALL_DELTA = "pip install 'deltalake>=1.6,<2' (Odradek's extra `delta`)"
"""The command that installs the package for Delta tables."""


class LoadError(Exception):
    """The load cannot be done; the message is for the user who started it."""


class LostRaceError(LoadError):
    """Another run wrote the commit first; this run's files are no part of the output."""
