"""All executions of small programs under a weak memory order: what C11 permits on machines with one coherent memory
(aarch64, x86).

Two accesses of a thread may take effect in either order, unless their C11 orders, a fence between them, a dependency,
or the same address forbids it. Stores become visible to all other threads at once, as on aarch64. A load may take the
value of an earlier store of its own thread before that store is visible. A read-modify-write is a load and a store
between which nobody else stores to the word: an access behind it may take effect between the two, unless the order
forbids it.

`executions` returns every final state, so that a test can state what none of them may show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import count

Registers = Mapping[str, int]
ACQUIRING = {"acquire", "acq_rel", "seq_cst"}
RELEASING = {"release", "acq_rel", "seq_cst"}


@dataclass(frozen=True)
class Access:
    """One access or fence of a thread.

    ``kind``: "load", "store" or "fence"; `exchange` makes the pair for a read-modify-write. ``word`` may depend on
    registers that were loaded before: then it is a function. ``uses``: the registers on which word, value and condition
    depend. ``when``: whether a store is made at all.
    """

    kind: str
    order: str
    word: str | Callable[[Registers], str] = ""
    register: str = ""
    value: int | Callable[[Registers], int] = 0
    uses: frozenset[str] = frozenset()
    when: Callable[[Registers], bool] | None = None
    pair: int = 0
    """The same number, not 0, in the two halves of a read-modify-write."""

    def address(self, registers: Registers) -> str:
        return self.word if isinstance(self.word, str) else self.word(registers)

    def number(self, registers: Registers) -> int:
        return self.value if isinstance(self.value, int) else self.value(registers)


Program = list[Access]
_PAIRS = count(1)


def load(
    word: str | Callable[[Registers], str], register: str, order: str = "seq_cst", *, uses: Iterable[str] = ()
) -> Program:
    """Load a word into a register. Without an order: a plain read of a shared word, which is sequentially consistent."""
    return [Access("load", order, word, register, uses=frozenset(uses))]


def store(
    word: str | Callable[[Registers], str],
    value: int | Callable[[Registers], int],
    order: str,
    *,
    uses: Iterable[str] = (),
    when: Callable[[Registers], bool] | None = None,
) -> Program:
    """Store a value, a constant or a function of registers."""
    return [Access("store", order, word, value=value, uses=frozenset(uses), when=when)]


def fence(order: str) -> Program:
    """A fence: "release", "acquire" or "seq_cst"."""
    return [Access("fence", order)]


def exchange(
    word: str,
    register: str,
    value: int | Callable[[Registers], int],
    order: str = "seq_cst",
    *,
    uses: Iterable[str] = (),
    when: Callable[[Registers], bool] | None = None,
) -> Program:
    """Replace the value of a word by a function of the old one, which is loaded into `register`."""
    pair = next(_PAIRS)
    return [
        Access("load", order, word, register, uses=frozenset(uses), when=when, pair=pair),
        Access("store", order, word, value=value, uses=frozenset({*uses, register}), when=when, pair=pair),
    ]


def keeps_order(program: Program, first: int, second: int) -> bool:
    """Whether the orders alone make access `first` take effect before the later access `second`."""
    a, b = program[first], program[second]
    if a.kind == "load" and a.order in ACQUIRING:
        return True
    if b.kind == "store" and b.order in RELEASING:
        return True
    if a.order == b.order == "seq_cst":
        return True
    for fence_between in program[first + 1 : second]:
        if fence_between.kind != "fence":
            continue
        if fence_between.order == "seq_cst":
            return True
        if fence_between.order == "acquire" and a.kind == "load":
            return True
        if fence_between.order == "release" and b.kind == "store":
            return True
    return False


class _Thread:
    """A program with what its orders forbid, computed once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.accesses = [place for place, access in enumerate(program) if access.kind != "fence"]
        self.before = {
            place: [other for other in self.accesses if other < place and keeps_order(program, other, place)]
            for place in self.accesses
        }
        self.writer = {access.register: place for place, access in enumerate(program) if access.register}


@dataclass(frozen=True)
class _State:
    done: tuple[frozenset[int], ...]
    memory: tuple[tuple[str, int], ...]
    registers: tuple[tuple[str, int], ...]
    locked: frozenset[tuple[str, int]]


def executions(programs: Iterable[Program], memory: Mapping[str, int]) -> list[dict[str, int]]:
    """Return each final state once: the values of all words and registers. Registers of the programs have different
    names."""
    threads = [_Thread(program) for program in programs]
    start = _State(tuple(frozenset() for _ in threads), tuple(sorted(memory.items())), (), frozenset())
    seen, waiting, finals = {start}, [start], {}
    while waiting:
        state = waiting.pop()
        if all(len(done) == len(thread.accesses) for done, thread in zip(state.done, threads, strict=True)):
            finals[state.memory, state.registers] = {**dict(state.memory), **dict(state.registers)}
            continue
        for number, thread in enumerate(threads):
            for place in thread.accesses:
                following = _step(state, number, thread, place)
                if following is not None and following not in seen:
                    seen.add(following)
                    waiting.append(following)
    return list(finals.values())


def _step(state: _State, number: int, thread: _Thread, place: int) -> _State | None:
    """The state after an access takes effect; None if it cannot be the next one."""
    done = state.done[number]
    access = thread.program[place]
    registers = dict(state.registers)
    if place in done or any(other not in done for other in thread.before[place]):
        return None
    if any(
        thread.writer[register] not in done for register in access.uses if thread.writer.get(register, place) < place
    ):
        return None
    memory, locked = dict(state.memory), state.locked
    if access.when is None or access.when(registers):
        word = access.address(registers)
        forwarded: Access | None = None
        for other in thread.accesses:
            if other >= place:
                break
            if other in done:
                continue
            earlier = thread.program[other]
            if isinstance(earlier.word, str) and earlier.word != word:
                continue
            if any(thread.writer[register] not in done for register in earlier.uses):
                return None  # its address or its condition is not known yet
            if (earlier.when is not None and not earlier.when(registers)) or earlier.address(registers) != word:
                continue
            if access.kind == "store" or earlier.kind == "load" or earlier.pair or access.pair:
                return None  # accesses to one word stay in order
            forwarded = earlier
        if any(held == word and holder != access.pair for held, holder in locked) and (
            access.kind == "store" or access.pair
        ):
            return None
        if access.kind == "load":
            registers[access.register] = forwarded.number(registers) if forwarded else memory[word]
            if access.pair:
                locked |= {(word, access.pair)}
        else:
            memory[word] = access.number(registers)
            locked -= {(word, access.pair)}
    elif access.kind == "load":
        registers[access.register] = 0
    return _State(
        tuple(done | {place} if i == number else d for i, d in enumerate(state.done)),
        tuple(sorted(memory.items())),
        tuple(sorted(registers.items())),
        locked,
    )
