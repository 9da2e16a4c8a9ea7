"""The spools of a report: directories of this machine, and metrics listeners of brokers, whose files are copied for the run.

Runs in the driver. Each broker of a cluster has a spool, and a report of the cluster needs all of them. So a spool that cannot
be reached, or that has no file of the period, is reported as a gap: without it, sums would be smaller and nobody would know. If
a broker's directory was moved or copied, a file may be in several places; it counts once.
"""

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek.clock import now_ms
from odradek.http_request import HttpError, basic_login, request
from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.gaps import Gap, Span, overlaps
from odradek.jobs.usage_report.options import SPOOL_LOGIN, is_url
from odradek.jobs.usage_report.spool import SpoolFile, file_of, find, needed, sorted_files
from odradek.jobs.usage_report.times import iso

PAGE = "/spool"
PAUSES_S = (1.0, 3.0)
_LIMIT_S = 60.0
_MOST_BYTES = 64 << 20  # of a response
#: Two spools of one broker may overlap by this much: its clock was set back when it was restarted with another directory.
_OVERLAP_MS = 60_000
Say = Callable[[str], None]


@dataclass(frozen=True)
class Spools:
    """The files of all spools, each once, and the places that could not be read, with the reason.

    :ivar listed_ms: when the files were listed: what is written after that is not missing. Milliseconds since 1970.
    """

    files: tuple[SpoolFile, ...] = ()
    absent: tuple[tuple[str, str], ...] = ()
    listed_ms: int = 0


def listed(places: Sequence[str], say: Say) -> Spools:
    """List the files of the spools.

    :raises ReportError: a directory cannot be listed, or no spool can be reached
    """
    begun_ms = now_ms()
    files: dict[str, SpoolFile] = {}
    absent: list[tuple[str, str]] = []
    for place in places:
        try:
            found = _listed_by(place) if is_url(place) else find(Path(place))
        except _Unreachable as error:
            if len(places) == 1:
                raise ReportError(f"--spool {place}: {error}") from None
            say(f"warning: --spool {place}: {error}; this report does not contain this broker's data")
            absent.append((place, str(error)))
            continue
        for file in found:
            name = file.path.name.removesuffix(".gz")
            if name not in files or _completeness(file) > _completeness(files[name]):
                files[name] = file
    if not files and absent:
        raise ReportError(f"none of the spools can be reached; --spool {absent[0][0]}: {absent[0][1]}")
    return Spools(tuple(sorted_files(files.values())), tuple(absent), begun_ms)


def _completeness(file: SpoolFile) -> tuple[bool, int]:
    """A compressed file is complete; a plain one may be an earlier copy of one that has grown since."""
    return file.path.suffix == ".gz", file.size


def gaps_of_places(places: Sequence[str], spools: Spools, from_ms: int, to_ms: int) -> list[Gap]:
    """Return a gap for each spool that was not read or has no file of the period."""
    result = [Gap(from_ms, to_ms, f"its spool was not read: {why}", place) for place, why in spools.absent]
    having = {file.place for file in needed([*spools.files], from_ms, to_ms)}
    missing = set(places) - having - {place for place, _ in spools.absent}
    if having:
        result += [Gap(from_ms, to_ms, "this spool has no file of this time", place) for place in sorted(missing)]
    return result


def check_brokers(spans: Iterable[Span], files: Iterable[SpoolFile]) -> None:
    """:raises ReportError: two spools of the same broker id have intervals of the same time: they are of two brokers"""
    places = {file.boot: file.place for file in files}
    times = ((span.broker, places[span.boot], span.from_ms, span.end_ms) for span in spans)
    for broker, first, second, at_ms in overlaps(times, _OVERLAP_MS):
        raise ReportError(
            f"--spool {first} and --spool {second} are both of broker {broker}, and both have intervals of {iso(at_ms)}: give "
            "the spool of each broker of one cluster once"
        )


def brokers_before(files: Iterable[SpoolFile], spans: Iterable[Span], from_ms: int) -> set[int]:
    """Return the ids of the brokers whose spools have files from before the period."""
    files = [*files]
    older = {file.place for file in files if file.hour_ms < from_ms}
    places = {file.boot: file.place for file in files}
    return {span.broker for span in spans if places[span.boot] in older}


