"""All conversations, by the module that holds them."""

from tests.transactions_against_kafka import (
    adding,
    administering,
    committing,
    ending,
    exhausting,
    expiring,
    initialising,
    marking,
    producing,
    reading,
    storing,
    tooling,
)
from tests.transactions_against_kafka.sides import Rows

TABLE: dict[str, Rows] = {
    module.__name__.rpartition(".")[2]: module.ROWS
    for module in (initialising, adding, ending, producing, reading, marking, committing, administering, storing)
}
"""The conversations that need nothing but a running broker."""
EXHAUSTED: Rows = exhausting.ROWS
EXPIRING: Rows = expiring.ROWS
TOOLS: Rows = tooling.ROWS
