"""Finds native calls on borrowed references, in the sources of the native modules.

A `cdef` method does not own a reference to `self`, nor a native function to its arguments: the caller's variable does. A caller
that passes a *field* lends a reference that the callee may drop, by clearing that field or by dropping the object that has it.
Such a callee then runs on freed memory. So a native call may be made on, and with, local variables and parameters, and fields
that hold one object from the making of their owner to its end (`lasting`), but no other fields.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CLASS = re.compile(r"^cdef class (\w+)(?:\((\w+)\))?:")
FIELD = re.compile(r"^    cdef (?:public |readonly )?(\w+) (\w+)\s*(?:#.*)?$")
METHOD = re.compile(r"^    (?:cdef|cpdef) (?:[\w*]+ )*?\**(\w+)\((.*)")
FUNCTION = re.compile(r"^(?:cdef|cpdef) (?:[\w*]+ )*?\**(\w+)\((.*)")
ANY_DEF = re.compile(r"^(\s*)(?:cdef |cpdef |def )(?!enum|extern|struct|class)[^=]*?(\w+)\((.*)")
VARIABLE = re.compile(r"^\s+cdef (\w+) (\w.*)$")
PARAMETER = re.compile(r"(\w+) (\w+)(?: not None)?(?:\s*=[^,)]*)?\s*[,)]")
CHAIN = re.compile(r"\b(\w+(?:\.\w+)+)\(")
PLAIN_CALL = re.compile(r"(?<![\w.])(\w+)\(")
CHAIN_ARGUMENT = re.compile(r"^\w+(?:\.\w+)+$")


class Finding(NamedTuple):
    """A call that lends a field's reference."""

    place: str
    field: str
    text: str


class Class:
    """A native class as its declarations say. `fields`: those that hold objects; `leaves`: methods that call no Python."""

    def __init__(self, base: str | None) -> None:
        self.base = base
        self.fields: dict[str, str] = {}
        self.methods: set[str] = set()
        self.leaves: set[str] = set()


