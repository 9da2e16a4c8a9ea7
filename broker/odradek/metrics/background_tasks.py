"""The table of background tasks: the work that is promised without a request, when it stops, and what shows that.

docs/reference/alerts.md contains the table (`python -m odradek.metrics.background_tasks FILE`, or `make tables`), and `odradek
doctor` takes its texts from here. A test checks that every pass, thread, supervised task, process and unit has a row, and that
what a row names exists. No process of the broker imports this module.

Rows with `GENERAL` signs use `shm.published_tasks`: the process publishes each run, and everything else follows from that.
"""

import sys
from pathlib import Path
from typing import NamedTuple


class Signs(NamedTuple):
    """What shows that a task has stopped. :param finding: words of a finding of `odradek doctor`, or another command."""

    metric: str
    alert: str
    finding: str


GENERAL = Signs("odradek_task_failed_runs", "OdradekTaskFails, OdradekTaskLate", "the task")
"""Of tasks whose process publishes their runs."""
_DIRECTORY = Signs("odradek_log_dir_online", "OdradekLogDirOffline", "the log directory is offline")
_FULL = Signs("odradek_log_dir_full_state", "OdradekDiskFull", "the disk is full")
_FETCH = Signs(
    "kafka_server_replicafetchermanager_failedpartitionscount", "OdradekNotFetched", "with fewer in-sync replicas than"
)
_SESSION = Signs("odradek_zookeeper_disconnected_seconds", "OdradekZooKeeperAway", "has had no connection to ZooKeeper")
_STORES = Signs("odradek_tls_reload_failed", "OdradekCertificateReloadFailed", "cannot be used")
_PROVIDER = Signs(
    "odradek_jwks_read_timestamp_seconds", "OdradekIdentityProviderUnreadable", "has no keys of the identity"
)
_LOGINS = Signs("odradek_failing_broker_logins", "OdradekBrokerLoginsFail", "cannot authenticate")
_MARKERS = Signs(
    "odradek_oldest_completing_transaction_seconds", "OdradekTransactionsNotCompleting", "odradek transaction hanging"
)
_MIRROR = Signs("odradek_mirror_partition_stopped", "OdradekMirrorPartitionStopped", "odradek mirror status")
_FLOWS = Signs("odradek_mirror_refresh_failures_total", "OdradekMirrorRefreshFails", "odradek mirror status")
_LANES = Signs("odradek_mirror_failures_total", "OdradekMirrorFailures", "odradek mirror status")
_WORKERS = Signs("odradek_mirror_lanes", "OdradekMirrorWithoutLanes", "odradek mirror status")
_GROUPS = Signs("odradek_mirror_failing_jobs", "OdradekMirrorGroupsDoNotFollow", "odradek mirror groups")
_PROCESS = Signs("odradek_process_up", "OdradekProcessDown, OdradekChildRestarting", "the process was restarted")
_UNIT = Signs("", "OdradekUnitFailed", "the last run of the unit failed")
_STRAY = Signs("odradek_stray_logs", "OdradekStrayLogs", "set aside as *-stray")


class BackgroundTask(NamedTuple):
    """One row.

    :param name: the label `task` of the metrics, for `GENERAL` signs. :param process: where it runs.
    :param stops: the states in which it makes no progress.
    :param matters: what follows if it stays so. :param remedy: what to do.
    :param log: the logger, and the beginning of a message.
    :param explained: whether `odradek partition explain` names the partition's failure.
    """

    name: str
    process: str
    stops: str
    matters: str
    remedy: str
    log: str
    signs: Signs = GENERAL
    explained: bool = False


_LOOK = "the log names the file and the error; repair permissions or the device"

