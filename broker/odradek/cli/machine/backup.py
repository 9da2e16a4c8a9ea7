"""``odradek backup``: copies the metadata and logs of a broker, checks such a copy, and makes log directories from it."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import fail, reason_of, warn
from odradek.cli.framework.lazy import LazyGroup
from odradek.cli.framework.options import JSON_OPTION

if TYPE_CHECKING:
    from odradek.backup.create import Created
    from odradek.backup.manifest import Manifest
    from odradek.config.broker_config import BrokerConfig

_CONFIG = click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="Configuration of the broker: its log.dirs and its zookeeper.* keys.",
)
_SET = click.option(
    "--set", "overrides", metavar="KEY=VALUE", multiple=True, help="Set one key of the configuration. Repeatable."
)
_ZOOKEEPER = click.option(
    "--zookeeper",
    metavar="HOST:PORT[/CHROOT]",
    help="ZooKeeper of the cluster; default: zookeeper.connect of --config. TLS and logins: zookeeper.* keys of --config or"
    " --set.",
)
_DIR = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))


@click.group(cls=LazyGroup)
def backup() -> None:
    """Back up and restore the metadata and logs of a broker.

    Run these commands as the user of the broker. A backup contains all records and the keys of SCRAM users: its directory is
    readable by its owner only.
    """


@contextmanager
def _errors() -> Iterator[None]:
    """Print the errors of backups as one line, and end the command."""
    from odradek.backup.errors import BackupError
    from odradek.cli.machine.log_verify import VerifyError
    from odradek.config.errors import ConfigError
    from odradek.metadata.store import StoreError

    try:
        yield
    except (BackupError, ConfigError, StoreError, VerifyError) as error:
        fail(error)
    except OSError as error:
        fail(f"{error.filename}: {reason_of(error)}" if error.filename else error)


@contextmanager
def _progress(title: str, hidden: bool, state: str) -> Iterator[Callable[[int, int], None]]:
    """Show the progress on a terminal, and say on an interrupt what the state is."""
    from odradek.cli.framework.interrupt import interrupt_note
    from odradek.cli.framework.output import bytes_progress

    shown: list[Callable[[int], None]] = []
    with interrupt_note(lambda: state):
        bars = None

        def note(done: int, total: int) -> None:
            nonlocal bars
            if bars is None:
                bars = bytes_progress(title, total, hidden)
                shown.append(bars.__enter__())
            shown[0](done)

        try:
            yield note
        finally:
            if bars is not None:
                bars.__exit__(None, None, None)


@backup.command("create")
@_DIR
@_CONFIG
@_SET
@click.option(
    "--data-dir",
    "data_dirs",
    metavar="DIR",
    multiple=True,
    help="Log directory of the broker, instead of --config. Repeatable: of a stopped broker name all; of a running one, the"
    " first.",
)
@click.option(
    "--base",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="An earlier backup of the broker on the same file system: unchanged segments become hard links to its files.",
)
@click.option("--throttle", metavar="SIZE", help="Copy at most this many bytes per second, e.g. 50MB.")
@_ZOOKEEPER
@JSON_OPTION
def create(
    directory: Path,
    config_file: str | None,
    overrides: tuple[str, ...],
    data_dirs: tuple[str, ...],
    base: Path | None,
    throttle: str | None,
    zookeeper: str | None,
    as_json: bool,
) -> None:
    """Back up a broker, running or stopped, to a new directory.

    The backup of a running broker is one consistent state: it contains every record that a committed offset covers, and either
    all or nothing of each transaction. A broker of a cluster backs up its own logs, and the nodes in ZooKeeper.
    """
    from odradek.backup.create import create as make
    from odradek.backup.errors import BackupError
    from odradek.cli.framework.values import size_bytes

    with _errors():
        config = _config(config_file, overrides, data_dirs)
        directories = [os.path.abspath(path) for path in data_dirs] or list(config.log_dirs)  # noqa: PTH100
        try:
            rate = 0 if throttle is None else size_bytes(throttle)
        except ValueError as error:
            raise BackupError(f"--throttle: {error}") from None
        if throttle is not None and rate < 1:
            raise BackupError(f"--throttle: {throttle} is not a positive size per second: write e.g. 50MB")
        dump = (lambda: _dump_tree(config, zookeeper)) if zookeeper or config.clustered else None
        with _progress("copying", as_json, "no backup was made") as progress:
            made = make(directory, directories, base=base, rate=rate, dump_tree=dump, progress=progress)
        _print_created(directory, made, as_json)


def _config(config_file: str | None, overrides: tuple[str, ...], data_dirs: tuple[str, ...]) -> "BrokerConfig":
    from odradek.backup.errors import BackupError
    from odradek.config.broker_config import load

    if data_dirs and config_file is not None:
        raise BackupError("give only one of --config and --data-dir")
    config = load(config_file, overrides)
    for warning in config.unknown_key_warnings:
        warn(warning)
    return config


def _dump_tree(config: "BrokerConfig", zookeeper: str | None) -> bytes:
    """The nodes in ZooKeeper. Without a chroot in the connection: a store creates its chroot, and a backup changes nothing."""
    from odradek.backup.tree import dump_tree
    from odradek.metadata.zookeeper import ZookeeperStore, zookeeper_options

    options = zookeeper_options(config)
    options = options._replace(servers=zookeeper or options.servers)
    store = ZookeeperStore(options._replace(servers=options.hosts))
    try:
        return dump_tree(store, options.chroot)
    finally:
        store.close()


def _print_created(directory: Path, made: "Created", as_json: bool) -> None:
    from odradek.cli.framework.output import echo_json, size

    manifest = made.manifest
    if as_json:
        echo_json(_summary(manifest) | {"linked_bytes": made.linked_bytes, "notes": made.skipped})
        return
    linked = f", {size(made.linked_bytes)} of them linked to the base" if made.linked_bytes else ""
    echo(f"{directory}: {_described(manifest)}{linked}")
    for sentence in made.skipped:
        warn(sentence)


def _summary(manifest: "Manifest") -> dict[str, Any]:
    from odradek.backup.manifest import TREE_FILE

    return {
        "node_id": manifest.node_id,
        "cluster_id": manifest.cluster_id,
        "clustered": manifest.clustered,
        "running": manifest.running,
        "created_ms": manifest.created_ms,
        "log_dirs": manifest.log_dirs,
        "partitions": len(manifest.logs),
        "files": len(manifest.all_files),
        "bytes": manifest.bytes,
        "tree": manifest.has(TREE_FILE),
    }


def _described(manifest: "Manifest") -> str:
    from odradek.backup.manifest import TREE_FILE
    from odradek.cli.framework.output import count, size, when

    tree = ", with the nodes in ZooKeeper" if manifest.has(TREE_FILE) else ""
    return (
        f"broker {manifest.node_id} of cluster {manifest.cluster_id} at {when(manifest.created_ms)}:"
        f" {count(len(manifest.logs), 'partition')}, {count(len(manifest.all_files), 'file')}, {size(manifest.bytes)}{tree}"
    )


@backup.command("verify")
@_DIR
@click.option(
    "--processes",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Processes that read logs; 0: one per CPU core.",
)
@JSON_OPTION
def verify(directory: Path, processes: int, as_json: bool) -> None:
    """Check a backup: sizes and checksums of all files, every batch and index of the logs, the metadata.

    Exit code 1 if something is wrong.
    """
    from odradek.backup.check import check_files, log_directories
    from odradek.cli.framework.output import echo_json
    from odradek.cli.machine.log_verify import print_findings, verify_directories
    from odradek.storage.verify import list_directory

    with _errors():
        with _progress("checking files", as_json, "the backup was not changed") as progress:
            manifest, problems = check_files(directory, progress)
        reports = verify_directories(
            [list_directory(path) for path in log_directories(directory, manifest)],
            processes=processes,
            deep=False,
            quiet=as_json,
        )
    findings = [finding for report in reports for finding in report.errors]
    wrong = bool(problems or findings)
    if as_json:
        records = sum(log.records for report in reports for log in report.logs.values())
        errors = [problem._asdict() for problem in problems]
        errors += [{"file": finding.file, "what": finding.what} for finding in findings]
        echo_json(_summary(manifest) | {"records": records, "errors": errors})
    else:
        echo(f"{directory}: {_described(manifest)}")
        for problem in problems:
            echo(f"error {problem.file}: {problem.what}")
        if findings:
            from rich.console import Console

            print_findings(Console(highlight=False, soft_wrap=True), findings)
        echo("The backup is damaged: do not rely on it." if wrong else "No errors found.")
    sys.exit(1 if wrong else 0)


@backup.command("restore")
@_DIR
@click.option(
    "--into",
    "targets",
    metavar="LOGDIR",
    type=click.Path(path_type=Path),
    multiple=True,
    help="New log directory. Repeatable: one for each log directory of the backup, in their order.",
)
@click.option(
    "--tree",
    is_flag=True,
    help="Restore the nodes in ZooKeeper, into an empty chroot, instead of logs: once for a cluster, before the brokers start.",
)
@_CONFIG
@_SET
@_ZOOKEEPER
@click.option(
    "--new-cluster-id",
    metavar="[ID]",
    is_flag=False,
    flag_value="",
    help="Replace the cluster id by a new one, or by ID, so that the copy can run beside the original.",
)
@JSON_OPTION
def restore(
    directory: Path,
    targets: tuple[Path, ...],
    tree: bool,
    config_file: str | None,
    overrides: tuple[str, ...],
    zookeeper: str | None,
    new_cluster_id: str | None,
    as_json: bool,
) -> None:
    """Make log directories from a backup. Nothing is replaced: the directories must be new or empty.

    The node id stays. Start the broker with log.dirs set to the directories, in the same order.
    """
    from odradek.backup.errors import BackupError
    from odradek.backup.restore import generate_cluster_id, valid_cluster_id

    with _errors():
        if tree == bool(targets):
            raise BackupError("name the new log directories with --into, or restore the nodes in ZooKeeper with --tree")
        cluster_id = generate_cluster_id() if new_cluster_id == "" else new_cluster_id
        if cluster_id is not None:
            valid_cluster_id(cluster_id)
        if tree:
            _restore_tree(directory, _config(config_file, overrides, ()), zookeeper, cluster_id, as_json)
        else:
            _restore_logs(directory, targets, cluster_id, as_json)


def _restore_logs(directory: Path, targets: tuple[Path, ...], cluster_id: str | None, as_json: bool) -> None:
    from odradek.backup.restore import restore as make
    from odradek.cli.framework.output import echo_json

    paths = [Path(os.path.abspath(target)) for target in targets]  # noqa: PTH100
    if any("," in str(path) for path in paths):
        fail("a directory with a comma in its path cannot be one of log.dirs; choose another name")
    with _progress("restoring", as_json, "nothing was restored") as progress:
        manifest = make(directory, paths, new_cluster_id=cluster_id, progress=progress)
    names = ",".join(map(str, paths))
    if as_json:
        echo_json(
            _summary(manifest) | {"cluster_id": cluster_id or manifest.cluster_id, "log_dirs": list(map(str, paths))}
        )
        return
    echo(f"restored {_described(manifest)}")
    if cluster_id is not None:
        echo(f"The new cluster id is {cluster_id}.")
    echo(f"Start the broker with log.dirs={names}")
    if os.geteuid() == 0:
        warn(f"the files belong to root: give them to the user of the broker, with chown -R, before the start: {names}")


def _restore_tree(
    directory: Path, config: "BrokerConfig", zookeeper: str | None, cluster_id: str | None, as_json: bool
) -> None:
    from odradek.backup.copying import Copier
    from odradek.backup.errors import BackupError
    from odradek.backup.manifest import TREE_FILE, read
    from odradek.backup.tree import restore_tree
    from odradek.cli.framework.output import count, echo_json
    from odradek.metadata.zookeeper import ZookeeperStore, zookeeper_options

    manifest = read(directory)
    entry = next((entry for entry in manifest.files if entry.path == TREE_FILE), None)
    if entry is None:
        raise BackupError(f"{directory} has no {TREE_FILE}: the backup was made without the nodes in ZooKeeper")
    path = directory / TREE_FILE
    what = Copier().check(path, entry.size, entry.sha256)
    if what is not None:
        raise BackupError(f"{path}: {what}: the backup is damaged")
    options = zookeeper_options(config)
    options = options._replace(servers=zookeeper or options.servers)
    if not options.hosts:
        raise BackupError(
            "name the new ZooKeeper with --zookeeper HOST:PORT/CHROOT, or --config with zookeeper.connect"
        )
    store = ZookeeperStore(options)
    try:
        nodes = restore_tree(store, path.read_bytes(), path, cluster_id)
    finally:
        store.close()
    cluster_id = cluster_id or manifest.cluster_id
    if as_json:
        echo_json({"cluster_id": cluster_id, "nodes": nodes, "zookeeper": options.servers})
    else:
        echo(f"created {count(nodes, 'node')} of cluster {cluster_id} in ZooKeeper at {options.servers}")
