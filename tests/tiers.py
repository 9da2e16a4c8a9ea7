"""The tiers of tests: their names, their marks, and which test belongs to which.

`TIERS` is the only definition of a tier: ``pytest --tier NAME`` runs its tests, the Makefile uses that option, and
``tests/conftest.py`` registers `MARKS`. CONTRIBUTING.md describes the tiers, and a test compares it with this table.

`marks_of` follows the names that a test function and its fixtures use, through the functions and classes of this test
suite, until it meets what starts something: a broker, Apache Kafka or another foreign program, Spark. `needs_packages` follows
the imports of a test's file. `LONG` and `NIGHTLY` name the tests that start nothing of the kind and take long, and those that
only ``make test-all`` runs.

``python -m tests.tiers`` prints what ``make test`` leaves out. pytest imports this module in each of its processes.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

TESTS = Path(__file__).parent
ROOT = TESTS.parent

MARKS = {
    "broker": "starts a broker, or the command as a separate process",
    "peer": "starts a foreign program: Apache Kafka or its tools, Java, Go, Node.js, Prometheus",
    "spark": "starts Spark",
    "packages": "needs a package of the extra `dev` that the extra `test` does not contain",
    "long": "needs none of these, but takes too long for `make quick`",
    "nightly": "takes too long for `make test`; `make test-all` runs it",
    "java": "needs a JRE and Maven",
    "golang": "needs Go",
    "node": "needs Node.js and npm",
    "faults": "needs the debug build with fault points",
    "deploy": "needs machines of systemd-nspawn, a Kubernetes API server or an image, for minutes; `make deploy-test` runs it",
    "package": "compiles the whole package (more than a minute of CPU time) and needs PyPI",
}
"""The marks of tests. This module gives the first six; a test has the others in its file."""


class Tier(NamedTuple):
    expression: str
    """Which marks its tests have, as of pytest's ``-m``."""
    command: str
    """The target of make that runs it, maybe with other checks."""


TIERS = {
    "quick": Tier(
        "not (broker or peer or spark or packages or long or nightly or faults or package or deploy)", "make quick"
    ),
    "test": Tier("not (nightly or faults or package or deploy)", "make test"),
    "nightly": Tier("nightly", "make test-all"),
    "faults": Tier("faults", "make test-faults"),
    "package": Tier("package", "make test-package"),
    "deploy": Tier("deploy", "make deploy-test"),
}
WITHOUT_PACKAGES = "quick"
"""The tier that runs with the packages of the extra `test`: files with the mark `packages` cannot be imported there."""
PACKAGES = {
    "ansible",
    "deltalake",
    "fastavro",
    "jinja2",
    "kubernetes_validate",
    "matplotlib",
    "numpy",
    "pandas",
    "playwright",
    "pyarrow",
    "pyspark",
}
"""The packages of the extra `dev` that the extra `test` does not contain."""

# What starts something, as module and name. A module alone stands for everything in it.
STARTERS = {
    "odradek.testing.broker_process": "broker",
    "odradek.jobs.usage_report.session": "spark",
    "tests.toolchains": "peer",
    "tests.oracles": "peer",
    "tests.deploy.machines": "peer",
}
COMMANDS = ("odradek.cli.main", "odradek.cli", "odradek.jobs.usage_report", "tests.processes.supervisor.fake_broker")
"""Texts in code that starts the command by its name."""
LIBRARIES = {"pyspark": "spark"}
TOOLS = {"java": "peer", "golang": "peer", "node": "peer"}
"""Marks that a test carries in its file because it needs a tool, and what they make of it."""

