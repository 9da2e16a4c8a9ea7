"""A client of a schema registry: reads Avro schemas by id and by subject, with Confluent's REST API, which others have too.

Runs in the driver, and in Spark's Python workers, which get a `Registry` with their task.
"""

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlsplit

from odradek.http_request import HttpError, RedirectError, Response, TooLargeError, basic_login, request
from odradek.jobs.load.errors import LoadError

#: The settings of a registry's client, with the names of Confluent's clients for Python.
SETTINGS = (
    "basic.auth.user.info",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
)
_LIMIT_S = 60
_LARGEST = 16 << 20
_LONGEST_MESSAGE = 200
_MOST_REFERENCES = 200
#: Error codes of the API: no such subject, no such version, no such schema.
_NOT_FOUND = frozenset((40401, 40402, 40403))


class NotInRegistryError(Exception):
    """The registry answered that it does not have what was asked for."""


class _NoPageError(LoadError):
    """The server has no such page."""


class UnusableSchemaError(LoadError):
    """The registry has the schema, but it cannot be used."""


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema of a registry. :param kind: AVRO, JSON or PROTOBUF. :param references: the texts of schemas that it uses, each
    after those that it uses itself.
    """

    kind: str
    text: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class Registry:
    """Where a registry is. :param settings: pairs of a name of `SETTINGS` and its value."""

    url: str
    settings: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    def check(self) -> None:
        """Raise LoadError if the registry does not answer, or refuses the login. A path that it does not have is accepted."""
        try:
            self._get("/schemas/types")
        except NotInRegistryError:
            return
        except _NoPageError:
            return

    def schema(self, number: int) -> RegisteredSchema:
        """The schema with an id. Raises NotInRegistryError, UnusableSchemaError, LoadError."""
        return self._described(f"/schemas/ids/{number}")

    def newest(self, subject: str) -> RegisteredSchema:
        """The newest schema of a subject. Raises NotInRegistryError, UnusableSchemaError, LoadError."""
        return self._described(f"/subjects/{quote(subject, safe='')}/versions/latest")

    def _described(self, path: str) -> RegisteredSchema:
        """Ask for a schema and those that it refers to, for each once; those that others use come first."""
        document = self._get(path)
        texts: dict[str, str] = {}
        begun = {path}
        todo = [(path, document, self._references(document))]
        while todo:
            above, described, references = todo[-1]
            below = next((reference for reference in references if reference not in begun), None)
            if below is None:
                todo.pop()
                texts[above] = str(described["schema"])
                continue
            if len(begun) > _MOST_REFERENCES:
                raise UnusableSchemaError(f"the schema refers to more than {_MOST_REFERENCES} others")
            begun.add(below)
            found = self._get(below)
            todo.append((below, found, self._references(found)))
        text = texts.pop(path)
        return RegisteredSchema(str(document.get("schemaType") or "AVRO"), text, tuple(texts.values()))

    def _references(self, document: Mapping[str, Any]) -> list[str]:
        """The paths of the schemas that one refers to."""
        try:
            return [
                f"/subjects/{quote(str(reference['subject']), safe='')}/versions/{int(reference['version'])}"
                for reference in document.get("references") or ()
            ]
        except (KeyError, TypeError, ValueError):
            raise UnusableSchemaError("the registry's list of references is not one of subjects and versions") from None

    def _get(self, path: str) -> Any:
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        login = dict(self.settings).get("basic.auth.user.info")
        if login is not None:
            headers |= basic_login(login)
        where = f"the schema registry {self.url}"
        try:
            response = request(
                self.url + path, limit_s=_LIMIT_S, largest=_LARGEST, context=lambda: _context(self), headers=headers
            )
        except RedirectError as error:
            response = Response(error.status, b"", error.reason)
        except TooLargeError:
            raise LoadError(f"{where}: the response to GET {path} has more than {_LARGEST >> 20} MiB") from None
        except HttpError as error:
            raise LoadError(f"{where} did not respond to GET {path}: {error}") from None
        document = _parsed(response.body)
        if response.status != 200:
            said = document if isinstance(document, dict) else {}
            if response.status == 404 and said.get("error_code") in _NOT_FOUND:
                raise NotInRegistryError(f"{where} has no {path}")
            message = f": {_plain(said['message'])}" if said.get("message") else ""
            kind = _NoPageError if response.status == 404 else LoadError
            raise kind(f"{where} answered {response.status} {_plain(response.reason)} to GET {path}{message}")
        if document is None or (path != "/schemas/types" and not (isinstance(document, dict) and "schema" in document)):
            raise LoadError(f"{where}: the response to GET {path} is not that of a schema registry")
        return document


def registry_of(url: str, settings: Mapping[str, str]) -> Registry:
    """The registry that the options name. Raises LoadError for a wrong URL or setting, or files that cannot be read."""
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and not parts.query
    except ValueError:
        right = False
    if not right or any(character.isspace() for character in url):
        raise LoadError(f"--registry {url}: expected a URL such as https://registry.example:8081")
    if parts.username is not None or parts.password is not None:
        raise LoadError(
            f"--registry {parts.scheme}://...@{parts.hostname}: the login must not be in the URL: set"
            " basic.auth.user.info in the file of --registry-config"
        )
    for name in settings:
        if name not in SETTINGS:
            raise LoadError(f"--registry-config: unknown setting {name}; expected {', '.join(SETTINGS)}")
    if ":" not in settings.get("basic.auth.user.info", ":"):
        raise LoadError("--registry-config: basic.auth.user.info is not of the form USER:PASSWORD")
    registry = Registry(url.rstrip("/"), tuple(sorted(settings.items())))
    _context(registry)
    return registry


@lru_cache(maxsize=4)
def _context(registry: Registry) -> ssl.SSLContext:
    settings = dict(registry.settings)
    files = {name: settings.get(f"ssl.{name}.location") for name in ("ca", "certificate", "key")}
    try:
        context = ssl.create_default_context(cafile=files["ca"])
        if files["certificate"] is not None:
            context.load_cert_chain(files["certificate"], files["key"], settings.get("ssl.key.password", ""))
    except (OSError, ssl.SSLError) as error:
        named = ", ".join(f"ssl.{name}.location={path}" for name, path in files.items() if path is not None)
        raise LoadError(f"--registry-config: {named}: {error}") from None
    return context


def _plain(text: object) -> str:
    """A text of the registry for a message of one line."""
    return "".join(letter if letter.isprintable() else " " for letter in str(text))[:_LONGEST_MESSAGE]


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
