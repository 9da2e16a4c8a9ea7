"""Delegation tokens in the metadata store: created, renewed, expired, described and swept. Rules and codes are Kafka 4.3's.

Runs in the coordinator's store thread. The store decides: a change reads the node and writes it with its version, so a renewal
never brings back a token that another broker has removed. All tokens are also in memory, to find them by their HMACs, to
describe and to count them; in a cluster, notifications keep this memory up to date. A login reads the store.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable
from typing import NamedTuple

from odradek import clock
from odradek.config.broker_config import BrokerConfig
from odradek.controller.topics import Refusal
from odradek.metadata import token_nodes
from odradek.metadata.store import BadVersion, NoNode, Store, StoreUnavailable, Transaction, ensure_path
from odradek.metadata.znodes import CorruptNode
from odradek.printable import printable
from odradek.protocol.errors import ErrorCode
from odradek.security.delegation_token import Token, hmac_of, is_id, new_id

log = logging.getLogger("odradek.controller")

SECRET, OLD_SECRET = "delegation.token.secret.key", "delegation.token.master.key"
LAST_TIME_MS = (1 << 63) - 1
READ_AT_ONCE = 500
DESCRIBED_AT_ONCE = 200
SWEPT_AT_ONCE = 100
ATTEMPTS = 20
"""How often a change is repeated because another broker changed the same token."""
WARN_EVERY_MS = 60_000
MOST_RENEWERS = 100
MOST_BYTES = 16 << 10
"""The largest size of a token's node."""


class TokenSettings(NamedTuple):
    """The settings of tokens; times in ms. ``most``, ``most_of_principal``: numbers of tokens, in all and of a principal."""

    key: bytes
    max_lifetime_ms: int
    expiry_ms: int
    check_interval_ms: int
    most: int
    most_of_principal: int

    def __repr__(self) -> str:
        return "<TokenSettings>"


def secret_key_of(config: BrokerConfig) -> bytes:
    """The key that signs tokens; empty if the broker has no tokens."""
    value = config[SECRET] if config[SECRET] is not None else config[OLD_SECRET]
    return b"" if value is None else str(value).encode()


def token_settings(config: BrokerConfig) -> TokenSettings | None:
    """The settings; None without a secret key: then the broker has no tokens."""
    key = secret_key_of(config)
    if not key:
        return None
    return TokenSettings(
        key,
        config.integer("delegation.token.max.lifetime.ms"),
        config.integer("delegation.token.expiry.time.ms"),
        config.integer("delegation.token.expiry.check.interval.ms"),
        config.integer("odradek.delegation.tokens.max"),
        config.integer("odradek.delegation.tokens.max.per.principal"),
    )


def _nothing() -> None:
    pass


def _uncounted(_name: str) -> None:
    pass


