"""Work that is done in steps, so that others have their turn between two of them: a generator that yields after each step."""

from collections.abc import Callable, Generator
from typing import Any

Steps = Generator[None, None, Any]
"""What a handler returns that works in steps; the generator returns the response."""


class Pace:
    """Says when a step has done enough.

    :param enough: how much makes a step.
    """

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._done = 0

    def over(self, done: int = 1) -> bool:
        """Count what was done. Returns whether the step is to end here."""
        self._done += done
        if self._done < self._enough:
            return False
        self._done = 0
        return True


def never() -> bool:
    """For work that nobody cancels."""
    return False


class Stepwise:
    """The work of a generator, step by step; what it returns becomes `result`.

    :param cancelled: asked before each step; once it returns True the generator is closed, and `result` stays None.
    """

    def __init__(self, steps: Steps, cancelled: Callable[[], bool] = never) -> None:
        self._steps = steps
        self.cancelled = cancelled
        self.result: Any = None

    def step(self) -> bool:
        """Do the next step. Returns whether there is another one. Raises what the generator raises."""
        if self.cancelled():
            self._steps.close()
            return False
        try:
            next(self._steps)
        except StopIteration as end:
            self.result = end.value
            return False
        return True

    def finish(self) -> Any:
        """Do all steps that are left. Returns `result`."""
        while self.step():
            pass
        return self.result
