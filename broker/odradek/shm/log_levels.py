"""Sets the levels of the loggers in this process. Each process of the broker does this in its own `logging` module."""

import logging
from collections.abc import Mapping

from odradek.config.loggers import LOGGERS, ROOT

TRACE = 5
NUMBERS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}
_WORDS = {number: word for word, number in NUMBERS.items()}


def word_of(level: int) -> str:
    """Kafka's name for a level of `logging`."""
    return _WORDS.get(level) or logging.getLevelName(level)


def apply_levels(own: Mapping[str, str]) -> None:
    """Set the levels in this process. :param own: the levels of the loggers that have one of their own, by logger."""
    for name in LOGGERS:
        logger = logging.getLogger(None if name == ROOT else name)
        level = NUMBERS[own[name]] if name in own else logging.NOTSET
        if logger.level != level:
            logger.setLevel(level)
