"""What the doctor found."""

from typing import NamedTuple


class Finding(NamedTuple):
    """:param severity: "error" or "warning". :param subject: what it is about. :param what: what is seen. :param reason: why it
    matters. :param remedy: what to do."""

    severity: str
    subject: str
    what: str
    reason: str
    remedy: str
