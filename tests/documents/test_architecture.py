"""The page docs/develop/architecture.md names every file of the processes, in the row of its folder."""

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
