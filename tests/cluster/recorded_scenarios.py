"""The scenarios that both controllers go through; each function gets a `Run` with the brokers 11, 12, 13 and 14.

A step is what a broker, a client or an operator does. The answers of the controller are a part of the recording.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from odradek.config.listeners import Listener
from odradek.controller.cluster.leadership import PREFERRED, PREFERRED_REPLICA_ELECTION, UNCLEAN
from odradek.controller.cluster.log_dirs import LOG_DIR_EVENTS
from odradek.controller.cluster.reassignment import REASSIGN_PARTITIONS
from odradek.metadata import znodes
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import (
    alter_partition,
    alter_partition_reassignments,
    controlled_shutdown,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
)
from tests.cluster.recorder import Run

A, B, C, D, NEW = 11, 12, 13, 14, 15
BROKERS = (A, B, C, D)
THREE = {0: [A, B, C], 1: [B, C, A], 2: [C, A, B]}
RF1 = {0: [A]}
UNCLEAN_KEY = "unclean.leader.election.enable"
WAIT_MS = 10_000
TOPIC_RESOURCE, SET = 2, 0

Scenario = Callable[[Run], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(function: Scenario) -> Scenario:
    """Add a scenario to the table."""
    SCENARIOS[function.__name__] = function
    return function


# -- requests ----------------------------------------------------------------------------------------------------------


def code(number: int) -> str:
    return ErrorCode(number).name


def create(
    run: Run,
    topic: str,
    partitions: Mapping[int, Sequence[int]],
    config: Mapping[str, str] | None = None,
    wait_ms: int = WAIT_MS,
) -> str:
    """CreateTopics with an assignment."""
    request = create_topics.Request
    (result,) = run.ask(
        create_topics.SCHEMA,
        request(
            topics=[
                request.CreatableTopic(
                    name=run.name(topic),
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        request.CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
                        for index, replicas in partitions.items()
                    ],
                    configs=[
                        request.CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items()
                    ],
                )
            ],
            timeout_ms=wait_ms,
        ),
    ).topics
    return code(result.error_code)


def add_partitions(run: Run, topic: str, count: int, assignments: Sequence[Sequence[int]]) -> str:
    request = create_partitions.Request
    wanted = [request.CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in assignments]
    (result,) = run.ask(
        create_partitions.SCHEMA,
        request(
            topics=[request.CreatePartitionsTopic(name=run.name(topic), count=count, assignments=wanted)],
            timeout_ms=WAIT_MS,
        ),
    ).results
    return code(result.error_code)


def delete(run: Run, topic: str) -> str:
    request = delete_topics.Request
    (result,) = run.ask(
        delete_topics.SCHEMA,
        request(topics=[request.DeleteTopicState(name=run.name(topic))], timeout_ms=WAIT_MS),
    ).responses
    return code(result.error_code)


def reassign(run: Run, topic: str, targets: Mapping[int, Sequence[int] | None]) -> list[tuple[int, str]]:
    request = alter_partition_reassignments.Request
    response = run.ask(
        alter_partition_reassignments.SCHEMA,
        request(
            topics=[
                request.ReassignableTopic(
                    name=run.name(topic),
                    partitions=[
                        request.ReassignablePartition(
                            partition_index=index, replicas=None if replicas is None else list(replicas)
                        )
                        for index, replicas in targets.items()
                    ],
                )
            ]
        ),
    )
    (result,) = response.responses
    return sorted((row.partition_index, code(row.error_code)) for row in result.partitions)


def elect(run: Run, topic: str, partitions: Sequence[int], kind: int, wait_ms: int = WAIT_MS) -> list[tuple[int, str]]:
    request = elect_leaders.Request
    response = run.ask(
        elect_leaders.SCHEMA,
        request(
            election_type=kind,
            topic_partitions=[request.TopicPartitions(topic=run.name(topic), partitions=list(partitions))],
            timeout_ms=wait_ms,
        ),
    )
    rows = [row for result in response.replica_election_results for row in result.partition_result]
    return sorted((row.partition_id, code(row.error_code)) for row in rows)


def shut_down(run: Run, broker: int, epoch: int | None = None) -> tuple[str, list[tuple[str, int]]]:
    sent = run.brokers[broker].epoch if epoch is None else epoch
    response = run.ask(controlled_shutdown.SCHEMA, controlled_shutdown.Request(broker_id=broker, broker_epoch=sent))
    return code(response.error_code), sorted(
        (row.topic_name.split(".")[0], row.partition_index) for row in response.remaining_partitions
    )


def propose(
    run: Run,
    leader: int,
    topic: str,
    in_sync: Sequence[int],
    *,
    partition: int = 0,
    leader_epoch: int | None = None,
    partition_epoch: int | None = None,
    broker_epoch: int | None = None,
    recovery: int = 0,
    version: int | None = None,
    topic_id: bytes | None = None,
) -> tuple:
    """AlterPartition of a leader; epochs are the present ones where none are given."""
    state, present = run.state(topic, partition)
    request = alter_partition.Request
    data = request.PartitionData(
        partition_index=partition,
        leader_epoch=state.leader_epoch if leader_epoch is None else leader_epoch,
        partition_epoch=present if partition_epoch is None else partition_epoch,
        leader_recovery_state=recovery,
    )
    if version == 2:
        data.new_isr = list(in_sync)
    else:
        data.new_isr_with_epochs = [request.BrokerState(broker_id=member) for member in in_sync]
    response = run.ask(
        alter_partition.SCHEMA,
        request(
            broker_id=leader,
            broker_epoch=run.brokers[leader].epoch if broker_epoch is None else broker_epoch,
            topics=[request.TopicData(topic_id=topic_id or run.topic_id(topic), partitions=[data])],
        ),
        newest=version,
    )
    rows = [row for found in response.topics for row in found.partitions]
    return code(response.error_code), [
        (row.partition_index, code(row.error_code))
        + (
            (row.leader_id, row.leader_epoch, list(row.isr), row.leader_recovery_state, row.partition_epoch)
            if row.error_code == ErrorCode.NONE
            else ()
        )
        for row in rows
    ]


def set_topic(run: Run, topic: str, key: str, value: str) -> str:
    request = incremental_alter_configs.Request
    (result,) = run.ask(
        incremental_alter_configs.SCHEMA,
        request(
            resources=[
                request.AlterConfigsResource(
                    resource_type=TOPIC_RESOURCE,
                    resource_name=run.name(topic),
                    configs=[request.AlterableConfig(name=key, config_operation=SET, value=value)],
                )
            ]
        ),
    ).responses
    return code(result.error_code)


def write_request(run: Run, path: str, entries: Sequence[dict[str, Any]]) -> None:
    """Write a node as Kafka's old tools did."""
    named = [entry | {"topic": run.name(entry["topic"])} for entry in entries]
    run.zookeeper.create(path, json.dumps({"version": 1, "partitions": named}).encode())


