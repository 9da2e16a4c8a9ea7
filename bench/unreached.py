"""What access control and quotas cost a producer that they do not stop: small Produce requests to brokers of this project with
1,000 and 10,000 ACLs, and with quotas that are not reached, against one with neither. Run ``python -m bench.unreached``; it
prints a table and writes UNREACHED.md.

The brokers differ in nothing else. They take turns within a round, and the figures are medians over the rounds.
"""

import argparse
import platform
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from bench.__main__ import build_generator
from bench.brokers import ROOT, Ours
from bench.rows import small_produce
from odradek.clients import acls, quotas
from odradek.clients.cluster import Cluster
from odradek.security.acl import ANONYMOUS, Acl, Operation, PatternType, Permission, ResourceType

TOPIC = "t"
TARGET = 1.03
EQUAL = ("neither", "the same again")
"""Two equal brokers: ratios are to the mean of their medians, and the difference between them is the noise."""
LIMIT_BYTES = 1e12
"""A quota in bytes a second that nobody reaches."""
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def _rule(name: str, operation: Operation, principal: str = ANONYMOUS) -> Acl:
    return Acl(ResourceType.TOPIC, PatternType.LITERAL, name, principal, "*", operation, Permission.ALLOW)


def with_acls(count: int) -> Callable[[Cluster], None]:
    """Add the ACLs that the producer needs, and ACLs of others up to this number."""

    def prepare(cluster: Cluster) -> None:
        needed = [_rule(TOPIC, operation) for operation in (Operation.WRITE, Operation.READ, Operation.DESCRIBE)]
        others = [
            _rule(f"topic-{number}", Operation.READ, f"User:u{number % 100}") for number in range(count - len(needed))
        ]
        rules = needed + others
        for first in range(0, count, 1000):
            acls.create(cluster, rules[first : first + 1000])

    return prepare


def with_quotas(cluster: Cluster) -> None:
    """Set all quotas of requests for the default of users and clients."""
    entity = quotas.QuotaEntity((("user", None), ("client-id", None)))
    values = {"producer_byte_rate": LIMIT_BYTES, "consumer_byte_rate": LIMIT_BYTES, "request_percentage": 1e6}
    quotas.alter(cluster, entity, values)


def nothing(cluster: Cluster) -> None:
    """The broker to compare with."""


CASES: dict[str, tuple[dict[str, str], Callable[[Cluster], None]]] = {
    "neither": ({}, nothing),
    "the same again": ({}, nothing),
    "1,000 ACLs": (AUTHORIZER, with_acls(1000)),
    "10,000 ACLs": (AUTHORIZER, with_acls(10_000)),
    "quotas that are not reached": ({}, with_quotas),
}


def measure(rounds: int) -> dict[str, list[float]]:
    """Return the CPU time of a request in microseconds, for each case and round."""
    figures: dict[str, list[float]] = {name: [] for name in CASES}
    with tempfile.TemporaryDirectory(prefix="bench-unreached-") as scratch:
        servers = {
            name: Ours(Path(scratch) / str(number), dict(settings))
            for number, (name, (settings, _)) in enumerate(CASES.items())
        }
        try:
            for name, server in servers.items():
                server.start()
                server.wait()
                server.create_topic(TOPIC, 8)
                server.wait(TOPIC, 8)
                with Cluster(f"127.0.0.1:{server.port}") as cluster:
                    CASES[name][1](cluster)
                small_produce(server, TOPIC)  # unmeasured
            for number in range(rounds):
                names = list(servers)
                for name in names[number % len(names) :] + names[: number % len(names)]:
                    figures[name].append(small_produce(servers[name], TOPIC)["cpu_us"])
        finally:
            for server in servers.values():
                if server.pid:
                    server.end()
    return figures


def table(figures: dict[str, list[float]]) -> str:
    """The results as Markdown."""
    base = statistics.mean(statistics.median(figures[name]) for name in EQUAL)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    lines = [
        "# ACLs and quotas that stop nobody: results",
        "",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {commit.strip()}; Linux {platform.release()}, Python "
        f"{platform.python_version()}; medians of {len(figures['neither'])} rounds. [README.md](README.md) explains the rows;",
        "`python -m bench.unreached` measures them again.",
        "",
        "| the broker has | us CPU per request | ratio | target |  |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, values in figures.items():
        ratio = statistics.median(values) / base
        judged = name not in EQUAL
        target = f"<= {TARGET} | {'met' if ratio <= TARGET else '**missed**'}" if judged else "| "
        lines.append(f"| {name} | {statistics.median(values):.3g} | {ratio:.3f} | {target} |")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    build_generator()
    text = table(measure(given.rounds))
    print(text)
    (ROOT / "bench" / "UNREACHED.md").write_text(text)


if __name__ == "__main__":
    main()
