"""Work in steps: a generator that yields after each step, so that other work has its turn in between."""

from collections.abc import Callable, Generator
from typing import Any

Steps = Generator[None, None, Any]
"""The result of a handler that works in steps; the generator returns the response."""


class Pace:
    """Determines when a step has done enough work.

    :param enough: the amount of work in a step.
    """

    def __init__(self, enough: int) -> None:
        self._enough = enough
        self._done = 0

    def over(self, done: int = 1) -> bool:
        """Count work that was done. Returns whether the step must end here."""
        self._done += done
        if self._done < self._enough:
            return False
        self._done = 0
        return True


def never() -> bool:
    """The default `cancelled`: the work is never cancelled."""
    return False


class Stepwise:
    """Executes the steps of a generator; its return value becomes `result`.

    :param cancelled: called before each step; when it returns True, the generator is closed, and `result` stays None.
    """

    def __init__(self, steps: Steps, cancelled: Callable[[], bool] = never) -> None:
        self._steps = steps
        self.cancelled = cancelled
        self.result: Any = None

    def step(self) -> bool:
        """Execute the next step. Returns whether there is another one. Raises what the generator raises."""
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
        """Execute all remaining steps. Returns `result`."""
        while self.step():
            pass
        return self.result