class Sources:
    """All native modules of a directory.

    :param lasting: fields ("Class.field") that somebody else than their class's constructor sets, once, and nobody clears.
    """

    def __init__(self, directory: Path, lasting: set[str]) -> None:
        self._texts = {path.name: path.read_text().split("\n") for path in sorted(directory.glob("*/*.p[xy][dx]"))}
        self._classes: dict[str, Class] = {}
        self._functions: set[str] = set()
        for name, lines in self._texts.items():
            self._declare(name, lines)
        self._lasting = lasting | set(self._set_by_constructors())

    def _declare(self, name: str, lines: list[str]) -> None:
        within: Class | None = None
        for line in lines:
            if match := CLASS.match(line):
                within = self._classes.setdefault(match[1], Class(match[2]))
                within.base = within.base or match[2]
            elif line and not line[0].isspace() and not line.startswith("#"):
                within = None
                if match := FUNCTION.match(line):
                    self._functions.add(match[1])
            elif within is not None and (match := METHOD.match(line)):
                within.methods.add(match[1])
                if "noexcept" in line:
                    within.leaves.add(match[1])
            elif within is not None and name.endswith(".pxd") and (match := FIELD.match(line)):
                within.fields[match[2]] = match[1]

    def _of(self, name: str) -> Iterator[tuple[str, Class]]:
        """A class and those that it extends."""
        while name in self._classes:
            yield name, self._classes[name]
            name = self._classes[name].base or ""

    def _field(self, owner: str, field: str) -> tuple[str, str] | None:
        """(its full name, its type) of an object's field, if it is one that holds an instance of a native class."""
        for name, declared in self._of(owner):
            if field in declared.fields:
                kind = declared.fields[field]
                return (f"{name}.{field}", kind) if kind in self._classes else None
        return None

    def _assignments(self) -> Iterator[tuple[str, str, bool]]:
        """(class or "" if not known, field, whether its own constructor assigns it)."""
        for scope in self._scopes():
            for _, line in scope.lines:
                for match in re.finditer(r"\b(\w+)\.(\w+)(?:, \w+\.\w+)* = ", line):
                    yield scope.types.get(match[1], ""), match[2], scope.function in ("__init__", "__cinit__")

    def _set_by_constructors(self) -> Iterator[str]:
        elsewhere: set[str] = set()
        inside: set[str] = set()
        for owner, field, constructing in self._assignments():
            declared = self._field(owner, field)
            if declared is not None:
                (inside if constructing else elsewhere).add(declared[0])
        yield from inside - elsewhere

    def _scopes(self) -> Iterator["Scope"]:
        for name, lines in self._texts.items():
            if name.endswith(".pyx"):
                yield from scopes(name, lines)

    def findings(self) -> Iterator[Finding]:
        """Every native call on a field that may change, or with such a field as an argument."""
        for scope in self._scopes():
            for number, line in scope.lines:
                for field in self._lent(scope, line):
                    yield Finding(f"{scope.module}:{number}", field, line.strip())

    def _lent(self, scope: "Scope", line: str) -> Iterator[str]:
        code = line.split("#")[0]
        for match in CHAIN.finditer(code):
            *chain, method = match[1].split(".")
            path = self._walk(scope, chain)
            if path is None:
                continue
            fields, kind = path
            owner = next((declared for _, declared in self._of(kind) if method in declared.methods), None)
            if owner is None or method in owner.leaves:
                continue
            yield from (field for field in fields if field not in self._lasting)
            yield from self._arguments(scope, code[match.end() :])
        for match in PLAIN_CALL.finditer(code):
            if match[1] in self._functions and not code.lstrip().startswith(("cdef", "cpdef", "def")):
                yield from self._arguments(scope, code[match.end() :])

    def _arguments(self, scope: "Scope", rest: str) -> Iterator[str]:
        for argument in arguments(rest):
            if CHAIN_ARGUMENT.match(argument):
                path = self._walk(scope, argument.split("."))
                if path is not None:
                    yield from (field for field in path[0] if field not in self._lasting)

    def _walk(self, scope: "Scope", chain: list[str]) -> tuple[list[str], str] | None:
        """The fields that a chain of names goes through, and the class at its end; None if that is no native object."""
        kind = scope.types.get(chain[0], "")
        if kind not in self._classes:
            return None
        fields = []
        for name in chain[1:]:
            step = self._field(kind, name)
            if step is None:
                return None
            fields.append(step[0])
            kind = step[1]
        return fields, kind


class Scope(NamedTuple):
    """A function of a module. `types`: of its parameters and variables; `lines`: numbered, continuations joined."""

    module: str
    function: str
    types: dict[str, str]
    lines: list[tuple[int, str]]


def joined(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Numbered lines, those within brackets as one."""
    begun, text, depth = 0, "", 0
    for number, line in enumerate(lines, 1):
        begun = begun if depth else number
        text = f"{text} {line.strip()}" if depth else line
        depth = max(
            0, depth + sum(line.count(bracket) for bracket in "([{") - sum(line.count(bracket) for bracket in ")]}")
        )
        if not depth:
            yield begun, text
            text = ""


def scopes(module: str, lines: list[str]) -> Iterator[Scope]:
    """The functions of a module, nested ones as a part of the outer one."""
    owner, at = "", None
    for number, line in joined(lines):
        if match := CLASS.match(line):
            owner = match[1]
        elif line and not line[0].isspace() and not line.startswith(("#", "@")):
            owner = "" if not line.startswith("cdef class") else owner
        match = ANY_DEF.match(line)
        if match and len(match[1]) <= 4 and (not match[1] or owner):
            if at is not None:
                yield at
            at = Scope(module, match[2], {"self": owner} if owner else {}, [])
            at.types.update((name, kind) for kind, name in PARAMETER.findall(match[3]))
        elif at is not None:
            at.lines.append((number, line))
            if variable := VARIABLE.match(line.split("#")[0]):
                names = re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", variable[2])
                at.types.update((part.split("=")[0].strip(), variable[1]) for part in names.split(","))
    if at is not None:
        yield at


def arguments(rest: str) -> Iterator[str]:
    """The arguments of a call, in the text after its opening bracket."""
    depth, text = 0, ""
    for char in rest:
        if char in ")]}" and depth == 0:
            break
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            yield text.strip()
            text = ""
        else:
            text += char
    if text.strip():
        yield text.strip()
