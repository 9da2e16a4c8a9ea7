"""AlterConfigs (33): replaces all settings of a resource. Executed by the coordinator, in its store thread."""

from typing import Any

from odradek.api import config_changes
from odradek.api.coordinator_call import CoordinatorCall
from odradek.protocol.schemas import alter_configs


def handle(request: Any, call: CoordinatorCall) -> Any:
    """Change each resource independently; the changes are in force when the response is sent."""
    return config_changes.answered(request, config_changes.replaced, alter_configs.Response, call)
