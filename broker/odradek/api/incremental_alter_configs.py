"""IncrementalAlterConfigs (44): sets, deletes and extends settings of a resource. In the coordinator's store thread."""

from typing import Any

from odradek.api import config_changes
from odradek.api.coordinator_call import CoordinatorCall
from odradek.protocol.schemas import incremental_alter_configs


def handle(request: Any, call: CoordinatorCall) -> Any:
    """Change each resource independently; the changes are in force when the response is sent."""
    return config_changes.answered(request, config_changes.edited, incremental_alter_configs.Response, call)
