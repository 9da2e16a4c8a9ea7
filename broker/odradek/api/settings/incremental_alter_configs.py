"""IncrementalAlterConfigs (44): sets, deletes and extends settings of a resource. In the coordinator's store thread."""

from typing import Any

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.guarding import (
    Asked,
    VerdictInSteps,
)
from odradek.api.settings import config_changes
from odradek.api.settings.resources import guard_of_changes, rights_of
from odradek.protocol.schemas import incremental_alter_configs
from odradek.security.acl import Operation

API = Api(
    incremental_alter_configs.SCHEMA,
    versions=(0, 1),
    place=Place.COORDINATOR,
    rights=rights_of(Operation.ALTER_CONFIGS),
)


def guard(asked: Asked) -> VerdictInSteps:
    """ALTER_CONFIGS on the topic, the group, or the cluster."""
    return guard_of_changes(asked, incremental_alter_configs.Response.AlterConfigsResourceResponse)


def handle(request: incremental_alter_configs.Request, call: CoordinatorCall) -> Any:
    """Change each resource independently; the changes are in force when the response is sent."""
    return config_changes.answered(request, config_changes.edited, incremental_alter_configs.Response, call)
