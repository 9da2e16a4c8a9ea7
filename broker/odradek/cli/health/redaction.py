"""Removes secrets from what `odradek doctor --bundle` writes: settings by the table of keys, other texts by the known secrets.

Pure functions. A setting is shown only if the table has its key, the key is no password, and the value is no JAAS line. Every
other one is hidden.
"""

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

from odradek.config.table import TOPIC_KEYS, broker_key

HIDDEN = "[hidden]"
SHORTEST_SECRET = 4
"""Shorter texts are not searched for: they occur everywhere, and a broker never writes a secret to its log or its metrics."""
_ORDINARY = re.compile(r"true|false|null|[-+]?[\d.]+")
"""Values that occur everywhere, and are secrets only under the name of a secret. JSON without them would be invalid."""
_OPTION_OF_JAAS = re.compile(r'([^\s;=]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|([^\s";]+))')
_LOGIN_IN_URL = re.compile(r"(\w+://)(?:[^/\s\"']*|[^/:@\s\"']*:[^\s\"',]*)@")
_LOGIN_IN_HEADER = re.compile(r"\b((?:Basic|Bearer)\s+)[\w.~+/=-]{8,}", re.IGNORECASE)
_USER_OF_JAAS = re.compile(r'(\buser_[^\s=]+\s*=\s*\\?")(?:\\.|[^"\\])*(\\?")')
_NAME = (
    r"(?:[\w.-]*(?:passwo?r?d|passphrase|pwd|secret|credential|private.?key|api.?key|access.?key|token)|sasl\.jaas\.config)"
    r"[\w.-]*"
)
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_IN_JSON = re.compile(rf'("{_NAME}"\s*:\s*)"(?:\\.|[^"\\])+"', re.IGNORECASE)
_IN_ESCAPED_JSON = re.compile(rf'(\\"{_NAME}\\"\s*:\s*)\\".*?\\"', re.IGNORECASE)
_IN_TEXT = re.compile(rf"""({_NAME}\s*[=:]\s*)("(?:\\.|[^"\\])*"|'[^']*'|[^\s,;"']+)""", re.IGNORECASE)
_HIDING = (
    (_LOGIN_IN_URL, rf"\1{HIDDEN}@"),
    (_LOGIN_IN_HEADER, rf"\1{HIDDEN}"),
    (_USER_OF_JAAS, rf"\1{HIDDEN}\2"),
    (_IN_JSON, rf'\1"{HIDDEN}"'),
    (_IN_ESCAPED_JSON, rf'\1\\"{HIDDEN}\\"'),
    (_IN_TEXT, rf"\1{HIDDEN}"),
)


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
            secrets.update(_secrets_in(name, text))
            shown.append((name, HIDDEN))
        else:
            shown.append((name, _LOGIN_IN_URL.sub(rf"\1{HIDDEN}@", text)))
    return Settings(shown, frozenset(secrets))


def secrets_of_environment(variables: Iterable[tuple[str, str]]) -> set[str]:
    """The secrets in environment variables, with which the image and `${env:NAME}` configure a broker."""
    return {
        secret
        for name, text in variables
        if _SECRET_NAME.search(name) or "LoginModule" in text
        for secret in _secrets_in(name, text)
    }


def is_secret(name: str, text: str) -> bool:
    """Whether a setting must not be shown."""
    row = broker_key(name) or TOPIC_KEYS.get(name)
    return row is None or row.sensitive or "LoginModule" in text


def _secrets_in(name: str, text: str) -> set[str]:
    """The secrets that other texts are searched for: a hidden value, and its options if it is a JAAS line."""
    options = {quoted or plain for option, quoted, plain in _OPTION_OF_JAAS.findall(text) if option != "username"}
    named = broker_key(name) is not None or _SECRET_NAME.search(name) is not None
    parts = {option for option in options if not _ORDINARY.fullmatch(option) or not option.isalpha()}
    parts |= {text} if named or not _ORDINARY.fullmatch(text) else set()
    return {part for part in parts if len(part) >= SHORTEST_SECRET}


def scrubbed(text: str, secrets: Iterable[str]) -> str:
    """A text without the secrets, without logins in URLs, and without values after names that look like those of secrets."""
    for secret in sorted(secrets, key=len, reverse=True):
        for form in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
            text = text.replace(form, HIDDEN)
    for pattern, hidden in _HIDING:
        text = pattern.sub(hidden, text)
    return text
