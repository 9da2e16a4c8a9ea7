"""No native method of the broker is called on or with an object whose last reference it may drop."""

from pathlib import Path

import odradek
from tests.net.native_references import Sources

NATIVE = Path(odradek.__file__).parent / "_ext"

LASTING = {
    "Connection.responses",  # these two are set once, by DataLoop.add
    "Connection.pool",
    "Pending.connection",  # set once, by Connection.attach
    "DelayedProduce.delays",  # set once, by own_items
    "DelayedFetch.purgatory",  # these four are set once, by FetchHandler.new_fetch
    "DelayedFetch.plan",
    "DelayedFetch.responses",
    "DelayedFetch.conversion",
}
"""Fields that are not set by a constructor, but once and never cleared."""

PROBE = """
cdef class Held:
    cdef Held other
    cdef int act(self, Held argument) except -1
    cdef void leaf(self) noexcept


cdef class Held:
    cdef int act(self, Held argument) except -1:
        cdef Held own = self.other
        own.act(own)
        self.other.leaf()
        self.other.act(own)
        own.act(self.other)
        return 0
"""


def test_a_call_on_a_field_and_one_with_a_field_are_found(tmp_path):
    declarations, _, code = PROBE.partition("\n\n\n")
    package = tmp_path / "package"
    package.mkdir()
    (package / "probe.pxd").write_text(declarations)
    (package / "probe.pyx").write_text(code)
    findings = list(Sources(tmp_path, set()).findings())
    assert [(finding.field, finding.text) for finding in findings] == [
        ("Held.other", "self.other.act(own)"),
        ("Held.other", "own.act(self.other)"),
    ]
    assert not list(Sources(tmp_path, {"Held.other"}).findings())


def test_native_calls_are_made_on_and_with_what_the_caller_holds():
    sources = Sources(NATIVE, LASTING)
    assert not list(sources.findings())


def test_a_field_that_lasts_is_never_cleared():
    cleared = {f".{field.rpartition('.')[2]} = None" for field in LASTING}
    sources = list(NATIVE.glob("*/*.pyx"))
    assert sources
    for path in sources:
        assert not [line for line in path.read_text().split("\n") if any(clearing in line for clearing in cleared)], (
            path.name
        )
