"""The page docs/develop/architecture.md names every file of the processes in the row of its folder, every native module in a
row of its package, and the layers of packages as they are checked."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "broker/odradek"
PAGE = (ROOT / "docs/develop/architecture.md").read_text()
ROOMS = sorted({path.parent for path in (PACKAGE / "processes").rglob("*.py")})
MOST_ENTRIES = 20


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(PACKAGE)))
def test_the_row_of_a_room_names_its_files(room: Path) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{room.relative_to(PACKAGE)}/` |")]
    files = {path.name for path in room.glob("*.py")} - {"__init__.py"}
    assert {name for name in files if f"`{name}`" not in row} == set()


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: str(room.relative_to(PACKAGE)))
def test_a_room_has_few_entries(room: Path) -> None:
    assert len([path for path in room.iterdir() if path.name != "__pycache__"]) <= MOST_ENTRIES


@pytest.mark.parametrize(
    "package", sorted({path.parent.name for path in (ROOT / "_ext").glob("*/*.pyx")} - {"testing"})
)
def test_the_rows_of_a_native_package_name_its_modules(package: str) -> None:
    rows = "".join(line for line in PAGE.splitlines() if re.match(rf"\| `_ext/{package}[`/]", line))
    modules = {path.stem for path in (ROOT / "_ext" / package).glob("*.p[yx][xd]")} - {"__init__"}
    assert {name for name in modules if f"`{name}`" not in rows and f"/{name}`" not in rows} == set()


def test_the_drawing_has_the_layers_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["odradek"]]
    drawing = PAGE.split("a package that is used\n")[1].split("```")[0]
    column = "\n".join(line[:48].partition("(")[0].rstrip() for line in drawing.splitlines()).replace("|\n", "|")
    drawn = [re.findall(r"\w+", line) for line in column.splitlines() if line]
    checked = [re.findall(r"\w+", layer) for layer in layers[:-1]]
    checked[-1].remove("jobs")
    assert drawn == [*checked, ["jobs"]]
