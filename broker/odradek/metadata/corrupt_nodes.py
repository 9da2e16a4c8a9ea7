"""Nodes that cannot be decoded, because another program or an operator wrote them: the broker goes on without them.

A wrong node costs what it describes, nothing else. Requests that change or show the node itself fail instead.
Used in the store thread, and in loaders.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

from odradek.metadata.store import NoNode, Store
from odradek.metadata.znodes import CorruptNode, decode_config

log = logging.getLogger("odradek.controller")

Value = TypeVar("Value")
Substitute = TypeVar("Substitute")

MOST_REMEMBERED = 10_000

_logged: dict[str, str] = {}
"""The errors that were logged, by path."""


def usable(path: str, decode: Callable[[], Value], otherwise: Substitute, consequence: str) -> Value | Substitute:
    """What a node contains; `otherwise` if it cannot be decoded, which is logged once for each content of the node.

    :param decode: decodes the node. Raises CorruptNode. :param consequence: what the broker does without the node.
    """
    try:
        value = decode()
    except CorruptNode as error:
        if _logged.get(path) != str(error):
            if len(_logged) >= MOST_REMEMBERED:
                _logged.clear()
            _logged[path] = str(error)
            log.error("%s; %s until the node is correct", error, consequence)
        return otherwise
    _logged.pop(path, None)
    return value


def usable_settings(store: Store, path: str, consequence: str) -> dict[str, str] | None:
    """The settings in a node, empty if it does not exist; None if they cannot be decoded, see `usable`. Raises StoreError."""
    try:
        data = store.get(path)[0]
    except NoNode:
        return {}
    return usable(path, lambda: decode_config(path, data), None, consequence)