# -- topics ------------------------------------------------------------------------------------------------------------


@scenario
def topic_created_by_a_broker(run: Run) -> None:
    run.step("created in the tree", lambda: run.create_in_tree("a", THREE))


@scenario
def topic_created_by_request(run: Run) -> None:
    run.step("one partition", lambda: create(run, "a", {0: [A, B]}))
    run.step("three partitions", lambda: create(run, "b", THREE))
    run.step("one replica", lambda: create(run, "c", RF1))


@scenario
def topic_with_a_dead_broker(run: Run) -> None:
    run.step("a broker fails", lambda: run.fail(C))
    run.step("created", lambda: create(run, "a", THREE))
    run.step("created in the tree", lambda: run.create_in_tree("b", {0: [A, C], 1: [C, A], 2: [C]}))
    run.step("the broker is back", run.brokers[C].register)


@scenario
def partitions_added(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B, C]}))
    run.step("partitions added", lambda: add_partitions(run, "a", 3, [[B, C, D], [D, A, B]]))


@scenario
def partitions_added_in_the_tree(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B]}))
    run.step("by an old tool", lambda: run.rewrite("a", {0: [A, B], 1: [B, C], 2: [D, A]}))


# -- brokers -----------------------------------------------------------------------------------------------------------


@scenario
def broker_fails_and_returns(run: Run) -> None:
    run.step("created", lambda: create(run, "a", THREE))
    run.step("one replica", lambda: create(run, "b", RF1))
    run.step("fails", lambda: run.fail(A))
    run.step("returns", run.brokers[A].register)
    run.step("joins", lambda: propose(run, B, "a", [B, C, A]))


@scenario
def follower_fails(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B, C], 1: [D, A, C]}))
    run.step("fails", lambda: run.fail(C))
    run.step("returns", run.brokers[C].register)


@scenario
def all_replicas_fail_one_by_one(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B]}))
    run.step("the leader fails", lambda: run.fail(A))
    run.step("the last fails", lambda: run.fail(B))
    run.step("the first returns", run.brokers[A].register)
    run.step("the last returns", run.brokers[B].register)


