"""The recipes of docs/develop/python-clients.md: their programs, the packages that they run with, and what they must write.

A recipe is a whole program: it reads orders from a topic, computes a field of each, and writes the results into another topic.
Runs in the process of a test; each program runs in its own process, with the packages of `tests/ecosystem/python/NAME.txt`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from odradek.testing import Broker
from tests import toolchains
from tests.clients.killed_programs import running
from tests.ecosystem.records import Reader
from tests.waiting import until

DOCUMENT = toolchains.REPOSITORY / "docs" / "develop" / "python-clients.md"
REQUIREMENTS = Path(__file__).parent / "python"
INPUT, OUTPUT, PARTITIONS = "orders", "results", 3
CUSTOMERS = 7
PATIENCE_S = 180.0

Order = dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """A recipe, and what it promises.

    :param heading: the heading of its program in the document.
    :param packages: the name of its file of requirements; None: it runs with the packages of the tests.
    :param field: the field that it adds to an order: `cents`, from the order alone, or `total`, of its customer.
    :param exactly_once: whether each result is there once, and not only at least once.
    :param exact_totals: whether a repeated result has the total of the first one.
    :param group: the group as which it commits the end of its input; None: it keeps its offsets itself, or may stop committing.
    :param arguments: of its program.
    """

    heading: str
    packages: str | None
    field: str = "cents"
    exactly_once: bool = False
    exact_totals: bool = True
    group: str | None = "cents"
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return re.sub(r"\W+", "-", self.heading)


RECIPES = (
    Recipe("confluent-kafka", None, exactly_once=True),
    Recipe("confluent_kafka.aio", None, exactly_once=True),
    Recipe("aiokafka", None, exactly_once=True),
    Recipe("kafka-python", None, exactly_once=True),
    Recipe("ParallelConsumer", None),
    Recipe(
        "faust-streaming",
        "faust-streaming",
        "total",
        exact_totals=False,
        group=None,  # "totals"; but in a race at its start it stops committing for good (faust-streaming/faust#596)
        arguments=("worker", "--without-web"),
    ),
    Recipe("Quix Streams", "quixstreams", "total", exactly_once=True, group="totals"),
    Recipe("Bytewax", "bytewax", "total", group=None),
    Recipe("FastStream", "faststream"),
    Recipe("kstreams", "kstreams"),
    Recipe("streamz", "streamz"),
)


def programs() -> dict[str, list[str]]:
    """The programs in the chapter Programs of the document, by the heading before them."""
    found: dict[str, list[str]] = {}
    heading = ""
    chapter = DOCUMENT.read_text().partition("\n## Programs\n")[2].partition("\n## ")[0]
    for title, program in re.findall(r"^#+ ([^\n]+)$|^```python\n(.*?)^```$", chapter, re.MULTILINE | re.DOTALL):
        heading = title or heading
        if program:
            found.setdefault(heading, []).append(program)
    return found


def interpreter(recipe: Recipe) -> Path:
    """An interpreter with the packages of a recipe, in a virtual environment. Skips the test if they cannot be installed."""
    if recipe.packages is None:
        return Path(sys.executable)
    requirements = REQUIREMENTS / f"{recipe.packages}.txt"

    def install(output: Path) -> None:
        venv.create(output, with_pip=True)
        toolchains.fetch(
            [str(output / "bin/python"), "-m", "pip", "install", "-q", "--no-deps", "-r", str(requirements)]
        )

    texts = [f"{sys.version_info.major}.{sys.version_info.minor}"]
    try:
        directory = toolchains.make_product(f"python-{recipe.packages}", [requirements], install, texts)
    except RuntimeError as error:
        toolchains.unavailable(f"{requirements.name} cannot be installed: {error}")
    return directory / "bin/python"


class Pipeline:
    """A recipe's program with a broker, which gives it orders and reads its results."""

    def __init__(self, recipe: Recipe, broker: Broker, directory: Path) -> None:
        self.recipe = recipe
        self._broker = broker
        self._directory = directory
        self._log = directory / "program.log"
        self._python = interpreter(recipe)
        (text,) = programs()[recipe.heading]
        (directory / "program.py").write_text(text.replace("localhost:9092", broker.bootstrap_servers))
        settings = {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random", "log_level": 0}
        self._producer = Producer(settings)
        self._reader = Reader(broker.bootstrap_servers, OUTPUT, PARTITIONS)
        self.written = 0

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """The program, killed at the end."""
        with running(
            [str(self._python), "program.py", *self.recipe.arguments], self._log, cwd=self._directory
        ) as process:
            yield process

    def write(self, count: int) -> None:
        """Write so many orders."""
        for number in range(self.written, self.written + count):
            customer = f"customer {number % CUSTOMERS}"
            order = {"number": number, "customer": customer, "amount": number % 10}
            self._producer.produce(INPUT, json.dumps(order), customer)
        assert self._producer.flush(PATIENCE_S) == 0
        self.written += count

    def results(self) -> list[Order]:
        """The results so far."""
        self._reader.read()
        return [json.loads(value) for partition in self._reader.values() for value in partition]

    def until(self, process: subprocess.Popen[bytes], condition: Callable[[list[Order]], bool], what: str) -> None:
        """Wait for a condition of the results while the program runs."""

        def reached() -> bool:
            assert process.poll() is None, f"the program ended: {self.log()}"
            return condition(self.results())

        until(
            reached, lambda: f"{what}: {len(self.results())} results of {self.written} orders; {self.log()}", PATIENCE_S
        )

    def expected(self) -> list[Order]:
        """The result of each order, by its number."""
        totals: dict[str, int] = {}
        results: list[Order] = []
        for number in range(self.written):
            order: Order = {"number": number, "customer": f"customer {number % CUSTOMERS}", "amount": number % 10}
            totals[order["customer"]] = totals.get(order["customer"], 0) + order["amount"]
            order[self.recipe.field] = (
                totals[order["customer"]] if self.recipe.field == "total" else order["amount"] * 100
            )
            results.append(order)
        return results

    def log(self) -> str:
        return self._log.read_text()[-4000:] if self._log.exists() else ""

    def close(self) -> None:
        self._reader.__exit__(None, None, None)
