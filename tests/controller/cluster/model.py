"""A cluster as a model: real controllers, a fake ZooKeeper with sessions, a fake network, modelled replicas of one partition.

One action after the other is chosen from a source of choices: messages are delivered, lost, repeated and delayed; brokers
crash, lose their sessions or their connection to ZooKeeper, and return; operators move the controller. ZooKeeper also refuses
requests while the connection is up, and the code fails where nobody expects it. Between any two effects of a controller other
actions may happen, also its death. After each action the invariants are checked.
"""

from collections import deque

from odradek.controller.cluster import in_sync
from odradek.controller.cluster.cluster_controller import ClusterController, ControllerSettings
from odradek.controller.cluster.effects import Children
from odradek.controller.cluster.executor import Executor
from odradek.controller.cluster.leadership import PREFERRED, elect
from odradek.controller.cluster.requests import LEADER_AND_ISR, STOP_REPLICA
from odradek.controller.cluster.shutdown import controlled_shutdown
from odradek.controller.store_errors import NotController
from odradek.metadata import znodes
from odradek.metadata.store import NotPermitted, OverLimit, StoreError, TooLarge, ensure_path
from odradek.protocol.errors import ErrorCode as E
from odradek.protocol.schemas import leader_and_isr, stop_replica, update_metadata
from tests.controller.cluster.fake_zookeeper import FakeZooKeeper
from tests.controller.cluster.harness import NODES, registration, topic_id
from tests.controller.cluster.replica_model import FOLLOWER, LEADER, Replica

IDS = (1, 2, 3)
RARE, USUAL, OFTEN = 1, 8, 16
TOPIC = "t"
STATE = znodes.state_path(TOPIC, 0)


class Unexpected(Exception):
    """An error of the code."""


FAILURES = (
    NotPermitted("no right"),
    OverLimit("quota"),
    TooLarge("too large"),
    znodes.CorruptNode("cannot decode"),
    StoreError("another error"),
    Unexpected("an error of the code"),
)
"""What a call of the store may raise while the connection is well."""


def nothing():
    """A message was lost, and its sender does not wait for it."""


class Crashed(BaseException):
    """The process of the controller died between two effects."""


class Violation(AssertionError):
    """An invariant does not hold."""


class Choices:
    """A source of choices from a list of numbers; zeros afterwards."""

    def __init__(self, numbers):
        self._numbers = iter(numbers)
        self.exhausted = False

    def below(self, limit):
        number = next(self._numbers, None)
        if number is None:
            self.exhausted = True
            return 0
        return number % limit


class Link:
    """The channel of one controller to one broker: in order, one request at a time, repeated after a lost connection."""

    def __init__(self, broker_id):
        self.broker_id = broker_id
        self.queue = deque()  # (api key, request, then)
        self.response = None