LONG = {
    "tests/api/test_aborted_transactions.py": "aborted transactions of logs that are cut into many segments",
    "tests/api/test_decompression.py": "decompresses batches up to their limits",
    "tests/api/test_follower_fetch.py": "what fetch sessions of followers cost",
    "tests/api/test_largest_requests.py": "the instructions in each step of a large request of each API",
    "tests/api/test_late_requests.py": "waits for clients that disconnect",
    "tests/api/test_request_limits.py": "requests for very many partitions",
    "tests/api/test_steps_of_threads.py::test_a_request_for_very_many_partitions_does_not_hold_the_store_thread": "traces the "
    "instructions of changes of a thousand partitions",
    "tests/cli/container/test_first_topics.py": "runs the program of the image as a process",
    "tests/cli/records/test_hostile_records.py": "records of a hostile broker, millions in a batch",
    "tests/cuts/test_worker_states.py": "all states of a request, all ends of its connection; also in `make test-cuts`",
    "tests/deploy/test_containerfile.py": "runs the health check of the image",
    "tests/deploy/test_release.py::test_a_commit_that_changes_no_native_source_compiles_nothing": "two releases of a commit",
    "tests/documents/test_testing.py::test_the_recipes_pass": "the recipes of docs/develop/testing.md, which start brokers",
    "tests/documents/test_testing.py::test_the_report_of_a_failed_test_contains_the_logs_of_its_brokers": "starts brokers",
    "tests/durability/test_slow_syncs.py": "waits for a slow device",
    "tests/faults/test_failing_calls.py": "lets each system call of a script fail in turn",
    "tests/grafana/test_rules.py::test_the_rules_pass_their_unit_tests": "the unit tests of all rules, by promtool",
    "tests/grafana/test_rules.py::test_the_unit_tests_notice_a_rule_that_never_fires": "the unit tests of all rules, once more",
    "tests/groups/test_native_commits.py": "native commits compared with handlers in Python",
    "tests/groups/test_native_membership.py": "native member requests compared with handlers in Python",
    "tests/jobs/test_load_commits.py": "a load that dies before some of its lines",
    "tests/jobs/test_load_delta.py": "a load into a Delta table that dies before each of its lines",
    "tests/jobs/test_report_forecast.py::test_the_actual_day_is_in_the_interval_as_often_as_stated": "300 forecasts",
    "tests/metrics/test_client_labels.py": "fills the labels of a scrape up to their limits",
    "tests/metrics/test_http.py": "waits for slow clients",
    "tests/metrics/test_meter_tables.py": "processes that are killed while they count",
    "tests/net/test_late_forwarded_requests.py": "waits for clients that disconnect",
    "tests/net/test_tls_connections.py": "TLS connections whose bytes arrive in all splits",
    "tests/packaging/test_maintainer_scripts.py": "the maintainer scripts, ended in each of their states",
    "tests/packaging/test_sdist.py": "makes sdists",
    "tests/parallel/test_lanes.py::test_a_lane_of_a_million_records_is_dropped": "a million records",
    "tests/processes/coordinator/transactions/test_moving_transactions.py": "transactions of thousands of partitions",
    "tests/protocol/test_against_kio.py": "all schemas compared with those of another library",
    "tests/protocol/test_hostile_bytes.py": "arbitrary bytes, decoded with all schemas",
    "tests/protocol/test_round_trip.py": "all messages in all versions",
    "tests/protocol/test_steps.py": "all messages in steps and at once",
    "tests/replication/test_fetcher.py": "waits for slow leaders",
    "tests/replication/test_secure_fetcher.py": "waits for sessions and handshakes that end",
    "tests/replication/test_throttled_fetcher.py": "waits for throttles",
    "tests/security/test_contexts.py": "every kind of key and store, with handshakes",
    "tests/shm/ordering/test_instructions.py": "compiles probes",
    "tests/shm/test_crash_rounds.py": "400 crashes of a log, or ODRADEK_FAULT_ROUNDS",
    "tests/shm/test_deletion_policy.py": "the deletion policy of an operator, with processes",
    "tests/shm/test_model.py": "a model of slots and files",
    "tests/shm/test_processes.py": "processes that are killed while they write",
    "tests/shm/test_stop.py": "ordered stops, failing files and starts",
    "tests/storage/test_segments.py": "damages at arbitrary places of segments",
    "tests/transactions/test_late_requests.py": "waits for clients that disconnect",
    "tests/transactions/test_rounds.py::test_nothing_is_torn_lost_or_doubled": "rounds of faults",
}
"""The tests that use more than about three seconds of CPU time in `make quick`, or wait for more than five, and are not needed
there: paths of files, of directories, or of tests without their parameters."""
NIGHTLY: dict[str, str] = {
    "tests/api/test_steps_of_threads.py::test_no_step_of_the_largest_request_of_a_single_broker_is_long": "traces the "
    "instructions of requests with thousands of elements; `make test` counts the elements that their steps read",
    "tests/api/test_compaction_against_kafka.py": "what compaction keeps, compared with Kafka",
    "tests/clients/test_kafka_tools_over_tls.py::test_console_and_performance_tools": "Kafka's tools over TLS",
    "tests/documents/test_testing.py::test_the_recipe_of_a_cluster_passes": "the example of a cluster in that page",
    "tests/faults/test_power_loss_of_cluster.py": "three brokers lose power; `make test` checks what a follower acknowledges",
    "tests/jobs/test_report_cluster.py": "the report by spark-submit, on a cluster of Spark",
    "tests/jobs/test_report_of_cluster.py": "the report of a real cluster; `make test` uses written spools",
    "tests/jobs/test_load_every_line.py": "loads and merges that die before each of their lines",
    "tests/jobs/test_load_delta_spark.py": "Spark with Delta's own library reads and changes a table; it starts five JVMs",
    "tests/jobs/test_load_kills.py": "50 loads, and tasks, that are killed; `make test` kills one load (test_load_spark.py)",
    "tests/quotas/test_against_kafka.py": "throttle times of Kafka and of this broker",
    "tests/quotas/test_measured_rates.py": "rates of clients over half a minute, also of Kafka's performance tools",
    "tests/tls/test_half_open_handshakes.py": "thousands of half-open TLS handshakes",
    "tests/cli/transaction/test_transactions.py": "the commands of transactions with this broker and with Apache Kafka",
    "tests/mirror/test_mirror_with_kafka.py": "workers of a mirror between Kafka and this broker, in both directions",
    "tests/mirror/test_switch_against_kafka.py": "groups that are switched between Kafka and this broker, and back",
    "tests/mirror/test_lane_against_kafka.py::test_many_batches_of_one_record_do_not_block_kafka": "20,000 small batches",
    "tests/mirror/test_recompressed.py::test_what_kafka_refuses_is_compressed_again_or_stops_with_its_offset": "with Kafka",
    "tests/mirror/test_round_trip.py": "from Kafka 3.9 over this broker to Kafka 4.3, every codec",
    "tests/mirror/test_kafka_010.py": "a mirror of Kafka 0.10.2",
    "tests/mirror/test_killed_brokers.py": "a lane in a cluster whose brokers are killed",
    "tests/mirror/test_unclean_election.py": "a lane whose source elects a leader that lacks records",
    "tests/mirror/test_killed_lanes.py::test_killed_lanes_are_taken_over_a_hundred_times": "100 rounds of kills",
    "tests/mirror/test_killed_workers.py": "30 rounds of kills of workers of a mirror, in front of bad targets",
    "tests/clients/test_librdkafka.py": "librdkafka's own tests of transactions, which are compiled",
    "tests/clients/test_librdkafka_security.py": "librdkafka's own tests of TLS, logins and ACLs, which are compiled",
    "tests/clients/test_tools_over_all_protocols.py": "Kafka's tools over the four security protocols",
    "tests/clients/test_streams.py::test_the_smoke_test_of_kafka_streams": "the smoke test of Kafka Streams, with kills",
    "tests/clients/test_streams.py::test_words_are_counted_once_although_everything_is_killed": "Kafka Streams, with kills",
    "tests/clients/test_upstream.py::test_each_message_is_copied_once": "Kafka's copier in transactions: all modes, with kills",
    "tests/clients/test_upstream.py::test_franz_gos_chain_of_transactional_groups": "franz-go's own test of transactions",
    "tests/clients/test_producers_of_a_cluster.py": "transactions in clusters of both kinds of brokers, which are killed",
    "tests/adopt/test_with_kafka.py::test_there_and_back_in_the_other_ways": "adoption of Kafka, two more combinations",
    "tests/adopt/test_security_of_kafka.py": "quotas, SCRAM credentials and ACLs of Kafka in both modes",
    "tests/adopt/test_tokens_of_kafka.py": "delegation tokens of Kafka",
    "tests/adopt/test_unfinished_transactions.py::test_this_broker_ends_what_kafka_left": "prepared transactions of Kafka",
    "tests/adopt/test_unfinished_transactions.py::test_kafka_ends_what_this_broker_left_when_it_stopped": "and ours, stopped",
    "tests/cluster/test_broker_requests.py": "clusters: listeners for requests of brokers",
    "tests/cluster/test_changed_settings.py": "clusters: settings that other brokers changed",
    "tests/cluster/test_failures.py::test_nothing_acknowledged_is_lost_by_other_failures": "clusters: more failures",
    "tests/cluster/test_failures.py::test_nothing_acknowledged_is_lost_where_records_are_synced": "clusters: more failures",
    "tests/cluster/test_follower_of_kafka.py": "clusters: followers of a Kafka broker",
    "tests/cluster/test_groups_of_cluster.py": "clusters: coordinators of groups that are killed",
    "tests/cluster/test_golden_trees.py": "clusters: the tree in ZooKeeper, compared with Kafka's",
    "tests/cluster/test_guest_of_kafka.py": "clusters: one broker in a cluster of Kafka, and Kafka's tools",
    "tests/cluster/test_haproxy.py": "clusters: two brokers behind haproxy",
    "tests/cluster/test_kafka_follows.py": "clusters: Kafka brokers as followers",
    "tests/cluster/test_leader_changes.py": "clusters: leaderships that move between Kafka and Odradek",
    "tests/cluster/test_lost_tails.py": "clusters: logs that lost their ends",
    "tests/cluster/test_many_partitions.py": "clusters: requests to many partitions",
    "tests/cluster/test_moves_of_kafka.py": "clusters of Kafka 3.9 and 4.3: moves of partitions and elections",
    "tests/cluster/test_moving_groups.py": "clusters: coordinators of groups that move between Kafka and Odradek",
    "tests/cluster/test_old_clients.py": "clusters: clients of Kafka 0.8 that use ZooKeeper",
    "tests/cluster/test_operator_views.py": "clusters: status, doctor, cluster check",
    "tests/cluster/test_paused_leader.py": "clusters: leaders that stand still for longer than their session",
    "tests/cluster/test_recorded_controllers.py": "clusters: requests of the controller, compared with those of Kafka's",
    "tests/cluster/test_replication_throttles.py": "clusters: throttles of replication",
    "tests/cluster/test_secure_cluster.py::test_a_wrong_certificate_is_reported_and_replaced": "clusters: wrong certificates",
    "tests/cluster/test_secure_cluster.py::test_both_ends_report_a_missing_right": "clusters: denied brokers",
    "tests/cluster/test_secure_cluster.py::test_short_sessions_are_replaced_without_a_loss": "clusters: sessions of brokers",
    "tests/cluster/test_secure_guest_of_kafka.py": "clusters: Kafka and Odradek replicate over SASL_SSL",
    "tests/cluster/test_tokens_of_cluster.py": "clusters: delegation tokens, also of Kafka",
    "tests/cluster/test_scram_users.py": "clusters: SCRAM users that one broker changes",
    "tests/cluster/test_without_zookeeper.py": "clusters: requests of administrators while ZooKeeper is away",
    "tests/cluster/test_wrong_tree.py": "clusters: a tree that is deleted or replaced",
    "tests/security/test_acls_in_cluster.py": "clusters: access control lists",
    "tests/transactions/test_rounds.py::test_nothing_is_torn_lost_or_doubled_by_any_fault": "transactions: all faults",
    "tests/transactions/test_rounds.py::test_nothing_is_torn_lost_or_doubled_by_losses_of_power": "transactions: power",
    "tests/transactions/test_rounds.py::test_nothing_is_torn_lost_or_doubled_in_a_cluster": "transactions: clusters",
    "tests/transactions/test_rounds.py::test_nothing_is_torn_lost_or_doubled_in_a_cluster_by_more_faults": "the same, longer",
    "tests/transactions_against_kafka": "conversations about transactions, compared with Apache Kafka",
    "tests/ecosystem/test_burrow.py": "Burrow finds the lag of groups",
    "tests/ecosystem/test_debezium.py": "Debezium's engine writes the changes of a PostgreSQL table, with kills",
    "tests/ecosystem/test_flink.py": "Flink's job at exactly once, with kills",
    "tests/ecosystem/test_karapace.py": "Karapace, from a checkout that KARAPACE_SOURCE names, with Avro clients",
    "tests/ecosystem/test_python_clients.py::test_a_killed_framework_misses_nothing": "Python frameworks, which are killed; "
    "`make test` kills the clients",
    "tests/ecosystem/test_mirror_maker.py": "MirrorMaker 2 in both directions, between two brokers of ours and with Kafka",
    "tests/ecosystem/test_connect.py::test_every_line_is_there_once_although_workers_and_the_broker_are_killed": "two workers",
    "tests/grafana/test_live.py": "live dashboards and alerts: a broker under load, Prometheus, windows of minutes",
}
"""The tests that only `make test-all` runs, named as in `LONG`, and what they are.

The matrix of clients is not among them: each client writes once and reads once, and all 49 comparisons take seconds."""
NOT_IN_MAKE_TEST = {
    **NIGHTLY,
    "make deploy-test": "clusters of machines with systemd, a Kubernetes API server, the image",
    "make test-sanitized": "code that reads hostile bytes, under AddressSanitizer and UBSan",
}


