"""The alternate screen of a terminal, on which a command draws again and again, and the keys that the user presses.

The terminal is restored at the end, whether a key, a signal or an exception ends the command, and while Ctrl-Z stops it.
Everything is written with os.write: a signal may interrupt a write to a terminal that does not read, and its handler writes,
too.
"""

import os
import re
import select
import shutil
import signal
import sys
import termios
import time
from collections.abc import Callable
from types import FrameType

_INPUT, _OUTPUT = 0, 1
_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?1049l\x1b[?25h"
_KEY = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
_NAMES = {"\x1b[C": "right", "\x1bOC": "right", "\x1b[D": "left", "\x1bOD": "left"}


class Screen:
    """Within the context, the terminal shows the alternate screen. Use it in the main thread.

    :param content: returns what is to be drawn, with line feeds.
    """

    def __init__(self, content: Callable[[], str]) -> None:
        self._content = content
        self._mode = termios.tcgetattr(_INPUT) if os.isatty(_INPUT) else None

    def __enter__(self) -> "Screen":
        self._stop_before = signal.signal(signal.SIGTSTP, self._stop)
        try:
            self._enter()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._leave()
        except KeyboardInterrupt:  # whose handler lets writes pass
            self._leave()
            raise
        finally:
            signal.signal(signal.SIGTSTP, self._stop_before)

    def draw(self) -> None:
        """Show the content, as much of it as there are lines."""
        lines = self._content().splitlines()[: shutil.get_terminal_size().lines - 1]
        _write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")

    def keys(self, seconds: float) -> list[str]:
        """The keys that are pressed within this time, as soon as there is one; "q" if the terminal has hung up."""
        if self._mode is None:
            time.sleep(seconds)
            return []
        if not select.select([_INPUT], [], [], max(0.0, seconds))[0]:
            return []
        pressed = os.read(_INPUT, 256).decode(errors="replace")
        return [_NAMES.get(key, key) for key in _KEY.findall(pressed)] or ["q"]

    def _enter(self) -> None:
        if self._mode is not None:
            mode = [*self._mode[:6], [*self._mode[6]]]
            mode[3] &= ~(termios.ECHO | termios.ICANON)
            mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
            termios.tcsetattr(_INPUT, termios.TCSANOW, mode)
        _write(_ENTER)

    def _leave(self) -> None:
        if self._mode is not None:
            termios.tcsetattr(_INPUT, termios.TCSANOW, self._mode)
        _write(_LEAVE)

    def _stop(self, *_: int | FrameType | None) -> None:
        """Ctrl-Z: stop with the terminal as it was before, and draw again when the command continues."""
        self._leave()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._stop)
        self._enter()
        self.draw()


def _write(text: str) -> None:
    data = text.encode(sys.stdout.encoding or "utf-8", "replace")
    while data:
        data = data[os.write(_OUTPUT, data) :]