class Process:
    """A process of a broker: it crashes as a whole; its successor is another object with the same replica."""

    def __init__(self, model, broker_id, replica):
        self.model, self.id, self.replica = model, broker_id, replica
        self.dead = self.busy = self.leaving = self.altering = False
        self.wants_again = False
        self.epoch = -1
        self.links = {}
        self.client = model.tree.client()
        self.controller = ClusterController(self.client, self, broker_id, lambda: model.settings, again=self.again)
        self.client.before_call = lambda: model.fail_sometimes(self)

    def again(self, after_s):
        """The timer of the controller's service."""
        self.wants_again = True

    # -- Channels -------------------------------------------------------------------------------------------------

    def open(self, broker):
        self.close(broker.id)
        self.links[broker.id] = Link(broker.id)

    def close(self, broker_id):
        link = self.links.pop(broker_id, None)
        if link is not None and link.queue and link.response is None:
            self.model.ghosts.append((broker_id, *link.queue[0][:2]))  # it may be on its way

    def send(self, broker_id, api_key, request, then):
        if broker_id in self.links:
            self.links[broker_id].queue.append((api_key, request, then))

    # -- membership -----------------------------------------------------------------------------------------------

    def join(self):
        """A new session: register, then look for the controller."""
        self.controller.resign()
        self.client.start_session()
        path = znodes.broker_path(self.id)
        stat = self.model.tree.stat(path)
        if stat is not None:
            self.model.tree.expire(stat.owner)  # the session of the predecessor is closed
        registered = ("create", path, znodes.encode_broker(registration(self.id)), True, False)
        self.model.tree.apply([registered], self.client.session.id)
        self.epoch = self.model.tree.stat(path).created
        self.wants_again = False
        self.work(self.controller.look)

    def work(self, function):
        """Run the store thread's work; an error ends it. Only the controller itself knows whether it must begin again."""
        if self.busy or self.dead:
            return None
        self.busy = True
        try:
            return function()
        except (Crashed, NotController, StoreError, Unexpected):
            pass
        finally:
            self.busy = False
        return None

    def expired(self):
        return self.client.session is not None and self.client.session.id not in self.model.tree.sessions

    # -- requests of controllers ----------------------------------------------------------------------------------

    def handle(self, api_key, request):
        """A broker's answer to a control request; what it does to the replica."""
        replica = self.replica
        if request.broker_epoch < self.epoch:
            code = E.STALE_BROKER_EPOCH
        elif request.controller_epoch < replica.controller_epoch:
            code = E.STALE_CONTROLLER_EPOCH
        else:
            code = E.NONE
            replica.controller_epoch = request.controller_epoch
        if api_key == LEADER_AND_ISR:
            return self._leader_and_isr(request, code)
        if api_key == STOP_REPLICA:
            return self._stop(request, code)
        if code == E.NONE:
            replica.live = {broker.id for broker in request.live_brokers}
        return update_metadata.Response(error_code=code)

    def _leader_and_isr(self, request, code):
        topics = []
        for topic in request.topic_states if code == E.NONE else ():
            errors = []
            for state in topic.partition_states:
                result = self.replica.leader_and_isr(state)
                if result == E.NONE and self.replica.role == LEADER:
                    self.model.note_leader(self.id, state.leader_epoch)
                errors.append(leader_and_isr.Response.LeaderAndIsrPartitionError(partition_index=0, error_code=result))
            topics.append(
                leader_and_isr.Response.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors)
            )
        return leader_and_isr.Response(error_code=code, topics=topics)

    def _stop(self, request, code):
        for topic in request.topic_states if code == E.NONE else ():
            for state in topic.partition_states:
                self.replica.stop(state.leader_epoch, state.delete_partition)
        return stop_replica.Response(error_code=code)