TASKS = (
    # -- what is never deleted or compacted
    BackgroundTask(
        "retention",
        "cleaner",
        "a file of the log or a checkpoint cannot be read, written or renamed (permissions, a device that is mounted "
        "read-only); a segment is missing or damaged; records with timestamps in the future, without retention.bytes",
        "old records are not deleted, and the disk fills",
        f"{_LOOK}; `odradek log verify DIR` finds damaged files; delete records with timestamps in the future with "
        "DeleteRecords",
        "odradek.cleaner.retention: retention cannot read the log of",
        explained=True,
    ),
    BackgroundTask(
        "removal of deleted segments",
        "cleaner",
        "a file that retention or compaction has renamed cannot be deleted",
        "the space of deleted segments is not freed",
        _LOOK,
        "odradek.cleaner.retention: cannot delete the files of removed segments of",
        explained=True,
    ),
    BackgroundTask(
        "removal of deleted logs",
        "cleaner",
        "the directory of a deleted partition cannot be removed",
        "the space of deleted topics is not freed",
        _LOOK,
        "odradek.cleaner: cannot remove a deleted partition's directory",
    ),
    BackgroundTask(
        "deletion policy",
        "cleaner",
        "the operator's class raises an exception or does not return (odradek.segment.deletion.policy.class.name)",
        "the class deletes nothing in these logs; the other rules of retention still apply",
        "the log contains the traceback; repair the class and restart the broker",
        "odradek.cleaner.retention: the deletion policy",
        explained=True,
    ),
    BackgroundTask(
        "compaction",
        "cleaner",
        "a segment is damaged, a batch cannot be decompressed, the map of keys is too small for a single batch, or a file "
        "cannot be read or written: the log is skipped until the cleaner restarts; the disk is full; a thread cannot get its "
        "memory; other processes change the log in each pass. Not shown here: a transaction that never ends "
        "(`odradek transaction hanging`)",
        "the log keeps all old values of its keys, and grows",
        "`odradek log verify DIR` finds damaged segments; after the repair, restart the broker, or change a setting "
        "log.cleaner.* so that the cleaner tries all logs again",
        "odradek.cleaner.compaction: cannot compact",
        explained=True,
    ),
    BackgroundTask(
        "gap limits",
        "cleaner",
        "a log that another broker has compacted cannot be synced, or its gap limit cannot be written",
        "the log is not compacted until it has a gap limit",
        _LOOK,
        "odradek.cleaner: %s: cannot sync the log to set its gap limit",
        explained=True,
    ),
    BackgroundTask(
        "set-aside logs",
        "operator",
        "a topic was deleted while the broker was down, and created again with the same name",
        "the broker never deletes these logs, so their space is never freed",
        "delete the directories whose records nobody needs; the broker may be running",
        "odradek.replication: set aside %d logs of a former topic",
        _STRAY,
    ),
    BackgroundTask(
        "search for unassigned logs",
        "cleaner",
        "a log directory has a log whose topic does not exist, or whose partition is assigned to other brokers: the broker was "
        "down when the topic was deleted or the replica removed, or somebody has copied the directory",
        "the broker neither serves nor deletes these logs, so their space is never freed",
        "stop the broker, and delete the directories whose records nobody needs",
        "odradek.cleaner: %d logs are not assigned to this broker",
    ),
    # -- flush and checkpoints
    BackgroundTask(
        "flush",
        "cleaner",
        "a log whose flush.ms has passed cannot be synced",
        "records older than flush.ms may be lost in a power loss",
        _LOOK,
        "odradek.cleaner: cannot sync the log of",
        explained=True,
    ),
    BackgroundTask(
        "checkpoints",
        "cleaner",
        "a checkpoint or a producer snapshot cannot be written; the former checkpoint is damaged and is still needed for logs "
        "that wait for disk space",
        "the next start after a crash recovers the logs from older recovery points, and takes longer",
        f"{_LOOK}; free disk space",
        "odradek.storage: cannot write the checkpoints of",
        explained=True,
    ),
    BackgroundTask(
        "log directories",
        "all",
        "a call on a file fails with an I/O error, or the path no longer leads to the directory",
        "the broker does not serve the partitions of this log directory, and does no background work on them",
        "repair or replace the device, then restart the broker",
        "odradek.disks: log directory %s is offline",
        _DIRECTORY,
    ),
    BackgroundTask(
        "disk space",
        "cleaner",
        "the look at the free space fails for a reason other than the directory itself",
        "producers are not refused in time when the disk fills",
        "the log contains the traceback; report it as a bug",
        "odradek.cleaner: the cleaner's pass '%s' failed",
    ),
    BackgroundTask(
        "full disks",
        "cleaner",
        "retention has nothing more to delete, and the disk is full",
        "producers are refused",
        "shorten the retention of the largest topics, delete a topic, or enlarge the disk",
        "odradek.disks: log directory %s is full",
        _FULL,
    ),
    BackgroundTask(
        "leader epochs",
        "cleaner",
        "leader-epoch-checkpoint of a log cannot be read or written",
        "the file keeps epochs without records; nothing else depends on that",
        _LOOK,
        "odradek.cleaner: %s: cannot remove obsolete epochs from leader-epoch-checkpoint",
        explained=True,
    ),
    BackgroundTask(
        "idle producers",
        "cleaner",
        "an unexpected error",
        "the state of idle producers is kept, until new producers are refused for lack of memory",
        "the log contains the traceback; report it as a bug",
        "odradek.cleaner: the cleaner's pass '%s' failed",
    ),
    BackgroundTask(
        "producer arena",
        "cleaner",
        "an unexpected error",
        "memory of deleted partitions' producers is not freed, until new producers are refused",
        "the log contains the traceback; report it as a bug",
        "odradek.cleaner: the cleaner's pass '%s' failed",
    ),
    # -- coordinator
    BackgroundTask(
        "upkeep of the coordinator",
        "coordinator",
        "an unexpected error",
        "some of the coordinator's periodic work is not done: failed log directories are not reported, quotas not freed",
        "the log contains the traceback; report it as a bug",
        "odradek.controller: the coordinator's periodic work failed",
    ),
    BackgroundTask(
        "opening of waiting logs",
        "coordinator",
        "a log that could not be opened for lack of disk space still cannot be opened, for another reason",
        "its partition is not served",
        _LOOK,
        "odradek.controller: cannot open the logs that wait for disk space",
    ),
    BackgroundTask(
        "load of __consumer_offsets",
        "coordinator",
        "records of the partition cannot be read or decoded",
        "the groups of this partition cannot join or commit",
        "`odradek log verify DIR` and `odradek log dump` show the records; the log contains the traceback",
        "odradek.groups: cannot load %s-%d",
        explained=True,
    ),
    BackgroundTask(
        "load of __transaction_state",
        "coordinator",
        "records of the partition cannot be read or decoded",
        "the transactional ids of this partition cannot begin or end transactions",
        "`odradek log verify DIR` and `odradek log dump --transactions` show the records; the log contains the traceback",
        "odradek.transactions: cannot load %s-%d",
        explained=True,
    ),
    BackgroundTask(
        "expiry of committed offsets",
        "coordinator",
        "the tombstones cannot be appended to __consumer_offsets (too few in-sync replicas, a failed log directory)",
        "offsets of groups that ended are kept, and __consumer_offsets grows",
        "`odradek partition explain` shows the state of the partition; repair what it names",
        "odradek.groups: cannot write a change of a group to __consumer_offsets",
        explained=True,
    ),
    BackgroundTask(
        "timeouts of transactions",
        "coordinator",
        "an unexpected error",
        "transactions of producers that died stay open, and consumers with isolation level read_committed wait",
        "abort them with `odradek transaction abort`; the log contains the traceback",
        "odradek.transactions: the transaction coordinator's task '%s' failed",
    ),
    BackgroundTask(
        "expiry of transactional ids",
        "coordinator",
        "the tombstones cannot be appended to __transaction_state (too few in-sync replicas, a failed log directory)",
        "unused transactional ids are kept, and __transaction_state grows",
        "`odradek partition explain` shows the state of the partition; repair what it names",
        "odradek.transactions: __transaction_state-%d: cannot write the tombstones of",
        explained=True,
    ),
    BackgroundTask(
        "transaction markers",
        "coordinator",
        "the leader of a partition is not known, refuses the marker or does not respond",
        "the transaction does not end, and consumers with isolation level read_committed wait",
        "start the brokers that are down; `odradek transaction hanging` names the partitions",
        "odradek.transactions: cannot write the markers of the transaction of",
        _MARKERS,
    ),
    BackgroundTask(
        "abort of orphaned transactions",
        "coordinator",
        "an unexpected error",
        "transactions without an owner stay open, and consumers with isolation level read_committed wait",
        "abort them with `odradek transaction abort`; the log contains the traceback",
        "odradek.supervisor: %s ended by an unexpected error",
    ),
    BackgroundTask(
        "sweep of the metadata tree",
        "coordinator",
        "the metadata store refuses a change or cannot be reached",
        "offsets of deleted topics and expired delegation tokens stay in the tree; no request returns them",
        "check ZooKeeper, or the disk of the embedded store; the log names the error",
        "odradek.controller: cannot delete the offsets of deleted topics from the metadata tree",
    ),
    BackgroundTask(
        "look at the key stores",
        "coordinator",
        "an unexpected error while the broker looks for changed files",
        "new certificates are not used",
        "the log contains the error; restart the broker to use a new certificate",
        "odradek.controller: cannot look at the key stores of listeners",
    ),
    BackgroundTask(
        "reload of certificates",
        "coordinator",
        "a changed key store or trust store cannot be used",
        "the former certificate stays in use until it expires",
        "`odradek certificate FILE` shows what a file contains",
        "odradek.tls: cannot use the changed key stores",
        _STORES,
    ),
    BackgroundTask(
        "keys of identity providers",
        "coordinator",
        "sasl.oauthbearer.jwks.endpoint.url cannot be read",
        "tokens that are signed with newer keys are refused",
        "`curl` with the URL, on the machine of the broker",
        "odradek.security: cannot read the keys of the identity provider",
        _PROVIDER,
    ),
    BackgroundTask(
        "logins at other brokers",
        "coordinator, replicator",
        "a certificate, a password or a token is not accepted by the other broker",
        "partitions are not replicated, and requests of the controller do not arrive",
        "the log of the other broker often says more",
        "odradek.security: cannot authenticate a connection to",
        _LOGINS,
    ),
    # -- clusters
    BackgroundTask(
        "keeper of the session in ZooKeeper",
        "coordinator",
        "ZooKeeper cannot be reached, or an unexpected error",
        "after the session timeout, other brokers lead the partitions of this broker",
        "check ZooKeeper and the network; the log contains the error",
        "odradek.metadata: cannot %s after the loss of the connection to ZooKeeper",
    ),
    BackgroundTask(
        "session in ZooKeeper",
        "coordinator",
        "ZooKeeper cannot be reached",
        "after the session timeout, other brokers lead the partitions of this broker",
        "check that ZooKeeper runs and has a quorum",
        "odradek.metadata: no connection to ZooKeeper for",
        _SESSION,
    ),
    BackgroundTask(
        "follower of changed settings",
        "coordinator",
        "an unexpected error",
        "settings, users and ACLs that change at other brokers are not used here",
        "the log contains the traceback; restart the broker to read all of them",
        "odradek.supervisor: %s ended by an unexpected error",
    ),
    BackgroundTask(
        "application of the settings of topics",
        "coordinator",
        "ZooKeeper cannot be reached, or an unexpected error",
        "topics keep the defaults of before a change of the brokers' settings",
        "check ZooKeeper; the log contains the error",
        "odradek.supervisor: %s ended by an unexpected error",
    ),
    BackgroundTask(
        "check of the cluster id",
        "coordinator",
        "an unexpected error",
        "a ZooKeeper that was replaced is not noticed",
        "the log contains the traceback; report it as a bug",
        "odradek.supervisor: %s ended by an unexpected error",
    ),
    BackgroundTask(
        "look at the registration",
        "coordinator",
        "an unexpected error",
        "a registration that was lost is not made again",
        "the log contains the traceback; restart the broker",
        "odradek.supervisor: %s ended by an unexpected error",
    ),
    BackgroundTask(
        "report of log directories",
        "coordinator",
        "ZooKeeper cannot be reached, or an unexpected error",
        "the controller does not know that a log directory has failed, and elects no other leaders",
        "check ZooKeeper; the log contains the error",
        "odradek.supervisor: %s ended by an unexpected error",
    ),
    BackgroundTask(
        "controller of the cluster",
        "coordinator of the controller",
        "ZooKeeper cannot be reached, or a node in it cannot be decoded, or an unexpected error",
        "no leader is elected, and topics do not change",
        "check ZooKeeper; the log contains the error",
        "odradek.controller: the controller waits for ZooKeeper",
    ),
    BackgroundTask(
        "rebalance of leaders",
        "coordinator of the controller",
        "ZooKeeper cannot be reached, or an unexpected error",
        "leaders do not return to their preferred replicas, and the load of the brokers stays uneven",
        "check ZooKeeper; `odradek partition elect` moves leaders to their preferred replicas",
        "odradek.controller: the controller failed",
    ),
    BackgroundTask(
        "replication",
        "replicator",
        "the leader refuses the fetch, its records do not fit the log, or the log cannot be written",
        "the replica is not in sync; the loss of another broker may make the partition unavailable",
        "`odradek partition explain TOPIC-PARTITION` shows the error",
        "odradek.replication: replica fetcher %d has no connection to broker",
        _FETCH,
    ),
    # -- reports
    BackgroundTask(
        "usage spool",
        "reporter",
        "the spool cannot be written (usage.spool.dir), the disk is full, or usage.spool.max.bytes is too small",
        "the nightly report and `odradek usage` have no data of this time; a crash of the broker loses the counts",
        "free disk space, repair permissions, or raise usage.spool.max.bytes",
        "odradek.reporter.spool: cannot write the usage spool",
    ),
    BackgroundTask(
        "collection of metrics",
        "reporter",
        "the directory of a log cannot be read; an unexpected error",
        "the metrics and the usage spool have no size of this log; after an unexpected error, all sizes and lags in seconds "
        "are old",
        _LOOK,
        "odradek.reporter: cannot measure the log of",
    ),
    BackgroundTask(
        "beat of the reporter",
        "reporter",
        "an unexpected error",
        "the supervisor restarts the reporter, and histories in the metrics begin again",
        "the log contains the traceback; report it as a bug",
        "odradek.supervisor: %s ended by an unexpected error",
    ),
    BackgroundTask(
        "start of the HTTP server",
        "reporter",
        "an unexpected error, for instance because files of the installation were replaced while the broker runs",
        "clients of metrics.listener connect, but receive no response",
        "restart the broker; if it happens again, report the traceback of the log as a bug",
        "odradek.supervisor: %s ended by an unexpected error",
    ),
    BackgroundTask(
        "nightly usage report",
        "odradek-report.service",
        "the spool cannot be read, the output cannot be written, or Spark fails",
        "no report of this day; the next run makes up for it while the spool has the data",
        "`journalctl -u odradek-report` names the reason; `systemctl start odradek-report` runs it again",
        "journal of the unit",
        _UNIT,
    ),
    BackgroundTask(
        "loads",
        "odradek-load@.service",
        "a broker refuses or does not respond, records were deleted before they were loaded, or the output cannot be written",
        "records are not loaded, and retention may delete them first",
        "`journalctl -u 'odradek-load@*'` names the reason; the next run continues after the last commit",
        "journal of the unit",
        _UNIT,
    ),
    BackgroundTask(
        "backups",
        "odradek-backup.service",
        "the target has too little space or cannot be written, or the broker does not respond",
        "the newest backup becomes older",
        "`journalctl -u odradek-backup` names the reason",
        "journal of the unit",
        _UNIT,
    ),
    # -- mirror
    BackgroundTask(
        "mirror of a partition",
        "odradek-mirror@.service",
        "the source has deleted or lost records, the topic was created again, or a cluster refuses a request",
        "the copy receives no more records; retention of the source may delete them first",
        "`odradek mirror status FILE --metrics HOST:PORT` shows the reason",
        "odradek.mirror: %s: partition %s-%d of the source is not mirrored to",
        _MIRROR,
    ),
    BackgroundTask(
        "mirror's lanes",
        "odradek-mirror@.service",
        "each transaction of a lane fails",
        "the partitions of the lane are not mirrored, and the lag grows",
        "the log of the worker names the reason",
        "odradek.mirror: %s: lane %d failed",
        _LANES,
    ),
    BackgroundTask(
        "mirror's workers",
        "odradek-mirror@.service",
        "no worker of a flow can join its group in the target, so no worker has lanes",
        "nothing is mirrored, and no worker reports a lag",
        "the log of the workers names the reason; grant READ on the group, or start the target's coordinator",
        "odradek.mirror: the worker lost contact with group",
        _WORKERS,
    ),
    BackgroundTask(
        "mirror's search for topics",
        "odradek-mirror@.service",
        "a cluster refuses or does not respond",
        "new topics and partitions are not mirrored",
        "`odradek mirror check FILE` shows the reason",
        "odradek.mirror: %s: cannot read or change topics",
        _FLOWS,
    ),
    BackgroundTask(
        "mirror's groups",
        "odradek-mirror@.service",
        "the target refuses checkpoints, offset syncs or commits",
        "after a switch, consumers read records again",
        "the log of the worker names the reason",
        "odradek.mirror: %s: cannot write %s",
        _GROUPS,
    ),
    # -- processes
    *(
        BackgroundTask(
            f"process {process}",
            process,
            stops,
            matters,
            "the log names the exit or the signal and the last request",
            "odradek.supervisor: %s (pid %d) ended after",
            _PROCESS,
        )
        for process, stops, matters in (
            ("loader", "it dies while it opens a log", "the start does not end"),
            ("coordinator", "it dies again and again", "groups, topics and leaders do not change"),
            ("worker", "it dies again and again", "its connections close again and again"),
            ("cleaner", "it dies again and again", "nothing is deleted, compacted, flushed in time or checkpointed"),
            ("replicator", "it dies again and again", "followed partitions are not in sync"),
            ("reporter", "it dies again and again", "no metrics, no usage spool"),
        )
    ),
)

