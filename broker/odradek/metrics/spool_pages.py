"""The pages of the usage spool on the metrics listener, for a report of the whole cluster on another machine.

``/spool`` lists the files of the spool (``{"files": [{"name": s, "bytes": n}, ...]}``), and ``/spool/NAME?from=N`` returns at
most `PIECE_BYTES` of one from its byte N on, so that neither memory nor time of a request depend on the size of a file. Called
in the threads of connections. A name that is not that of a file of a spool is not opened.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek.metrics.spool_files import list_files, parse_name

PATH = "/spool"
PIECE_BYTES = 4 << 20


def listing(directory: Path) -> bytes:
    """Return the content of ``/spool``. Raises OSError."""
    present = list_files(directory) if directory.exists() else []  # the first interval creates the directory
    files = [{"name": file.path.name, "bytes": file.size} for file in present]
    return json.dumps({"files": files}).encode() + b"\n"


def piece(directory: Path, name: str, query: Mapping[str, Sequence[str]]) -> bytes | None:
    """Return a piece of a file, empty at its end and behind it; None if there is no such file. Raises ValueError for a wrong
    offset, OSError.

    :param query: `from`: the offset of the piece, 0 by default.
    """
    start = query.get("from", ["0"])[-1]
    if not (start.isascii() and start.isdigit() and int(start) < 1 << 62):
        raise ValueError(f"from={start[:20]}: expected the offset of a byte")
    if parse_name(name) is None:
        return None
    try:
        with (directory / name).open("rb") as file:
            if int(start) >= os.fstat(file.fileno()).st_size:  # seek may fail for an offset that no file can have
                return b""
            file.seek(int(start))
            return file.read(PIECE_BYTES)
    except FileNotFoundError:  # compressed or deleted just now
        return None
