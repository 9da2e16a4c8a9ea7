"""The server's side of a login on one connection, without I/O: frames in, actions out.

States and texts are those of Kafka's SaslServerAuthenticator. Until the client has logged in, only ApiVersions (once),
SaslHandshake and the tokens of the mechanism are processed; no action of `Exchange.frame` executes another request.
"""

import struct
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from odradek import clock
from odradek._ext.protocol.decoder import decode
from odradek._ext.protocol.encoder import encode
from odradek._ext.protocol.messages import ProtocolError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import api_versions, sasl_authenticate, sasl_handshake
from odradek.protocol.schemas.header import decode_request_header, response_header_version
from odradek.security.acl import ANONYMOUS_USER
from odradek.security.sasl.mechanism import (
    Challenge,
    CredentialQuestion,
    KeysQuestion,
    Mechanism,
    Proven,
    Refused,
    Step,
)
from odradek.security.sasl.scram_credential import ScramCredential

_HEAD = struct.Struct(">hhi")
_CORRELATION = struct.Struct(">i")
MOST_ELEMENTS = 16
"""The largest number of elements in all arrays of a request before the login; these requests have none."""
HANDSHAKE_VERSIONS = range(2)
AUTHENTICATE_VERSIONS = range(3)
WITH_REQUESTS = 1
"""The version of SaslHandshake from which on tokens are sent in SaslAuthenticate requests."""


class State(Enum):
    """The next frame: ApiVersions or SaslHandshake; SaslHandshake; a token; none until the action is done; none."""

    BEGIN = "begin"
    HANDSHAKE = "handshake"
    TOKEN = "token"
    WAITING = "waiting"
    ENDED = "ended"

    __hash__ = object.__hash__  # Enum's own is a function in Python, which each step of a login would call


TRANSITIONS = {
    State.BEGIN: {State.HANDSHAKE, State.TOKEN, State.ENDED},
    State.HANDSHAKE: {State.TOKEN, State.ENDED},
    State.TOKEN: {State.WAITING, State.TOKEN, State.ENDED},
    State.WAITING: {State.TOKEN, State.ENDED},
    State.ENDED: set[State](),
}


class Versions(NamedTuple):
    """Answer this ApiVersions request as usual, then call `Exchange.versions_sent`."""


class Respond(NamedTuple):
    """Send this frame (without its length); the exchange continues. ``refusal``, ``user``: see `Challenge`."""

    data: bytes
    refusal: str = ""
    user: str = ""


class Ask(NamedTuple):
    """Find this credential, then call `Exchange.answered`, or look for newer keys, then call `Exchange.resumed`. Call
    `Exchange.unanswered` if the question cannot be answered."""

    question: CredentialQuestion | KeysQuestion


class Done(NamedTuple):
    """Send this frame; the client has logged in as `user`. ``lifetime_ms``: of the session; 0: unlimited.

    ``by_token``: with a delegation token.
    """

    data: bytes
    user: str
    mechanism: str
    lifetime_ms: int
    by_token: bool = False


class Failed(NamedTuple):
    """The login failed: after a delay, send this frame, if there is one, and close the connection.

    ``reason``: for the log. ``api_key``, ``code``: of the response, for metrics. ``user``: that the client named, which is
    not proven; "": unknown. ``detail``: see `Refused`.
    """

    data: bytes | None
    reason: str
    mechanism: str
    api_key: int = sasl_authenticate.API_KEY
    code: int = ErrorCode.SASL_AUTHENTICATION_FAILED
    user: str = ""
    detail: str = ""


Action = Versions | Respond | Ask | Done | Failed


class Former(NamedTuple):
    """The login that a new one on the same connection renews: the user and the mechanism must be the same."""

    user: str
    mechanism: str


