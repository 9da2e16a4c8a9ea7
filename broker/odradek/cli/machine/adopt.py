"""``odradek adopt``: reports the contents of Kafka's log directories, asks for confirmation, and takes them over.

Runs in the process of the command.
"""

import os
from collections.abc import Sequence

from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import reason_of
from odradek.cli.framework.interrupt import Interruption, interrupt_note
from odradek.cli.framework.options import confirm
from odradek.cli.framework.output import count, echo_json, print_table, size
from odradek.cli.machine.log_verify import VerifyError, verify_directories
from odradek.codecs import NAMES
from odradek.config.broker_config import BrokerConfig, load
from odradek.config.errors import ConfigError
from odradek.config.readable import with_reading
from odradek.metadata.adoption import Adoption, AdoptionError, carry_out, describe, judge, survey
from odradek.metadata.kafka_tree import KafkaTree, NoKafkaTree, read_kafka_tree
from odradek.metadata.kraft_log import ClusterMetadataError
from odradek.metadata.store import StoreError
from odradek.metadata.zookeeper import ZookeeperStore, zookeeper_options
from odradek.storage.log_directory import CorruptMetadataError, DirectoryInUseError, encode_uuid, lock_directory
from odradek.storage.verify import DirectoryReport, NotALogDirectoryError, list_directory

MOST_SHOWN = 100
TITLES = ("topic", "partitions here", "records", "size", "formats", "codecs")
START_HINT = "Start the broker with log.dirs={}"


class AdoptError(Exception):
    """The directories were not taken over; one line. ``warnings``: one line for each unknown key of the configuration."""

    warnings: Sequence[str] = ()


def run_adopt(
    config_file: str | None,
    overrides: Sequence[str],
    directories: Sequence[str],
    *,
    check: bool,
    yes: bool,
    force: bool,
    again: bool,
    as_json: bool,
    processes: int,
    zookeeper: str | None,
) -> int:
    """Run the command; return its exit code. Raises AdoptError, ConfigError."""
    config = _config(config_file, overrides, directories)
    try:
        tree = None if zookeeper is None else _read_zookeeper(config, zookeeper)
        return _adopt(
            config, tree, check=check, yes=yes, force=force, again=again, as_json=as_json, processes=processes
        )
    except AdoptError as error:
        error.warnings = config.unknown_key_warnings
        raise


def _read_zookeeper(config: BrokerConfig, servers: str) -> KafkaTree:
    """Read the cluster's nodes from ZooKeeper. Raises AdoptError.

    Without a chroot in the connection, because a store creates its chroot, and this command changes nothing there.
    """
    options = zookeeper_options(config)._replace(servers=servers)
    store = ZookeeperStore(options._replace(servers=options.hosts))
    try:
        store.start_session()
        tree = read_kafka_tree(store, options.chroot)
        store.end_session()
    except (StoreError, NoKafkaTree) as error:
        raise AdoptError(f"ZooKeeper at {servers}: {error}") from error
    finally:
        store.close()
    return tree


def _adopt(
    config: BrokerConfig,
    tree: KafkaTree | None,
    *,
    check: bool,
    yes: bool,
    force: bool,
    again: bool,
    as_json: bool,
    processes: int,
) -> int:
    """Report, confirm and adopt; return the exit code of the command. Raises AdoptError."""
    locks: list[int] = []
    try:
        with interrupt_note(lambda: "nothing was changed"):
            if not check:
                for path in config.log_dirs:
                    list_directory(path)  # raises before a lock file is created in a directory that is no log directory
                locks += [lock_directory(path) for path in _with_meta(config.log_dirs)]
            adoption, reports = _survey(config, tree, processes, as_json, own_lock=not check)
            if as_json:
                echo_json(describe(adoption) | {"logs": _log_lines(reports)})
            else:
                print_adoption(adoption, reports)
            if check:
                return 1 if adoption.obstacles else 0
            _require_options(adoption, force, again)
            confirm(f"This takes over {', '.join(config.log_dirs)}.", yes)
        with Interruption():  # signals wait: it is short, and an interrupted adoption would have to be repeated
            carry_out(adoption)
    except (NotALogDirectoryError, AdoptionError, ClusterMetadataError, CorruptMetadataError) as error:
        raise AdoptError(error) from error
    except (DirectoryInUseError, StoreError, VerifyError) as error:
        raise AdoptError(error) from error
    except OSError as error:
        raise AdoptError(f"{error.filename or config.log_dirs[0]}: {reason_of(error)}") from error
    finally:
        for descriptor in locks:
            os.close(descriptor)
    if not as_json:
        echo(START_HINT.format(",".join(config.log_dirs)) + _metadata_store_hint(config))
    return 0


def _metadata_store_hint(config: BrokerConfig) -> str:
    """A hint to set metadata.store, if the configuration names another metadata store than the adopted one."""
    try:
        config.check_metadata_store()
        fits = not config.clustered
    except ConfigError:
        fits = False
    return "" if fits else ", and with metadata.store=embedded, because the configuration names another metadata store"


def _require_options(adoption: Adoption, force: bool, again: bool) -> None:
    """Raise AdoptError if the adoption needs --again or --force, and the option was not given."""
    path = adoption.directories[0].path
    if adoption.again and not again:
        raise AdoptError(
            f"{path} was already adopted; if Kafka has written there since, add --again to replace the metadata"
        )
    if adoption.obstacles and not force:
        raise AdoptError(f"{count(len(adoption.obstacles), 'obstacle')}, see above; add --force to adopt nevertheless")


