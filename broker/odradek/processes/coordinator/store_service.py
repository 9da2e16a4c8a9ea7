"""What the store thread of the coordinator executes: the metadata store and everything that uses it.

It owns the broker's session, its registration, and the controller if this broker is elected, and executes the admin requests
that workers forward. Requests with many steps take turns, one step at a time. Except where noted, all methods run in the store
thread.
"""

import logging
import time
import uuid
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol

from odradek._ext.net.arrivals import Arrival
from odradek._ext.net.forward_frames import MalformedFrame
from odradek._ext.shm.layout import ProcessKind
from odradek._ext.shm.metering import count, gauge
from odradek.api.api import Place
from odradek.api.coordinator_call import CoordinatorCall, CoordinatorView
from odradek.api.permits import Permits, PermitsOf, unrestricted
from odradek.api.pipeline import NotServed, Pipeline
from odradek.api.pipeline import Outcome as Executed
from odradek.api.records.delete_records import Deleted
from odradek.api.refusing import can_be_refused, refusal
from odradek.api.row import ApiRow
from odradek.api.topics.topic_changes import TopicChange, awaited_change
from odradek.config.broker_config import BrokerConfig
from odradek.controller import scram
from odradek.controller.outcomes import Outcome
from odradek.controller.store_errors import code_of
from odradek.metadata import group_offsets, znodes
from odradek.metadata.offset_sweep import OffsetSweep
from odradek.metadata.store import Store, StoreError, StoreUnavailable
from odradek.net.forward_frames import (
    CredentialReply,
    ForwardContext,
    ForwardReply,
    Kind,
    Status,
    decode_credential_question,
    decode_names,
    encode_auto_created,
    encode_credential,
)
from odradek.processes.context import ProcessContext
from odradek.processes.coordinator.forwarded import ForwardedHost, refused
from odradek.processes.coordinator.security.token_credentials import Derivation
from odradek.processes.metering import UncountedErrors, uncounted_errors
from odradek.protocol.errors import ErrorCode
from odradek.quotas.mutations import MutationCharge, MutationRates, QuotaExceeded
from odradek.quotas.quotas import MUTATION
from odradek.security.delegation_token import name_of, password_of
from odradek.security.sasl.scram_credential import BY_NAME, ScramCredential, made_up
from odradek.shm.confirmed_version import TAKEN_WITHIN_S, serving
from odradek.shm.credentials_version import CredentialsVersion
from odradek.stepwise import Steps
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.controller")

SWEEP_RETRY_S = 60.0
OFFSETS_OF_DELETED_TOPICS, EXPIRED_TOKENS = "offsets of deleted topics", "expired delegation tokens"
TOKENS_COUNTED_EVERY_S = 2.0
TOPICS_PER_STEP = 50
"""The number of topics that one step of an automatic creation creates."""


class Membership(Protocol):
    """How this broker is a member of its cluster; used in the store thread."""

    @property
    def store(self) -> Store | None:
        """The metadata store; None before `open`, and after a failure of `open` that left nothing to close."""
        ...

    def open(self) -> CoordinatorView:
        """Open the store and join the cluster. Raises StoreError, WrongCluster, BrokerIdTaken, NotController."""
        ...

    def sweep(self) -> OffsetSweep | None:
        """The sweep of the offsets of deleted topics; None before `open`."""
        ...

    def open_waiting(self) -> None:
        """Open the logs that waited for disk space and have it now. Raises StoreError."""
        ...

    def note_error(self, error: StoreError) -> None:
        """Report a failure of the store."""
        ...

    def leave(self) -> None:
        """End the session of the broker, and with it its registration. Raises StoreError."""
        ...


class Unfinished(NamedTuple):
    """An executed request whose response must wait: for followers, or until this broker shows the change. ``finish``: the steps
    that then return the reply."""

    waits: Deleted | TopicChange
    finish: Callable[[], "Generator[Any, None, ForwardReply | Unfinished]"]


