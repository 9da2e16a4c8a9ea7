"""Arrays of messages whose elements are freed in steps."""

import copy
import gc
import pickle
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from odradek._ext.protocol.arrays import free_waiting, new_array
from odradek.protocol import decode_in_steps, encode, encode_in_steps
from odradek.protocol.schemas import list_offsets, metadata
from odradek.stepwise import Steps, Stepwise

ALL = 1 << 40


class Element:
    """An element that shows whether it exists."""


@pytest.fixture(autouse=True)
def nothing_waits() -> Iterator[None]:
    assert free_waiting(ALL) == 0
    yield
    assert free_waiting(ALL) == 0


def filled(count: int) -> tuple[list[Element], list["weakref.ref[Element]"]]:
    """An array, and references that do not keep its elements."""
    array = new_array()
    array.extend(Element() for _ in range(count))
    return array, [weakref.ref(element) for element in array]


def alive(references: list["weakref.ref[Element]"]) -> int:
    return sum(reference() is not None for reference in references)


def test_the_elements_of_an_array_are_freed_in_steps() -> None:
    array, references = filled(5000)
    del array
    assert free_waiting(0) == alive(references) == 4000
    assert free_waiting(300) == alive(references) == 3700
    assert free_waiting(3699) == alive(references) == 1
    assert free_waiting(300) == alive(references) == 0


def test_a_step_frees_elements_of_several_arrays() -> None:
    arrays = [filled(3000) for _ in range(5)]
    references = [reference for _, of_array in arrays for reference in of_array]
    del arrays
    assert free_waiting(0) == alive(references) == 10_000
    assert free_waiting(5500) == alive(references) == 4500


def test_arrays_in_elements_are_counted_for_themselves() -> None:
    inner, references = filled(2000)
    outer = new_array()
    outer.extend([inner, *([] for _ in range(1999))])
    del inner, outer
    assert free_waiting(999) == 1
    assert free_waiting(1) == alive(references) == 2000, "the inner array is freed, its elements are not"
    assert free_waiting(1900) == alive(references) == 100


def test_small_arrays_never_wait() -> None:
    """Short requests and responses, which are not decoded and encoded in steps, may follow each other without end."""
    for count in (3, 4, 5, 10, 999, 1000):
        for _ in range(50):
            array, references = filled(count)
            del array
            assert free_waiting(0) == alive(references) == 0


@pytest.mark.parametrize(("arrays", "elements"), [(1, 100_000), (20, 800), (2000, 5)])
def test_the_elements_that_wait_are_limited_whatever_the_clients_do(arrays: int, elements: int) -> None:
    """Also without a step that frees: responses of short requests, which have arrays in arrays."""
    for _ in range(40):
        outer = new_array()
        for _ in range(arrays):
            inner = new_array()
            inner.extend([b""] * elements)
            outer.append(inner)
        del outer, inner
        assert free_waiting(0) <= 300_000


def test_small_arrays_in_elements_are_counted() -> None:
    """A step frees no more elements if each of them has a few more."""
    outer = new_array()
    for _ in range(10_000):
        inner = new_array()
        inner.extend([b""] * 4)
        outer.append(inner)
    del outer, inner
    left = free_waiting(0)
    assert left - free_waiting(5000) <= 5000 / 5 + 200


def test_elements_that_others_use_stay() -> None:
    array, references = filled(10)
    kept = array[3]
    del array
    free_waiting(ALL)
    assert alive(references) == 1 and references[3]() is kept


def test_an_array_is_a_list() -> None:
    array = new_array()
    assert array == [] and isinstance(array, list) and not gc.is_tracked(array)
    array.extend(range(10))
    array.append(10)
    del array[0]
    array.sort(reverse=True)
    assert array == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1] and repr(array) == repr(list(array))
    for copied in (copy.copy(array), copy.deepcopy(array), pickle.loads(pickle.dumps(array)), array[:], [*array]):
        assert copied == array and type(copied) is list


def request_of(topics: int, partitions: int) -> object:
    make = list_offsets.Request
    rows = [make.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(partitions)]
    return make(topics=[make.ListOffsetsTopic(name=f"t{n}", partitions=list(rows)) for n in range(topics)])


def steps_of(steps: Steps) -> int:
    job, count = Stepwise(steps), 1
    while job.step():
        count += 1
    return count


@pytest.mark.parametrize(("topics", "partitions"), [(1, 50_000), (50_000, 0), (200, 200), (7000, 6)])
def test_those_that_wait_never_are_more_than_those_of_two_requests(topics: int, partitions: int) -> None:
    """A client sends one request after another: each is decoded, answered with a response of its size, and dropped."""
    request = request_of(topics, partitions)
    data = encode(request, 7)
    waiting = []
    for _ in range(6):
        decoding = Stepwise(decode_in_steps(list_offsets.Request, 7, data, 0, ALL))
        while decoding.step():
            pass
        assert decoding.result == request
        del decoding
        waiting.append(free_waiting(0))
    assert max(waiting) <= 2 * (topics + topics * partitions)
    assert waiting[-1] <= waiting[1]


def test_an_encoding_frees_what_waits() -> None:
    array, references = filled(100_000)
    del array
    response = metadata.Response()
    response.topics = new_array()
    response.topics.extend(metadata.Response.MetadataResponseTopic(name=str(n)) for n in range(20_000))
    before = alive(references)
    count = steps_of(encode_in_steps(b"", response, 8))
    assert before == 99_000 and 0 < alive(references) < before
    assert count > 1


def test_a_request_that_cannot_be_decoded_to_its_end_is_freed() -> None:
    """The array has room for all its elements; those that were not decoded are no objects."""
    data = encode(request_of(20_000, 0), 7)[:-50_000]
    decoding = Stepwise(decode_in_steps(list_offsets.Request, 7, data, 0, ALL))
    with pytest.raises(ValueError, match="topics"):
        while decoding.step():
            pass
    del decoding


def test_threads_free_and_make_arrays_at_the_same_time() -> None:
    data = encode(request_of(3000, 5), 7)

    def work() -> None:
        for _ in range(20):
            assert steps_of(decode_in_steps(list_offsets.Request, 7, data, 0, ALL)) > 1

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(work) for _ in range(4)]:
            done.result()
