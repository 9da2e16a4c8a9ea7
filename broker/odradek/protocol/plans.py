"""Compiles a schema into the plan of one version: its fields, their wire types, and their minimum sizes.

Runs once for each structure and version that a process uses; the layout of the structure then keeps the plan.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek._ext.protocol.plan import CODES, Plan
from odradek.protocol.structure import Field, Structure, Versions

Operation = tuple[int, int, int, bool, int, Plan | None]
"""Place of the field, codes of its wire type and of its elements' type, whether it is nullable, its tag or -1, inner plan."""
WITH_LENGTH = frozenset({"string", "bytes", "records"})


def compiler_of(structure: Structure, flexible: Versions) -> Callable[[int], Plan]:
    """A function that compiles the plan of `structure` for a version. :param flexible: the flexible versions of the message."""

    def compile_version(version: int) -> Plan:
        return compile_plan(structure, version, version in flexible)

    return compile_version


def compile_plan(structure: Structure, version: int, flexible: bool) -> Plan:
    """Compile the plan of a structure in one version, and of its inner structures if necessary."""
    plain: list[Operation] = []
    tagged: list[Operation] = []
    absent: list[tuple[int, bool]] = []
    for place, item in enumerate(structure.fields):
        if version not in item.versions:
            absent.append((place, item.ignorable))
            continue
        is_tagged = item.tag >= 0 and flexible
        operation = (
            place,
            CODES[wire_type(item, version, flexible)],
            CODES[element_type(item, flexible)],
            version in item.nullable,
            item.tag if is_tagged else -1,
            plan_of(item.structure, version) if item.structure is not None else None,
        )
        (tagged if is_tagged else plain).append(operation)
    tagged.sort(key=lambda operation: operation[4])
    return Plan(structure.cls._layout, version, flexible, plain + tagged, absent)


def plan_of(structure: Structure, version: int) -> Plan:
    plan: Plan = structure.cls._layout.plan(version)
    return plan


def wire_type(item: Field, version: int, flexible: bool) -> str:
    """The wire type of a field: a name in CODES."""
    if item.is_array:
        return "compact array" if flexible and item.flexible else "array"
    if item.structure is not None and version in item.nullable:
        return "nullable structure"
    return element_type(item, flexible)


def element_type(item: Field, flexible: bool) -> str:
    if item.structure is not None:
        return "structure"
    if item.element in WITH_LENGTH and flexible and item.flexible:
        return f"compact {item.element}"
    return item.element