@scenario
def two_brokers_fail_at_once(run: Run) -> None:
    run.step("created", lambda: create(run, "a", THREE | {3: [A, D, C]}))
    run.step("fail", lambda: run.fail(A, B), epochs_differ=True)
    run.step("return", lambda: run.register(A, B))


@scenario
def broker_bounces(run: Run) -> None:
    run.step("created", lambda: create(run, "a", THREE))
    run.step("bounces", run.brokers[A].bounce)
    run.step("one replica", lambda: create(run, "b", {0: [B]}))
    run.step("bounces again", run.brokers[B].bounce)


@scenario
def endpoints_change(run: Run) -> None:
    run.step("created", lambda: create(run, "a", THREE))
    more = Listener("MORE", "127.0.0.1", 4711, "PLAINTEXT")
    run.step("changed", lambda: run.brokers[B].change_endpoints(more))


@scenario
def broker_joins(run: Run) -> None:
    run.step("created", lambda: create(run, "a", THREE))
    run.step("joins", run.add_broker(NEW).register)
    run.step("created there", lambda: create(run, "b", {0: [NEW, A]}))


# -- deletion ----------------------------------------------------------------------------------------------------------


@scenario
def deletion(run: Run) -> None:
    run.step("created", lambda: create(run, "a", THREE))
    run.step("deleted", lambda: delete(run, "a"), deletes=["a"])
    run.step("created with the same name", lambda: create(run, "a", {0: [A, B]}))


@scenario
def deletion_with_a_dead_replica(run: Run) -> None:
    run.step("created", lambda: create(run, "a", THREE))
    run.step("a broker fails", lambda: run.fail(B))
    run.step("deleted", lambda: delete(run, "a"))
    run.step("the broker is back", run.brokers[B].register, deletes=["a"])


@scenario
def deletion_of_two_topics_while_a_broker_bounces(run: Run) -> None:
    run.step("created", lambda: create(run, "a", THREE))
    run.step("another", lambda: create(run, "b", {0: [D, A]}))
    run.step("a broker fails", lambda: run.fail(D))
    run.step("deleted", lambda: [delete(run, "a"), delete(run, "b")])
    run.step("a member bounces", run.brokers[A].bounce)
    run.step("the broker is back", run.brokers[D].register, deletes=["a", "b"])


# -- reassignment ------------------------------------------------------------------------------------------------------


@scenario
def reassignment(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B], 1: [A, B]}))
    run.step("begins", lambda: reassign(run, "a", {0: [C, D]}))
    run.step("one joins", lambda: propose(run, A, "a", [A, B, C]))
    run.step("both joined", lambda: propose(run, A, "a", [A, B, C, D]), epochs_differ=True)
    run.step("refused", lambda: [reassign(run, "a", {1: [A, 99]}), reassign(run, "a", {7: [A]})], silent=True)


@scenario
def reassignment_moves_the_leader(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B, C]}))
    run.step("begins", lambda: reassign(run, "a", {0: [D, B, C]}))
    run.step("joined", lambda: propose(run, A, "a", [A, B, C, D]))


@scenario
def reassignment_keeps_the_leader(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B]}))
    run.step("begins", lambda: reassign(run, "a", {0: [A, C]}))
    run.step("joined", lambda: propose(run, A, "a", [A, B, C]))
    run.step("only the order", lambda: reassign(run, "a", {0: [C, A]}))


@scenario
def reassignment_cancelled(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B], 1: [B, A]}))
    run.step("begins", lambda: reassign(run, "a", {0: [B, C], 1: [C, D]}))
    run.step("partitions", lambda: add_partitions(run, "a", 3, [[A, B]]), silent=True)
    run.step("one joins", lambda: propose(run, A, "a", [A, B, C]))
    run.step("cancelled", lambda: reassign(run, "a", {0: None, 1: None}))
    run.step("nothing to cancel", lambda: reassign(run, "a", {0: None}), silent=True)


@scenario
def reassignment_replaced(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B]}))
    run.step("begins", lambda: reassign(run, "a", {0: [B, C]}))
    run.step("replaced", lambda: reassign(run, "a", {0: [B, D]}))
    run.step("joined", lambda: propose(run, A, "a", [A, B, D]))


@scenario
def reassignment_with_a_failing_target(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B]}))
    run.step("begins", lambda: reassign(run, "a", {0: [C, D]}))
    run.step("the target fails", lambda: run.fail(D))
    run.step("it is back", run.brokers[D].register)
    run.step("joined", lambda: propose(run, A, "a", [A, B, C, D]), epochs_differ=True)


