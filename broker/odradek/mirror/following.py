"""Makes the topics of a target follow those of a source: which topics, their partitions, settings and ACLs.

A `Following` belongs to one flow and one thread: the flow's thread in a worker, or the command `odradek mirror
check`, which only reads (`plan`). Every worker creates topics and partitions, because they need them at once; if two
do so at the same time, one gets the error "exists already", which counts as success. Only the leader of the flow's group
compares settings and ACLs.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from odradek.clients import acls, configs, groups, topics
from odradek.clients.cluster import GROUP, TRANSACTION, Cluster, TopicInfo, View
from odradek.clients.configs import Resource
from odradek.clients.errors import ClientError, RefusedError, UnsupportedError
from odradek.mirror import topic_settings
from odradek.mirror.copies import Copies
from odradek.mirror.keys import GROUP_PREFIX
from odradek.mirror.names import Edge, cycle, illegal_name
from odradek.mirror.positions import noted
from odradek.mirror.routes import Route
from odradek.mirror.settings import FlowSettings
from odradek.mirror.topic_settings import Settings
from odradek.printable import printable
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import init_producer_id, txn_offset_commit
from odradek.security.acl import WILDCARD, Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from odradek.spelling import did_you_mean

log = logging.getLogger("odradek.mirror")

_THERE_ALREADY = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS)
_ACLS_OF_TOPICS = AclFilter(ResourceType.TOPIC, PatternType.ANY, None, None, None, Operation.ANY, Permission.ANY)
_NAMED = 5
"""The number of names in one line."""


class FlowError(Exception):
    """A flow cannot run, and a retry does not help. The text is one sentence with the value and the remedy."""


@dataclass(frozen=True)
class TopicPlan:
    """A topic of the source and its copy. :param present: partitions of the copy now; 0: it must be created."""

    source: TopicInfo
    target: str
    present: int
    settings: Settings = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        """Partitions of the source."""
        return len(self.source.partitions)


@dataclass
class Plan:
    """What a flow mirrors. :param refused: the reason for each selected topic of the source that is not mirrored."""

    source_cluster: str | None
    target_cluster: str | None
    topics: list[TopicPlan]
    refused: dict[str, str]
    warnings: list[str]


@dataclass
class Memory:
    """What a flow remembers between two searches for topics.

    :param said: warnings that were logged. :param create_time: whether records of a topic of the target keep their
        timestamps.
    :param copies: those that lanes of this worker have; None in commands that only look.
    """

    said: set[str] = field(default_factory=set)
    create_time: dict[str, bool] = field(default_factory=dict)
    copies: Copies | None = None

    def say_once(self, line: str, level: int = logging.WARNING) -> None:
        """Log a line, unless it was logged before."""
        if line not in self.said:
            self.said.add(line)
            log.log(level, "%s", line)


def _topic_id_in(metadata: str) -> str | None:
    """The id of the source's topic in the metadata of a position, as hexadecimal digits; None without one."""
    read = noted(metadata).get("topic_id")
    return read if isinstance(read, str) else None


