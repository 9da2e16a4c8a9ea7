"""``odradek acl unused``: the ACLs that no client needed in a period, by the usage spool of a broker. Runs in the process of
the command."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from odradek.api.table import BY_KEY
from odradek.cli.framework.failure import fail, warn
from odradek.cli.framework.values import time_ms
from odradek.cli.inspection.usage_history import print_damages, read_history, spool_directory
from odradek.cli.inspection.usage_source import UsageError, UsageLocation
from odradek.cli.security.acl_table import print_acls
from odradek.clients import acls
from odradek.clock import now_ms
from odradek.metrics.pages import OTHER
from odradek.metrics.usage_totals import Filter
from odradek.security.acl import AclFilter, Permission
from odradek.security.unused import Use, unneeded

if TYPE_CHECKING:
    from odradek.clients.cluster import Cluster

UNKNOWN = "so it is not known which ACLs were needed"


def show_unused(
    cluster: "Cluster",
    servers: str,
    timeout: float,
    since: str,
    spool: str | None,
    as_json: bool,
    now: int | None = None,
) -> None:
    """Print the ACLs that allow something that no client did since this time. Ends the command if the usage is not known.

    :param timeout: in seconds. :param spool: the spool's directory; None: the one that the broker reports.
    :param now: Unix time in ms; None: the present time.
    """
    now = now_ms() if now is None else now
    try:
        since_ms = time_ms(since, now)
    except ValueError as error:
        fail(f"--since {error}")
    known = acls.describe(cluster, AclFilter())
    allowing = [one for one in known if one.permission == Permission.ALLOW]
    if not allowing:
        empty = "no ACL allows something; ACLs that deny are not judged" if known else "no ACLs"
        print_acls([], as_json, empty)
        return
    try:
        directory = spool_directory(spool, UsageLocation(None, None, (), None, None, servers), timeout)
        history = read_history(directory, str(since_ms), str(now), Filter())
    except UsageError as error:
        fail(f"{error}; {UNKNOWN}")
    print_damages(history)
    if history.from_ms is None:
        fail(
            f"the spool {directory} has no usage since {_shown(since_ms)}, {UNKNOWN}: choose an earlier --since; a running "
            "broker writes its usage every usage.spool.interval.ms"
        )
    uses = {Use(key.principal, key.api, key.topic) for key in history.usage}
    ways = {row.name: row.ways for row in BY_KEY.values()}
    unused = unneeded(allowing, uses, ways)
    begins = _shown(max(since_ms, history.from_ms))
    if unused and history.from_ms > since_ms:
        warn(
            f"the spool has usage since {begins} only, not since {_shown(since_ms)}: an ACL that was needed before, but not "
            "since, is listed, too"
        )
    # The usage of clients that have not logged in has no principal either, but those use only APIs that need no right.
    if unused and any(OTHER in (use.principal, use.topic) and any(ways.get(use.api, ())) for use in uses):
        warn(
            "the spool has usage whose principal or topic was not recorded, because the broker had too many clients: an ACL "
            "that only they needed is listed, too"
        )
    print_acls(unused, as_json, f"every ACL that allows something was needed since {begins}")


def _shown(unix_ms: int) -> str:
    return f"{datetime.fromtimestamp(unix_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
