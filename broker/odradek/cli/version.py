"""The text of ``odradek --version``."""

import sys

from odradek import __version__


def version_text() -> str:
    """The versions of Odradek and of Python."""
    return f"odradek {__version__}, Python {sys.version.partition(' ')[0]}"
