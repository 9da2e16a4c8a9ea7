"""Backups of a broker: `odradek backup`. Runs in the process of the command; the broker gives it a cut of its logs.

`cut` says up to where each log is copied, `capture` opens the files of the logs, `copying` copies them, `create` makes the
backup, `manifest` describes it, `restore` makes log directories from it, `check` verifies it, `tree` copies the nodes of a
cluster in ZooKeeper. docs/decisions/0037-backup.md explains why a backup of a running broker is consistent.
"""
