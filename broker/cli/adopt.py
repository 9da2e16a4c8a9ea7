"""``odradek adopt``: shows what Kafka's directories hold, asks, and takes them over. Runs in the process of the command."""

import json
import os
import sys
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table

from broker.cli.log_verify import VerifyError, verify_directories
from broker.config import BrokerConfig, ConfigError, load
from broker.metadata.adoption import Adoption, AdoptionError, carry_out, describe, judge, survey
from broker.metadata.kraft_log import ClusterMetadataError
from broker.metadata.store import StoreError
from broker.storage.compression import CODEC_NAMES
from broker.storage.log_directory import CorruptMetadataError, DirectoryInUseError, encode_uuid, lock_directory
from broker.storage.verify import DirectoryReport, NotALogDirectoryError, list_directory

MOST_SHOWN = 100
_COLUMNS = (
    ("topic", "left"),
    ("partitions here", "right"),
    ("records", "right"),
    ("MB", "right"),
    ("formats", "left"),
    ("codecs", "left"),
)
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
        if not check:
            for path in config.log_dirs:
                list_directory(path)  # a lock is a file: none may appear in what is no log directory
            locks += [lock_directory(path) for path in _with_meta(config.log_dirs)]
        found, reports = _look(config, processes, as_json, own_lock=not check)
        if as_json:
            sys.stdout.write(json.dumps(describe(found) | {"logs": _log_lines(reports)}) + "\n")
        else:
            print_adoption(found, reports)
        if check:
            return 1 if found.obstacles else 0
        if found.again and not again:
            raise AdoptError(
                f"{config.log_dirs[0]} was taken over before; if Kafka wrote there since, --again makes the metadata anew"
            )
        if found.obstacles and not force:
            raise AdoptError(f"{len(found.obstacles)} obstacle(s), see above; --force takes over in spite of them")
        if not yes and not click.confirm("Take over?", err=True):
            raise AdoptError("nothing was changed")
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
    console = Console(highlight=False, soft_wrap=True)
    version = f", metadata.version {found.metadata_version}" if found.metadata_version is not None else ""
    console.print(f"Broker {found.node_id} of cluster {found.cluster_id}, {found.mode} mode{version}", markup=False)
    for report in reports:
        logs = report.logs.values()
        state = "in use" if report.files.locked else "closed in order" if report.files.clean else "not closed in order"
        size = sum(log.size for log in logs)
        console.print(f"  {report.files.path}: {len(report.logs)} logs, {size / 1e6:.1f} MB, {state}", markup=False)
    table = Table()
    for title, side in _COLUMNS:
        table.add_column(title, justify=side)  # type: ignore[arg-type]
    sums = _sums(reports)
    shown = list(found.topics.values())[:MOST_SHOWN]
    for topic in shown:
        records, size, formats, codecs = sums.get(topic.name, (0, 0, 0, 0))
        here = sum(partition.directory is not None for partition in topic.partitions.values())
        table.add_row(
            topic.name, f"{here} of {len(topic.partitions)}", str(records), f"{size / 1e6:.1f}",
            " ".join(f"v{bit}" for bit in _bits(formats)), " ".join(CODEC_NAMES[bit] for bit in _bits(codecs)),
        )  # fmt: skip
    console.print(table, markup=False)
    if len(found.topics) > MOST_SHOWN:
        console.print(f"and {len(found.topics) - MOST_SHOWN} more: --json shows all", markup=False)
    settings = [
        f"{topic.name} ({encode_uuid(topic.topic_id)}): {', '.join(f'{key}={value}' for key, value in topic.configs.items())}"
        for topic in shown
    ]
    for title, lines in (
        ("Topics' ids and settings", settings),
        ("Will not be taken over", found.left),
        ("To know", found.warnings),
        ("Obstacles", found.obstacles),
    ):
        if lines:
            console.print(f"{title}:")
            for line in lines[:MOST_SHOWN]:
                console.print(f"  {line}", markup=False)
            if len(lines) > MOST_SHOWN:
                console.print(f"  and {len(lines) - MOST_SHOWN} more: --json shows all")
    if not found.obstacles:
        console.print("Nothing stands in the way.")


def _sums(reports: Sequence[DirectoryReport]) -> dict[str, tuple[int, int, int, int]]:
    """Records, bytes, formats and codecs by topic."""
    sums: dict[str, tuple[int, int, int, int]] = {}
    for report in reports:
        for (name, _), log in report.logs.items():
            records, size, formats, codecs = sums.get(name, (0, 0, 0, 0))
            sums[name] = (records + log.records, size + log.size, formats | log.formats, codecs | log.codecs)
    return sums
