"""Removes secrets from what `odradek doctor --bundle` writes: settings by the table of keys, other texts by the known secrets.

Pure functions. The rule for settings errs on the side of hiding: a value stays only if the table has its key, the key is no
password, and the value is no JAAS line.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from odradek.config.table import TOPIC_KEYS, broker_key

HIDDEN = "[hidden]"
SHORTEST_SECRET = 4
"""Shorter texts are not searched for: they occur everywhere, and a broker never writes a secret to its log or its metrics."""
_OPTION_OF_JAAS = re.compile(r'=\s*(?:"((?:\\.|[^"\\])*)"|([^\s";]+))')
_LOGIN_IN_URL = re.compile(r"(\w+://)[^/@\s\"']+@")
_NAME = r"(?:[\w.-]*(?:passwo?r?d|secret|credential|private.?key|api.?key|access.?key|token)|sasl\.jaas\.config)[\w.-]*"
_IN_JSON = re.compile(rf'("{_NAME}"\s*:\s*)"(?:\\.|[^"\\])+"', re.IGNORECASE)
_IN_TEXT = re.compile(rf'({_NAME}\s*[=:]\s*)("(?:\\.|[^"\\])*"|[^\s,;"]+)', re.IGNORECASE)


class Settings(NamedTuple):
    """Settings without secrets, and the texts that were removed."""

    shown: list[tuple[str, str]]
    secrets: frozenset[str]


def without_secrets(settings: Iterable[tuple[str, str]]) -> Settings:
    """Hide the values of passwords, of keys that the broker does not know, and of JAAS lines."""
    shown: list[tuple[str, str]] = []
    secrets: set[str] = set()
    for name, text in settings:
        if is_secret(name, text):
            secrets.update(_secrets_in(text))
            shown.append((name, HIDDEN))
        else:
            shown.append((name, _LOGIN_IN_URL.sub(rf"\1{HIDDEN}@", text)))
    return Settings(shown, frozenset(secrets))


def is_secret(name: str, text: str) -> bool:
    """Whether a setting must not be shown."""
    row = broker_key(name) or TOPIC_KEYS.get(name)
    return row is None or row.sensitive or "LoginModule" in text


def _secrets_in(text: str) -> set[str]:
    """A removed value, and the options of the JAAS line that it may be."""
    parts = {text, *(quoted or plain for quoted, plain in _OPTION_OF_JAAS.findall(text))}
    return {part for part in parts if len(part) >= SHORTEST_SECRET}


def scrubbed(text: str, secrets: Iterable[str]) -> str:
    """A text without the secrets, without logins in URLs, and without values after names that look like those of secrets."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = _LOGIN_IN_URL.sub(rf"\1{HIDDEN}@", text)
    return _IN_TEXT.sub(rf"\1{HIDDEN}", _IN_JSON.sub(rf'\1"{HIDDEN}"', text))
