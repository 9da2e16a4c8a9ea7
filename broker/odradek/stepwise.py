"""Work in steps: a generator that yields after each step, so that other work has its turn in between."""

from collections.abc import Callable, Generator, Sequence
from heapq import merge
from typing import Any

Steps = Generator[Any, None, Any]
"""The result of a handler that works in steps; the generator returns the response."""
MUST_GO_ON = "must go on"
"""A generator yields this instead of None between two steps of a change that must not stay half done: the steps are executed
until the next other pause, also if their client disconnects."""


OFF_LOOP = "off the loop"
"""A generator yields this before steps that may wait for the disk: from here on, a thread executes the steps."""


class Later:
    """A value that steps wait for: they yield it, and continue when it is set. Used in one thread.

    :ivar value: the arguments of `set`: one value, or a tuple of several.
    """

    __slots__ = ("_then", "done", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.done = False
        self._then: Callable[[], None] | None = None

    def set(self, *values: Any) -> None:
        """Set the value, and continue what waits for it. Another value that comes later is ignored."""
        if self.done:
            return
        self.value = values[0] if len(values) == 1 else values
        self.done = True
        if self._then is not None:
            self._then()

    def then(self, continue_: Callable[[], None]) -> None:
        """Call `continue_` once, when the value is set; now, if it is."""
        self._then = continue_
        if self.done:
            continue_()


def waited(begin: Callable[[Callable[..., None]], Any]) -> Steps:
    """The value with which `begin` calls its argument, now or later."""
    later = Later()
    begin(later.set)
    if not later.done:
        yield later
    return later.value


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


def ordered_in_steps(texts: Sequence[str], run: int = 1000) -> Generator[None, None, list[str]]:
    """The texts in ascending order, each once. To sort a hundred thousand at once takes 50 ms.

    :param run: how many texts a step handles.
    """
    if len(texts) <= run:
        return sorted(set(texts))
    runs = []
    for first in range(0, len(texts), run):
        runs.append(sorted(texts[first : first + run]))
        yield
    ordered: list[str] = []
    pace = Pace(run)
    for text in merge(*runs):
        if not ordered or text != ordered[-1]:
            ordered.append(text)
        if pace.over():
            yield
    return ordered


def never() -> bool:
    """The default `cancelled`: the work is never cancelled."""
    return False


class Stepwise:
    """Executes the steps of a generator; its return value becomes `result`.

    :param cancelled: called before each step; when it returns True, the generator is closed, and `result` stays None, unless
        the step before it ended with MUST_GO_ON.
    :ivar must_go_on: whether the last step ended with MUST_GO_ON.
    :ivar waits: what the next step waits for; None: for nothing. :ivar off_loop: whether the last step ended with OFF_LOOP.
    """

    def __init__(self, steps: Steps, cancelled: Callable[[], bool] = never) -> None:
        self._steps = steps
        self.cancelled = cancelled
        self.result: Any = None
        self.must_go_on = False
        self.waits: Later | None = None
        self.off_loop = False

    def step(self) -> bool:
        """Execute the next step. Returns whether there is another one. Raises what the generator raises."""
        if not self.must_go_on and self.cancelled():
            self._steps.close()
            return False
        self.must_go_on = False
        if self.waits is not None and not self.waits.done:
            raise RuntimeError("a step cannot be executed before it has the value that it waits for")
        try:
            pause = next(self._steps)
            self.must_go_on = pause is MUST_GO_ON
            self.waits = pause if isinstance(pause, Later) else None
            self.off_loop = pause is OFF_LOOP
        except StopIteration as end:
            self.result = end.value
            return False
        return True

    def abandon(self) -> bool:
        """Execute the next step if the last one must not be the last, else close the generator. Returns whether there are more
        steps to execute in this way. Raises what the generator raises."""
        if self.must_go_on:
            return self.step()
        self._steps.close()
        return False

    def finish(self) -> Any:
        """Execute all remaining steps. Returns `result`."""
        while self.step():
            pass
        return self.result
