"""``odradek adopt``: shows what Kafka's directories hold, asks, and takes them over. Runs in the process of the command."""

import os
from collections.abc import Sequence

import click

from odradek.cli.interrupt import Interruption, noting
from odradek.cli.log_verify import VerifyError, verify_directories
from odradek.cli.options import confirm
from odradek.cli.output import count, echo_json, print_table, size
from odradek.config import BrokerConfig, ConfigError, load
from odradek.config.readable import with_reading
from odradek.metadata.adoption import Adoption, AdoptionError, carry_out, describe, judge, survey
from odradek.metadata.kraft_log import ClusterMetadataError
from odradek.metadata.store import StoreError
from odradek.storage.compression import CODEC_NAMES
from odradek.storage.log_directory import CorruptMetadataError, DirectoryInUseError, encode_uuid, lock_directory
from odradek.storage.verify import DirectoryReport, NotALogDirectoryError, list_directory

MOST_SHOWN = 100
TITLES = ("topic", "partitions here", "records", "size", "formats", "codecs")
ENDS_WELL = "Start the broker with log.dirs={}"


class AdoptError(Exception):
    """Directories that are not taken over; one line."""


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
) -> int:
    """The whole command; its exit code. Raises AdoptError, ConfigError."""
    config = _config(config_file, overrides, directories)
    locks: list[int] = []
    try:
        with noting(lambda: "nothing was changed"):
            if not check:
                for path in config.log_dirs:
                    list_directory(path)  # a lock is a file: none may appear in what is no log directory
                locks += [lock_directory(path) for path in _with_meta(config.log_dirs)]
            found, reports = _look(config, processes, as_json, own_lock=not check)
            if as_json:
                echo_json(describe(found) | {"logs": _log_lines(reports)})
            else:
                print_adoption(found, reports)
            if check:
                return 1 if found.obstacles else 0
            _require_leave(found, force, again)
            confirm(f"This takes over {', '.join(config.log_dirs)}.", yes)
        with Interruption():  # it is short, and half of it would have to be repeated
            carry_out(found)
    except (NotALogDirectoryError, AdoptionError, ClusterMetadataError, CorruptMetadataError) as error:
        raise AdoptError(error) from error
    except (DirectoryInUseError, StoreError, VerifyError) as error:
        raise AdoptError(error) from error
    except OSError as error:
        raise AdoptError(f"{error.filename or config.log_dirs[0]}: {error.strerror}") from error
    finally:
        for descriptor in locks:
            os.close(descriptor)
    if not as_json:
        click.echo(ENDS_WELL.format(",".join(config.log_dirs)) + _also_to_set(config))
    return 0


def _also_to_set(config: BrokerConfig) -> str:
    """What the configuration that was given lacks for a start."""
    try:
        config.check_metadata_store()
    except ConfigError:
        return ", and with metadata.store=embedded: the configuration names another place for the metadata"
    return ""


def _require_leave(found: Adoption, force: bool, again: bool) -> None:
    """Raises AdoptError if the take-over needs an option that was not given."""
    path = found.directories[0].path
    if found.again and not again:
        raise AdoptError(
            f"{path} was taken over before; if Kafka has written there since, --again replaces the metadata"
        )
    if found.obstacles and not force:
        raise AdoptError(f"{count(len(found.obstacles), 'obstacle')}, see above; --force takes over despite them")


def _config(config_file: str | None, overrides: Sequence[str], directories: Sequence[str]) -> BrokerConfig:
    """The configuration with the directories as its log.dirs."""
    if not directories:
        if config_file is None and not overrides:
            raise AdoptError("name the log directories, or the configuration whose log.dirs they are")
        return load(config_file, overrides)
    named = [os.path.abspath(path) for path in directories]  # noqa: PTH100
    if config_file is not None:
        configured = load(config_file, overrides)
        if sorted(os.path.abspath(path) for path in configured.log_dirs) != sorted(named):  # noqa: PTH100
            raise AdoptError(
                f"log.dirs of {config_file} are {', '.join(configured.log_dirs)}: name the same directories, or none"
            )
        return configured
    if any("," in path for path in named):
        raise AdoptError("a directory with a comma in its name cannot be one of log.dirs")
    return load(None, [*overrides, f"log.dirs={','.join(named)}"])


