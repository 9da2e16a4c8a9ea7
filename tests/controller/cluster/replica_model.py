"""A replica of one partition as a small model: its log with leader epochs, its role, the rule of the high watermark.

What Kafka requires of a broker, and no more: LeaderAndIsr, StopReplica and UpdateMetadata are judged by broker, controller and
leader epochs; a follower truncates where its log differs; a leader proposes in-sync replicas and counts them at once.
"""

from odradek.protocol.errors import ErrorCode as E

MIN_IN_SYNC = 2
LEADER, FOLLOWER = "leader", "follower"


class Replica:
    """:ivar log: (leader epoch, value) of each record; it survives a crash. All else is lost."""

    def __init__(self, broker_id):
        self.broker_id = broker_id
        self.log = []
        self.epoch_starts = {}  # leader epoch -> offset of its first record, or where it begins; survives a crash
        self.forget()

    def forget(self):
        """What a crash does to memory."""
        self.role = None
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.controller_epoch = 0
        self.in_sync = []
        self.replicas = []
        self.pending = None  # (members, (broker id, broker epoch) of each)
        self.high_watermark = 0
        self.followers = {}  # broker id -> (log end offset, broker epoch)
        self.live = set()

    # -- control requests -----------------------------------------------------------------------------------------

    def leader_and_isr(self, state):
        """Returns an error code."""
        if self.broker_id not in state.replicas:
            return E.UNKNOWN_TOPIC_OR_PARTITION
        if (state.leader_epoch, state.leader) == (self.leader_epoch, self.leader_id):
            return E.NONE
        if state.leader_epoch <= self.leader_epoch:
            return E.FENCED_LEADER_EPOCH
        self.leader_epoch, self.partition_epoch = state.leader_epoch, state.partition_epoch
        self.leader_id, self.in_sync, self.replicas = state.leader, list(state.isr), list(state.replicas)
        self.pending, self.followers = None, {}
        if state.leader == self.broker_id:
            self.role = LEADER
            self.epoch_starts.setdefault(state.leader_epoch, len(self.log))
        else:
            self.role = FOLLOWER
        return E.NONE

    def stop(self, leader_epoch, delete):
        """StopReplica; returns an error code."""
        if 0 <= leader_epoch < self.leader_epoch:
            return E.FENCED_LEADER_EPOCH
        self.role = None
        if delete:
            self.log, self.epoch_starts = [], {}
            self.forget()
        return E.NONE

    # -- the leader -----------------------------------------------------------------------------------------------

    def maximal_in_sync(self):
        """The committed in-sync replicas and the proposed additions; proposed removals stay members."""
        return set(self.in_sync) | set(self.pending[0] if self.pending else ())

    def append(self, value):
        """acks=all: refused with too few in-sync replicas; returns whether the record was appended."""
        if self.role != LEADER or len(self.in_sync) < MIN_IN_SYNC:
            return False
        self.log.append((self.leader_epoch, value))
        return True

    def end_offset_for(self, epoch):
        """(epoch, end) for the largest epoch that is not larger than this one; None if there is none."""
        known = [start for start in self.epoch_starts if start <= epoch]
        if not known:
            return None
        found = max(known)
        later = [self.epoch_starts[start] for start in self.epoch_starts if start > found]
        return found, min(later, default=len(self.log))

    def serve_fetch(self, follower, broker_epoch, leader_epoch, offset, last_epoch):
        """Returns (records with their epochs, high watermark), ("diverging", epoch, end), or None."""
        if self.role != LEADER or leader_epoch != self.leader_epoch or follower not in self.replicas:
            return None
        if last_epoch >= 0:
            end = self.end_offset_for(last_epoch)
            if end is None or end[0] < last_epoch or end[1] < offset:
                return ("diverging", *(end or (-1, 0)))
        if offset > len(self.log):
            return ("diverging", -1, len(self.log))
        self.followers[follower] = (offset, broker_epoch)
        return self.log[offset:], self.high_watermark

    def move_high_watermark(self):
        """The one rule. Returns the offsets that are committed now."""
        if self.role != LEADER or len(self.in_sync) < min(MIN_IN_SYNC, len(self.replicas)):
            return range(0)
        others = self.maximal_in_sync() - {self.broker_id}
        ends = [self.followers.get(member, (-1, 0))[0] for member in others]
        before = self.high_watermark
        self.high_watermark = max(before, min([len(self.log), *ends]))
        return range(before, self.high_watermark)

    def expansion(self):
        """The follower that may join now, or None."""
        for follower, (end, _) in sorted(self.followers.items()):
            if (
                follower not in self.in_sync
                and follower in self.live
                and end >= self.high_watermark
                and end >= self.epoch_starts.get(self.leader_epoch, 0)
            ):
                return follower
        return None

    def propose(self, members, own_broker_epoch):
        """Propose in-sync replicas; they stay proposed until they are answered or another state arrives."""
        epochs = [
            (member, own_broker_epoch if member == self.broker_id else self.followers.get(member, (0, -1))[1])
            for member in members
        ]
        self.pending = (list(members), epochs)

    def answered(self, leader_epoch, proposal, code, state, partition_epoch):
        """The controller's answer to a proposal of this term."""
        if self.role != LEADER or leader_epoch != self.leader_epoch or self.pending is not proposal:
            return
        if code == E.NONE:
            if state.leader_epoch == self.leader_epoch and partition_epoch >= self.partition_epoch:
                self.in_sync, self.partition_epoch, self.pending = list(state.in_sync_replicas), partition_epoch, None
        elif code in (E.INELIGIBLE_REPLICA, E.OPERATION_NOT_ATTEMPTED):
            self.pending = None
        # otherwise it stays proposed: another state will come, or it is sent again

    # -- the follower ---------------------------------------------------------------------------------------------

    def fetched(self, leader_epoch, offset, answer):
        """The answer of the leader to a fetch at this offset."""
        if self.role != FOLLOWER or leader_epoch != self.leader_epoch or offset != len(self.log) or answer is None:
            return
        if answer[0] == "diverging":
            _, epoch, end = answer
            self.truncate(self._agreeing_end(epoch, end))
            return
        records, high_watermark = answer
        for epoch, value in records:
            if epoch not in self.epoch_starts:
                self.epoch_starts = {
                    known: start
                    for known, start in self.epoch_starts.items()
                    if known < epoch and start < len(self.log)
                }
                self.epoch_starts[epoch] = len(self.log)
            self.log.append((epoch, value))
        self.high_watermark = max(min(high_watermark, len(self.log)), 0)

    def _agreeing_end(self, epoch, end):
        """Where the own log may begin to differ from the leader's, which ends ``epoch`` at ``end``."""
        own = self.end_offset_for(epoch) if epoch >= 0 else None
        if own is None:
            return min(self.high_watermark, len(self.log))
        return min(own[1], end) if own[0] == epoch else own[1]

    def truncate(self, offset):
        """Drop the records from an offset on."""
        del self.log[offset:]
        self.epoch_starts = {epoch: start for epoch, start in self.epoch_starts.items() if start < offset}
        self.high_watermark = min(self.high_watermark, offset)

    def last_epoch(self):
        """The leader epoch of the last record; -1 without records."""
        return self.log[-1][0] if self.log else -1