@cache
def needs_packages(path: Path) -> bool:
    """Return whether a test's file, or a conftest.py above it, imports one of `PACKAGES`, directly or through other modules."""
    above = (directory / "conftest.py" for directory in path.parents if TESTS in directory.parents)
    return any(_reaches_packages(file) for file in (path, *above) if file.exists())


def _reaches_packages(file: Path) -> bool:
    seen: set[Path] = set()
    ahead = [file]
    while ahead:
        module = ahead.pop()
        if module in seen or module in _without_packages:
            continue
        seen.add(module)
        for name in _imports(module):
            if name.partition(".")[0] in PACKAGES:
                return True
            ahead += _source(name)
    _without_packages.update(seen)
    return False


_without_packages: set[Path] = set()
"""The files that are known to import none of `PACKAGES`, and nothing that does."""


@cache
def _imports(module: Path) -> frozenset[str]:
    """What a module imports: a module of the tests anywhere, another one outside of its functions."""
    names = set()
    of_tests = TESTS in module.parents
    ahead: list[ast.AST] = [ast.parse(module.read_bytes())]
    while ahead:
        node = ahead.pop()
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif not _is_skipped(node, of_tests):
            for block in ("body", "orelse", "finalbody", "handlers", "cases"):  # no expression contains an import
                ahead += getattr(node, block, ())
    return frozenset(names)


