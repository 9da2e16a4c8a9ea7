"""What becomes of a topic whose copy was deleted or made again."""

from odradek.mirror.copies import Copies

FIRST, SECOND, NONE = b"1" * 16, b"2" * 16, bytes(16)


def copies():
    found = Copies("b", 10.0)
    found.mirrored("a.t", FIRST)
    return found


def test_copies_that_are_there_and_those_that_were_never_mirrored_are_no_obstacle():
    assert copies().obstacle("a.t", FIRST, 0.0) is None
    assert copies().obstacle("a.u", SECOND, 0.0) is None
    assert copies().obstacle("a.u", None, 0.0) is None


def test_a_deleted_copy_is_made_again_after_all_workers_had_time_to_notice():
    found = copies()
    assert "'a.t' was deleted in b" in found.obstacle("a.t", None, 100.0)
    assert "after 10 s" in found.obstacle("a.t", None, 109.9)
    assert found.obstacle("a.t", None, 110.0) is None
    found.mirrored("a.t", SECOND)
    assert found.obstacle("a.t", SECOND, 111.0) is None


def test_a_copy_that_another_worker_made_again_is_used_after_its_absence_was_seen():
    found = copies()
    assert found.obstacle("a.t", None, 100.0)
    assert found.obstacle("a.t", SECOND, 105.0) is None


def test_a_copy_that_was_made_again_unnoticed_is_refused_until_it_is_deleted():
    found = copies()
    assert "records are missing in it" in found.obstacle("a.t", SECOND, 100.0)
    assert "records are missing in it" in found.obstacle("a.t", SECOND, 1000.0)
    assert "was deleted" in found.obstacle("a.t", None, 1001.0)
    assert found.obstacle("a.t", None, 1011.0) is None


def test_a_target_without_topic_ids_shows_only_that_a_copy_is_gone():
    found = Copies("b", 10.0)
    found.mirrored("a.t", NONE)
    assert found.obstacle("a.t", NONE, 0.0) is None
    assert found.obstacle("a.t", None, 0.0)