class _Wait(NamedTuple):
    """A step of a request yields it before it must wait."""

    waits: Deleted | TopicChange


class _StoreHost(ForwardedHost):
    """See `Host`. :param service: whose view it uses."""

    def __init__(self, service: "StoreService", config: BrokerConfig, permits_of: PermitsOf) -> None:
        super().__init__(config, permits_of, Place.COORDINATOR, Place.CONTROLLER)
        self._service = service
        self._clustered = config.clustered
        self._mutations = MutationRates(
            config.integer("controller.quota.window.num"), config.integer("controller.quota.window.size.seconds")
        )

    def call(self, request: Arrival, row: ApiRow, version: int, permits: Permits) -> CoordinatorCall:
        """See `Host`."""
        view, context = self._service.view, request.context
        call = CoordinatorCall(
            version=version,
            client_id=context.client_id,
            peer=context.peer,
            principal=context.principal,
            listener_index=context.listener,
            view=view,
            permits=permits,
            by_token=context.by_token,
        )
        if row.charged_from is not None:
            call.mutations = self.charge(context, version >= row.charged_from)
        return call

    def charge(self, context: ForwardContext, strict: bool) -> MutationCharge | None:
        """The quota of a client for changes of topics; None if nobody has one. :param strict: changes above it are refused."""
        quotas = self._service.view.quotas
        if quotas is None or not quotas.current.has(MUTATION):
            return None
        return self._mutations.charge_for(quotas.current, context.principal, context.client_id or "", strict)

    def topic_name(self, topic_id: bytes) -> str | None:
        """See `Host`. Raises StoreError."""
        topic = self._service.view.controller.image.by_id.get(uuid.UUID(bytes=topic_id))
        return None if topic is None else topic.name

    def topic_exists(self, name: str) -> bool:
        """See `Host`. Raises StoreError."""
        image = self._service.view.controller.image
        return name in image.topics and name not in image.deleting

    def before(self, row: ApiRow, message: Any, version: int) -> Steps:
        """See `Host`. Raises StoreError."""
        view = self._service.view
        if row.place is not Place.CONTROLLER or view.is_controller():
            return None
        if not row.repeated:
            view.store.exists(znodes.CONTROLLER)  # while ZooKeeper is away, nobody knows the controller
        return (yield from refusal(row.key, message, version, ErrorCode.NOT_CONTROLLER))

    def failed(self, error: Exception, row: ApiRow, message: Any, version: int) -> Steps:
        """See `Host`."""
        if isinstance(error, StoreError):
            self._service.note_error(error)
            if not row.repeated and can_be_refused(row.key):
                return (yield from refusal(row.key, message, version, code_of(error), str(error)))
        raise error

    def end(self, request: Arrival, row: ApiRow, message: Any, call: CoordinatorCall, response: Any) -> Steps:
        """See `Host`. The response may wait for followers, or until this broker shows the change."""
        if call.mutations is not None and call.mutations.throttle_ms:
            request.throttle_ms = response.throttle_time_ms = call.mutations.throttle_ms
        if self._clustered:
            response = awaited_change(row.key, message, response)
        if isinstance(response, Deleted | TopicChange):
            yield _Wait(response)
            return response.response
        return response