BY_NAME = {row.name: row for row in TASKS}

_BEGIN = "<!-- begin: background tasks, from broker/odradek/metrics/background_tasks.py -->\n"
_END = "<!-- end: background tasks -->\n"


def table() -> str:
    """The table, as Markdown."""
    lines = ["| task | process | it makes no progress if | metric | alert | `odradek doctor` or command | log |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- |")
    for row in TASKS:
        signs = row.signs
        finding = f"`{signs.finding}`" if signs.finding.startswith("odradek ") else f"*{signs.finding}*"
        if signs is GENERAL:
            finding = f"*task {row.name}*"
        if row.explained:
            finding += ", `odradek partition explain`"
        alerts = ", ".join(f"[{name}](#{name.lower()})" for name in signs.alert.split(", "))
        metric = f"`{signs.metric}`" if signs.metric else "of systemd"
        lines.append(
            f"| {row.name} | {row.process} | {row.stops} | {metric} | {alerts} | {finding} | `{row.log.strip()}` |"
        )
    return "\n".join(lines) + "\n"


def rewritten(page: str) -> str:
    """The page with the current table. Raises ValueError if it has no place for it."""
    before, begins, rest = page.partition(_BEGIN)
    _, ends, after = rest.partition(_END)
    if not begins or not ends:
        raise ValueError(f"the page has no lines {_BEGIN.strip()!r} and {_END.strip()!r}")
    return before + _BEGIN + table() + _END + after


def main(arguments: list[str]) -> int:
    """Write the table into the page given in `arguments`, or to standard output."""
    if not arguments:
        sys.stdout.write(table())
        return 0
    path = Path(arguments[0])
    path.write_text(rewritten(path.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
