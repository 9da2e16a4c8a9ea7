"""Write the files of the Helm chart that are copies: `python tools/chart_files.py`, or `make tables`.

Helm reads only files inside a chart: so it has copies of the Prometheus rules and of the dashboards, and the list of the
broker's configuration keys, with which it refuses unknown ones. A test compares them with their sources.
"""

import sys
from pathlib import Path

from odradek.config.table import BROKER_KEYS

REPOSITORY = Path(__file__).resolve().parent.parent
FILES = REPOSITORY / "deploy" / "helm" / "odradek" / "files"


def contents() -> dict[Path, bytes]:
    """The content of each file, by its path below `FILES`."""
    keys = "".join(f"{name}\n" for name in sorted(BROKER_KEYS))
    found = {Path("broker-keys.txt"): keys.encode()}
    for directory, sources in (("rules", "deploy/prometheus/rules/*.yml"), ("dashboards", "grafana/dashboards/*.json")):
        found |= {Path(directory) / source.name: source.read_bytes() for source in REPOSITORY.glob(sources)}
    return found


def present() -> dict[Path, bytes]:
    """The content of each file that the chart has."""
    directories = (FILES / "rules", FILES / "dashboards")
    paths = [FILES / "broker-keys.txt", *(path for directory in directories for path in directory.iterdir())]
    return {path.relative_to(FILES): path.read_bytes() for path in paths}


def main() -> int:
    """Write what differs, and remove what has no source any more."""
    wanted = contents()
    for path in present().keys() - wanted.keys():
        (FILES / path).unlink()
    for path, content in wanted.items():
        (FILES / path).parent.mkdir(parents=True, exist_ok=True)
        (FILES / path).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
