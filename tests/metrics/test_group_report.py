"""The coordinator tells all groups in slices: what else its loop has to do comes in between."""

import asyncio
from types import SimpleNamespace

from odradek.groups.offsets import CommittedOffset, Offsets
from odradek.metrics.group_rows import decode_groups
from odradek.processes.coordinator.groups import report as group_report


def group(number, topics):
    offsets = Offsets()
    for topic in range(topics):
        for partition in range(3):
            offsets.put(f"t{topic}", partition, CommittedOffset(number + partition))
    return SimpleNamespace(
        group_id=f"g{number}", state_name="Stable", protocol=SimpleNamespace(members=range(number)), offsets=offsets
    )


def report(groups, meanwhile):
    async def run():
        task = asyncio.ensure_future(
            group_report.encode_report(SimpleNamespace(shards=SimpleNamespace(groups=lambda: iter(groups))))
        )
        turns = 0
        while not task.done():
            meanwhile(turns)
            turns += 1
            await asyncio.sleep(0)
        return list(decode_groups(task.result())), turns

    return asyncio.run(run())


def test_the_loop_turns_between_slices(monkeypatch):
    monkeypatch.setattr(group_report, "SLICE_S", -1.0)
    rows, turns = report([group(number, 4) for number in range(5)], lambda _: None)
    assert [(row.group_id, row.members, len(row.offsets)) for row in rows] == [(f"g{n}", n, 4) for n in range(5)]
    assert rows[4].offsets["t3"] == {0: 4, 1: 5, 2: 6}
    assert turns > 20


def test_changes_during_the_encoding_do_no_harm(monkeypatch):
    monkeypatch.setattr(group_report, "SLICE_S", -1.0)
    groups = [group(number, 4) for number in range(3)]

    def change(turn):
        groups[0].offsets.put(f"new{turn}", 0, CommittedOffset(1))
        groups[1].offsets.remove("t0", turn % 3)
        if turn == 2:
            groups.append(group(9, 1))

    rows, _ = report(groups, change)
    assert [row.group_id for row in rows] == ["g0", "g1", "g2"]
    assert rows[2].offsets["t3"] == {0: 2, 1: 3, 2: 4}
