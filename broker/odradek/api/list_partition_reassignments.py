"""ListPartitionReassignments (46): moves of replicas under way. Executed by workers; on one broker nothing can move."""

from typing import Any

from odradek.api.call import Call
from odradek.protocol.schemas import list_partition_reassignments


def handle(request: Any, call: Call) -> Any:
    """None."""
    return list_partition_reassignments.Response(error_message=None)
