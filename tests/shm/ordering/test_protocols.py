"""The protocols of the shared memory under a weak memory order: the orders are those of the sources.

Each protocol is a few functions, a small state and what no execution may show. The test finds the accesses of the
functions in the sources (`sources.accesses`), executes them in every way that a weak memory order permits
(`weak_memory.executions`), and then once more for each order, made relaxed, and for each fence, left out: the protocol
must break, or `needless` says why it does not. So an order that somebody weakens is noticed, and so is one that nobody
needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest

from tests.shm.ordering.sources import Function, accesses, body
from tests.shm.ordering.weak_memory import Program, exchange, executions, fence, load, store

Calls = Mapping[str, list[str]]


class Protocol(NamedTuple):
    """``functions``: the functions of each part. ``programs``: their model, a program for each thread. ``memory``: at
    the beginning.
    ``allowed``: whether a final state may be. ``needless``: the accesses without whose order the protocol still holds,
    with the reason."""

    functions: dict[str, list[Function]]
    programs: Callable[[Calls], list[Program]]
    memory: dict[str, int]
    allowed: Callable[[dict[str, int]], bool]
    needless: dict[tuple[str, str], str] = {}


class Orders:
    """The accesses of a function, taken one after another: each use must be the one that the source has there."""

    def __init__(self, calls: list[str]) -> None:
        self.left = list(calls)

    def take(self, kind: str, word: str = "") -> str:
        """The order of the next access, which must be of this kind and to this word."""
        assert self.left, f"the source has no more accesses; the model needs {kind} {word}"
        found_kind, order, *found_word = self.left.pop(0).split()
        assert (found_kind, *found_word) == (kind, *([word] if word else [])), (
            f"{found_kind} {found_word}, not {kind} {word}"
        )
        return order

    def fence(self) -> Program:
        order = self.take("fence")
        return [] if order == "none" else fence(order)

    def end(self) -> None:
        assert not self.left, f"accesses that the model does not have: {self.left}"


def weakened(calls: Calls) -> list[tuple[str, str, Calls]]:
    """Each (role, access, all accesses with this one weakened)."""
    variants = []
    for role, listed in calls.items():
        for place, call in enumerate(listed):
            kind, order, *word = call.split()
            if order == "relaxed" or (kind, order) == ("load", "seq_cst"):
                continue  # names no order, or is a plain read
            weaker = " ".join((kind, "none" if kind == "fence" else "relaxed", *word))
            variants.append(
                (role, f"{place}: {call}", {**calls, role: [*listed[:place], weaker, *listed[place + 1 :]]})
            )
    return variants


# -- two blocks, of which the lowest bit of a sequence names the valid one -----------------------------------------------


def blocks(writer: str, word: str, block: str) -> Callable[[Calls], list[Program]]:
    """The writer publishes twice, so that it writes to the block that the reader copies. A block consists of two words,
    which both hold the sequence with which they were published."""

    def programs(calls: Calls) -> list[Program]:
        write: Program = []
        for turn in "12":
            orders = Orders(calls["writer"])
            own, uses = f"own{turn}", [f"own{turn}"]
            write += load(word, own, orders.take("load", word))
            write += orders.fence()
            order = orders.take("fill", block)
            for half in "ab":
                write += store(
                    lambda r, own=own, half=half: f"{half}{(r[own] + 1) % 2}",
                    lambda r, own=own: r[own] + 1,
                    order,
                    uses=uses,
                )
            write += store(word, lambda r, own=own: r[own] + 1, orders.take("store", word), uses=uses)
            orders.end()
        orders = Orders(calls["reader"])
        read = load(word, "before", orders.take("load", word))
        order = orders.take("copy", block)
        for half in ("a0", "b0", "a1", "b1"):  # which block it is may be guessed before the sequence is read
            read += load(half, half + "_read", order)
        read += orders.fence()
        read += load(word, "after", orders.take("load", word))
        orders.end()
        return [write, read]

    return programs


def block_is_whole(final: dict[str, int]) -> bool:
    block = final["before"] % 2
    return final["before"] != final["after"] or final[f"a{block}_read"] == final[f"b{block}_read"] == final["before"]


BLOCK_MEMORY = {"a0": 0, "b0": 0, "a1": -1, "b1": -1}


# -- a sequence that is odd during a change ------------------------------------------------------------------------------


def section(
    word: str,
    begin: Callable[[Orders], Program],
    change: Callable[[Orders], Program],
    end: Callable[[Orders], Program],
    copy: Callable[[Orders], Program],
) -> Callable[[Calls], list[Program]]:
    """A change of two words, a and b, which are equal outside of it."""

    def programs(calls: Calls) -> list[Program]:
        orders = Orders(calls["writer"])
        write = begin(orders) + change(orders) + end(orders)
        orders.end()
        orders = Orders(calls["reader"])
        read = load(word, "before", orders.take("load", word)) + copy(orders) + orders.fence()
        read += load(word, "after", orders.take("load", word))
        orders.end()
        return [write, read]

    return programs


def section_is_whole(final: dict[str, int]) -> bool:
    return (
        final["before"] % 2 == 1
        or final["before"] != final["after"]
        or final["a"] == final["b"] == final["before"] // 2
    )


def begin_with(word: str) -> Callable[[Orders], Program]:
    """Make a sequence odd."""
    return lambda orders: store(word, 1, orders.take("store", word)) + orders.fence()


def end_with(word: str) -> Callable[[Orders], Program]:
    """Make a sequence even again."""
    return lambda orders: store(word, 2, orders.take("store", word))


def stores(kind: str, *words: str) -> Callable[[Orders], Program]:
    """Store both halves: with one `fill`, or with a store for each of the words."""

    def change(orders: Orders) -> Program:
        if kind == "fill":
            order = orders.take("fill", *words)
            return store("a", 1, order) + store("b", 1, order)
        taken = [orders.take("store", word) for word in words]
        return store("a", 1, taken[0]) + store("b", 1, taken[-1])

    return change


def loads(kind: str, *words: str) -> Callable[[Orders], Program]:
    def copy(orders: Orders) -> Program:
        if kind == "copy":
            order = orders.take("copy", *words)
            return load("a", "a", order) + load("b", "b", order)
        taken = [orders.take("load", word) for word in words]
        return load("a", "a", taken[0]) + load("b", "b", taken[-1])

    return copy


def copy_of_epochs(orders: Orders) -> Program:
    program = load("a", "a", orders.take("load", "epoch_count"))
    program += load("b", "b", orders.take("copy", "epochs"))
    orders.take("load", "log_start_offset")
    return program


def change_of_epochs(orders: Orders) -> Program:
    program = store("b", 1, orders.take("fill", "epochs"))
    return program + store("a", 1, orders.take("count", "epoch_count"))


# -- waiting and waking ---------------------------------------------------------------------------------------------------


def waiting(calls: Calls) -> list[Program]:
    """A commit, and a process that begins to wait for it."""
    orders = Orders(calls["commit"])
    own = orders.take("load", "sequence")
    commit = load("sequence", "own", own) + orders.fence()
    orders.take("fill", "commits")
    commit += store("sequence", 1, orders.take("store", "sequence"))
    orders.end()
    orders = Orders(calls["wake"])
    commit += orders.fence()
    orders.take("load", "waiters_log_end")
    orders.take("update", "waiters_log_end")
    commit += load("waiters_committed", "seen", orders.take("load", "waiters_committed"))
    commit += exchange(
        "waiters_committed",
        "mask",
        0,
        orders.take("update", "waiters_committed"),
        uses=["seen"],
        when=lambda r: r["seen"] != 0,
    )
    orders.end()
    orders = Orders(calls["wait"])
    wait = exchange("waiters_committed", "others", 1, orders.take("update", "waiters_committed"))
    orders.take("update", "waiters_flushed")
    wait += orders.fence()
    orders.end()
    orders = Orders(calls["look"])
    wait += load("sequence", "look", orders.take("load", "sequence"))
    return [commit, wait]


def ready(calls: Calls) -> list[Program]:
    """A process that wakes another one, which has a wake-up pending and drains it. The counter of the descriptor is a
    word that the kernel changes, without an order. In the end the bit was taken, or the descriptor is readable."""
    orders = Orders(calls["wake"])
    wake = exchange("bits", "bits_before", 1, orders.take("update", "ready_words"))
    wake += exchange("summary", "summary_before", 1, orders.take("update", "summary_words"))
    orders.end()
    orders = Orders(calls["ring"])
    wake += exchange("pending", "was_pending", 1, orders.take("update", "event_pending"))
    wake += exchange("descriptor", "d", 1, "relaxed", uses=["was_pending"], when=lambda r: r["was_pending"] == 0)
    orders.end()
    orders = Orders(calls["drain"])
    take = exchange("descriptor", "drained", 0, "relaxed")
    take += exchange("pending", "was_set", 0, orders.take("update", "event_pending"))
    orders.end()
    orders = Orders(calls["take"])
    take += load("summary", "any", orders.take("load", "summary"))
    take += exchange(
        "summary", "groups", 0, orders.take("update", "summary"), uses=["any"], when=lambda r: r["any"] != 0
    )
    orders.take("update", "summary")  # puts back what has no room
    take += exchange(
        "bits", "taken", 0, orders.take("update", "words"), uses=["groups"], when=lambda r: r["groups"] != 0
    )
    orders.end()
    return [wake, take]


def told(calls: Calls) -> list[Program]:
    """A process that publishes a change and wakes a worker, which is handling an earlier wake-up. In the end the worker
    has seen the change, or its descriptor is readable and there is news."""
    orders = Orders(calls["wake"])
    wake = store("change", 1, "relaxed") + store("news", 1, orders.take("store", "news"))
    orders.end()
    orders = Orders(calls["ring"])
    wake += exchange("pending", "was_pending", 1, orders.take("update", "event_pending"))
    wake += exchange("descriptor", "d", 1, "relaxed", uses=["was_pending"], when=lambda r: r["was_pending"] == 0)
    orders.end()
    orders = Orders(calls["drain"])
    take = exchange("descriptor", "drained", 0, "relaxed")
    take += exchange("pending", "was_set", 0, orders.take("update", "event_pending"))
    orders.end()
    orders = Orders(calls["take"])
    take += exchange("news", "told", 0, orders.take("update", "news"))
    orders.end()
    take += load("change", "seen", "relaxed")  # also before, where the processor guesses
    return [wake, take]


# -- roles ------------------------------------------------------------------------------------------


def role(calls: Calls) -> list[Program]:
    """A change from one leader to another, and a follower that looks."""
    orders = Orders(calls["withdraw"])
    write = store("role", 0, orders.take("store", "role")) + orders.fence()
    orders.end()
    orders = Orders(calls["fields"])
    write += store("leader", 1, orders.take("store", "leader_id")) + store(
        "epoch", 1, orders.take("store", "leader_epoch")
    )
    orders.end()
    orders = Orders(calls["assign"])
    write += store("role", 2, orders.take("store", "role"))
    orders.end()
    orders = Orders(calls["reader"])
    read = load("role", "before", orders.take("load", "role"))
    read += load("epoch", "epoch_read", orders.take("load", "leader_epoch"))
    read += load("leader", "leader_read", orders.take("load", "leader_id"))
    read += orders.fence()
    read += load("role", "after", orders.take("load", "role"))
    read += load("epoch", "epoch_after", orders.take("load", "leader_epoch"))
    orders.end()
    return [write, read]


# -- the ring of changes ----------------------------------------------------------------------------


def ring(calls: Calls) -> list[Program]:
    """Versions 2 and 3 are announced one after another; a ring of one entry, of which the reader uses version 1."""
    write: Program = []
    for version in (2, 3):
        orders = Orders(calls["announce"])
        write += orders.fence()
        orders.take("store", "created_version")
        write += store("entry", version, orders.take("store", "changes"))
        write += store("version", version, orders.take("store", "metadata_version"))
        orders.end()
    orders = Orders(calls["refresh"])
    read = load("version", "newest", orders.take("load", "metadata_version"))
    read += load("entry", "changed", orders.take("load", "changes"))
    read += orders.fence()
    read += load("version", "after", orders.take("load", "metadata_version"))
    orders.end()
    return [write, read]


def reuse(calls: Calls) -> list[Program]:
    """A worker reads a slot and then confirms a newer version; the coordinator gives the slot to another partition."""
    orders = Orders(calls["confirm"])
    worker = load("slot", "read", "relaxed") + store("confirmed", 1, orders.take("store", "confirmed_version"))
    orders.end()
    orders = Orders(calls["oldest"])
    coordinator = load("confirmed", "oldest", orders.take("load", "confirmed_version"))
    coordinator += store("slot", 2, "relaxed", uses=["oldest"], when=lambda r: r["oldest"] == 1)
    return [worker, coordinator]


def reused(calls: Calls) -> list[Program]:
    """The slot of a partition (incarnation 0) is cleared and given to another one (incarnation 2); a reader without the
    mutex. Incarnation 1 is that of a slot without a log, whose state the reader checks."""
    orders = Orders(calls["begin"])
    write = store("incarnation", 1, orders.take("store", "incarnation")) + orders.fence()
    orders.end()
    write += store("data", -1, "relaxed") + store("data", 2, "relaxed")
    orders = Orders(calls["end"])
    write += store("incarnation", 2, orders.take("store", "incarnation"))
    orders.end()
    orders = Orders(calls["reader"])
    read = load("incarnation", "before", orders.take("load", "incarnation")) + load("data", "data_read", "relaxed")
    read += orders.fence()
    read += load("incarnation", "after", orders.take("load", "incarnation"))
    orders.end()
    return [write, read]


def noted(calls: Calls) -> list[Program]:
    """A failure is noted in the place of an older one, while that one is copied."""
    orders = Orders(calls["note"])
    orders.take("update", "failure_count")
    write = store("number", 0, orders.take("store", "number")) + orders.fence()
    order = orders.take("fill", "failed")
    write += store("a", 2, order) + store("b", 2, order)
    write += store("number", 2, orders.take("store", "number"))
    orders.end()
    orders = Orders(calls["copy"])
    read = load("number", "before", orders.take("load", "number"))
    order = orders.take("copy", "failed")
    read += load("a", "a", order) + load("b", "b", order) + orders.fence()
    read += load("number", "after", orders.take("load", "number"))
    orders.end()
    return [write, read]


# -- pauses, locks, counting -----------------------------------------------------------------------------------------------


def pause(calls: Calls) -> list[Program]:
    orders = Orders(calls["beat"])
    supervisor = store("paused", 1, orders.take("store", "paused_ms")) + store(
        "beat", 1, orders.take("store", "beat_ms")
    )
    orders.end()
    orders = Orders(calls["doubt"])
    worker = load("beat", "beat_seen", orders.take("load", "beat_ms"))
    worker += load("session", "session_seen", orders.take("load", "session_beat_ms"))
    orders.end()
    orders = Orders(calls["pause"])
    worker += load("confirmed", "confirmed_seen", orders.take("load", "confirmed_ms"))
    worker += load("paused", "pause_seen", orders.take("load", "paused_ms"))
    return [supervisor, worker]


def held(calls: Calls) -> list[Program]:
    """The time of the present lock must not be that of an earlier one, whose time is 0."""
    orders = Orders(calls["lock"])
    holder = store("since", 1, orders.take("store", "locked_since_ms")) + store(
        "slot", 1, orders.take("store", "locked_slot")
    )
    orders.end()
    orders = Orders(calls["supervisor"])
    supervisor = load("slot", "slot_seen", orders.take("load", "locked_slot"))
    supervisor += load("since", "since_seen", orders.take("load", "locked_since_ms"))
    return [holder, supervisor]


def withdrawal(calls: Calls) -> list[Program]:
    """The process of a meter page withdraws an entry and uses it for something else."""
    orders = Orders(calls["begin"])
    orders.take("load", "changes")
    write = store("changes", 1, orders.take("store", "changes")) + orders.fence()
    orders.end()
    write += store("since", 0, "release") + store("key", 2, "relaxed") + store("since", 2, "release")
    orders = Orders(calls["end"])
    write += store("changes", 2, orders.take("store", "changes"))
    orders = Orders(calls["settled"])
    read = load("changes", "before", orders.take("load", "changes"))
    orders = Orders(calls["copy"])
    read += load("since", "since_read", orders.take("load", "since"))
    read += load("key", "key_read", orders.take("copy", "table"))
    orders = Orders(calls["check"])
    read += orders.fence()
    read += load("changes", "after", orders.take("load", "changes"))
    return [write, read]


def entry(calls: Calls) -> list[Program]:
    orders = Orders(calls["writer"])
    write = store("key", 1, orders.take("store", "key")) + store("since", 1, orders.take("store", "since"))
    orders.end()
    orders = Orders(calls["copy"])
    read = load("since", "since_read", orders.take("load", "since")) + load(
        "key", "key_read", orders.take("copy", "table")
    )
    orders.end()
    return [write, read]


def busy(calls: Calls) -> list[Program]:
    """Two threads that take the descriptors of a log in turns."""
    threads = []
    for name in "xy":
        orders = Orders(calls["holder"])
        taken = orders.take("update", "busy")
        threads.append(
            exchange(
                "busy", f"was_{name}", lambda r, name=name: 1 if r[f"was_{name}"] == 0 else r[f"was_{name}"], taken
            )
            + load("files", f"files_{name}", "relaxed")
            + store(
                "files",
                lambda r, name=name: r[f"files_{name}"] + 1,
                "relaxed",
                uses=[f"was_{name}", f"files_{name}"],
                when=lambda r, name=name: r[f"was_{name}"] == 0,
            )
            + store(
                "busy",
                0,
                orders.take("store", "busy"),
                uses=[f"was_{name}"],
                when=lambda r, name=name: r[f"was_{name}"] == 0,
            )
        )
        orders.end()
    return threads


SLOT = "partition/slot_life.pyx"
BLOCK = "the protocol of the commit block needs it"
SESSION = "the same protocol with the words of the session"
PROTOCOLS = {
    "commit block": Protocol(
        {"writer": [Function("partition/commits.pxd", "publish")], "reader": [Function("shm/slot.pyx", "read_commit")]},
        blocks("writer", "sequence", "commits"),
        BLOCK_MEMORY | {"sequence": 0},
        block_is_whole,
    ),
    "view": Protocol(
        {"writer": [Function("shm/views.pyx", "write_view")], "reader": [Function("shm/views.pyx", "read_view")]},
        blocks("writer", "view_sequence", "views"),
        BLOCK_MEMORY | {"view_sequence": 0},
        block_is_whole,
    ),
    "recent batches": Protocol(
        {
            "writer": [Function("partition/log_writing.pyx", "note_recent")],
            "reader": [Function("api/fetch_positions.pyx", "place_in_ring")],
        },
        section(
            "recent_sequence",
            begin_with("recent_sequence"),
            stores("fill", "recent"),
            end_with("recent_sequence"),
            loads("copy", "recent"),
        ),
        {"a": 0, "b": 0, "recent_sequence": 0},
        section_is_whole,
    ),
    "leader epochs": Protocol(
        {
            "writer": [
                Function("partition/leader_epochs.pyx", "begin_change"),
                Function("partition/leader_epochs.pyx", "put_epoch"),
                Function("partition/leader_epochs.pyx", "end_change"),
            ],
            "reader": [
                Function("partition/leader_epochs.pyx", "copy_epochs", ("slot.epoch_count", "slot.log_start_offset"))
            ],
        },
        section(
            "epochs_sequence",
            begin_with("epochs_sequence"),
            change_of_epochs,
            end_with("epochs_sequence"),
            copy_of_epochs,
        ),
        {"a": 0, "b": 0, "epochs_sequence": 0},
        section_is_whole,
    ),
    "oldest open transaction": Protocol(
        {
            "writer": [Function("partition/producers.pyx", "show_first_unstable")],
            "reader": [Function("api/fetch_positions.pyx", "place_of_unstable")],
        },
        section(
            "unstable_sequence",
            begin_with("unstable_sequence"),
            stores("each", "first_unstable_offset", "unstable_base", "unstable_position"),
            end_with("unstable_sequence"),
            loads("each", "first_unstable_offset", "unstable_base", "unstable_position"),
        ),
        {"a": 0, "b": 0, "unstable_sequence": 0},
        section_is_whole,
    ),
    "waiting for a commit": Protocol(
        {
            "commit": [Function("partition/commits.pxd", "publish")],
            "wake": [Function("shm/waking.pyx", "wake_after")],
            "wait": [Function("partition/slots.pyx", "await_committed")],
            "look": [Function("shm/slot.pyx", "read_commit", first=1)],
        },
        waiting,
        {"sequence": 0, "waiters_committed": 0},
        lambda final: final["look"] == 1 or final["mask"] == 1,
        {
            ("commit", "1: fence release"): BLOCK,
            ("commit", "3: store release sequence"): BLOCK,
            ("look", "0: load acquire sequence"): BLOCK,
            ("wake", "2: update seq_cst waiters_log_end"): "belongs to another wait",
            (
                "wake",
                "4: update seq_cst waiters_committed",
            ): "the fence before it and the order of the ready bits suffice",
            ("wait", "0: update seq_cst waiters_committed"): "the fence behind it suffices",
            ("wait", "1: update seq_cst waiters_flushed"): "belongs to another wait",
        },
    ),
    "ready bits": Protocol(
        {
            "wake": [Function("shm/waking.pyx", "wake_slot")],
            "ring": [Function("shm/waking.pyx", "ring")],
            "drain": [Function("shm/shared_memory.pyx", "drain_event")],
            "take": [Function("shm/waking.pyx", "take_ready")],
        },
        ready,
        {"bits": 0, "summary": 0, "pending": 1, "descriptor": 1},
        lambda final: final["taken"] == 1 or final["bits"] == final["summary"] == final["descriptor"] == 1,
        {
            (
                "take",
                f"{place}: update seq_cst {word}",
            ): "the waiter takes bits after it has drained, in any order; more bits come with a new ring"
            for place, word in ((1, "summary"), (2, "summary"), (3, "words"))
        }
        | {
            ("wake", "0: update seq_cst ready_words"): "the order of the summary bit suffices",
            ("wake", "1: update seq_cst summary_words"): "the order of the slot's bit suffices",
        },
    ),
    "news": Protocol(
        {
            "wake": [Function("shm/waking.pyx", "wake_process")],
            "ring": [Function("shm/waking.pyx", "ring")],
            "drain": [Function("shm/shared_memory.pyx", "drain_event")],
            "take": [Function("shm/shared_memory.pyx", "take_news")],
        },
        told,
        {"change": 0, "news": 0, "pending": 1, "descriptor": 1},
        lambda final: final["told"] == final["seen"] == 1 or final["news"] == final["descriptor"] == 1,
    ),
    "role": Protocol(
        {
            "withdraw": [Function("partition/roles.pyx", "withdraw_role")],
            "fields": [Function("partition/roles.pyx", "store_fields", words=("leader_id", "leader_epoch"))],
            "assign": [Function("partition/roles.pyx", "change_role", words=("role",))],
            "reader": [
                Function(
                    "replication/followed_slots.pyx",
                    "read_role",
                    ("slot.leader_epoch",),
                    ("role", "leader_id", "leader_epoch"),
                )
            ],
        },
        role,
        {"role": 2, "leader": 0, "epoch": 0},
        lambda final: (
            final["before"] != 2
            or final["after"] != 2
            or final["epoch_read"] != final["epoch_after"]
            or final["leader_read"] == final["epoch_read"]
        ),
        {
            ("withdraw", "0: store release role"): "the fence behind it suffices",
            ("reader", "0: load acquire role"): "the epoch is loaded with acquire; the role publishes the other fields",
        },
    ),
    "ring of changes": Protocol(
        {"announce": [Function(SLOT, "announce")], "refresh": [Function("shm/topics.pyx", "refresh", ())]},
        ring,
        {"version": 1, "entry": 1},
        # the entry of the newest version that the reader knows is that version's, or the reader sees a later version
        lambda final: (
            final["changed"] == final["newest"] or final["after"] >= final["changed"] - 1 > final["newest"] - 1
        ),
        {
            (
                "refresh",
                "3: load acquire metadata_version",
            ): "orders the slots that are read if the ring was written further"
        },
    ),
    "reuse of a slot": Protocol(
        {
            "confirm": [Function("shm/shared_memory.pyx", "confirm_version")],
            "oldest": [Function(SLOT, "oldest_confirmed", ("p.confirmed_version",), first=1)],
        },
        reuse,
        {"slot": 1, "confirmed": 0},
        lambda final: final["read"] == 1,
    ),
    **{
        f"incarnation of a slot: {function}": Protocol(
            {
                "begin": [Function(SLOT, "begin_reuse")],
                "end": [Function(SLOT, function, words=("incarnation",))],
                "reader": [
                    Function("shm/overview.pyx", "partitions_of", ("slot.incarnation",), words=("incarnation",))
                ],
            },
            reused,
            {"incarnation": 0, "data": 0},
            lambda final: (
                final["before"] != final["after"] or final["before"] == 1 or final["data_read"] == final["before"]
            ),
        )
        for function in ("allocate", "allocate_remote", "begin_local")
    },
    "pause": Protocol(
        {
            "beat": [Function("shm/pauses.pyx", "beat")],
            "doubt": [Function("shm/pauses.pyx", "in_doubt")],
            "pause": [Function("shm/pauses.pyx", "unconfirmed_pause")],
        },
        pause,
        {"paused": 0, "beat": 0, "session": 0, "confirmed": 0},
        lambda final: final["beat_seen"] == 0 or final["pause_seen"] == 1,
        {
            ("beat", "0: store release paused_ms"): "the release of the beat suffices",
            ("doubt", "1: load acquire session_beat_ms"): SESSION,
            (
                "pause",
                "0: load acquire confirmed_ms",
            ): "orders the pauses behind the confirmation, which this model does not store",
            ("pause", "1: load acquire paused_ms"): "orders the role, which is read later [R 12.3]",
            ("pause", "2: load acquire session_paused_ms"): SESSION,
        },
    ),
    "held lock": Protocol(
        {
            "lock": [Function("shm/locks.pyx", "try_lock", words=("locked_since_ms", "locked_slot"))],
            "supervisor": [
                Function(
                    "shm/shared_memory.pyx",
                    "process",
                    ("= p.locked_since_ms",),
                    words=("locked_slot", "locked_since_ms"),
                )
            ],
        },
        held,
        {"since": 0, "slot": 0},
        lambda final: final["slot_seen"] == 0 or final["since_seen"] == 1,
    ),
    "withdrawal from a meter page": Protocol(
        {
            "begin": [Function("shm/meter_tables.pxd", "begin_change")],
            "end": [Function("shm/meter_tables.pxd", "end_change", first=1)],
            "settled": [Function("shm/meter_reading.pyx", "settled", first=1)],
            "copy": [Function("shm/meter_reading.pyx", "copy_table")],
            "check": [Function("shm/meter_reading.pyx", "take", words=("changes",))],
        },
        withdrawal,
        {"changes": 0, "since": 1, "key": 1},
        lambda final: (
            final["before"] == 1
            or final["before"] != final["after"]
            or final["since_read"] == 0
            or final["key_read"] == (1 if final["before"] == 0 else 2)
        ),
        {("copy", "0: load acquire since"): "new entries need it, which are published without a change"},
    ),
    "new entry of a meter page": Protocol(
        {
            "writer": [Function("shm/metering.pyx", "usage_entry", words=("key", "since"))],
            "copy": [Function("shm/meter_reading.pyx", "copy_table")],
        },
        entry,
        {"key": 0, "since": 0},
        lambda final: final["since_read"] == 0 or final["key_read"] == 1,
    ),
    "failed file call": Protocol(
        {
            "note": [Function("storage/file_calls.pyx", "note")],
            "copy": [Function("storage/file_calls.pyx", "copy_failure")],
        },
        noted,
        {"number": 1, "a": 1, "b": 1},
        lambda final: (
            final["before"] == 0 or final["before"] != final["after"] or final["a"] == final["b"] == final["before"]
        ),
        {("note", "0: update seq_cst failure_count"): "chooses the place; `number` publishes what is there"},
    ),
    "descriptors of a log": Protocol(
        {"holder": [Function("partition/append_files.pyx", "drop_files")]},
        busy,
        {"busy": 0, "files": 0},
        lambda final: final["files"] == (final["was_x"] == 0) + (final["was_y"] == 0),
    ),
}


def calls_of(protocol: Protocol) -> Calls:
    return {
        part: [call for function in functions for call in accesses(function)]
        for part, functions in protocol.functions.items()
    }


def broken(protocol: Protocol, calls: Calls) -> list[dict[str, int]]:
    """The final states that are not allowed."""
    return [final for final in executions(protocol.programs(calls), protocol.memory) if not protocol.allowed(final)]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_no_execution_breaks_a_protocol(name: str) -> None:
    protocol = PROTOCOLS[name]
    assert broken(protocol, calls_of(protocol)) == []


@pytest.mark.parametrize("function", ["clear", "clear_log"])
def test_a_slot_is_not_cleared_before_its_incarnation_has_changed(function: str) -> None:
    first_call = re.search(r"(\w+)\(", body(SLOT, function))
    assert first_call is not None and first_call[1] == "begin_reuse"


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_order_is_needed(name: str) -> None:
    protocol = PROTOCOLS[name]
    kept = {(part, call) for part, call, calls in weakened(calls_of(protocol)) if not broken(protocol, calls)}
    assert kept == set(protocol.needless)
