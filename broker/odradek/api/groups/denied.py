"""What the guards of groups share."""

from collections.abc import Generator, Iterable, Set
from typing import Any

from odradek.api.guarding import Merged, Refused, Verdict, appended, made_in_steps
from odradek.protocol.errors import ErrorCode


def verdict_of_rest(request: Any, make: Any, refused: list[Any]) -> Verdict:
    """The verdict after `taken_out`: without a topic that is left, the handler is not called. :param make: the response's
    class."""
    if not refused:
        return None
    return Merged(appended("topics", refused)) if request.topics else Refused(make(topics=refused))


def denied_groups(names: Iterable[str], denied: Set[str], make: Any) -> Generator[None, None, list[Any]]:
    """The results of the denied groups among these names, each once, in their order. :param make: the class of a result."""
    return made_in_steps(
        (name for name in dict.fromkeys(names) if name in denied),
        lambda name: make(group_id=name, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED),
    )
