"""``odradek log verify``: checks the logs of log directories, and prints the findings. Runs in the process of the command."""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from odradek.cli.framework.interrupt import interrupt_note
from odradek.cli.framework.output import ATTENTION, BAD, GOOD, bytes_progress, count, size
from odradek.printable import one_line
from odradek.storage.file_names import META_PROPERTIES
from odradek.storage.verify import DirectoryFiles, DirectoryReport, NotALogDirectoryError, list_directory, verify
from odradek.storage.verify_log import Finding

MOST_SHOWN = 200
ALIKE = 3
"""Up to this number of files with the same finding are shown one by one."""


class VerifyError(Exception):
    """The directories could not be verified; one line."""


def verify_directories(
    directories: Sequence[DirectoryFiles], *, processes: int, deep: bool, quiet: bool, gaps: Iterable[str] = ()
) -> list[DirectoryReport]:
    """`odradek.storage.verify.verify` with a progress bar. Raises VerifyError."""
    total = sum(files.bytes for files in directories)
    done = 0

    def note(bytes_done: int) -> None:
        nonlocal done
        done = bytes_done
        advance(bytes_done)

    try:
        with (
            interrupt_note(lambda: f"{size(done)} of {size(total)} had been checked"),
            bytes_progress("verifying", total, quiet) as advance,
        ):
            return verify(directories, processes=processes, deep=deep, gaps=gaps, progress=note)
    except BrokenProcessPool:
        raise VerifyError("a process that read the logs was killed; try a smaller number of --processes") from None


def run_verify(paths: Sequence[str], *, as_json: bool, processes: int, deep: bool) -> int:
    """Run the command; return its exit code: 1 if there is an error. Raises NotALogDirectoryError, VerifyError, OSError."""
    directories = [list_directory(path) for path in paths]
    for files in directories:
        if not files.logs and not Path(files.path, META_PROPERTIES).exists():
            raise NotALogDirectoryError(
                f"{files.path} contains no logs: name a directory of log.dirs, or a partition's directory"
            )
    began = time.monotonic()
    reports = verify_directories(directories, processes=processes, deep=deep, quiet=as_json)
    seconds = time.monotonic() - began
    if as_json:
        for report in reports:
            for finding in report.all_findings:
                sys.stdout.write(json.dumps({"type": "finding"} | asdict(finding)) + "\n")
            sys.stdout.write(
                json.dumps({"type": "directory"} | summary(report) | {"seconds": round(seconds, 3)}) + "\n"
            )
    else:
        for report in reports:
            print_report(report, seconds)
    return 1 if any(report.errors for report in reports) else 0


def summary(report: DirectoryReport) -> dict[str, object]:
    """A directory's counts, as a JSON object."""
    logs = report.logs.values()
    return {
        "directory": report.files.path,
        "in_use": report.files.locked,
        "clean": report.files.clean,
        "partitions": len(report.logs),
        "segments": sum(log.segments for log in logs),
        "batches": sum(log.batches for log in logs),
        "records": sum(log.records for log in logs),
        "bytes": sum(log.size for log in logs),
        "errors": len(report.errors),
        "notes": len(report.all_findings) - len(report.errors),
    }


def lines_of(findings: Iterable[Finding]) -> list[tuple[bool, str]]:
    """Whether it is an error, and the text, of each line that shows findings, errors first.

    If more than `ALIKE` files have nothing else than the same finding, one line shows them: a restored backup has no indexes.
    """
    alike: dict[tuple[bool, str], list[Finding]] = {}
    for finding in findings:
        whole_file = finding.offset is None and finding.position is None
        alike.setdefault((finding.error, finding.what if whole_file else str(finding)), []).append(finding)
    lines = []
    for (error, what), group in alike.items():
        if len(group) > ALIKE:
            lines.append((error, f"{len(group):,} files, such as {group[0].file}: {what}; --json names all of them"))
            continue
        for finding in group:
            places = (f", {name} {value}" for name, value in (("offset", finding.offset), ("position", finding.position))
                      if value is not None)  # fmt: skip
            lines.append((error, f"{finding.file}{''.join(places)}: {finding.what}"))
    return sorted(lines, key=lambda line: not line[0])


def print_findings(console: Console, findings: Sequence[Finding]) -> None:
    """Print the lines of findings. They are not wrapped, so that file names stay whole."""
    lines = lines_of(findings)
    for error, text in lines[:MOST_SHOWN]:
        console.print("error" if error else "note ", style=BAD if error else ATTENTION, end=" ")
        console.print(one_line(text), markup=False)
    if len(lines) > MOST_SHOWN:
        console.print(f"and {len(lines) - MOST_SHOWN} more findings: --json shows all", markup=False)


def print_report(report: DirectoryReport, seconds: float) -> None:
    """Print a directory's counts, state and findings."""
    console = Console(highlight=False, soft_wrap=True)
    logs = report.logs.values()
    batches = sum(log.batches for log in logs)
    console.print(
        f"{report.files.path}: {count(len(logs), 'partition')}, {count(sum(log.segments for log in logs), 'segment')}, "
        f"{batches:,} batch{'' if batches == 1 else 'es'}, {count(sum(log.records for log in logs), 'record')}, "
        f"{size(sum(log.size for log in logs))} in {seconds:.1f} s",
        markup=False,
    )
    if report.files.locked:
        console.print("A broker is running on the directory, and still writes each log after its recovery point.")
    elif not report.files.clean:
        console.print(
            "The directory was not cleanly shut down: the next start recovers each log after its recovery point."
        )
    if report.all_findings:
        print_findings(console, report.all_findings)
    errors = len(report.errors)
    if errors:
        console.print(f"{count(errors, 'error')}.", style=BAD)
    elif report.logs:
        console.print("No errors found.", style=GOOD)
    else:
        console.print("The directory contains no logs: nothing was checked.")