class DelegationTokens:
    """See the module.

    :param notifies: whether other brokers must be notified of changes. :param now_ms: the wall clock.
    :ivar announce: lets all workers check again the tokens of logins under way, and waits until they do so. :ivar count: counts
        an event of these: `tokens_created`, `tokens_renewed`, `tokens_expired`.
    """

    def __init__(
        self, store: Store, settings: TokenSettings, notifies: bool, now_ms: Callable[[], int] = clock.now_ms
    ) -> None:
        self._store = store
        self._settings = settings
        self._notifies = notifies
        self._now_ms = now_ms
        self._tokens: dict[str, Token] = {}
        self._by_hmac: dict[bytes, str] = {}
        self._counts: Counter[str] = Counter()  # of tokens, by owner and requester
        self._warn_after_ms = 0
        self.announce: Callable[[], None] = _nothing
        self.count: Callable[[str], None] = _uncounted

    @property
    def check_interval_s(self) -> float:
        """The time in seconds between two sweeps."""
        return self._settings.check_interval_ms / 1000

    def __len__(self) -> int:
        return len(self._tokens)

    def live(self) -> int:
        """The number of tokens that have not expired."""
        now = self._now_ms()
        return sum(not token.has_expired(now) for token in self._tokens.values())

    def hmac(self, token: Token) -> bytes:
        """The HMAC of a token."""
        return hmac_of(self._settings.key, token.token_id)

    # -- memory -----------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read all tokens. A node that cannot be decoded is logged and left out: nobody can log in with it. Raises
        StoreError."""
        for path in (token_nodes.TOKENS, token_nodes.CHANGES):
            ensure_path(self._store, path)
        for token_id in list(self._tokens):
            self._drop(token_id)
        self.reload(self._store.children(token_nodes.TOKENS))

    def reload(self, token_ids: Iterable[str]) -> None:
        """Read tokens that other brokers changed. Raises StoreError."""
        ids = [token_id for token_id in dict.fromkeys(token_ids) if is_id(token_id)]
        for first in range(0, len(ids), READ_AT_ONCE):
            some = ids[first : first + READ_AT_ONCE]
            nodes = self._store.get_many([token_nodes.path_of(token_id) for token_id in some])
            for token_id, node in zip(some, nodes, strict=True):
                self._drop(token_id)
                try:
                    if node is not None:
                        self._keep(token_nodes.decode_token(token_nodes.path_of(token_id), node[0]))
                except CorruptNode as error:
                    log.error("%s; nobody can log in with it", error)

    @staticmethod
    def _counted(token: Token) -> set[str]:
        return {token.owner, token.requester}

    def _keep(self, token: Token) -> None:
        self._drop(token.token_id)
        self._tokens[token.token_id] = token
        self._by_hmac[self.hmac(token)] = token.token_id
        self._counts.update(self._counted(token))

    def _drop(self, token_id: str) -> None:
        token = self._tokens.pop(token_id, None)
        if token is not None:
            self._by_hmac.pop(self.hmac(token), None)
            for principal in self._counted(token):
                self._counts[principal] -= 1
                if not self._counts[principal]:
                    del self._counts[principal]

    # -- reading ----------------------------------------------------------------------------------------------------

    def usable(self, token_id: str) -> Token | None:
        """The token with which a client may log in now; None if there is none with this id. Raises StoreError."""
        if not is_id(token_id):
            return None
        try:
            token, _ = self._read(token_id)
        except NoNode:
            return None
        except CorruptNode as error:
            log.error("%s; nobody can log in with it", error)
            return None
        return None if token.has_expired(self._now_ms()) else token

    def described(
        self, principal: str, owners: Collection[str] | None, permitted: Callable[[Token], bool]
    ) -> Generator[None, None, list[Token]]:
        """The tokens that a principal may see, oldest first. Yields after every `DESCRIBED_AT_ONCE` tokens.

        :param owners: only tokens of which one of these is owner, requester or renewer; None: all.
        :param permitted: whether the principal may see a token of which it is neither.
        """
        wanted = None if owners is None else frozenset(owners)
        found = []
        for number, token in enumerate(list(self._tokens.values()), 1):
            if number % DESCRIBED_AT_ONCE == 0:
                yield
            if wanted is not None and wanted.isdisjoint(token.principals):
                continue
            if principal in token.principals or permitted(token):
                found.append(token)
        return sorted(found, key=lambda token: (token.issued_ms, token.token_id))

    def _read(self, token_id: str) -> tuple[Token, int]:
        """The stored token and the version of its node. Raises NoNode, CorruptNode, StoreError."""
        path = token_nodes.path_of(token_id)
        try:
            data, stat = self._store.get(path)
        except NoNode:
            self._drop(token_id)
            raise
        return token_nodes.decode_token(path, data), stat.version

    # -- changing ---------------------------------------------------------------------------------------------------

    def create(self, owner: str, requester: str, renewers: Collection[str], max_lifetime_ms: int) -> Token:
        """Create a token. :param max_lifetime_ms: 0 or less: that of the settings. Raises Refusal, StoreError."""
        now, settings = self._now_ms(), self._settings
        lifetime = min(settings.max_lifetime_ms, max_lifetime_ms) if max_lifetime_ms > 0 else settings.max_lifetime_ms
        max_ms = min(now + lifetime, LAST_TIME_MS)
        expires_ms = min(max_ms, now + settings.expiry_ms)
        token = Token(new_id(), owner, requester, tuple(renewers), now, max_ms, expires_ms)
        data = token_nodes.encode_token(token)
        self._check_limits(token, len(data))
        transaction = self._store.transaction()
        transaction.create(token_nodes.path_of(token.token_id), data)
        self._notify(transaction, token.token_id)
        transaction.commit()
        self._keep(token)
        self.count("tokens_created")
        log.info("created the delegation token %s of %s for %s", token.token_id, printable(owner), printable(requester))
        return token

    def renew(self, principal: str, digest: bytes, period_ms: int) -> int:
        """Set the expiry of the token with this HMAC; returns it. :param period_ms: from now; 0 or less, or more than that of
        the settings: that of the settings. Raises Refusal, StoreError."""
        period = min(self._settings.expiry_ms, period_ms) if period_ms > 0 else self._settings.expiry_ms

        def change(token: Token, now: int) -> Token:
            if token.has_expired(now):
                raise Refusal(ErrorCode.DELEGATION_TOKEN_EXPIRED, f"token {token.token_id} has expired")
            self._check_renewer(token, principal)
            return token._replace(expires_ms=min(token.max_ms, now + period))

        expires_ms = self._change(digest, change, principal)
        self.count("tokens_renewed")
        return expires_ms

    def expire(self, principal: str, digest: bytes, period_ms: int) -> int:
        """Set the expiry of the token with this HMAC; returns it. When the call returns, no login succeeds with the token after
        that time. :param period_ms: from now; negative: remove the token. Raises Refusal, StoreError."""

        def change(token: Token, now: int) -> Token | None:
            self._check_renewer(token, principal)
            if period_ms < 0:
                return None
            if token.has_expired(now):
                raise Refusal(ErrorCode.DELEGATION_TOKEN_EXPIRED, f"token {token.token_id} has expired")
            return token._replace(expires_ms=min(token.max_ms, now + period_ms))

        return self._change(digest, change, principal)

    def sweep(self) -> bool:
        """Remove up to `SWEPT_AT_ONCE` expired tokens; returns whether there are more. Nobody can log in with them. Raises
        StoreError."""
        now = self._now_ms()
        expired = [token.token_id for token in self._tokens.values() if token.has_expired(now)]
        for token_id in expired[:SWEPT_AT_ONCE]:
            try:
                token, version = self._read(token_id)
                if not token.has_expired(now):
                    self._keep(token)  # another broker has changed it
                    continue
                self._write(token, None, version)
                log.info("removed the expired delegation token %s of %s", token_id, printable(token.owner))
            except (NoNode, BadVersion):
                pass  # another broker has removed or changed it: its notification follows
            except CorruptNode as error:  # it must not keep the others from being removed
                self._drop(token_id)
                log.error("%s; nobody can log in with it", error)
        return len(expired) > SWEPT_AT_ONCE

    def _check_limits(self, token: Token, size: int) -> None:
        """Raise Refusal if a token would exceed a limit; expired tokens are removed before they count."""
        if len(token.renewers) > MOST_RENEWERS or size > MOST_BYTES:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"{len(token.renewers)} renewers, {size} bytes; allowed are {MOST_RENEWERS} and {MOST_BYTES}",
            )
        if self._exceeded(token) is not None:
            self.sweep()
        exceeded = self._exceeded(token)
        if exceeded is not None:
            now = self._now_ms()
            if now >= self._warn_after_ms:
                self._warn_after_ms = now + WARN_EVERY_MS
                log.warning("refused to create a delegation token for %s: %s", printable(token.requester), exceeded)
            raise Refusal(ErrorCode.POLICY_VIOLATION, exceeded)

    def _exceeded(self, token: Token) -> str | None:
        settings = self._settings
        if len(self._tokens) >= settings.most:
            return f"there are {len(self._tokens)} tokens (odradek.delegation.tokens.max={settings.most})"
        for principal in sorted(self._counted(token)):
            if self._counts[principal] >= settings.most_of_principal:
                return (
                    f"{printable(principal)} owns or requested {self._counts[principal]} tokens "
                    f"(odradek.delegation.tokens.max.per.principal={settings.most_of_principal})"
                )
        return None

    @staticmethod
    def _check_renewer(token: Token, principal: str) -> None:
        if not token.may_renew(principal):
            raise Refusal(
                ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
                f"{principal} is neither the owner nor a renewer of token {token.token_id}",
            )

    def _change(self, digest: bytes, change: Callable[[Token, int], Token | None], principal: str) -> int:
        """Change or remove (None) the token with this HMAC. Returns the time at which it expires. Raises Refusal,
        StoreError."""
        token_id = self._by_hmac.get(digest)
        for _ in range(ATTEMPTS):
            try:
                if token_id is None:
                    raise NoNode(token_nodes.TOKENS)
                token, version = self._read(token_id)
            except NoNode:
                raise Refusal(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "no token has this HMAC") from None
            now = self._now_ms()
            changed = change(token, now)
            shortened = changed is None or changed.expires_ms < token.expires_ms
            try:
                self._write(token, changed, version)
            except (BadVersion, NoNode):
                continue
            finally:
                if shortened:  # also after an error: the change may have happened
                    self.announce()
            expires_ms = now if changed is None else changed.expires_ms
            what = "removed" if changed is None else f"set the expiry to {expires_ms} of"
            names = printable(token.owner), printable(principal)
            log.info("%s the delegation token %s of %s for %s", what, token_id, *names)
            return expires_ms
        raise StoreUnavailable(
            f"other brokers changed the token {token_id} {ATTEMPTS} times in the meantime; send the request again"
        )

    def _write(self, token: Token, changed: Token | None, version: int) -> None:
        transaction = self._store.transaction()
        path = token_nodes.path_of(token.token_id)
        if changed is None:
            transaction.delete(path, version)
        else:
            transaction.set(path, token_nodes.encode_token(changed), version)
        self._notify(transaction, token.token_id)
        transaction.commit()
        if changed is None:
            self.count("tokens_expired")
            self._drop(token.token_id)
        else:
            self._keep(changed)

    def _notify(self, transaction: Transaction, token_id: str) -> None:
        if self._notifies:
            path, data = token_nodes.change_of(token_id)
            transaction.create(path, data, sequential=True)


def opened_tokens(config: BrokerConfig, store: Store, notifies: bool) -> DelegationTokens | None:
    """The tokens of the store; None without a secret key. Raises StoreError."""
    settings = token_settings(config)
    if settings is None:
        return None
    tokens = DelegationTokens(store, settings, notifies)
    tokens.load()
    return tokens