def copied(
    files: Iterable[SpoolFile], scratch: Path, from_ms: int, to_ms: int, say: Say
) -> tuple[list[SpoolFile], list[Gap]]:
    """Return the files as files of this machine, those of other machines copied to `scratch`; and the gaps of the period.

    A file that was compressed since it was listed is the compressed one. Of a place that fails, the gap begins with the first
    hour that was not copied; its files are ordered by boot, so that can be before the hour of the file that failed.
    """
    files = [*files]
    result: list[SpoolFile] = []
    failed: dict[str, str] = {}
    missing: dict[str, list[int]] = {}  # hours of files that were not copied, by place
    for file in files:
        hours = missing.setdefault(file.place, [])
        if file.place in failed:
            hours.append(file.hour_ms)
            continue
        if not is_url(file.place):
            packed = file.path.with_name(file.path.name + ".gz")
            result.append(file._replace(path=packed) if not file.path.exists() and packed.exists() else file)
            continue
        try:
            copy = _copied(file, scratch)
        except _Unreachable as error:
            say(f"warning: --spool {file.place}: {file.path.name}: {error}; this report lacks data of this broker")
            failed[file.place] = f"its spool was not read from this hour on: {error}"
            hours.append(file.hour_ms)
            continue
        if copy is None:
            say(f"warning: --spool {file.place}: {file.path.name} was deleted before it was copied")
            hours.append(file.hour_ms)
        else:
            result.append(file._replace(path=copy))
    having = {file.place for file in result}
    for place, hours in missing.items():
        if hours and place not in having:  # the gaps of a broker with data are found from its intervals
            failed.setdefault(place, "the files of its spool were deleted before they were copied")
    return result, [Gap(max(from_ms, min(missing[place])), to_ms, why, place) for place, why in failed.items()]


class _Unreachable(Exception):
    """A metrics listener does not return what it should; the message completes "--spool URL: "."""


def _listed_by(place: str) -> list[SpoolFile]:
    body = get(place, PAGE)
    if body is None:
        raise _Unreachable(
            "has no page /spool: expected the metrics.listener of an Odradek broker of this version, whose "
            "usage.spool.max.bytes is not 0"
        )
    try:
        rows: list[dict[str, Any]] = json.loads(body)["files"]
        found = [file_of(Path(str(row["name"])), int(row["bytes"]), place) for row in rows]
    except (ValueError, LookupError, TypeError):
        raise _Unreachable(f"the response to {PAGE} is not that of an Odradek broker") from None
    # the name becomes that of a file here
    return sorted_files(file for file in found if file is not None and file.path.name == str(file.path))


def _copied(file: SpoolFile, scratch: Path) -> Path | None:
    """Copy a file, or the compressed one that has replaced it; return its path, None if it was deleted."""
    directory = scratch / "spools" / re.sub(r"[^0-9A-Za-z.]+", "_", file.place)
    directory.mkdir(parents=True, exist_ok=True)
    for name in dict.fromkeys((file.path.name, f"{file.path.name.removesuffix('.gz')}.gz")):
        target = directory / name
        at = 0
        with target.open("wb") as copy:
            while piece := get(file.place, f"{PAGE}/{name}?from={at}"):
                copy.write(piece)
                at += len(piece)
        if piece is not None:
            return target
        target.unlink()
    return None


def get(place: str, path: str) -> bytes | None:
    """Return the body of a page; None if there is no such page. Raises _Unreachable, ReportError for a wrong login."""
    headers = {}
    if login := os.environ.get(SPOOL_LOGIN):
        if ":" not in login.strip():
            raise ReportError(f"{SPOOL_LOGIN}: expected USER:PASSWORD")
        headers = basic_login(login.strip())
    problem = ""
    for pause_s in (*PAUSES_S, None):
        try:
            response = request(
                place.rstrip("/") + path, limit_s=_LIMIT_S, largest=_MOST_BYTES, headers=headers, complete=True
            )
        except HttpError as error:
            problem = error.predicate
        else:
            if response.status == 200:
                return response.body
            if response.status == 404:
                return None
            if response.status == 401:
                raise _Unreachable(f"requires a password: set {SPOOL_LOGIN}=USER:PASSWORD in the environment")
            problem = f"returned HTTP {response.status} to {path}"
        if pause_s is not None:
            time.sleep(pause_s)
    raise _Unreachable(problem)