def _is_skipped(node: ast.AST, of_tests: bool) -> bool:
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
        return node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not of_tests


@cache
def _source(name: str) -> tuple[Path, ...]:
    """The file of a module of this project, by its name or by that of something in it; and those of its packages."""
    parts = name.split(".")
    if parts[0] not in ("tests", "odradek", "bench", "grafana"):
        return ()
    top = ROOT / "broker" if parts[0] == "odradek" else ROOT
    found = [top.joinpath(*parts[:length], "__init__.py") for length in range(1, len(parts) + 1)]
    found += [top.joinpath(*parts[:length]).with_suffix(".py") for length in (len(parts) - 1, len(parts)) if length]
    return tuple(file for file in found if file.exists())


def marks_of_name(node_id: str) -> set[str]:
    """The marks that the lists of this module give to a test.

    :param node_id: pytest's name of the test: a path, ``::``, a function, and its parameters in brackets.
    """
    path, _, function = node_id.partition("::")
    function = re.split("[@[]", function)[0]  # pytest-xdist appends @ and the test's group
    names = {path, path.rpartition("/")[0], f"{path}::{function}"}
    return {mark for mark, tests in (("long", LONG), ("nightly", NIGHTLY)) if not names.isdisjoint(tests)}


def marks_of(function: Callable[..., Any], fixtures: Iterator[Callable[..., Any]]) -> set[str]:
    """The marks of a test.

    :param function: the test's function.
    :param fixtures: the functions of all fixtures that the test uses, directly or through other fixtures.
    """
    marks: set[str] = set()
    for used in (function, *fixtures):
        marks |= _marks_of_function(inspect.unwrap(used))
    return marks


