"""How long a takeover may take."""

import os

TAKEOVER_S = 10.0
"""What docs/operate/mirror.md promises."""


def limit_s() -> float:
    """The promised time; in proportion longer while the machine has more work than twice its CPUs can do."""
    return TAKEOVER_S * max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1)))
