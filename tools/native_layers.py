"""Checks the direction of cimports and imports between the packages of native modules: ``python tools/native_layers.py``.

The table is `[tool.odradek.native-layers]` in ``pyproject.toml``: for each package of ``_ext/`` the packages that it
may use. The check prints each arrow that the table does not allow and each circle of modules, and then exits with 1.
import-linter does this for Python modules; it does not read Cython.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMPORT = re.compile(
    r"^\s*(?:from\s+odradek(?:\.([\w.]+))?\s+c?import\s+(\([^)]*\)|[^\n]*)|c?import\s+odradek\.([\w.]+))", re.M
)

Arrows = dict[str, dict[str, str]]
"""Module -> the modules that it uses -> the file that says so. Names are those below `odradek._ext`, such as `shm.layout`."""


def targets(text: str, modules: set[str]) -> Iterator[str]:
    """What a source uses of the package `odradek`, below it: `_ext.shm.layout`."""
    for found in IMPORT.finditer(text):
        if found[3]:
            yield found[3]
            continue
        parent = found[1] or ""
        names = re.findall(r"[\w*]+", re.sub(r"#.*|\bas\s+\w+", "", found[2]))
        for name in names:
            whole = f"{parent}.{name}".lstrip(".")
            yield whole if whole.removeprefix("_ext.") in modules else parent


def read_arrows(directory: Path) -> tuple[Arrows, list[str]]:
    """Who uses whom in the sources below `directory`, and complaints about what is no native module."""
    sources = [path for path in sorted(directory.glob("*/*.p[yx][xd]")) if path.stem != "__init__"]
    modules = {f"{path.parent.name}.{path.stem}" for path in sources}
    arrows: Arrows = {module: {} for module in modules}
    complaints = []
    for path in sources:
        module = f"{path.parent.name}.{path.stem}"
        for target in targets(path.read_text(), modules):
            name = target.removeprefix("_ext.")
            if not target.startswith("_ext.") or name not in modules:
                complaints.append(f"{path.name} uses odradek.{target}: native modules use native modules only")
            elif name != module:
                arrows[module].setdefault(name, path.name)
    return arrows, complaints


def against_the_table(arrows: Arrows, may_use: dict[str, list[str]]) -> list[str]:
    """Arrows between packages that the table does not allow."""
    complaints = []
    for module, used in sorted(arrows.items()):
        package = module.partition(".")[0]
        if package not in may_use:
            complaints.append(f"{module}: the package {package} is not in [tool.odradek.native-layers]")
            continue
        for other, file in sorted(used.items()):
            above = other.partition(".")[0]
            if above != package and above not in may_use[package]:
                complaints.append(
                    f"{package}/{file} uses {other}: {package} may use only {', '.join(may_use[package]) or 'nothing'}"
                )
    return complaints


def circles(arrows: Arrows) -> list[str]:
    """Modules that use themselves by way of others (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in arrows[module]:
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            at = stack.index(module)
            component, stack[at:] = stack[at:], []
            if len(component) > 1:
                found.append("circle: " + ", ".join(sorted(component)))

    for module in sorted(arrows):
        if module not in index:
            visit(module)
    return found


def main() -> int:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["odradek"]["native-layers"]
    arrows, complaints = read_arrows(ROOT / "_ext")
    complaints += against_the_table(arrows, settings) + circles(arrows)
    print(*complaints, sep="\n", end="\n" if complaints else "")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
