"""IncrementalAlterConfigs (44): settings of a resource are set, deleted, extended. In the coordinator's controller thread."""

from typing import Any

from odradek.api import config_changes
from odradek.api.coordinator_call import CoordinatorCall
from odradek.protocol.schemas import incremental_alter_configs


def handle(request: Any, call: CoordinatorCall) -> Any:
    """Each resource for itself; in force when it is answered."""
    return config_changes.answered(request, config_changes.edited, incremental_alter_configs.Response, call)
