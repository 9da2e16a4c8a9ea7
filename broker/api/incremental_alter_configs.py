"""IncrementalAlterConfigs (44): settings of a resource are set, deleted, extended. In the coordinator's controller thread."""

from typing import Any

from broker.api import config_changes
from broker.api.coordinator_call import CoordinatorCall
from broker.protocol import incremental_alter_configs


def handle(request: Any, call: CoordinatorCall) -> Any:
    """Each resource for itself; in force when it is answered."""
    return config_changes.answered(request, config_changes.edited, incremental_alter_configs.Response, call)
