"""The logins of a worker's clients on SASL listeners: puts gates before connections, and opens them.

A worker owns one `Logins` and uses it only in its loop. The rules of the exchange are in `odradek.security.sasl.exchange`; this
module connects them with connections, timers, the coordinator and metrics. A connection with a gate executes no request: the
native `RequestHandler` passes each of its frames to the gate, behind the responses to all earlier requests.

The native `ScramLogin` processes most logins with SCRAM; it implements only logins that succeed. For everything else it returns
None, and an `Exchange` receives all frames of the login and processes its rest.

After the login, a connection whose session has an end is closed if it sends a request after that end without having renewed the
login (KIP-368): a timer puts a gate before it, so the requests of open connections cost nothing.
"""

import asyncio
import logging
import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from odradek._ext.protocol.scram_login import ScramListener, ScramLogin, ScramResult
from odradek._ext.shm.metering import count_expired, count_login
from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.config.listeners import Listener
from odradek.net.forward import context_of
from odradek.net.forward_frames import CredentialReply
from odradek.processes.login_failures import LoginFailures
from odradek.processes.worker.credential_cache import CredentialCache, Kept, Then
from odradek.processes.worker.token_keys import TokenKeys
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import api_versions, sasl_handshake
from odradek.security.acl import ANONYMOUS_USER
from odradek.security.sasl.exchange import Action, Ask, Done, Exchange, Failed, Former, Respond, Versions
from odradek.security.sasl.mechanism import OAUTHBEARER, CredentialQuestion, KeysQuestion, Mechanism
from odradek.security.sasl.oauthbearer import OAuthBearer
from odradek.security.sasl.scram import Scram
from odradek.security.sasl.scram_credential import BY_NAME
from odradek.security.sasl.settings import SaslSettings, all_settings

log = logging.getLogger("odradek.security")

RENEWALS_APART_S = 1.0
_ERROR_AT = 4  # in a response to ApiVersions: after the correlation id
_CODE = struct.Struct(">h")
_KEY = struct.Struct(">h")
_REQUEST = struct.Struct(">hhi")

Dispatch = Callable[[Any, int, int, int, bytes | None, bytes], bytes | bool | None]


class Gate:
    """Stands before a connection until its client has logged in, or has renewed the login.

    :ivar scram: processes the login as long as it is the usual one with SCRAM; then None, and `exchange` processes it.
    """

    def __init__(self, logins: "Logins", settings: SaslSettings, former: "Session | None" = None) -> None:
        self._logins = logins
        self.settings = settings
        self.former = former
        self.scram: ScramLogin | None = None
        self.exchange: Exchange  # set when `scram` is None
        self.question: CredentialQuestion | None = None
        self.answer: CredentialReply | None = None
        self.noted = False  # whether the failure of this login was counted and logged

    @property
    def raw(self) -> bool:
        """Whether the next frame has no request header."""
        return self.scram is None and self.exchange.raw

    def frame(self, connection: Any, frame: bytes) -> bytes | bool | None:
        """See `RequestHandler.offer_to_gate`."""
        return self._logins.process(self, connection, frame)


class Session:
    """A login whose session has an end. Stands before the connection after that end, and then only lets it renew the login."""

    raw = False

    def __init__(self, logins: "Logins", connection: Any, former: Former, renewed_at: float | None) -> None:
        self._logins = logins
        self.connection = connection
        self.former = former
        self.renewed_at = renewed_at  # loop time at which the last renewal began; None: there was none
        self.timer: asyncio.TimerHandle | None = None

    def frame(self, connection: Any, frame: bytes) -> bytes | bool | None:
        """See `RequestHandler.offer_to_gate`."""
        return self._logins.after_end(self, connection, frame)


def _former_user(gate: Gate) -> str:
    return "" if gate.former is None else gate.former.former.user