@scenario
def reassignment_by_the_old_node(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B], 1: [B, A]}))
    entries = [
        {"topic": "a", "partition": 0, "replicas": [C, A]},
        {"topic": "a", "partition": 1, "replicas": [A, B]},
    ]
    run.step("requested", lambda: write_request(run, REASSIGN_PARTITIONS, entries))
    run.step("joined", lambda: propose(run, A, "a", [A, B, C]))


# -- elections ---------------------------------------------------------------------------------------------------------


@scenario
def preferred_election(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B], 1: [B, A]}))
    run.step("fails", lambda: run.fail(A))
    run.step("returns", run.brokers[A].register)
    run.step("not in sync", lambda: elect(run, "a", [0], PREFERRED), silent=True)
    run.step("joins", lambda: propose(run, B, "a", [B, A]))
    run.step("moves", lambda: elect(run, "a", [0, 1], PREFERRED))
    run.step("not needed", lambda: elect(run, "a", [0, 1, 7], PREFERRED), silent=True)


@scenario
def preferred_election_by_the_old_node(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B], 1: [B, A]}))
    run.step("fails", lambda: run.fail(A))
    run.step("returns", run.brokers[A].register)
    run.step("joins", lambda: propose(run, B, "a", [B, A]))
    entries = [{"topic": "a", "partition": 0}, {"topic": "a", "partition": 1}]
    run.step("requested", lambda: write_request(run, PREFERRED_REPLICA_ELECTION, entries))


def _lose_the_in_sync_replicas(run: Run, config: Mapping[str, str] | None = None) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B], 1: [A, B]}, config))
    run.step("shrinks", lambda: propose(run, A, "a", [A]))
    run.step("fails", lambda: run.fail(A))


@scenario
def unclean_election_by_request(run: Run) -> None:
    _lose_the_in_sync_replicas(run)
    run.step("preferred", lambda: elect(run, "a", [0], PREFERRED), silent=True)
    run.step("unclean", lambda: elect(run, "a", [0, 1], UNCLEAN))
    run.step("recovered", lambda: propose(run, B, "a", [B], recovery=0))
    run.step("the old leader is back", run.brokers[A].register)
    run.step("joins", lambda: propose(run, B, "a", [B, A]))


@scenario
def unclean_election_by_the_topic(run: Run) -> None:
    _lose_the_in_sync_replicas(run, {UNCLEAN_KEY: "true"})
    run.step("recovering with two", lambda: propose(run, B, "a", [B, C], recovery=1), silent=True, requests_differ=True)
    run.step("recovered", lambda: propose(run, B, "a", [B], recovery=0))
    run.step("not recovering again", lambda: propose(run, B, "a", [B], recovery=1), silent=True, requests_differ=True)


@scenario
def unclean_election_after_a_change_of_the_topic(run: Run) -> None:
    _lose_the_in_sync_replicas(run)
    run.step("allowed", lambda: set_topic(run, "a", UNCLEAN_KEY, "true"))


@scenario
def controlled_shutdown_of_a_broker(run: Run) -> None:
    run.step("created", lambda: create(run, "a", THREE | {3: [B, D, A]}))
    run.step("alone", lambda: create(run, "b", RF1))
    run.step("old epoch", lambda: shut_down(run, A, run.brokers[A].epoch - 1), silent=True)
    run.step("shuts down", lambda: shut_down(run, A))
    run.step("once more", lambda: shut_down(run, A), silent=True)
    run.step("leaves", lambda: run.fail(A))
    run.step("returns", run.brokers[A].register)


@scenario
def controlled_shutdown_without_other_replicas(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B]}))
    run.step("shrinks", lambda: propose(run, A, "a", [A]))
    run.step("shuts down", lambda: shut_down(run, A), silent=True)
    run.step("leaves", lambda: run.fail(A))


@scenario
def a_broker_that_shuts_down_may_not_join(run: Run) -> None:
    """If the leader shuts down, the rule differs from Kafka's (decision 28; `tests/controller/cluster/test_in_sync.py`)."""
    run.step("created", lambda: create(run, "a", {0: [A, B]}))
    run.step("shrinks", lambda: propose(run, A, "a", [A]))
    run.step("the follower shuts down", lambda: shut_down(run, B))
    run.step("may not add", lambda: propose(run, A, "a", [A, B]), silent=True, requests_differ=True)
    run.step("leaves", lambda: run.fail(B))


