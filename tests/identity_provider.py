"""An identity provider for tests: signs tokens, and serves its keys and tokens over HTTP on 127.0.0.1."""

from __future__ import annotations

import base64
import functools
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

CLIENT = "a-client"
SECRET = "a secret: 50%+"
_CURVES = {"ES256": ec.SECP256R1, "ES384": ec.SECP384R1, "ES512": ec.SECP521R1}


@functools.cache
def private_key(algorithm: str, name: str = "", bits: int = 2048) -> Any:
    """A private key for an algorithm of tokens. The same arguments give the same one."""
    if algorithm in _CURVES:
        return ec.generate_private_key(_CURVES[algorithm]())
    return rsa.generate_private_key(65537, bits)


def public_jwk(key: Any, **members: Any) -> dict[str, Any]:
    """The public JWK of a private key."""
    kind = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    made = json.loads(kind.to_jwk(key.public_key()))
    made.pop("key_ops", None)
    return made | members


def claims(**other: Any) -> dict[str, Any]:
    """Claims of a token that is valid for a minute. None removes a claim."""
    now = int(time.time())
    made = {"sub": "alice", "iat": now, "exp": now + 60} | other
    return {name: value for name, value in made.items() if value is not None}


def token(key: Any = None, algorithm: str = "RS256", kid: str | None = "k1", **other: Any) -> str:
    """A signed token."""
    headers = {} if kid is None else {"kid": kid}
    payload = json.dumps(claims(**other)).encode()
    return jwt.PyJWS().encode(payload, private_key(algorithm) if key is None else key, algorithm, headers)


def segment(content: Any) -> str:
    """A part of a token, unsigned: JSON, or bytes as they are."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def jwks(*keys: dict[str, Any]) -> bytes:
    """A key set."""
    return json.dumps({"keys": list(keys)}).encode()


def default_jwks() -> bytes:
    """The key set with the default key of `token`."""
    return jwks(public_jwk(private_key("RS256"), kid="k1", use="sig"))


class IdentityProvider:
    """Serves ``/jwks`` and ``/token``; a context manager. `answer` replaces the response to GET: it receives the handler.

    :ivar keys: the document at ``/jwks``. :ivar reads: the number of requests for it. :ivar claims: other claims of its tokens.
    :ivar lifetime_s: of its tokens. :ivar down: whether it grants no tokens now. :ivar refused: how often it did not.
    """

    def __init__(self, context: Any = None) -> None:
        self.keys = default_jwks()
        self.reads = 0
        self.claims: dict[str, Any] = {}
        self.answer: Callable[[Any], None] | None = None
        self.forms: list[str] = []
        self.lifetime_s = 60
        self.down = False
        self.refused = 0
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.reads += 1
                if provider.answer is not None:
                    provider.answer(self)
                else:
                    self.reply(200, provider.keys)

            def do_POST(self) -> None:
                provider.forms.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                expected = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
                if self.headers["Authorization"] != f"Basic {expected}":
                    self.reply(401, b'{"error":"invalid_client","error_description":"no such client"}')
                    return
                if provider.down:
                    provider.refused += 1
                    self.reply(503, b"{}")
                    return
                ends = int(time.time()) + provider.lifetime_s
                made = {
                    "access_token": token(**{"exp": ends} | provider.claims),
                    "expires_in": provider.lifetime_s,
                    "token_type": "Bearer",
                }
                self.reply(200, json.dumps(made).encode())

            def reply(self, status: int, body: bytes, **headers: str) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "http" if context is None else "https"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def url(self, path: str = "jwks") -> str:
        """The URL of the keys, or of "token"."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}/{path}"

    def __enter__(self) -> IdentityProvider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
