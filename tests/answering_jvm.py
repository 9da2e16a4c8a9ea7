"""A JVM that answers each line of its input with a line; it ends when its input does. A child of the test process."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

ENDS_WITHIN_S = 90


class AnsweringJvm:
    """A context manager.

    :param command: starts the JVM. :param errors: the file of what it complains of.
    :param patience_s: how long an answer may take.
    """

    def __init__(self, command: Sequence[str], errors: Path, patience_s: float = 240.0) -> None:
        self._errors = errors
        self._patience_s = patience_s
        with errors.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True
            )

    def __enter__(self) -> AnsweringJvm:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(ENDS_WITHIN_S)
        finally:
            self._process.kill()
            self._process.wait()

    def ask(self, line: str) -> str:
        """The answer to a line. Raises AssertionError with what the JVM said if it ended, or did not answer in time."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        too_long = threading.Timer(self._patience_s, self._process.kill)
        too_long.start()
        answer = self._process.stdout.readline()
        too_long.cancel()
        assert answer, (
            f"the JVM ended, or was ended after {self._patience_s:g} s, at {line}: {self._errors.read_text()[-3000:]}"
        )
        return answer.removesuffix("\n")
