"""ListPartitionReassignments (46): lists reassignments under way. Executed by workers. On a single broker there are none."""

from typing import Any

from odradek.api.call import Call
from odradek.protocol.schemas import list_partition_reassignments


def handle(request: Any, call: Call) -> Any:
    """Return an empty list."""
    return list_partition_reassignments.Response(error_message=None)
