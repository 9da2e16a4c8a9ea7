"""UpdateFeatures (57): changes the finalized versions of the cluster's features. Executed in the coordinator's controller
thread.

This broker has no features (ApiVersions lists none), so every change is refused with Kafka's errors.
"""

from typing import Any

from odradek.api.coordinator_call import CoordinatorCall
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import update_features

WITH_UPGRADE_TYPE = 1
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
Response = update_features.Response


def handle(request: Any, call: CoordinatorCall) -> Any:
    """Refuse the request with an error that names the first update; succeed if it contains no update."""
    for update in request.feature_updates:
        reason = f"Controller {call.view.config.node_id} does not support this feature."
        if call.version >= WITH_UPGRADE_TYPE:
            if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
                reason = f"Unknown upgrade type {update.upgrade_type}: use 1 (upgrade), 2 or 3 (downgrades)."
            elif update.max_version_level < 1:
                reason = f"Feature {update.feature} not found."
        return Response(
            error_code=ErrorCode.INVALID_UPDATE_VERSION,
            error_message="The update failed for all features since the following feature had an error:"
            f" Invalid update version {update.max_version_level} for feature {update.feature}. {reason}",
        )
    return Response(error_message=None)