@cache
def _marks_of_function(function: FunctionType) -> frozenset[str]:
    return frozenset(_search(function, set()))


def _search(value: Any, seen: set[int]) -> set[str]:
    """The marks of whatever a name stands for: a function, a class, a bound method, a module."""
    if id(value) in seen:
        return set()
    seen.add(id(value))
    if isinstance(value, list | tuple) and any(isinstance(part, str) and part in COMMANDS for part in value):
        return {"broker"}
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    if not isinstance(module, str):
        return set()
    if module in STARTERS and not isinstance(value, ModuleType):
        return {STARTERS[module]}
    if module.partition(".")[0] in LIBRARIES:
        return {LIBRARIES[module.partition(".")[0]]}
    if not _is_of_tests(module) or module == __name__:  # this module names what starts something, and starts nothing
        return set()
    marks: set[str] = set()
    if isinstance(value, FunctionType):
        marks |= _search_code(value.__code__, value.__globals__, seen)
    elif isinstance(value, type):
        for parent in value.__mro__[1:]:
            marks |= _search(parent, seen)
        for member in vars(value).values():
            function = (
                getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
            )
            if isinstance(function, FunctionType):
                marks |= _search(inspect.unwrap(function), seen)
    elif callable(value) and isinstance(getattr(value, "__wrapped__", None), FunctionType):
        marks |= _search(value.__wrapped__, seen)
    return marks


@cache
def _is_of_tests(module: str) -> bool:
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and TESTS in Path(file).parents


def _search_code(code: CodeType, names: dict[str, Any], seen: set[int]) -> set[str]:
    """The marks of what a piece of code names, and of the functions defined in it."""
    marks: set[str] = set()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            marks |= _search_code(constant, names, seen)
        elif constant in COMMANDS or (isinstance(constant, tuple) and any(part in COMMANDS for part in constant)):
            marks.add("broker")
    for name in code.co_names:
        value = names.get(name)
        marks |= _search(inspect.unwrap(value) if callable(value) else value, seen)
        if isinstance(value, ModuleType):  # `module.function`: the names of attributes follow in the same tuple
            for attribute in code.co_names:
                marks |= _search(getattr(value, attribute, None), seen)
        if name in LIBRARIES:
            marks.add(LIBRARIES[name])
    return marks


def main() -> None:
    """Print what `make test` leaves out."""
    width = max(map(len, NOT_IN_MAKE_TEST))
    print("\nNOT RUN by `make test`; `make test-all` runs it:")
    for name, what in NOT_IN_MAKE_TEST.items():
        print(f"  {name:{width}}  {what}")


if __name__ == "__main__":
    main()
