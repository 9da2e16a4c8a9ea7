"""Executes a handler of the groups as the coordinator does."""

from collections.abc import Callable, Generator
from typing import Any

from odradek.processes.coordinator.groups.service import driven


async def handled(handle: Callable[..., Any], request: Any, call: Any) -> Any:
    """The response."""
    response = handle(request, call)
    return await driven(response) if isinstance(response, Generator) else response
