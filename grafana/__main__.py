"""Writes the dashboards: `python -m grafana [DIRECTORY]`, by default where they are committed; `--check` only compares.

Exit code 0; 1 with a line for each file that is not what the code makes, or that the code does not make.
"""

import argparse
import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from grafana import clients, groups, overview, storage, topics, workers
from grafana.board import to_model

BOARDS = (overview.BOARD, topics.BOARD, groups.BOARD, clients.BOARD, workers.BOARD, storage.BOARD)
DIRECTORY = Path(__file__).parent / "dashboards"


def texts() -> dict[str, str]:
    """Each dashboard as JSON, by the name of its file."""
    return {
        f"{board.uid}.json": json.dumps(to_model(board), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"
        for board in BOARDS
    }


def differences(directory: Path) -> list[str]:
    """A line for each file of ``directory`` that is missing, out of date, or too many."""
    made = texts()
    there = {path.name: path.read_text() for path in directory.glob("*.json")}
    lines = [f"{directory / name}: missing" for name in made if name not in there]
    lines += [f"{directory / name}: out of date" for name, text in made.items() if there.get(name, text) != text]
    return lines + [f"{directory / name}: not made by the code" for name in there if name not in made]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m grafana", description="Writes the dashboards as JSON.")
    parser.add_argument("directory", nargs="?", type=Path, default=DIRECTORY)
    parser.add_argument("--check", action="store_true", help="write nothing, tell what differs")
    arguments = parser.parse_args()
    if arguments.check:
        lines = differences(arguments.directory)
        print("\n".join(lines), end="\n" if lines else "", file=sys.stderr)
        return 1 if lines else 0
    try:
        arguments.directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts().items():
            (arguments.directory / name).write_text(text)
    except OSError as error:
        print(f"{error.filename}: {error.strerror}; give a directory that can be written to", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