def _config(config_file: str | None, overrides: Sequence[str], directories: Sequence[str]) -> BrokerConfig:
    """The configuration, with the directories as its log.dirs. Raises AdoptError, ConfigError."""
    if not directories:
        if config_file is None and not overrides:
            raise AdoptError(
                "name the log directories, or --config FILE with the configuration whose log.dirs they are"
            )
        return load(config_file, overrides)
    named = [os.path.abspath(path) for path in directories]  # noqa: PTH100
    if config_file is not None:
        configured = load(config_file, overrides)
        if sorted(os.path.abspath(path) for path in configured.log_dirs) != sorted(named):  # noqa: PTH100
            raise AdoptError(
                f"log.dirs of {config_file} are {', '.join(configured.log_dirs)}: name exactly these directories, or none"
            )
        return configured
    if any("," in path for path in named):
        raise AdoptError("a directory with a comma in its path cannot be one of log.dirs; rename it")
    return load(None, [*overrides, f"log.dirs={','.join(named)}"])


def _with_meta(paths: Sequence[str]) -> list[str]:
    """The directories, if all of them have a meta.properties; otherwise none, so that no lock file is created in a directory
    that the survey rejects."""
    return list(paths) if all(os.path.exists(f"{path}/meta.properties") for path in paths) else []  # noqa: PTH110


def _survey(
    config: BrokerConfig, tree: KafkaTree | None, processes: int, quiet: bool, own_lock: bool
) -> tuple[Adoption, list[DirectoryReport]]:
    """Read the metadata and verify the logs of the directories. :param own_lock: whether this process locked them."""
    directories = [list_directory(path) for path in config.log_dirs]
    if own_lock:
        for directory in directories:
            directory.restate_lock(held_by_us=True)
    adoption = survey(directories, config, tree)
    reports = verify_directories(directories, processes=processes, deep=False, quiet=quiet, gaps=adoption.compacted)
    judge(adoption, reports)
    return adoption, reports


def _log_lines(reports: Sequence[DirectoryReport]) -> list[dict[str, object]]:
    return [
        {
            "directory": log.directory,
            "log_start_offset": log.log_start_offset,
            "log_end_offset": log.log_end_offset,
            "records": log.records,
            "bytes": log.size,
            "formats": _bits(log.formats),
            "codecs": [NAMES[bit] for bit in _bits(log.codecs)],
            "leader_epoch": log.leader_epoch,
        }
        for report in reports
        for log in report.logs.values()
    ]


def _bits(value: int) -> list[int]:
    return [bit for bit in range(8) if value >> bit & 1]


def print_adoption(adoption: Adoption, reports: Sequence[DirectoryReport]) -> None:
    """Print the contents of the directories, and the obstacles."""
    version = f", metadata.version {adoption.metadata_version}" if adoption.metadata_version is not None else ""
    echo(f"Broker {adoption.node_id} of cluster {adoption.cluster_id}, {adoption.mode} mode{version}")
    for report in reports:
        logs = report.logs.values()
        state = (
            "in use" if report.files.locked else "cleanly shut down" if report.files.clean else "not cleanly shut down"
        )
        stored = size(sum(log.size for log in logs))
        echo(f"  {report.files.path}: {count(len(report.logs), 'log')}, {stored}, {state}")
    sums = _sums(reports)
    shown = list(adoption.topics.values())[:MOST_SHOWN]
    rows = []
    for topic in shown:
        records, stored_bytes, formats, codecs = sums.get(topic.name, (0, 0, 0, 0))
        here = sum(partition.directory is not None for partition in topic.partitions.values())
        rows.append(
            [
                topic.name,
                f"{here} of {len(topic.partitions)}",
                records,
                size(stored_bytes),
                [f"v{bit}" for bit in _bits(formats)],
                [NAMES[bit] for bit in _bits(codecs)],
            ]
        )
    print_table(TITLES, rows, "no topics")
    if len(adoption.topics) > MOST_SHOWN:
        echo(f"and {len(adoption.topics) - MOST_SHOWN} more topics: --json shows all")
    settings = [
        f"{topic.name} ({encode_uuid(topic.topic_id)}): "
        + ", ".join(f"{key}={with_reading(key, value)}" for key, value in topic.configs.items())
        for topic in shown
    ]
    _print_lines("Topic ids and configurations", settings)
    _print_lines("Also taken over", adoption.security.taken)
    _print_lines("Not taken over", adoption.left)
    _print_lines("Warnings", adoption.warnings)
    _print_lines("Obstacles", adoption.obstacles)
    if not adoption.obstacles:
        echo("There are no obstacles.")


def _print_lines(title: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    echo(f"{title}:")
    for line in lines[:MOST_SHOWN]:
        echo(f"  {line}")
    if len(lines) > MOST_SHOWN:
        echo(f"  and {len(lines) - MOST_SHOWN} more: --json shows all")


def _sums(reports: Sequence[DirectoryReport]) -> dict[str, tuple[int, int, int, int]]:
    """The records, bytes, formats (bits) and codecs (bits) of each topic."""
    sums: dict[str, tuple[int, int, int, int]] = {}
    for report in reports:
        for (name, _), log in report.logs.items():
            records, size, formats, codecs = sums.get(name, (0, 0, 0, 0))
            sums[name] = (records + log.records, size + log.size, formats | log.formats, codecs | log.codecs)
    return sums
