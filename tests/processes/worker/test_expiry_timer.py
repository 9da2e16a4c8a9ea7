"""The timer of a purgatory's deadlines."""

from odradek.processes.worker.expiry_timer import ExpiryTimer


class Loop:
    """A loop whose timers the test runs."""

    def __init__(self):
        self.timers = []

    def call_at(self, when, callback):
        timer = Timer(when, callback)
        self.timers.append(timer)
        return timer

    def due(self):
        return [timer.when for timer in self.timers if not timer.cancelled]

    def run(self):
        (timer,) = [timer for timer in self.timers if not timer.cancelled]
        self.timers.clear()
        timer.callback()


class Timer:
    def __init__(self, when, callback):
        self.when, self.callback, self.cancelled = when, callback, False

    def cancel(self):
        self.cancelled = True


def test_only_the_earliest_deadline_has_a_timer():
    loop = Loop()
    timer = ExpiryTimer(loop, lambda: -1)
    timer.set(5000)
    timer.set(7000)
    assert loop.due() == [5.001]
    timer.set(2000)
    assert loop.due() == [2.001]


def test_the_next_deadline_is_set_after_the_first_has_passed():
    loop, next_deadlines = Loop(), [9000, -1]
    timer = ExpiryTimer(loop, lambda: next_deadlines.pop(0))
    timer.set(2000)
    loop.run()
    assert loop.due() == [9.001]
    loop.run()
    assert loop.due() == [] and next_deadlines == []


def test_a_deadline_that_is_set_while_requests_expire_is_kept():
    loop = Loop()

    def expire():
        timer.set(3000)
        return 4000

    timer = ExpiryTimer(loop, expire)
    timer.set(2000)
    loop.run()
    assert loop.due() == [3.001]
