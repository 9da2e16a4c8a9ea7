"""The nodes of delegation tokens in the metadata tree, as Kafka 3.9 in ZooKeeper mode has them. Pure functions and values."""

import json
from typing import Any

from odradek.metadata.znodes import UNDECODABLE, CorruptNode, decode_name, encode_name
from odradek.security.delegation_token import Token

TOKENS = "/delegation_token/tokens"
CHANGES = "/delegation_token/token_changes"
CHANGE = "token_change_"
_VERSION, _FIRST_WITH_REQUESTER = 3, 3


def path_of(token_id: str) -> str:
    """The path of a token's node."""
    return f"{TOKENS}/{token_id}"


def encode_token(token: Token) -> bytes:
    """The data of a token's node, in version 3. Principals are encoded as the names of nodes are."""
    value = {
        "version": _VERSION,
        "owner": encode_name(token.owner),
        "tokenRequester": encode_name(token.requester),
        "renewers": [encode_name(renewer) for renewer in token.renewers],
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.max_ms,
        "expiryTimestamp": token.expires_ms,
        "tokenId": token.token_id,
    }
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode_token(path: str, data: bytes) -> Token:
    """The token of a node. Raises CorruptNode."""
    try:
        value: Any = json.loads(data)
        version = int(value["version"])
        if not 1 <= version <= _VERSION:
            raise ValueError(f"version {version}, expected 1 to {_VERSION}")
        owner = _principal(value["owner"])
        token = Token(
            str(value["tokenId"]),
            owner,
            _principal(value["tokenRequester"]) if version >= _FIRST_WITH_REQUESTER else owner,
            tuple(_principal(renewer) for renewer in value["renewers"]),
            int(value["issueTimestamp"]),
            int(value["maxTimestamp"]),
            int(value["expiryTimestamp"]),
        )
        if path != path_of(token.token_id):
            raise ValueError("the node has another name than the token")
    except UNDECODABLE as error:
        raise CorruptNode(
            f"cannot decode the delegation token in the metadata node {path} ({type(error).__name__}: {error})"
        ) from error
    return token


def _principal(text: Any) -> str:
    principal = decode_name(str(text))
    kind, sign, _ = principal.partition(":")
    if not kind or not sign:  # a client may name a renewer with an empty name
        raise ValueError(f"{principal!r} is not a principal, such as User:alice")
    return principal


def change_of(token_id: str) -> tuple[str, bytes]:
    """The path (of a sequential node) and the data of the notification that a token changed."""
    return f"{CHANGES}/{CHANGE}", token_id.encode()


def decode_change(path: str, data: bytes) -> str:
    """The id of the token that a notification names. Raises CorruptNode."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CorruptNode(f"cannot decode {path}: {data[:200]!r}") from error