class Model:
    def __init__(self, choices):
        self.choices = choices
        self.tree = FakeZooKeeper()
        self.settings = ControllerSettings()
        self.ghosts = []  # (broker id, api key, request): sent by a controller that no longer waits for the answer
        self.messages = []  # messages between brokers: functions that deliver and that lose it
        self.leaders = {}  # leader epoch -> broker id
        self.marks = {}  # (broker id, leader epoch) -> high watermark
        self.committed = []  # the record at each offset
        self.values = 0
        self.depth = 0
        self.trace = []
        self.tool = self.tree.client()
        self.tool.start_session()
        for path in NODES:
            ensure_path(self.tool, path)
        apply = self.tree.apply
        self.tree.apply = lambda operations, session_id: self._guarded(apply, operations, session_id)
        self.replicas = {broker_id: Replica(broker_id) for broker_id in IDS}
        self.processes = {}
        for broker_id in IDS:
            self.start(broker_id)
        self.tool.create(znodes.topic_config_path(TOPIC), b"")
        assignment = znodes.TopicAssignment(topic_id(TOPIC), {0: list(IDS)})
        self.tool.create(znodes.topic_path(TOPIC), znodes.encode_topic(assignment))

    # -- what is checked ------------------------------------------------------------------------------------------

    def _guarded(self, apply, operations, session_id):
        """Only the controller of the present epoch writes states."""
        node = self.tree.nodes.get(znodes.CONTROLLER_EPOCH)
        before = None if node is None else node.version
        results = apply(operations, session_id)
        if any(operation[1] == STATE and operation[0] != "check" for operation in operations):
            writers = [
                process for process in self.processes.values()
                if process.client.session is not None and process.client.session.id == session_id
            ]  # fmt: skip
            reign = writers[0].controller._reign if writers else None
            if reign is None or reign.epoch_version != before:
                raise Violation(f"a deposed controller wrote {operations}")
        return results

    def note_leader(self, broker_id, epoch):
        if self.leaders.setdefault(epoch, broker_id) != broker_id:
            raise Violation(f"two leaders in epoch {epoch}: {self.leaders[epoch]} and {broker_id}")

    def commit(self, replica):
        """Move the high watermark of a leader and check that committed records never change."""
        for offset in replica.move_high_watermark():
            record = replica.log[offset]
            if offset < len(self.committed):
                if self.committed[offset] != record:
                    raise Violation(f"offset {offset} was {self.committed[offset]}, now {record} is committed")
            else:
                self.committed.append(record)
        if replica.role == LEADER:
            key = (replica.broker_id, replica.leader_epoch)
            if replica.high_watermark < self.marks.get(key, 0):
                raise Violation(f"the high watermark of {key} fell to {replica.high_watermark}")
            self.marks[key] = replica.high_watermark

    def state(self):
        node = self.tree.nodes.get(STATE)
        return None if node is None else znodes.decode_state(TOPIC, 0, node.data)

    def check(self):
        state = self.state()
        if state is None:
            return
        members = state.in_sync_replicas
        if not members or (state.leader != -1 and state.leader not in members):
            raise Violation(f"the leader is not in sync: {state}")
        for member in members:
            log = self.replicas[member].log
            if log[: len(self.committed)] != self.committed:
                raise Violation(f"in-sync replica {member} lacks committed records: {log} {self.committed} {state}")
        leader = self.replicas.get(state.leader)
        if leader is not None and leader.role == LEADER and leader.leader_epoch == state.leader_epoch:
            maximal = leader.maximal_in_sync()
            if not set(members) <= maximal:
                raise Violation(f"in-sync replicas {members} are not within the leader's {maximal}")
        records = {}
        for replica in self.replicas.values():
            for offset, (epoch, value) in enumerate(replica.log):
                if records.setdefault((epoch, offset), value) != value:
                    raise Violation(f"two records at offset {offset} of epoch {epoch}")

    # -- life of brokers ------------------------------------------------------------------------------------------

    def start(self, broker_id):
        old = self.processes.get(broker_id)
        if old is not None:
            self.tree.clients.remove(old.client)
        process = self.processes[broker_id] = Process(self, broker_id, self.replicas[broker_id])
        self._follow_effects(process)
        process.join()

    def _follow_effects(self, process):
        """Before each effect of this controller, other things may happen."""
        model = self

        class Interleaved(Executor):
            def perform(self, effect):
                model.interleave(process)
                return super().perform(effect)

        process.controller.executor_type = Interleaved

    def interleave(self, process):
        if self.depth < 2 and not self.choices.exhausted and self.choices.below(8) == 1:
            self.depth += 1
            try:
                self.step()
            finally:
                self.depth -= 1
        if process.dead:
            raise Crashed

    def fail_sometimes(self, process):
        """Called before each call of a store."""
        if not process.busy or self.choices.exhausted or self.choices.below(50) != 1:
            return
        error = FAILURES[self.choices.below(len(FAILURES))]
        self.trace.append(f"{type(error).__name__} for {process.id}")
        raise error

    def fail_request(self, process, error):
        """A request fails at its first call of the store, while the connection is well."""

        def fail():
            raise error

        def look():
            yield Children(znodes.TOPICS)

        process.client.before_call, before = fail, process.client.before_call
        process.work(lambda: process.controller.run(look()))
        process.client.before_call = before

    def crash(self, process):
        process.dead = True
        for link in list(process.links):
            process.close(link)
        process.replica.forget()
        process.client.lose_watches()
        process.client.reachable = False

    # -- actions --------------------------------------------------------------------------------------------------

    def actions(self):
        """All that can happen now: (weight, name, function)."""
        found = []
        for process in self.processes.values():
            found += self._dead(process) if process.dead else self._of_broker(process)
        for place in range(len(self.ghosts)):
            found.append((RARE, f"ghost {place}", lambda place=place: self.deliver_ghost(place)))
        for place in range(len(self.messages)):
            found.append((USUAL, f"message {place}", lambda place=place: self.messages.pop(place)[0]()))
            found.append((RARE, f"lose message {place}", lambda place=place: self.messages.pop(place)[1]()))
        if znodes.CONTROLLER in self.tree.nodes:
            found.append((RARE, "controller node deleted", lambda: self.tool.delete(znodes.CONTROLLER)))
        return found

    def _dead(self, process):
        result = [(USUAL, f"start {process.id}", lambda: self.start(process.id))]
        if not process.expired():
            result.append((RARE, f"session of {process.id}", lambda: self.tree.expire(process.client.session.id)))
        return result

    def _of_broker(self, process):
        name, replica, controller = process.id, process.replica, process.controller
        found = [(USUAL if process.leaving else RARE, f"crash {name}", lambda: self.crash(process))]
        if process.client.reachable:
            found.append((RARE, f"cut {name}", lambda: setattr(process.client, "reachable", False)))
        elif not process.busy:
            found.append((USUAL, f"reconnect {name}", lambda: self.reconnect(process)))
        if not process.busy and process.client.reachable:
            if process.expired():
                found.append((USUAL, f"new session {name}", process.join))
            elif process.wants_again:
                found.append((USUAL, f"begin again {name}", lambda: self.begin_again(process)))
            elif controller._queue:
                found.append((OFTEN, f"events {name}", lambda: process.work(controller.process)))
        if not process.expired():
            found.append((RARE, f"expire {name}", lambda: self.tree.expire(process.client.session.id)))
        for link in list(process.links.values()):
            if link.queue:
                found += self._of_link(process, link)
        if replica.role == LEADER:
            found += self._of_leader(process, replica)
        elif replica.role == FOLLOWER and replica.leader_id in self.processes:
            found.append((OFTEN, f"fetch {name}", lambda: self.fetch(process)))
        if controller.active and not process.busy:
            found.append((RARE, "shut down", lambda: self.shut_down(process, 1 + self.choices.below(len(IDS)))))
            found.append((RARE, "preferred election", lambda: self.prefer(process)))
        return found

    def _of_link(self, process, link):
        target = self.processes[link.broker_id]
        name = f"{process.id}->{link.broker_id}"
        if link.response is not None:
            return [
                (OFTEN, f"answer {name}", lambda: self.answer(link)),
                (RARE, f"lose answer {name}", lambda: setattr(link, "response", None)),
            ]
        return [] if target.dead else [(OFTEN, f"deliver {name}", lambda: self.deliver(link, target))]

    def _of_leader(self, process, replica):
        result = [(USUAL, f"produce {process.id}", lambda: self.produce(replica))]
        if replica.pending is not None and process.altering:
            return result
        if replica.pending is not None:
            result += [
                (
                    OFTEN if other.controller.active else RARE,
                    f"propose {process.id}->{other.id}",
                    lambda other=other: self.alter(process, other, replica.pending),
                )
                for other in self.processes.values()
                if not other.dead
            ]
            return result
        follower = replica.expansion()
        if follower is not None:
            members = [*replica.in_sync, follower]
            result.append((OFTEN, f"expand {process.id}", lambda: replica.propose(members, process.epoch)))
        for member in replica.in_sync:
            if member != process.id and replica.followers.get(member, (-1, 0))[0] < len(replica.log):
                rest = [other for other in replica.in_sync if other != member]
                result.append((RARE, f"shrink {process.id}", lambda rest=rest: replica.propose(rest, process.epoch)))
        return result

    def begin_again(self, process):
        process.wants_again = False
        process.work(process.controller.begin_again)

    def reconnect(self, process):
        process.client.reachable = True
        process.client.lose_watches()
        if process.expired():
            process.join()
        else:
            process.work(process.controller.reconnected)

    def deliver(self, link, target):
        api_key, request, _ = link.queue[0]
        link.response = target.handle(api_key, request)

    def answer(self, link):
        _, _, then = link.queue.popleft()
        response, link.response = link.response, None
        then(response)

    def deliver_ghost(self, place):
        broker_id, api_key, request = self.ghosts.pop(place)
        if not self.processes[broker_id].dead:
            self.processes[broker_id].handle(api_key, request)

    def produce(self, replica):
        self.values += 1
        replica.append(self.values)

    def fetch(self, process):
        """A fetch and its answer; either is delayed or lost."""
        replica, epoch, offset = process.replica, process.replica.leader_epoch, len(process.replica.log)
        leader_id, last_epoch = replica.leader_id, replica.last_epoch()
        broker_epoch = process.epoch

        def arrive():
            leader = self.processes[leader_id]
            if leader.dead:
                return
            answer = leader.replica.serve_fetch(process.id, broker_epoch, epoch, offset, last_epoch)
            self.commit(leader.replica)
            self.messages.append((lambda: None if process.dead else replica.fetched(epoch, offset, answer), nothing))

        self.messages.append((arrive, nothing))

    def alter(self, process, controller_process, proposal):
        """AlterPartition: one request in flight, whose answer may be lost. What was lost on its way is not executed later."""
        replica, epoch, partition_epoch = process.replica, process.replica.leader_epoch, process.replica.partition_epoch
        broker_epoch = process.epoch
        process.altering = True

        def lost():
            process.altering = False

        def judge():
            controller = controller_process.controller
            context = controller.context
            if context is None or in_sync.check_sender(context, process.id, broker_epoch) != E.NONE:
                return None
            partition = context.find(TOPIC, 0)
            request = in_sync.Proposal(partition, epoch, partition_epoch, proposal[1])
            (verdict,) = controller.run(in_sync.alter(context, process.id, [request], 3))
            if verdict.partition is None:
                return None  # the controller may not read the topic
            return verdict.code, verdict.partition.state, verdict.partition.partition_epoch

        def arrive():
            answer = None if controller_process.dead else controller_process.work(judge)
            if answer is None:
                lost()
            else:
                self.messages.append((lambda: self._answered(process, replica, epoch, proposal, answer), lost))

        self.messages.append((arrive, lost))

    def _answered(self, process, replica, epoch, proposal, answer):
        process.altering = False
        if not process.dead:
            replica.answered(epoch, proposal, *answer)
            self.commit(replica)

    def shut_down(self, process, broker_id):
        context = process.controller.context
        broker = context.brokers.get(broker_id)
        if broker is not None:
            self.processes[broker_id].leaving = True
            process.work(lambda: process.controller.run(controlled_shutdown(context, broker_id, broker.epoch)))

    def prefer(self, process):
        context = process.controller.context
        partition = context.find(TOPIC, 0)
        if partition is not None:
            process.work(lambda: process.controller.run(elect(context, [partition], PREFERRED)))

    # -- running --------------------------------------------------------------------------------------------------

    def step(self):
        actions = self.actions()
        total = sum(weight for weight, _, _ in actions)
        chosen = self.choices.below(total)
        for weight, name, action in actions:
            if chosen < weight:
                self.trace.append(name)
                action()
                break
            chosen -= weight
        self.check()

    def run(self, steps):
        for _ in range(steps):
            if self.choices.exhausted:
                break
            self.step()

    def heal(self):
        """Everything works from now on: in the end there is a controller, and all are in sync with equal logs."""
        for process in self.processes.values():
            if process.controller.active:
                self.fail_request(process, FAILURES[self.choices.below(len(FAILURES))])
        self.choices.exhausted = True
        for process in list(self.processes.values()):
            if process.dead or process.leaving:
                self.crash(process)
                self.start(process.id)
        for _ in range(200):
            self._calm_round()
            state = self.state()
            logs = [replica.log for replica in self.replicas.values()]
            if (
                state is not None
                and sorted(state.in_sync_replicas) == list(IDS)
                and logs[0] == logs[1] == logs[2]
                and any(process.controller.active for process in self.processes.values())
                and self.replicas[state.leader].role == LEADER
                and self.replicas[state.leader].high_watermark == len(logs[0])
            ):
                return
        raise Violation(f"the cluster does not heal: {self.state()} {[vars(r) for r in self.replicas.values()]}")

    def _calm_round(self):
        for process in list(self.processes.values()):
            if process.expired():
                process.client.reachable = True
                process.join()
            elif not process.client.reachable:
                self.reconnect(process)
            elif process.wants_again:
                self.begin_again(process)
            process.work(process.controller.process)
        for process in self.processes.values():
            for link in list(process.links.values()):
                while link.queue and process.links.get(link.broker_id) is link:
                    self.deliver(link, self.processes[link.broker_id])
                    self.answer(link)
            process.work(process.controller.process)
        for process in self.processes.values():
            if process.replica.role == FOLLOWER and process.replica.leader_id in self.processes:
                self.fetch(process)
            elif process.replica.role == LEADER:
                self._calm_leader(process)
        while self.messages:
            self.messages.pop(0)[0]()
        self.check()

    def _calm_leader(self, process):
        replica = process.replica
        self.commit(replica)
        if replica.pending is None and (follower := replica.expansion()) is not None:
            replica.propose([*replica.in_sync, follower], process.epoch)
        if replica.pending is not None and not process.altering:
            for other in self.processes.values():
                if other.controller.active and not process.altering:
                    self.alter(process, other, replica.pending)