class Exchange:
    """See the module.

    :param mechanisms: names of the enabled mechanisms, in the order of the configuration.
    :param make: makes the mechanism of a name.
    :param lifetime_ms: the lifetime of a session by mechanism; 0: unlimited.
    :param former: set if the client renews its login. :param now_ms: the wall clock.
    """

    def __init__(
        self,
        mechanisms: Sequence[str],
        make: Callable[[str], Mechanism],
        lifetime_ms: Callable[[str], int],
        former: Former | None = None,
        now_ms: Callable[[], int] = clock.now_ms,
    ) -> None:
        self._now_ms = now_ms
        self._mechanisms = tuple(mechanisms)
        self._make = make
        self._lifetime_ms = lifetime_ms
        self._former = former
        self._now_ms = now_ms
        self._proof: Proven | None = None
        self._mechanism: Mechanism | None = None
        self._bad_renewal = ""
        self._user = ""  # that the client named
        self._version: int | None = None  # of the SaslAuthenticate request under way; None: tokens without requests
        self._correlation_id = 0
        self._requests = False
        self.state = State.BEGIN if former is None else State.HANDSHAKE
        self.mechanism = ""

    @property
    def raw(self) -> bool:
        """Whether the next frame is a token without a request header."""
        return self.state in (State.TOKEN, State.WAITING) and not self._requests

    def _go(self, state: State) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"a login went from {self.state} to {state}")
        self.state = state

    # -- frames ---------------------------------------------------------------------------------------------------

    def frame(self, frame: bytes) -> Action:
        """Process a frame (without its length)."""
        if self.state is State.TOKEN:
            return self._token(frame) if self._requests else self._evaluate(frame)
        if self.state not in (State.BEGIN, State.HANDSHAKE):
            raise AssertionError(f"a frame was offered to a login in {self.state}")
        return self._request(frame)

    def _request(self, frame: bytes) -> Action:
        if len(frame) < _HEAD.size:
            return self._fail(f"a request of {len(frame)} bytes before the login")
        key, version, correlation_id = _HEAD.unpack_from(frame)
        if key == api_versions.API_KEY:
            if self.state is State.BEGIN:
                return Versions()
            return self._fail("an ApiVersions request where SaslHandshake must follow")
        if key != sasl_handshake.API_KEY or version not in HANDSHAKE_VERSIONS:
            return self._fail(
                f"a request of API key {key}, version {version}, before the login (a client without SASL settings: its "
                "security.protocol must be SASL_SSL or SASL_PLAINTEXT)"
            )
        try:
            _, body = decode_request_header(frame)
            request, _ = decode(sasl_handshake.Request, version, frame, body, MOST_ELEMENTS)
        except ProtocolError as error:
            return self._fail(f"a SaslHandshake request that cannot be read: {error}")
        code, mechanisms = self.handshake(request.mechanism, version)
        response = sasl_handshake.Response(error_code=code, mechanisms=list(mechanisms))
        data = _framed(sasl_handshake.API_KEY, version, correlation_id, response)
        if code:
            self._go(State.ENDED)
            return Failed(data, "a mechanism that is not enabled", "", sasl_handshake.API_KEY, code)
        return Respond(data)

    def handshake(self, mechanism: str, version: int) -> tuple[int, tuple[str, ...]]:
        """Choose a mechanism. Returns the error code and the enabled mechanisms; with an error, the login has failed."""
        if mechanism not in self._mechanisms:
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM, self._mechanisms
        if self._former is not None and mechanism != self._former.mechanism:
            # As in Kafka, the handshake succeeds and the next token fails.
            self._bad_renewal = (
                f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication of mechanism "
                f"'{self._former.mechanism}'"
            )
        self.mechanism = mechanism
        self._mechanism = self._make(mechanism)
        self._requests = version >= WITH_REQUESTS
        self._go(State.TOKEN)
        return ErrorCode.NONE, self._mechanisms

    def versions_sent(self, code: int) -> None:
        """The ApiVersions request was answered with this error code: after an error, the client may send it again."""
        if not code:
            self._go(State.HANDSHAKE)

    def _token(self, frame: bytes) -> Action:
        if len(frame) < _HEAD.size:
            return self._fail(f"a request of {len(frame)} bytes during the login")
        key, version, correlation_id = _HEAD.unpack_from(frame)
        if key != sasl_authenticate.API_KEY or version not in AUTHENTICATE_VERSIONS:
            return self._unexpected(frame, key, version, correlation_id)
        try:
            _, body = decode_request_header(frame)
            request, _ = decode(sasl_authenticate.Request, version, frame, body, MOST_ELEMENTS)
        except ProtocolError as error:
            return self._fail(f"a SaslAuthenticate request that cannot be read: {error}")
        self._version, self._correlation_id = version, correlation_id
        return self._evaluate(bytes(request.auth_bytes))

    def _unexpected(self, frame: bytes, key: int, version: int, correlation_id: int) -> Action:
        """Another request than SaslAuthenticate. The response to those before a login can say so."""
        reason = f"a request of API key {key}, version {version}, during the login"
        of_api: dict[int, tuple[Any, range]] = {
            sasl_handshake.API_KEY: (sasl_handshake.Response, HANDSHAKE_VERSIONS),
            api_versions.API_KEY: (api_versions.Response, range(5)),
        }
        make, versions = of_api.get(key, (None, range(0)))
        if version not in versions:
            return self._fail(reason)
        self._go(State.ENDED)
        code = ErrorCode.ILLEGAL_SASL_STATE
        return Failed(_framed(key, version, correlation_id, make(error_code=code)), reason, self.mechanism, key, code)

    # -- tokens ---------------------------------------------------------------------------------------------------

    def _evaluate(self, token: bytes) -> Action:
        assert self._mechanism is not None
        if self._bad_renewal:
            return self._fail(self._bad_renewal)
        try:
            return self._step(self._mechanism.evaluate(token))
        except Refused as refusal:
            return self._refuse(refusal)

    def answered(self, credential: ScramCredential) -> Action:
        """Continue after an `Ask`."""
        assert self._mechanism is not None and self.state is State.WAITING
        try:
            return self._step(self._mechanism.answered(credential))
        except Refused as refusal:
            return self._refuse(refusal)

    def resumed(self) -> Action:
        """Continue after an `Ask` for newer keys, whether there are any or not."""
        assert self._mechanism is not None and self.state is State.WAITING
        try:
            return self._step(self._mechanism.resumed())
        except Refused as refusal:
            return self._refuse(refusal)

    def unanswered(self, reason: str) -> Action:
        """Continue after an `Ask` for which no answer could be got: the client may try again later.

        Without a response, clients do not take the failure for wrong credentials.
        """
        return self._fail(reason)

    def _step(self, step: Step) -> Action:
        if isinstance(step, CredentialQuestion | KeysQuestion):
            if isinstance(step, CredentialQuestion):
                self._user = f"delegation token {step.user}" if step.by_token else step.user
            self._go(State.WAITING)
            return Ask(step)
        if isinstance(step, Challenge):
            self._go(State.TOKEN)
            return Respond(self._answer(auth_bytes=step.token, error_message=""), step.refusal, step.user)
        return self._proven(step)

    def _proven(self, step: Proven) -> Action:
        self._user = self._user or step.user
        if step.user == ANONYMOUS_USER:
            text = f"The user name {ANONYMOUS_USER} is that of clients without a login; choose another name"
            return self._refuse(Refused(f"the user name {ANONYMOUS_USER} is that of clients without a login", text))
        former = self._former
        if former is not None and step.user != former.user:
            text = f"Cannot change principals during re-authentication from User.{former.user}: User.{step.user}"
            return self._refuse(Refused("another user than before", text))
        self._proof = step
        self._go(State.ENDED)
        return self._done(step)

    def _done(self, step: Proven) -> Done | Failed:
        lifetime_ms = self._lifetime_ms(self.mechanism)
        if step.expires_ms:
            left_ms = step.expires_ms - self._now_ms()
            if step.by_token and left_ms <= 0:
                return self._failure(Refused("the delegation token has expired"))
            # a JWT is accepted after its end, because clocks differ; 0 would be a session without an end
            left_ms = max(1, left_ms)
            lifetime_ms = min(lifetime_ms or left_ms, left_ms)
        data = self._answer(auth_bytes=step.token, error_message="", session_lifetime_ms=lifetime_ms)
        return Done(data, step.user, self.mechanism, lifetime_ms, by_token=step.by_token)

    def confirmed(self, expires_ms: int) -> Action:
        """Instead of `Done`, if credentials were changed since the exchange began, but this one is the same.

        :param expires_ms: its expiry now, see `Proven`.
        """
        assert self._proof is not None
        return self._done(self._proof._replace(expires_ms=expires_ms))

    def revoked(self) -> Failed:
        """Instead of `Done`: the credential was changed since the exchange began."""
        return self._failure(Refused("the credential was changed during the login"))

    def _refuse(self, refusal: Refused) -> Failed:
        self._go(State.ENDED)
        return self._failure(refusal)

    def _failure(self, refusal: Refused) -> Failed:
        during = "authentication" if self._former is None else "re-authentication"
        text = refusal.text or (
            f"Authentication failed during {during} due to invalid credentials with SASL mechanism {self.mechanism}"
        )
        data = None
        if self._requests:
            data = self._answer(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text, auth_bytes=b"")
        return Failed(data, refusal.reason, self.mechanism, user=self._user or refusal.user, detail=refusal.detail)

    def _fail(self, reason: str) -> Failed:
        self._go(State.ENDED)
        return Failed(None, reason, self.mechanism, user=self._user)

    def _answer(self, auth_bytes: bytes, **fields: Any) -> bytes:
        """A frame with a token for the client: a response, or the token alone."""
        if self._version is None:
            return auth_bytes
        response = sasl_authenticate.Response(auth_bytes=auth_bytes, **fields)
        return _framed(sasl_authenticate.API_KEY, self._version, self._correlation_id, response)


def _framed(key: int, version: int, correlation_id: int, response: Any) -> bytes:
    """An encoded response with its header."""
    head = _CORRELATION.pack(correlation_id)
    if response_header_version(key, version):
        head += b"\0"
    return head + bytes(encode(response, version))
