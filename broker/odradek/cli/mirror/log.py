"""Sets up the log of `odradek mirror run`, in the formats of the broker's log (docs/operate/logs.md). Called once, in the
main thread.
"""

import logging

from odradek.processes.logs import enter, log_uncaught, make_handler

_LEVELS = {"ERROR": logging.ERROR, "WARN": logging.WARNING, "INFO": logging.INFO, "DEBUG": logging.DEBUG}


def set_up(level: str, log_format: str) -> None:
    """Write messages of this level and above to standard error. :param level: ERROR, WARN, INFO or DEBUG."""
    root = logging.getLogger()
    root.handlers[:] = [make_handler(log_format)]
    root.setLevel(_LEVELS[level])
    logging.captureWarnings(True)
    log_uncaught()
    enter("mirror")