@scenario
def controlled_shutdown_of_two_brokers(run: Run) -> None:
    run.step("created", lambda: create(run, "a", THREE))
    run.step("one shuts down", lambda: shut_down(run, A))
    run.step("another shuts down", lambda: shut_down(run, B))
    run.step("the last cannot", lambda: shut_down(run, C), silent=True)
    run.step("one leaves", lambda: run.fail(A))
    run.step("created meanwhile", lambda: create(run, "b", {0: [B, D]}))
    run.step("another leaves", lambda: run.fail(B))
    run.step("the last leaves", lambda: run.fail(C))


@scenario
def log_directory_fails(run: Run) -> None:
    run.step("created", lambda: create(run, "a", THREE))

    def fail_directory() -> None:
        run.brokers[A].failed = {(run.name("a"), 0), (run.name("a"), 1)}
        run.zookeeper.create(f"{LOG_DIR_EVENTS}/log_dir_event_", znodes.encode_log_dir_event(A, 1), sequence=True)

    run.step("reported", fail_directory)
    run.step("restarts with it", lambda: (run.brokers[A].failed.clear(), run.brokers[A].bounce())[1])


# -- in-sync replicas --------------------------------------------------------------------------------------------------


@scenario
def in_sync_replicas_change(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B, C]}))
    run.step("shrinks", lambda: propose(run, A, "a", [A]))
    run.step("expands", lambda: propose(run, A, "a", [A, B]))
    run.step("expands to all", lambda: propose(run, A, "a", [A, B, C], version=2))


@scenario
def in_sync_replicas_refused(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B, C]}))
    run.step("shrinks", lambda: propose(run, A, "a", [A, B]))
    epoch = run.brokers[A].epoch
    cases: dict[str, Callable[[], Any]] = {
        "old broker epoch": lambda: propose(run, A, "a", [A], broker_epoch=epoch - 1),
        "later broker epoch": lambda: propose(run, A, "a", [A], broker_epoch=epoch + 1000),
        "later leader epoch": lambda: propose(run, A, "a", [A], leader_epoch=1),
        "later partition epoch": lambda: propose(run, A, "a", [A], partition_epoch=2),
        "old partition epoch": lambda: propose(run, A, "a", [A], partition_epoch=0),
        "unknown topic": lambda: propose(run, A, "a", [A], topic_id=b"x" * 16),
        "recovering": lambda: propose(run, A, "a", [A], recovery=1),
        "recovering with two": lambda: propose(run, A, "a", [A, B, C], recovery=1),
        "the same": lambda: propose(run, A, "a", [A, B]),
        "the same, old partition epoch": lambda: propose(run, A, "a", [A, B], partition_epoch=0),
    }
    for name, case in cases.items():
        run.step(name, case, silent=True, requests_differ=True)
    run.step("fails", lambda: run.fail(C))
    run.step("a dead member", lambda: propose(run, A, "a", [A, B, C]), silent=True, requests_differ=True)
    run.step("old leader epoch", lambda: propose(run, A, "a", [A], leader_epoch=-1), silent=True, requests_differ=True)


# -- failover ----------------------------------------------------------------------------------------------------------


@scenario
def failover(run: Run) -> None:
    run.step("created", lambda: create(run, "a", THREE))
    run.step("shrinks", lambda: propose(run, A, "a", [A, B]))
    run.step("another", lambda: create(run, "b", {0: [D, A]}))
    run.step("fails", lambda: run.fail(D))
    run.step("failover", run.failover)
    run.step("returns", run.brokers[D].register)


@scenario
def failover_with_a_failure(run: Run) -> None:
    run.step("created", lambda: create(run, "a", THREE))
    run.step("failover", lambda: run.failover(A), epochs_differ=True)


@scenario
def failover_during_a_reassignment(run: Run) -> None:
    run.step("created", lambda: create(run, "a", {0: [A, B]}))
    run.step("begins", lambda: reassign(run, "a", {0: [C, D]}))
    run.step("failover", run.failover)
    run.step("joined", lambda: propose(run, A, "a", [A, B, C, D]), epochs_differ=True)


@scenario
def failover_during_a_deletion(run: Run) -> None:
    run.step("created", lambda: create(run, "a", THREE))
    run.step("a broker fails", lambda: run.fail(B))
    run.step("deleted", lambda: delete(run, "a"))
    run.step("failover", run.failover, requests_differ=True)
    run.step("the broker is back", run.brokers[B].register, deletes=["a"], requests_differ=True)