def _with_meta(paths: Sequence[str]) -> list[str]:
    """The directories, if all of them are Kafka's: else the survey says which is not, and no lock file is made."""
    return list(paths) if all(os.path.exists(f"{path}/meta.properties") for path in paths) else []  # noqa: PTH110


def _look(config: BrokerConfig, processes: int, quiet: bool, own_lock: bool) -> tuple[Adoption, list[DirectoryReport]]:
    files = [list_directory(path) for path in config.log_dirs]
    if own_lock:
        for one in files:
            one.restate_lock(held_by_us=True)
    found = survey(files, config)
    reports = verify_directories(files, processes=processes, deep=False, quiet=quiet, gaps=found.compacted)
    judge(found, reports)
    return found, reports


def _log_lines(reports: Sequence[DirectoryReport]) -> list[dict[str, object]]:
    return [
        {
            "directory": log.directory,
            "log_start_offset": log.log_start_offset,
            "log_end_offset": log.log_end_offset,
            "records": log.records,
            "bytes": log.size,
            "formats": _bits(log.formats),
            "codecs": [CODEC_NAMES[bit] for bit in _bits(log.codecs)],
            "leader_epoch": log.leader_epoch,
        }
        for report in reports
        for log in report.logs.values()
    ]


def _bits(value: int) -> list[int]:
    return [bit for bit in range(8) if value >> bit & 1]


def print_adoption(found: Adoption, reports: Sequence[DirectoryReport]) -> None:
    """What was found, for a person who is to decide."""
    version = f", metadata.version {found.metadata_version}" if found.metadata_version is not None else ""
    click.echo(f"Broker {found.node_id} of cluster {found.cluster_id}, {found.mode} mode{version}")
    for report in reports:
        logs = report.logs.values()
        state = "in use" if report.files.locked else "closed in order" if report.files.clean else "not closed in order"
        stored = size(sum(log.size for log in logs))
        click.echo(f"  {report.files.path}: {count(len(report.logs), 'log')}, {stored}, {state}")
    sums = _sums(reports)
    shown = list(found.topics.values())[:MOST_SHOWN]
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
                [CODEC_NAMES[bit] for bit in _bits(codecs)],
            ]
        )
    print_table(TITLES, rows, "no topics")
    if len(found.topics) > MOST_SHOWN:
        click.echo(f"and {len(found.topics) - MOST_SHOWN} more: --json shows all")
    settings = [
        f"{topic.name} ({encode_uuid(topic.topic_id)}): "
        + ", ".join(f"{key}={with_reading(key, value)}" for key, value in topic.configs.items())
        for topic in shown
    ]
    _print_lines("Topics' ids and settings", settings)
    _print_lines("Will not be taken over", found.left)
    _print_lines("To know", found.warnings)
    _print_lines("Obstacles", found.obstacles)
    if not found.obstacles:
        click.echo("Nothing stands in the way.")


def _print_lines(title: str, lines: Sequence[str]) -> None:
    if not lines:
        return
    click.echo(f"{title}:")
    for line in lines[:MOST_SHOWN]:
        click.echo(f"  {line}")
    if len(lines) > MOST_SHOWN:
        click.echo(f"  and {len(lines) - MOST_SHOWN} more: --json shows all")


def _sums(reports: Sequence[DirectoryReport]) -> dict[str, tuple[int, int, int, int]]:
    """Records, bytes, formats and codecs by topic."""
    sums: dict[str, tuple[int, int, int, int]] = {}
    for report in reports:
        for (name, _), log in report.logs.items():
            records, size, formats, codecs = sums.get(name, (0, 0, 0, 0))
            sums[name] = (records + log.records, size + log.size, formats | log.formats, codecs | log.codecs)
    return sums