class StoreService:
    """See the module. :param permits_of: see `PermitsOf`; used only in the store thread."""

    def __init__(self, context: ProcessContext, membership: Membership, permits_of: PermitsOf = unrestricted) -> None:
        self._context = context
        self._membership = membership
        self._host = _StoreHost(self, context.config, permits_of)
        self._pipeline = Pipeline(self._host)
        self._store: Store | None = None
        self._view: CoordinatorView | None = None
        self._sweep: OffsetSweep | None = None
        # The number of deleted topics when the last pass was requested; None while another broker is the controller.
        self._swept: int | None = 0
        self._sweep_after = 0.0
        self._unswept: dict[str, str] = {}  # what the last step of a sweep could not delete, and why
        self._tokens_due = self._tokens_counted = 0.0

    @property
    def view(self) -> CoordinatorView:
        """What the store thread owns. Not before `open`."""
        assert self._view is not None
        return self._view

    def note_error(self, error: StoreError) -> None:
        """Report a failure of the store."""
        self._membership.note_error(error)

    def open(self) -> None:
        """Join the cluster. Raises StoreError, WrongCluster, BrokerIdTaken, NotController."""
        self._view = self._membership.open()
        self._store = self._view.store
        self._sweep = self._membership.sweep()
        self._view.credentials_changed = self._announce_credentials
        if self._view.tokens is not None:
            self._view.tokens.announce = self._announce_tokens
            self._view.tokens.count = count
            self._announce_tokens()
        self._announce_credentials()  # a predecessor may have ended between a change and its announcement

    def execute(
        self, request: Arrival, report_errors: Callable[[UncountedErrors | None], None]
    ) -> "Generator[Any, None, ForwardReply | Unfinished | Derivation]":
        """Execute one request of a worker and return the encoded response, an `Unfinished` or a `Derivation`. Works in
        steps, between which other requests have their turn. The handler's exceptions are raised.

        :param report_errors: called with the errors of the response that the loop must count in this process.
        """
        if request.deadline <= time.monotonic():
            return ForwardReply(Status.FAILED, 0)  # no client waits any more, so the request is not executed
        if request.kind == Kind.AUTO_CREATE:
            return (yield from self._auto_create(request))
        if request.kind == Kind.CREDENTIAL:
            return self._credential(request.payload)
        return (yield from self._replied(self._pipeline.steps(request), request, report_errors))

    def _replied(
        self, steps: Steps, request: Arrival, report_errors: Callable[[UncountedErrors | None], None]
    ) -> "Generator[Any, None, ForwardReply | Unfinished]":
        """Execute the steps of a request until it must wait, or has ended."""
        while True:
            try:
                pause = next(steps)
            except StopIteration as end:
                executed: Executed | NotServed = end.value
                break
            if isinstance(pause, _Wait):
                return Unfinished(pause.waits, lambda: self._replied(steps, request, report_errors))
            yield pause
        if isinstance(executed, NotServed):
            return refused(executed, request, log)
        assert self._view is not None
        report_errors(uncounted_errors(executed))
        return ForwardReply(Status.OK, self._view.controller.metadata_version, executed.data)

    def _auto_create(self, request: Arrival) -> Generator[Any, None, ForwardReply]:
        assert self._view is not None
        try:
            names = decode_names(request.payload)
        except MalformedFrame as error:
            log.error("cannot decode a worker's request to create topics: %s", error)
            return ForwardReply(Status.MALFORMED, 0)
        outcomes: list[Outcome] = []
        for first in range(0, len(names), TOPICS_PER_STEP):
            if first:
                yield
            try:
                admitted, denied = self._within_quota(names[first : first + TOPICS_PER_STEP], request)
                outcomes += yield from self._view.controller.auto_create_in_steps(admitted)
                outcomes += denied
            except StoreError as error:
                self._membership.note_error(error)
                raise
        payload = encode_auto_created([(outcome.name, int(outcome.code), outcome.message) for outcome in outcomes])
        return ForwardReply(Status.OK, self._view.controller.metadata_version, payload)

    def _credential(self, payload: bytes) -> ForwardReply | Derivation:
        """The SCRAM credential of a user or of a delegation token, or a made-up one."""
        assert self._view is not None
        try:
            name, user, by_token = decode_credential_question(payload)
        except MalformedFrame as error:
            log.error("cannot decode a worker's question for a credential: %s", error)
            return ForwardReply(Status.MALFORMED, 0)
        version = (self._context.tokens if by_token else self._context.credentials).version
        metadata_version = self._view.controller.metadata_version

        def reply(credential: ScramCredential) -> ForwardReply:
            reply = CredentialReply(version, credential, time.monotonic())
            return ForwardReply(Status.OK, metadata_version, encode_credential(reply))

        try:
            if not by_token:
                return reply(scram.found_or_made_up(self._view.store, BY_NAME[name], user))
            invented = made_up(BY_NAME[name], f"token {user}", scram.login_secret(self._view.store))
            tokens = self._view.tokens
            token = None if tokens is None else tokens.usable(user)
        except StoreError as error:
            self._membership.note_error(error)
            raise
        if tokens is None or token is None:
            return reply(invented)
        owner, expires_ms = name_of(token.owner)[1], token.expires_ms
        return Derivation(
            BY_NAME[name],
            password_of(tokens.hmac(token)),
            invented.salt,
            lambda credential: reply(credential._replace(owner=owner, expires_ms=expires_ms)),
        )

    def _announce_credentials(self) -> None:
        """SCRAM credentials may have changed: wait up to `TAKEN_WITHIN_S` until no worker keeps an older one."""
        self._announce(self._context.credentials, "dropped the SCRAM credentials that they keep")

    def _announce_tokens(self) -> None:
        """Delegation tokens may end earlier: wait up to `TAKEN_WITHIN_S` until each worker has noticed."""
        self._announce(self._context.tokens, "noticed that delegation tokens have changed")

    def _announce(self, changed: CredentialsVersion, what: str) -> None:
        version = changed.announce()
        shm = self._context.shm
        shm.wake_all()
        late = changed.wait_until_taken(version, serving(shm, ProcessKind.WORKER), TAKEN_WITHIN_S)
        if late:
            log.warning(
                "%d workers have not %s within %g s (indexes %s of the process table); they do so when their event loops "
                "continue",
                len(late), what, TAKEN_WITHIN_S, ", ".join(map(str, late)),
            )  # fmt: skip

    def _within_quota(self, names: list[str], request: Arrival) -> tuple[list[str], list[Outcome]]:
        """The topics that the client's quota lets it create now, and for the others outcomes, after which clients
        retry. Raises StoreError."""
        charge, topics = self._host.charge(request.context, strict=True), self.view.controller.image.topics
        if charge is None:
            return names, []
        admitted, denied = [], []
        for name in names:
            try:
                if name not in topics:
                    charge.partitions(self._context.config.integer("num.partitions"))
                admitted.append(name)
            except QuotaExceeded as error:
                denied.append(Outcome(name, ErrorCode.LEADER_NOT_AVAILABLE, str(error)))
        return admitted, denied

    @property
    def is_open(self) -> bool:
        """Whether the topics of the store are known."""
        return self._view is not None

    def topic_names(self) -> frozenset[str] | None:
        """The names of the topics in the store, including those without a slot; None before `open`. May be called from any
        thread, because it only copies the keys of a dict."""
        return None if self._view is None else frozenset(self._view.controller.image.topics)

    def producer_ids(self, number: int) -> list[int]:
        """Allocate producer ids that no producer had before. Raises StoreError, ProducerIdsExhausted."""
        if self._view is None:
            raise StoreUnavailable("the metadata store is not open yet")
        try:
            return [self._view.producer_ids.next() for _ in range(number)]
        except StoreError as error:
            self._membership.note_error(error)
            raise

    def read_offsets(
        self, group_id: str, places: list[TopicPartition]
    ) -> Generator[None, None, dict[TopicPartition, int]]:
        """Read offsets of a group from the metadata tree (OffsetFetch version 0), in steps."""
        assert self._store is not None
        return (yield from group_offsets.read_in_steps(self._store, group_id, places))

    def write_offsets(self, group_id: str, offsets: dict[TopicPartition, int]) -> Generator[None, None, set[str]]:
        """Store offsets of a group in the metadata tree (OffsetCommit version 0), in steps. Returns the topics that do not
        exist any more; the offsets of all other topics are durable then. After a failure or a death, the first portions are
        stored.

        Each step checks the topics again: the loop's directory of the topics may be older than this thread's image, and a topic
        may be deleted and created again between two steps. An offset written after that would belong to the new topic.
        """
        assert self._store is not None and self._view is not None
        missing: set[str] = set()
        ids: dict[str, uuid.UUID | None] = {}
        for number, portion in enumerate(group_offsets.portions(offsets)):
            if number:
                yield
            image = self._view.controller.image
            for topic in dict.fromkeys(topic for topic, _ in portion):
                known = image.topics.get(topic)
                if known is None or topic in image.deleting or ids.setdefault(topic, known.topic_id) != known.topic_id:
                    missing.add(topic)
            kept = {place: offsets[place] for place in portion if place[0] not in missing}
            group_offsets.write(self._store, group_id, kept)
        return missing

    def has_members(self, group_id: str) -> bool:
        """Whether consumers of the group are registered in the metadata tree."""
        assert self._store is not None
        return group_offsets.has_members(self._store, group_id)

    def delete_group(self, group_id: str) -> Generator[None, None, bool]:
        """Delete a group from the metadata tree, in steps. Returns whether the group existed there."""
        assert self._store is not None
        return (yield from group_offsets.delete_group(self._store, group_id))

    def reload_file(self) -> None:
        """Read the configuration file again. Not before `open`."""
        assert self._view is not None
        self._view.settings.reload_file()

    def open_waiting_logs(self) -> None:
        """Open the logs that could not be opened completely for lack of disk space, if the disk has space now."""
        if self._view is not None:
            self._membership.open_waiting()

    def sweep_tree(self) -> dict[str, str]:
        """Do one step of deleting the offsets of deleted topics from the metadata tree, if this broker is the controller.
        Publish ACLs that a request has stored that was ended between two steps. Remove expired delegation tokens. Returns what
        it could not delete, and why."""
        if self._view is not None and self._view.acls is not None:
            self._view.acls.publish()
        self._sweep_tokens()
        self._sweep_offsets()
        return dict(self._unswept)

    def _sweep_offsets(self) -> None:
        if self._view is None or self._sweep is None or time.monotonic() < self._sweep_after:
            return
        if not self._view.is_controller():
            self._swept = None
            self._unswept.pop(OFFSETS_OF_DELETED_TOPICS, None)
            return
        if self._swept != self._view.controller.deleted:
            self._swept = self._view.controller.deleted
            self._sweep.request()
        self._sweep_after = time.monotonic() + SWEEP_RETRY_S  # unless this step succeeds
        try:
            self._sweep.step()
        except StoreError as error:
            self._membership.note_error(error)
            self._unswept[OFFSETS_OF_DELETED_TOPICS] = f"cannot be deleted from the metadata tree: {error}"
        else:
            self._unswept.pop(OFFSETS_OF_DELETED_TOPICS, None)
            self._sweep_after = 0.0

    def _sweep_tokens(self) -> None:
        """Count the delegation tokens for the metrics. Remove those that have expired, some at a time, if it is time for that
        and this broker is the controller."""
        view = self._view
        if view is None or view.tokens is None:
            return
        if time.monotonic() >= self._tokens_counted:
            self._tokens_counted = time.monotonic() + TOKENS_COUNTED_EVERY_S
            gauge("delegation_tokens", view.tokens.live())
        if not view.is_controller():
            self._unswept.pop(EXPIRED_TOKENS, None)
            return
        if time.monotonic() < self._tokens_due:
            return
        self._tokens_due = time.monotonic() + view.tokens.check_interval_s
        try:
            if view.tokens.sweep():
                self._tokens_due = 0.0
            self._unswept.pop(EXPIRED_TOKENS, None)
        except StoreError as error:
            self._membership.note_error(error)
            self._unswept[EXPIRED_TOKENS] = f"cannot be removed from the metadata tree: {error}"

    def close(self) -> None:
        """Leave the cluster: end the broker's session, and with it its registration."""
        store = self._membership.store
        if store is None:
            return
        try:
            self._membership.leave()
        except StoreError as error:
            log.warning("cannot end the broker's session in the metadata store: %s; the next start ends it", error)
        try:
            store.close()
        except StoreError as error:
            log.warning("cannot close the metadata store: %s", error)