class Following:
    """The topics of one flow.

    :param edges: all flows of the file, for the search for cycles. :param memory: of the flow, for several searches.
    """

    def __init__(
        self,
        flow: FlowSettings,
        edges: Sequence[Edge],
        source: Cluster,
        target: Cluster,
        memory: Memory | None = None,
    ) -> None:
        self._flow = flow
        self._edges = edges
        self._source = source
        self._target = target
        self._memory = Memory() if memory is None else memory

    # -- reading --------------------------------------------------------------------------------------------------

    def plan(self, with_settings: bool = True) -> Plan:
        """Compare the clusters; changes nothing. Raises FlowError, ClientError.

        :param with_settings: False: read only the settings of topics that must be created.
        """
        flow = self._flow
        source, target = self._view(self._source, flow.source.alias), self._view(self._target, flow.target.alias)
        if source.cluster_id is not None and source.cluster_id == target.cluster_id:
            raise FlowError(
                f"{flow.source.alias} ({flow.source.servers}) and {flow.target.alias} ({flow.target.servers}) are the same "
                f"cluster, {source.cluster_id}; a flow needs two clusters"
            )
        self._check_transactions()
        plan = Plan(source.cluster_id, target.cluster_id, [], {}, self._missing(source.topics))
        for name, info in sorted(source.topics.items()):
            if info.internal or not self.selects(name):
                continue
            remote = flow.policy.remote(flow.source.alias, name)
            copy = target.topics.get(remote)
            reason = self._obstacle(name, remote, copy)
            if reason is not None:
                plan.refused[name] = reason
                continue
            plan.topics.append(TopicPlan(info, remote, 0 if copy is None else len(copy.partitions)))
        self._read_settings(plan, with_settings)
        return plan

    def check_rights(self) -> None:
        """Check that the target lets the mirror use its group and its transactional ids. Raises FlowError, ClientError."""
        flow = self._flow
        used = [(flow.group_id, GROUP, "Read")]
        if flow.exactly_once:
            used.append((flow.transactional_id(0), TRANSACTION, "Write"))
        for name, kind, operation in used:
            try:
                self._target.coordinator_of(name, kind)
            except RefusedError as error:
                if not error.denied:
                    raise
                what = "group" if kind == GROUP else "transactional ids"
                raise FlowError(
                    f"the target {flow.target.alias} denies the mirror's user its {what}: {error}; allow {operation} on "
                    f"the {what} with the prefix odradek-mirror."
                ) from error

    def check_reverse(self, plan: Plan) -> None:
        """Refuse topics of which a mirror that runs now, with another file, copies the target's records into the source.

        The positions of that mirror are in the source and name the id of the topic that it reads. Only for
        IdentityReplicationPolicy: other names show where a topic came from. Raises ClientError.
        """
        if not self._flow.policy.identity:
            return
        ids = {topic.source.name: topic.target for topic in plan.topics if topic.present}
        if not ids:
            return
        present = self._target.metadata(ids.values()).topics
        for group in groups.list_groups(self._source):
            if not group.group_id.startswith(GROUP_PREFIX) or group.state in ("Empty", "Dead"):
                continue
            for (name, _), committed in groups.fetch_offsets(self._source, group.group_id).items():
                read = present.get(ids.get(name, ""))
                if read is not None and read.topic_id.hex() == _topic_id_in(committed.metadata):
                    plan.refused[name] = (
                        f"its records would come back to {self._flow.target.alias}: the mirror of group {group.group_id} in "
                        f"{self._flow.source.alias} copies it from there; stop that mirror first, or exclude the topic from "
                        "one of them with topics.exclude"
                    )
        plan.topics = [topic for topic in plan.topics if topic.source.name not in plan.refused]

    def selects(self, topic: str) -> bool:
        """Whether the flow mirrors a topic of the source with this name."""
        flow = self._flow
        beats = flow.flag("heartbeats.replication.enabled") and flow.policy.is_heartbeats(topic)
        return (
            (beats or flow.topics.selects(topic))
            and not flow.policy.is_internal(topic)
            and not flow.policy.came_from(topic, flow.target.alias)
        )

    def _view(self, cluster: Cluster, alias: str) -> View:
        try:
            return cluster.metadata()
        except ClientError as error:
            raise ClientError(f"cluster {alias}: {error}") from error

    def _check_transactions(self) -> None:
        if not self._flow.exactly_once:
            return
        connection = self._target.any_broker()
        for api in (init_producer_id.SCHEMA, txn_offset_commit.SCHEMA):
            if connection.serves(api.key) is None:
                raise FlowError(
                    f"the target {self._flow.target.alias} ({connection.address}) does not serve {api.name}, which "
                    "transactions need; set odradek.mirror.exactly.once=false, with which a failure can repeat records"
                )

    def _missing(self, present: Mapping[str, TopicInfo]) -> list[str]:
        """A line for each item of `topics` that is a name, not a pattern, and that the source does not have."""
        lines = []
        for name in self._flow.topics.literal:
            if name not in present:
                hint = did_you_mean(name, present)
                lines.append(
                    f"topic '{name}' of `topics` does not exist in {self._flow.source.alias}"
                    f"{f'; {hint}' if hint else '; it will be mirrored when it is created'}"
                )
        return lines

    def _obstacle(self, name: str, remote: str, copy: TopicInfo | None) -> str | None:
        """Why a selected topic cannot be mirrored; None if it can."""
        way = cycle(name, self._flow.edge, self._edges)
        if way is not None and not self._flow.policy.is_heartbeats(name):
            return (
                f"its records would come back to {way[0]} ({'->'.join(way)}), because IdentityReplicationPolicy keeps its "
                "name; exclude it from one of these flows with topics.exclude"
            )
        if self._memory.copies is not None:
            topic_id = None if copy is None else copy.topic_id
            reason = self._memory.copies.obstacle(remote, topic_id, time.monotonic())
            if reason is not None:
                return reason
        return illegal_name(remote)

    def _read_settings(self, plan: Plan, of_all: bool) -> None:
        """Complete the plan with the settings of the source's topics, and compare max.message.bytes."""
        names = [topic.source.name for topic in plan.topics if of_all or not topic.present]
        try:
            found, refused = topic_settings.read(self._source, names)
            present = [topic.target for topic in plan.topics if topic.present and of_all]
            copies, refused_copies = topic_settings.read(self._target, present)
        except UnsupportedError as error:
            plan.warnings.append(f"settings of topics are not copied: {error}")
            return
        for name, reason in (refused | refused_copies).items():
            plan.warnings.append(f"the settings of topic '{name}' cannot be read, so they are not copied: {reason}")
        plan.topics = [
            TopicPlan(topic.source, topic.target, topic.present, found.get(topic.source.name, {}))
            for topic in plan.topics
        ]
        for topic in plan.topics:
            copy = copies.get(topic.target)
            if copy is not None:
                self._memory.create_time[topic.target] = topic_settings.has_create_time(copy)
                plan.warnings += self._size_warning(topic, copy)
            if 0 < topic.partitions < topic.present:
                plan.warnings.append(
                    f"topic '{topic.target}' of {self._flow.target.alias} has {topic.present} partitions, its source "
                    f"'{topic.source.name}' has {topic.partitions}: the partitions from {topic.partitions} on get no records"
                )

    def _size_warning(self, topic: TopicPlan, copy: Settings) -> list[str]:
        """A line if the target may refuse batches of the source."""
        largest, accepted = topic_settings.largest_message(topic.settings), topic_settings.largest_message(copy)
        follows = self._flow.flag("sync.topic.configs.enabled") and not self._flow.excluded_settings.selects(
            topic_settings.LARGEST_MESSAGE
        )
        if largest is None or accepted is None or accepted >= largest:
            return []
        if follows and topic_settings.LARGEST_MESSAGE in self._wanted(topic):
            return []
        return [
            f"max.message.bytes of '{topic.target}' in {self._flow.target.alias} is {accepted}, that of "
            f"'{topic.source.name}' in {self._flow.source.alias} is {largest}: a partition with a "
            f"larger batch stops; set it to {largest}"
        ]

    # -- topics and partitions ------------------------------------------------------------------------------------

    def follow(self, plan: Plan) -> list[Route]:
        """Create the missing topics and partitions, and return the routes of all partitions that exist in both
        clusters.

        A topic that the target refuses goes into `plan.refused`; the others continue. Raises ClientError.
        """
        for topic in plan.topics:
            try:
                self._make(topic, validate_only=False)
            except RefusedError as error:
                plan.refused[topic.source.name] = self._refusal(topic, error)
        return self.routes(plan)

    def try_out(self, plan: Plan) -> None:
        """Let the target validate what `follow` would do, and note its reasons in `plan.refused`. Raises
        ClientError.
        """
        for topic in plan.topics:
            try:
                self._make(topic, validate_only=True)
            except RefusedError as error:
                plan.refused[topic.source.name] = self._refusal(topic, error)

    def routes(self, plan: Plan) -> list[Route]:
        """The routes of all partitions that exist in both clusters. Raises ClientError."""
        names = [topic.target for topic in plan.topics if topic.source.name not in plan.refused]
        present = self._target.metadata(names).topics if names else {}
        self._learn_timestamps([name for name in names if name not in self._memory.create_time and name in present])
        routes = []
        for topic in plan.topics:
            copy = present.get(topic.target)
            if copy is None:
                continue
            if self._memory.copies is not None:
                self._memory.copies.mirrored(topic.target, copy.topic_id)
            there = {partition.number for partition in copy.partitions}
            routes += [
                Route(
                    (topic.source.name, partition.number),
                    (topic.target, partition.number),
                    topic.source.topic_id,
                    self._memory.create_time.get(topic.target, True),
                )
                for partition in topic.source.partitions
                if partition.number in there
            ]
        return routes

    def _make(self, topic: TopicPlan, validate_only: bool) -> None:
        """Create or extend one topic. Raises RefusedError, ClientError."""
        if topic.present >= topic.partitions:
            return
        try:
            if topic.present:
                topics.grow(self._target, topic.target, topic.partitions, validate_only)
            else:
                self._create(topic, validate_only)
        except RefusedError as error:
            if error.code not in _THERE_ALREADY or validate_only:
                raise
        if not validate_only:
            log.info(
                "%s: topic '%s' of %s now has %d partitions, as '%s' of %s has",
                self._flow.name, topic.target, self._flow.target.alias, topic.partitions, topic.source.name,
                self._flow.source.alias,
            )  # fmt: skip

    def _create(self, topic: TopicPlan, validate_only: bool) -> None:
        """Create a topic with the settings of its source, without those that the target does not know."""
        factor = self._flow.integer("replication.factor")
        values = self._wanted(topic) if self._flow.flag("sync.topic.configs.enabled") else {}
        try:
            topics.create(self._target, topic.target, topic.partitions, factor, values, validate_only=validate_only)
        except RefusedError as error:
            if error.code != ErrorCode.INVALID_CONFIG or not values:
                raise
            accepted = {key: value for key, value in values.items() if self._accepts(topic, key, value, factor)}
            if len(accepted) == len(values):
                raise
            topics.create(self._target, topic.target, topic.partitions, factor, accepted, validate_only=validate_only)

    def _accepts(self, topic: TopicPlan, key: str, value: str, factor: int) -> bool:
        """Whether the target accepts one setting; a warning names a setting that it refuses."""
        try:
            topics.create(self._target, topic.target, topic.partitions, factor, {key: value}, validate_only=True)
        except RefusedError as error:
            if error.code != ErrorCode.INVALID_CONFIG:
                raise
            self._memory.say_once(
                f"{self._flow.name}: {key}={value} of '{topic.source.name}' is not set for its copy: {error}"
            )
            return False
        return True

    def _wanted(self, topic: TopicPlan) -> dict[str, str]:
        flow = self._flow
        return topic_settings.wanted(topic.settings, flow.excluded_settings, flow.text("use.defaults.from") == "source")

    def _refusal(self, topic: TopicPlan, error: RefusedError) -> str:
        what = f"extended to {topic.partitions} partitions" if topic.present else "created"
        hint = "; set replication.factor" if error.code == ErrorCode.INVALID_REPLICATION_FACTOR else ""
        return f"'{topic.target}' cannot be {what} in {self._flow.target.alias}: {error}{hint}"

    def _learn_timestamps(self, names: Sequence[str]) -> None:
        if not names:
            return
        try:
            found, _ = topic_settings.read(self._target, names)
        except UnsupportedError:
            return  # such a target is older than Kafka 1.1, and its topics have CreateTime unless somebody changed that
        self._memory.create_time |= {name: topic_settings.has_create_time(settings) for name, settings in found.items()}

    # -- settings and ACLs ----------------------------------------------------------------------------------------

    def sync_settings(self, plan: Plan) -> int:
        """Copy the settings of the topics; returns the number of changed topics. Raises ClientError."""
        names = [topic.target for topic in plan.topics if topic.source.name not in plan.refused]
        try:
            copies, _ = topic_settings.read(self._target, names)
        except UnsupportedError as error:
            self._memory.say_once(f"{self._flow.name}: settings of topics are not copied: {error}")
            return 0
        changed = 0
        for topic in plan.topics:
            copy = copies.get(topic.target)
            if copy is None or not topic.settings:
                continue
            change = topic_settings.changes(
                topic.settings, copy, self._flow.excluded_settings, self._flow.text("use.defaults.from") == "source"
            )
            if change.unknown:
                self._memory.say_once(
                    f"{self._flow.name}: {self._flow.target.alias} does not know the settings {', '.join(change.unknown)}, "
                    "so they are not set for the copies"
                )
            changed += self._change(topic, change)
            self._memory.create_time[topic.target] = topic_settings.has_create_time(copy)
        return changed

    def _change(self, topic: TopicPlan, change: topic_settings.Changes) -> bool:
        if not change.values and not change.deletions:
            return False
        try:
            configs.alter(self._target, Resource("topic", topic.target), change.values, change.deletions)
        except (RefusedError, UnsupportedError) as error:
            self._memory.say_once(
                f"{self._flow.name}: cannot change the settings of '{topic.target}' to those of its source: {error}"
            )
            return False
        texts = [f"{key}={value}" for key, value in sorted(change.values.items())]
        texts += [f"{key} reset to its default" for key in change.deletions]
        log.info(
            "%s: changed the settings of '%s' to those of the source: %s",
            self._flow.name,
            topic.target,
            ", ".join(texts),
        )
        return True

    def sync_acls(self, plan: Plan) -> int:
        """Create for the copies the ACLs that their source topics have; return how many. Raises ClientError.

        Only ACLs with the name of a topic that this flow copies follow: an ACL of the wildcard `*` or of a prefix would, in
        the target, hold for topics of which the source's administrators have no say. As in MirrorMaker 2, permissions to write
        do not follow, and no ACL is deleted.
        """
        try:
            ours = acls.describe(self._source, _ACLS_OF_TOPICS)
            theirs = set(acls.describe(self._target, _ACLS_OF_TOPICS))
        except (RefusedError, UnsupportedError) as error:
            none = isinstance(error, RefusedError) and error.code == ErrorCode.SECURITY_DISABLED
            self._memory.say_once(
                f"{self._flow.name}: ACLs of topics are not copied: {error}",
                logging.INFO if none else logging.WARNING,
            )
            return 0
        for line in self._left_out(plan, ours):
            self._memory.say_once(f"{self._flow.name}: {line}", logging.INFO)
        copies = _copies(plan)
        missing = sorted({copy for acl in ours if (copy := _copy_of(acl, copies)) is not None} - theirs)
        if not missing:
            return 0
        try:
            acls.create(self._target, missing)
        except RefusedError as error:
            self._memory.say_once(f"{self._flow.name}: ACLs of topics are not copied: {error}")
            return 0
        log.info("%s: created %d ACLs of copies, as their source topics have them", self._flow.name, len(missing))
        return len(missing)

    def acls_left_out(self, plan: Plan) -> list[str]:
        """A line for each kind of ACLs of the source that `sync_acls` does not copy although one could expect it; empty if the
        flow copies no ACLs. Raises ClientError.
        """
        if not self._flow.flag("sync.topic.acls.enabled"):
            return []
        try:
            ours = acls.describe(self._source, _ACLS_OF_TOPICS)
        except (RefusedError, UnsupportedError) as error:
            if isinstance(error, RefusedError) and error.code == ErrorCode.SECURITY_DISABLED:
                return []
            return [f"ACLs of topics are not copied: {error}"]
        return self._left_out(plan, ours)

    def _left_out(self, plan: Plan, ours: Sequence[Acl]) -> list[str]:
        prefixed = [acl for acl in ours if acl.pattern_type == PatternType.PREFIXED]
        literal = [acl for acl in ours if acl.pattern_type == PatternType.LITERAL]
        wild = [acl for acl in literal if acl.name == WILDCARD]
        refused = [acl for acl in literal if acl.name in plan.refused]
        lines = []
        alias = self._flow.target.alias
        advice = (
            f"such an ACL would also apply to topics of {alias} that are not copies; add the ACLs that you need there"
        )
        if wild:
            lines.append(f"{_counted(wild)} of all topics ('{WILDCARD}') not copied: {advice}")
        if prefixed:
            lines.append(f"{_counted(prefixed)} of prefixes of topics ({_names(prefixed)}) not copied: {advice}")
        if refused:
            lines.append(f"{_counted(refused)} not copied, because their topics ({_names(refused)}) are not mirrored")
        return lines


