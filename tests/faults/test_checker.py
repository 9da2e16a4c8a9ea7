"""The checker finds each kind of error."""

from tests.faults.checker import decode_id, encode_id, faults

A, B = [("a", n) for n in range(4)], [("b", n) for n in range(4)]


def test_what_is_well_is_passed():
    log = {0: (4, [(0, A[0]), (1, B[0]), (2, B[0]), (3, A[1])]), 1: (0, [])}
    assert faults(log, {A[0]: (0, 0), A[1]: (0, 3), B[0]: (0, 2)}, {"a"}) == []


def test_a_lost_record():
    (told,) = faults({0: (1, [(0, A[0])])}, {A[0]: (0, 0), B[1]: (0, 1)}, {"a"})
    assert "1 records acknowledged, and not there" in told


def test_a_record_of_an_idempotent_producer_twice_in_one_partition_or_in_two():
    same = faults({0: (2, [(0, A[0]), (1, A[0])])}, {}, {"a"})
    assert len(same) == 2 and "more than once" in same[1] and "after 0" in same[0]
    (told,) = faults({0: (1, [(0, A[0])]), 1: (1, [(0, A[0])])}, {}, {"a"})
    assert "more than once" in told


def test_records_out_of_order():
    (told,) = faults({0: (2, [(0, A[1]), (1, A[0])])}, {}, {"a"})
    assert "after 1" in told
    assert faults({0: (2, [(0, A[1]), (1, A[0])])}, {}, {}) == []


def test_gaps_repeated_offsets_and_a_short_read():
    assert "offset 2 where 1 was due" in faults({0: (3, [(0, A[0]), (2, A[1])])}, {}, {})[0]
    assert "offset 0 where 1 was due" in faults({0: (2, [(0, A[0]), (0, A[1])])}, {}, {})[0]
    assert "1 records, log end offset 2" in faults({0: (2, [(0, A[0])])}, {}, {})[0]


def test_an_offset_other_than_told():
    (told,) = faults({0: (2, [(0, A[0]), (1, A[1])])}, {A[0]: (0, 1), A[1]: (0, -1)}, {"a"})
    assert "1 records not at the offset" in told


def test_ids_survive_the_key():
    assert decode_id(encode_id(("plain:0", 17))) == ("plain:0", 17)
