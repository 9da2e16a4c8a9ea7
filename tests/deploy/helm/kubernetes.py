"""A real API server of Kubernetes with its etcd, for tests, and a small client of it.

There are no controllers and no kubelet: objects are stored, checked and admitted, but nothing makes pods of StatefulSets, and
no pod runs.
"""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlencode

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.deploy.helm import tools
from tests.ports import reserved
from tests.waiting import until

Object = dict[str, Any]
_TIMEOUT_S = 60


class ApiError(Exception):
    """A response with an error: its status code, and the message of the API server."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class ApiServer:
    """etcd and kube-apiserver on free ports of 127.0.0.1, with their data in `directory`. `close` ends both.

    Attributes: ``url``; ``certificate``, its own (PEM); ``kubeconfig``, the file for Helm, as a user who may do everything.
    """

    def __init__(self, directory: Path) -> None:
        self._token = secrets.token_hex(16)
        self._exit = ExitStack()
        self._plurals: dict[str, dict[str, tuple[str, bool]]] = {}
        try:
            self._start(directory)
        except BaseException:
            self.close()
            raise

    def _start(self, directory: Path) -> None:
        client, peer, port = (self._exit.enter_context(reserved()) for _ in range(3))
        store, peers = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        etcd = [tools.etcd(), "--data-dir", directory / "etcd", "--listen-client-urls", store, "--advertise-client-urls", store,
                "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}",
                "--unsafe-no-fsync"]  # fmt: skip
        server = tools.kube_apiserver()
        self._run(etcd, directory / "etcd.log")
        key = rsa.generate_private_key(65537, 2048)
        account_key = directory / "accounts.key"
        account_key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        tokens = directory / "tokens.csv"
        tokens.write_text(f"{self._token},admin,admin,system:masters\n")
        self._run(
            [server, "--etcd-servers", store, "--bind-address", "127.0.0.1", "--secure-port", port,
             "--cert-dir", directory / "tls", "--token-auth-file", tokens, "--authorization-mode", "RBAC",
             "--service-account-issuer", "https://kubernetes.test", "--service-account-signing-key-file", account_key,
             "--service-account-key-file", account_key,
             "--service-cluster-ip-range", "10.0.0.0/16"],
            directory / "apiserver.log",
        )  # fmt: skip
        self.url = f"https://127.0.0.1:{port}"
        until(self._is_ready, lambda: f"ready: {(directory / 'apiserver.log').read_text()[-2000:]}")
        self.kubeconfig = directory / "kubeconfig"
        self.certificate = (directory / "tls/apiserver.crt").read_bytes()
        certificate = base64.b64encode(self.certificate).decode()
        self.kubeconfig.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "test",
                    "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
                    "users": [{"name": "admin", "user": {"token": self._token}}],
                    "clusters": [
                        {"name": "test", "cluster": {"server": self.url, "certificate-authority-data": certificate}}
                    ],
                }
            )
        )

    def _run(self, command: Iterable[object], log: Path) -> None:
        output: IO[bytes] = self._exit.enter_context(log.open("wb"))
        process = subprocess.Popen(
            [*map(str, command)], stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        self._exit.callback(self._end, process)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def close(self) -> None:
        """End both processes."""
        self._exit.close()

    def _is_ready(self) -> bool:
        try:
            self.request("GET", "/readyz")
        except (ApiError, OSError):
            return False
        return True

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        content_type: str = "application/json",
        token: str = "",
    ) -> Any:
        """The parsed response. Raises ApiError, OSError. :param token: of another user than the one who may do everything."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token or self._token}", "Content-Type": content_type}
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        context = ssl._create_unverified_context()  # its own certificate, on 127.0.0.1
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as response:
                text = response.read().decode()
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            raise ApiError(error.code, json.loads(text)["message"] if text.startswith("{") else text) from None
        return json.loads(text) if text.startswith("{") else text

    def path(self, item: Object) -> str:
        """The path of an object's kind, in its namespace."""
        version, kind = item["apiVersion"], item["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if version not in self._plurals:
            resources = self.request("GET", root)["resources"]
            self._plurals[version] = {
                found["kind"]: (found["name"], found["namespaced"]) for found in resources if "/" not in found["name"]
            }
        plural, namespaced = self._plurals[version][kind]
        return f"{root}/namespaces/{item['metadata']['namespace']}/{plural}" if namespaced else f"{root}/{plural}"

    def create(self, item: Object, **query: str) -> Object:
        """Create an object. :param query: such as dryRun="All". Raises ApiError."""
        parameters = urlencode({"fieldValidation": "Strict"} | query)
        return self.request("POST", f"{self.path(item)}?{parameters}", item)  # type: ignore[no-any-return]

    def read(self, item: Object) -> Object | None:
        """The object of this kind, namespace and name; None without one."""
        try:
            return self.request("GET", f"{self.path(item)}/{item['metadata']['name']}")  # type: ignore[no-any-return]
        except ApiError as error:
            if error.status != 404:
                raise
            return None

    def patch(self, item: Object, change: Object, part: str = "") -> Object:
        """Merge `change` into an object, or into its `part`, such as "/status"."""
        path = f"{self.path(item)}/{item['metadata']['name']}{part}"
        return self.request("PATCH", path, change, "application/merge-patch+json")  # type: ignore[no-any-return]


def differences(wanted: Any, found: Any, where: str = "") -> list[str]:
    """What `found` lacks of `wanted`; it may have more fields (defaults of the server), but no more elements of lists."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            line
            for name, value in wanted.items()
            if value is not None
            for line in differences(value, found.get(name), f"{where}.{name}")
        ]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = enumerate(zip(wanted, found, strict=True))
        return [line for i, (left, right) in pairs for line in differences(left, right, f"{where}[{i}]")]
    return [] if wanted == found or (wanted in ({}, []) and found is None) else [f"{where}: {wanted!r}, but {found!r}"]
