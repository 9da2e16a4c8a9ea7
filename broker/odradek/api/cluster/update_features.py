"""UpdateFeatures (57): changes the levels of the cluster's features (KIP-584). Executed in the coordinator's store thread.

The only feature is transaction.version. Checks, codes and messages are Kafka's. All changes of a request are made, or none.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.guarding import (
    of_whole,
)
from odradek.config import features
from odradek.controller.topics import Refusal
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import update_features
from odradek.security.needs import (
    ALTERS,
)

WITH_UPGRADE_TYPE = 1
LAST_WITH_RESULTS = 1
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
Response = update_features.Response


class _Update(NamedTuple):
    feature: str
    level: int
    upgrade_type: int


API = Api(
    update_features.SCHEMA,
    versions=(0, 2),
    place=Place.CONTROLLER,
    rights=ALTERS,
)
guard = of_whole(API)


def handle(request: update_features.Request, call: CoordinatorCall) -> Any:
    """Change the levels, or only check the changes if the request says so."""
    updates = [
        _Update(update.feature, update.max_version_level, _type_of(update, call.version))
        for update in request.feature_updates
    ]
    for update in updates:
        reason = _refusal(update, call)
        if reason is not None:
            return Response(
                error_code=ErrorCode.INVALID_UPDATE_VERSION,
                error_message="The update failed for all features since the following feature had an error:"
                f" Invalid update version {update.level} for feature {update.feature}. {reason}",
            )
    if updates and not (call.version >= WITH_UPGRADE_TYPE and request.validate_only):
        try:
            _store(updates, call)
        except Refusal as refusal:
            return Response(error_code=refusal.code, error_message=refusal.message)
    results = []
    if call.version <= LAST_WITH_RESULTS:
        results = [Response.UpdatableFeatureResult(feature=update.feature, error_message="") for update in updates]
    return Response(error_message=None, results=results)


def _type_of(update: Any, version: int) -> int:
    if version >= WITH_UPGRADE_TYPE:
        return int(update.upgrade_type)
    return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE


def _refusal(update: _Update, call: CoordinatorCall) -> str | None:
    """The reason why an update is refused; None if it is not."""
    node = call.view.config.node_id
    if update.upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    supported = features.SUPPORTED.get(update.feature)
    if supported is None:
        return f"Controller {node} does not support this feature."
    if not supported.lowest <= update.level <= supported.highest:
        return f"Controller {node} only supports versions {supported.lowest}-{supported.highest}"
    present = features.transaction_version(call.view.config)
    if update.level < present and update.upgrade_type == UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe"
            " downgrade."
        )
    if update.level > present and update.upgrade_type != UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _store(updates: list[_Update], call: CoordinatorCall) -> None:
    """Store the levels, with a new epoch if one changes. Raises Refusal, StoreError, NotController."""
    config = call.view.config
    level = updates[-1].level
    if level == features.transaction_version(config):
        return
    epoch = features.epoch(config) + 1

    def change(present: Mapping[str, str]) -> dict[str, str]:
        return dict(present) | {features.LEVEL_KEY: str(level), features.EPOCH_KEY: str(epoch)}

    call.view.settings.alter_broker(False, change, False)
