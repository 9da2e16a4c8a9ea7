"""No record waits behind a slow one while a worker is idle, in any schedule: the workers run step by step, without time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.clients import work_queues
from odradek.clients.work_queues import Order, Work
from tests.parallel.stepped import LONG_S, Crew

A, B = ("t", 0), ("t", 1)


def settle(crew, choose):
    """Let all workers that are notified, or have waited long enough, run; the records that were begun do not end."""
    wakes = 0
    while waking := crew.waking:
        choose(waking).resume()
        wakes += 1
        assert wakes <= 20 * len(crew.workers), "workers wake each other without end"


def check_that_idle_workers_have_nothing_to_do(crew, choose):
    """Each round an idle worker begins a record that waits, if there is one: after one round for each worker none is left."""
    settle(crew, choose)
    for _ in crew.workers:
        crew.now += 2 * work_queues.UNBEGUN_S
        settle(crew, choose)
    if crew.idle:
        assert [len(worker.hand.unbegun) for worker in crew.busy] == [0] * len(crew.busy)
        assert not crew.queues._has_ready()
        assert all(due > crew.now for due, _, _ in crew.queues._delayed)


def first(workers):
    return workers[0]


def test_what_a_worker_took_before_another_took_the_last_record_does_not_wait_for_it():
    with Crew(Order.NONE, [9, 9, 9]) as crew:
        crew.queues.assign([A])
        crew.queues.put([Work(A, offset, None, None) for offset in range(10)])
        settle(crew, first)
        check_that_idle_workers_have_nothing_to_do(crew, first)
        assert len(crew.busy) == 3, "record 0 is slow, and the others of its worker have gone to the third worker"


@pytest.mark.parametrize("order", Order)
@given(data=st.data())
def test_in_any_schedule_no_record_waits_for_a_busy_worker_while_another_is_idle(order, data):
    def choose(workers):
        return data.draw(st.sampled_from(workers))

    with Crew(order, data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=4))) as crew:
        crew.queues.assign([A, B])
        put = 0
        for _ in range(data.draw(st.integers(1, 25))):
            verb = data.draw(st.sampled_from(("put", "wake", "wake", "done", "done", "fail", "time", "long time")))
            if verb == "put":
                keys = data.draw(st.lists(st.sampled_from((None, b"a", b"b")), min_size=1, max_size=12))
                place = data.draw(st.sampled_from((A, B)))
                crew.queues.put([Work(place, put + index, key, None) for index, key in enumerate(keys)])
                put += len(keys)
            elif verb == "wake" and crew.waking:
                choose(crew.waking).resume()
            elif verb in ("done", "fail") and crew.busy:
                worker = choose(crew.busy)
                worker.most, worker.fails = data.draw(st.integers(1, 9)), verb == "fail"
                worker.resume()
            elif verb == "time":
                crew.now += work_queues.UNBEGUN_S
            elif verb == "long time":
                crew.now += LONG_S
        check_that_idle_workers_have_nothing_to_do(crew, choose)
