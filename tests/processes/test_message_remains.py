"""Long arrays of messages are freed in parts, on a thread, in all processes that execute requests."""

import importlib
import queue
import threading
from types import SimpleNamespace

import pytest

from odradek._ext.protocol.messages import pass_on_long_arrays
from odradek.api.table import APIS
from odradek.processes import message_remains as module
from odradek.protocol import decode, encode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas import list_offsets, metadata
from tests.waiting import until

LONG, SHORT = 1001, 1000
Request = list_offsets.Request
Topic = Request.ListOffsetsTopic


@pytest.fixture(autouse=True)
def _without_a_thread():
    """Other tests of this process free their messages at once."""
    yield
    pass_on_long_arrays(None)


@pytest.fixture
def passed_on():
    arrays = []
    pass_on_long_arrays(arrays.append)
    return arrays


def topics(count, partitions=0):
    make = Request.ListOffsetsPartition
    return [Topic(name=f"t{number}", partitions=[make() for _ in range(partitions)]) for number in range(count)]


def decoded(count, partitions=0):
    version = 9
    return decode(Request, version, encode(Request(topics=topics(count, partitions)), version))[0]


@pytest.mark.parametrize("make", [lambda: Request(topics=topics(LONG)), lambda: decoded(LONG)])
def test_the_long_array_of_a_message_is_passed_on_when_nobody_refers_to_the_message(passed_on, make):
    message = make()
    del passed_on[:]
    again, names = message, [topic.name for topic in message.topics]
    del message
    assert passed_on == []
    del again
    assert [[topic.name for topic in array] for array in passed_on] == [names]


def test_short_arrays_are_freed_with_their_message(passed_on):
    Request(topics=topics(SHORT))
    metadata.Request(topics=None)
    assert passed_on == []


def test_an_array_that_others_refer_to_is_theirs(passed_on):
    array = topics(LONG)
    Request(topics=array)
    assert passed_on == []
    assert len(array) == LONG


def test_arrays_in_elements_are_passed_on_with_their_element(passed_on):
    Request(topics=topics(3, LONG))
    assert [len(array) for array in passed_on] == [LONG] * 3


class Element:
    """An element that counts the ends of all. :param ended: names of the threads that ended one."""

    def __init__(self, ended):
        self._ended = ended

    def __del__(self):
        self._ended.append(threading.current_thread().name)


def test_a_thread_frees_the_elements_with_pauses(monkeypatch):
    ended, seen = [], queue.SimpleQueue()
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda pause: seen.put(len(ended))))
    module.free_in_parts()
    Request(topics=[Element(ended) for _ in range(2500)])
    until(lambda: len(ended) == 2500, "all elements are freed")
    assert [seen.get(timeout=10) for _ in range(3)] == [1000, 2000, 2500]
    assert set(ended) == {"message-remains"}


@pytest.mark.parametrize("name", ["worker", "coordinator"])
def test_processes_that_execute_requests_free_in_parts(monkeypatch, name):
    process = importlib.import_module(f"odradek.processes.{name}")
    order = []
    monkeypatch.setattr(process, "free_in_parts", lambda: order.append("thread"))
    monkeypatch.setattr(process.uvloop, "run", lambda serving: (serving.close(), order.append("loop")))
    process.main(None)
    assert order == ["thread", "loop"]


@pytest.mark.parametrize("row", APIS, ids=lambda row: row.name)
def test_messages_of_all_apis_are_passed_on(passed_on, row):
    """Requests and responses: those whose first array is long."""
    for cls in (by_key(row.key).request, by_key(row.key).response):
        arrays = [field for field in cls._structure.fields if field.is_array]
        del passed_on[:]
        for field in arrays:
            message = cls()
            setattr(message, field.attribute, [0] * LONG)
            del message
        assert len(passed_on) == len(arrays)
