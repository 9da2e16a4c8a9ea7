"""AlterConfigs (33): all settings of a resource are replaced. Executed by the coordinator, in its controller thread."""

from typing import Any

from odradek.api import config_changes
from odradek.api.coordinator_call import CoordinatorCall
from odradek.protocol.schemas import alter_configs


def handle(request: Any, call: CoordinatorCall) -> Any:
    """Each resource for itself; in force when it is answered."""
    return config_changes.answered(request, config_changes.replaced, alter_configs.Response, call)
