"""All conversations, by the module that holds them."""

from tests.transactions_against_kafka import (
    adding,
    administering,
    committing,
    ending,
    exhausting,
    initialising,
    marking,
    producing,
    reading,
)
from tests.transactions_against_kafka.sides import Rows

TABLE: dict[str, Rows] = {
    module.__name__.rpartition(".")[2]: module.ROWS
    for module in (initialising, adding, ending, producing, reading, marking, committing, administering)
}
"""The conversations that need nothing but a running broker."""
EXHAUSTED: Rows = exhausting.ROWS
EXHAUSTED_NAME = "exhausting"