def _counted(left_out: Sequence[Acl]) -> str:
    """How many ACLs, and of whom."""
    principals = _some({printable(acl.principal) for acl in left_out})
    return f"{len(left_out)} ACL{'' if len(left_out) == 1 else 's'} for {principals}"


def _names(left_out: Sequence[Acl]) -> str:
    return _some({f"'{printable(acl.name)}'" for acl in left_out})


def _some(texts: Iterable[str]) -> str:
    """The first texts in order, and how many others there are."""
    ordered = sorted(texts)
    more = len(ordered) - _NAMED
    return ", ".join(ordered[:_NAMED]) + (f" and {more} others" if more > 0 else "")


def _copies(plan: Plan) -> dict[str, str]:
    """The name of the copy of each topic that the flow copies."""
    return {topic.source.name: topic.target for topic in plan.topics if topic.source.name not in plan.refused}


def _copy_of(acl: Acl, copies: Mapping[str, str]) -> Acl | None:
    """The ACL of the copy; None if it does not follow. :param copies: of `_copies`."""
    copy = copies.get(acl.name)
    if copy is None or WILDCARD in (acl.name, copy) or acl.pattern_type != PatternType.LITERAL:
        return None
    operation = acl.operation
    if acl.permission == Permission.ALLOW:
        if operation == Operation.WRITE:
            return None
        if operation == Operation.ALL:
            operation = Operation.READ
    return acl._replace(name=copy, operation=operation)