class Logins:
    """See the module.

    :param listeners: of the broker; `connection.listener_index` is an index of them.
    :param data_loop: the worker's; set before the first connection.
    :param dispatch: the worker's Dispatcher, which answers ApiVersions.
    :param settle: sends the responses that were completed outside of a turn of the data loop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: BrokerConfig,
        listeners: Sequence[Listener],
        credentials: CredentialCache,
        tokens: TokenKeys,
        settle: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._names = [listener.name for listener in listeners]
        self._credentials = credentials
        self._tokens = tokens
        self._settle = settle
        self._timeout_s = config.integer("odradek.authentication.timeout.ms") / 1000
        self._max_receive_bytes = config.integer("sasl.server.max.receive.size")
        self._delay_s = config.integer("connection.failed.authentication.delay.ms") / 1000
        self._configure(config)
        self._renewing: OrderedDict[int, tuple[Any, float]] = OrderedDict()  # connection and deadline, by connection id
        self._sessions: dict[int, Session] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._failures = LoginFailures(loop.time)
        self.data_loop: Any = None
        self.dispatch: Dispatch | None = None

    def configure(self, config: BrokerConfig) -> None:
        """Use the settings that changed at run time, for new logins."""
        try:
            self._configure(config)
        except ConfigError as error:
            log.error("cannot apply the changed SASL settings: %s; the previous ones stay in force", error)

    def _configure(self, config: BrokerConfig) -> None:
        self._settings = all_settings(config)
        self._tokens.configure({name: one.oauth for name, one in self._settings.items() if one.oauth is not None})
        self._scram = {
            name: ScramListener(
                one.mechanisms,
                {mechanism: BY_NAME[mechanism].hash for mechanism in BY_NAME},
                {mechanism: BY_NAME[mechanism].hash_name for mechanism in BY_NAME},
                ANONYMOUS_USER,
            )
            for name, one in self._settings.items()
            if not BY_NAME.keys().isdisjoint(one.mechanisms)
        }

    def take_over_credentials(self) -> None:
        """Drop the credentials that are kept if one has changed."""
        self._credentials.take_over()

    # -- the beginning and the end of connections --------------------------------------------------------------------

    def begin(self, connection: Any) -> None:
        """Put a gate before a new connection, if it came to a SASL listener."""
        settings = self._settings_of(connection)
        if settings is None:
            return
        gate = connection.gate = Gate(self, settings)
        scram = self._scram.get(self._names[connection.listener_index])
        if scram is None:
            gate.exchange = self._exchange(connection, settings, None)
        else:
            gate.scram = ScramLogin(scram)
        connection.limit_frames(self._max_receive_bytes)
        self.data_loop.connections.await_authentication(connection)  # may close it

    def closed(self, connection_id: int) -> None:
        """A connection was closed."""
        self._renewing.pop(connection_id, None)
        session = self._sessions.pop(connection_id, None)
        if session is not None and session.timer is not None:
            session.timer.cancel()

    def close(self) -> None:
        """Cancel all timers."""
        if self._sweep is not None:
            self._sweep.cancel()
        for session in self._sessions.values():
            if session.timer is not None:
                session.timer.cancel()

    def _settings_of(self, connection: Any) -> SaslSettings | None:
        index = connection.listener_index
        return self._settings.get(self._names[index]) if 0 <= index < len(self._names) else None

    def _exchange(
        self, connection: Any, settings: SaslSettings, former: Former | None, scram_nonce: str = ""
    ) -> Exchange:
        listener = self._names[connection.listener_index]

        def make(mechanism: str) -> Mechanism:
            if mechanism == OAUTHBEARER:
                return OAuthBearer(lambda token: self._tokens.verify(listener, token))
            if scram_nonce:
                return Scram(BY_NAME[mechanism], lambda: scram_nonce)
            return settings.make(mechanism)

        return Exchange(settings.mechanisms, make, settings.lifetime_ms, former)

    def _leave_scram(self, gate: Gate, connection: Any) -> None:
        """Let an `Exchange` process the rest of a login: it first receives the frames that `ScramLogin` has processed, and the
        answers to them."""
        scram, gate.scram = gate.scram, None
        assert scram is not None
        exchange = gate.exchange = self._exchange(connection, gate.settings, None, scram.nonce)
        for frame in scram.frames:
            action = exchange.frame(frame)
            if isinstance(action, Versions) and scram.versions_answered:
                exchange.versions_sent(0)
            elif isinstance(action, Ask) and gate.answer is not None:
                exchange.answered(gate.answer.credential)

    def _close_late(self) -> None:
        """Close the connections whose clients have not renewed their logins in time."""
        self._sweep = None
        now = self._loop.time()
        while self._renewing:
            connection, deadline = next(iter(self._renewing.values()))
            if deadline > now:
                self._sweep = self._loop.call_at(deadline, self._close_late)
                break
            del self._renewing[connection.connection_id]
            reason = f"the client did not renew its login within {self._timeout_s:g} s"
            if not connection.gate.noted:  # else it did not confirm a refusal, or the response to it is delayed
                self._note_failure(connection, "", reason, True, _former_user(connection.gate))
            connection.close(reason)
        self._settle()

    # -- frames -----------------------------------------------------------------------------------------------------

    def process(self, gate: Gate, connection: Any, frame: bytes) -> bytes | bool | None:
        """Process a frame before the login; see `RequestHandler.offer_to_gate`."""
        if gate.scram is not None:
            lifetime_ms = gate.settings.lifetime_ms(gate.scram.mechanism)
            result = gate.scram.frame(frame, lifetime_ms)
            if result is not None:
                return self._with_scram(gate, gate.scram, connection, frame, result, lifetime_ms)
            self._leave_scram(gate, connection)
        action = gate.exchange.frame(frame)
        kept = None
        if isinstance(action, Ask) and isinstance(action.question, CredentialQuestion):
            kept = self._recall(connection, action.question)
        elif isinstance(action, Respond):
            if action.refusal:
                self._note_refusal(gate, connection, action)
            return action.data
        elif isinstance(action, Done) and not self._is_outdated(gate):
            self._open(gate, connection, action)
            return action.data
        elif isinstance(action, Versions):
            return self._versions(gate, connection, frame)
        self._later(gate, connection, connection.reserve(), action, kept)
        return None

    def _with_scram(
        self, gate: Gate, scram: ScramLogin, connection: Any, frame: bytes, result: bytes | int, lifetime_ms: int
    ) -> bytes | bool | None:
        """Handle a result of `ScramLogin.frame`; see `RequestHandler.offer_to_gate`."""
        if isinstance(result, bytes):
            if not scram.done:
                return result
            if not self._is_outdated(gate):
                self._open(gate, connection, Done(result, scram.user, scram.mechanism, lifetime_ms))
                return result
            self._leave_scram(gate, connection)
            self._confirm(gate, connection, connection.reserve())
            return None
        if result == ScramResult.SCRAM_VERSIONS:
            return self._versions(gate, connection, frame)
        question = gate.question = CredentialQuestion(scram.mechanism, scram.user)
        kept = self._recall(connection, question)
        pending = connection.reserve()

        def go_on(reply: CredentialReply | str) -> None:
            if isinstance(reply, str):
                self._leave_scram(gate, connection)
                self._later(gate, connection, pending, gate.exchange.unanswered(reply))
            else:
                gate.answer = reply
                data = scram.answered(reply.credential)
                pending.complete((len(data).to_bytes(4, "big"), data))

        then = self._guarded(connection, pending, go_on)
        if kept is None:
            self._credentials.ask(question, context_of(connection, connection.client_id), then)
        else:
            self._credentials.hold(kept, then)
        return None

    def _recall(self, connection: Any, question: CredentialQuestion) -> Kept | None:
        kept = self._credentials.recall(question)
        if kept is not None and self._credentials.overdue:
            self._credentials.measure(question, context_of(connection, connection.client_id))
        return kept

    def _versions(self, gate: Gate, connection: Any, frame: bytes) -> bytes | bool | None:
        assert self.dispatch is not None
        _, version, correlation_id = _REQUEST.unpack_from(frame)
        response = self.dispatch(connection, api_versions.API_KEY, version, correlation_id, connection.client_id, frame)
        if isinstance(response, bytes):
            code = _CODE.unpack_from(response, _ERROR_AT)[0]
            if gate.scram is None:
                gate.exchange.versions_sent(code)
            elif code:
                self._leave_scram(gate, connection)
            else:
                gate.scram.versions_sent()
        return response

    def _later(self, gate: Gate, connection: Any, pending: Any, action: Action, kept: Kept | None = None) -> None:
        """Carry out an action whose response has the place `pending`. :param kept: the answer to an `Ask` that is in memory."""
        if pending.cancelled:
            return
        if isinstance(action, Ask):
            self._ask(gate, connection, pending, action.question, kept)
        elif isinstance(action, Done) and self._is_outdated(gate):
            self._confirm(gate, connection, pending)
        elif isinstance(action, Failed):
            self._fail(gate, connection, pending, action)
        elif isinstance(action, Done | Respond):
            if isinstance(action, Done):
                self._open(gate, connection, action)
            else:
                self._note_refusal(gate, connection, action)
            pending.complete((len(action.data).to_bytes(4, "big"), action.data))

    def _ask(
        self,
        gate: Gate,
        connection: Any,
        pending: Any,
        question: CredentialQuestion | KeysQuestion,
        kept: Kept | None,
    ) -> None:
        context = context_of(connection, connection.client_id)
        if isinstance(question, KeysQuestion):
            resumed = self._guarded(
                connection, pending, lambda _: self._later(gate, connection, pending, gate.exchange.resumed())
            )
            self._tokens.refresh(self._names[connection.listener_index], context, lambda: resumed(""))
            return

        def go_on(reply: CredentialReply | str) -> None:
            if isinstance(reply, str):
                action: Action = gate.exchange.unanswered(reply)
            else:
                gate.question, gate.answer = question, reply
                action = gate.exchange.answered(reply.credential)
            self._later(gate, connection, pending, action)

        then = self._guarded(connection, pending, go_on)
        if kept is None:
            self._credentials.ask(question, context, then)
        else:
            self._credentials.hold(kept, then)

    def _guarded(self, connection: Any, pending: Any, go_on: Callable[[CredentialReply | str], None]) -> Then:
        """Continue a login outside of a turn of the data loop: an internal error closes its connection, and no other one."""

        def then(reply: CredentialReply | str) -> None:
            if pending.cancelled:
                return
            try:
                go_on(reply)
            except Exception:
                log.exception(
                    "a login of %s failed; closing its connection", connection.name, extra=connection.log_fields
                )
                connection.close("internal error during the login")

        return then

    def _is_outdated(self, gate: Gate) -> bool:
        return (
            gate.question is not None
            and gate.answer is not None
            and gate.answer.version < self._credentials.newest_version(gate.question)
        )

    def _confirm(self, gate: Gate, connection: Any, pending: Any) -> None:
        """Credentials changed during the login: the one that was used must still be that of the user. A login with an old
        password must not succeed after the response to the request that changed the password. A token may now expire
        earlier."""
        assert gate.question is not None and gate.answer is not None
        used = gate.answer.credential

        def go_on(reply: CredentialReply | str) -> None:
            if not isinstance(reply, str) and reply.credential._replace(expires_ms=used.expires_ms) == used:
                gate.answer = reply
                self._later(gate, connection, pending, gate.exchange.confirmed(reply.credential.expires_ms))
            else:
                self._later(gate, connection, pending, gate.exchange.revoked())

        context = context_of(connection, connection.client_id)
        self._credentials.ask(gate.question, context, self._guarded(connection, pending, go_on))

    # -- outcomes ---------------------------------------------------------------------------------------------------

    def _open(self, gate: Gate, connection: Any, done: Done) -> None:
        """The client has logged in: execute its requests from now on."""
        connection_id = connection.connection_id
        self._renewing.pop(connection_id, None)
        connection.gate = None
        connection.limit_frames(-1)
        if gate.former is None:
            self.data_loop.connections.note_authenticated(connection)
        if gate.former is None or connection.by_token != done.by_token:
            connection.by_token = done.by_token
            # A new object, so that the coordinator receives the connection's properties again.
            connection.principal = f"User:{done.user}"
        count_login(connection.listener_index, done.mechanism, "succeeded" if gate.former is None else "renewed")
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s logged in as %s with %s", connection.name, connection.principal, done.mechanism)
        if done.lifetime_ms:
            renewed_at = None if gate.former is None else gate.former.renewed_at
            session = Session(self, connection, Former(done.user, done.mechanism), renewed_at)
            session.timer = self._loop.call_later(done.lifetime_ms / 1000, self._end, session)
            self._sessions[connection_id] = session

    def _fail(self, gate: Gate, connection: Any, pending: Any, failed: Failed) -> None:
        """Send the response, if there is one, after the delay that slows down guessing; then close the connection."""
        if not gate.noted:
            mechanism = failed.mechanism if gate.former is None else gate.former.former.mechanism
            gate.noted = True
            user = failed.user or _former_user(gate)
            self._note_failure(connection, mechanism, failed.reason, gate.former is not None, user, failed.detail)

        def end() -> None:
            if pending.cancelled:
                return
            reason = f"the login failed: {failed.reason}"
            if failed.data is None:
                connection.close(reason)
            else:
                pending.failed(failed.code)
                pending.complete((len(failed.data).to_bytes(4, "big"), failed.data))
                connection.close_after_responses(reason)
            self._settle()

        self._loop.call_later(self._delay_s, end)

    def _note_refusal(self, gate: Gate, connection: Any, action: Respond) -> None:
        """Note a failure when it is sent: the client may never confirm it."""
        if action.refusal:
            gate.noted = True
            user = action.user or _former_user(gate)
            self._note_failure(connection, gate.exchange.mechanism, action.refusal, gate.former is not None, user)

    def _note_failure(
        self, connection: Any, mechanism: str, reason: str, renewal: bool = False, user: str = "", detail: str = ""
    ) -> None:
        index = connection.listener_index
        count_login(index, mechanism or "unknown", "renewal_failed" if renewal else "failed")
        self._failures.note(connection.peer, self._names[index], mechanism, reason, user, detail)

    # -- renewals ---------------------------------------------------------------------------------------------------

    def _end(self, session: Session) -> None:
        """The session ends: from now on the connection must renew its login."""
        session.timer = None
        if session.connection.gate is None:
            session.connection.gate = session

    def after_end(self, session: Session, connection: Any, frame: bytes) -> bytes | bool | None:
        """A frame after the end of the session."""
        is_handshake = len(frame) >= _REQUEST.size and _KEY.unpack_from(frame)[0] == sasl_handshake.API_KEY
        gate = self._renewal(session, connection) if is_handshake else None
        if gate is not None:
            return gate.frame(connection, frame)
        count_expired(connection.listener_index)
        reason = "the client sent a request after the end of its session, without having renewed its login"
        connection.close_after_responses(reason)
        connection.close_reason = reason
        return False

    def renew(self, connection: Any, mechanism: str, version: int) -> tuple[int, tuple[str, ...]] | None:
        """See `odradek.api.call.Logins`."""
        session = self._sessions.get(connection.connection_id)
        gate = None if session is None else self._renewal(session, connection)
        if gate is None:
            return None
        code, mechanisms = gate.exchange.handshake(mechanism, version)
        if code != ErrorCode.NONE:
            reason = "the client tried to renew its login with a mechanism that is not enabled"
            gate.noted = True
            self._note_failure(connection, "", reason, True, _former_user(gate))
            connection.close_after_responses(reason)
        return code, mechanisms

    def _renewal(self, session: Session, connection: Any) -> Gate | None:
        """Put a gate before a connection whose client renews its login; None if it did so less than a second ago."""
        settings = self._settings_of(connection)
        now = self._loop.time()
        if settings is None or (session.renewed_at is not None and now - session.renewed_at < RENEWALS_APART_S):
            return None
        session.renewed_at = now
        if session.timer is not None:
            session.timer.cancel()
            session.timer = None
        del self._sessions[connection.connection_id]
        gate = connection.gate = Gate(self, settings, session)
        gate.exchange = self._exchange(connection, settings, session.former)
        connection.limit_frames(self._max_receive_bytes)
        self._renewing[connection.connection_id] = connection, now + self._timeout_s
        if self._sweep is None:
            self._sweep = self._loop.call_later(self._timeout_s, self._close_late)
        return gate
