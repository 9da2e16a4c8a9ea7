"""The largest request of each API that is executed in a loop is decoded, judged, executed and answered in short steps: no step
holds the loop for more than 10 ms.

A step is measured in instructions of the interpreter, which do not depend on the speed of the machine: 10 ms are about 350,000.
`bench/request_steps.py` measures the processor time of the same steps. Requests with handlers in a thread of the worker
are decoded and judged in the loop, so they are here, too.
"""

from pathlib import Path

import pytest

from odradek.api.api import Place
from odradek.api.row import ApiRow
from odradek.api.table import APIS, PRIVATE_APIS
from odradek.api.transactions import add_partitions_to_txn
from tests.api.largest_requests import LIMITS, largest_requests
from tests.api.request_steps import Brokers, Instructions

SIZES = (2_500, 5_000)
"""The numbers of elements of two requests; the cost of the largest admissible one follows from the growth between them."""
IN_LOOPS = 350_000
LOOPS = frozenset({Place.WORKER, Place.WORKER_THREAD, Place.GROUPS, Place.TRANSACTIONS})
ROWS = (*APIS, *PRIVATE_APIS)
VERSIONS = {24: (3,)}
"""Of AddPartitionsToTxn, the newest version that producers send; brokers send later ones."""
EXEMPT = {
    0: "Produce is native; tests/api/test_request_limits.py",
    1: "Fetch is native; tests/api/test_parked_fetches.py",
    45: "only in a cluster",
}
"""APIs that are not measured, besides those that only brokers send."""


def cases() -> list[object]:
    """A row of the table, and a version."""
    return [
        pytest.param(row, version, id=f"{row.name}-v{version}")
        for row in ROWS
        if row.place in LOOPS and row.key not in EXEMPT
        for version in VERSIONS.get(row.key, (row.max_version,))
        if any(largest_requests(row, 1, version))
    ]


def longest_steps(tmp_path: Path, row: ApiRow, version: int, most: int) -> dict[tuple[str, str], float]:
    """The instructions in the longest step, by request and phase."""
    return {
        (largest.label, measured.phase): max(measured.steps)
        for largest in largest_requests(row, most, version)
        for measured in Brokers(tmp_path, Instructions).measure(row, largest.request, version)
    }


@pytest.mark.parametrize(("row", "version"), cases())
def test_no_step_of_the_largest_request_is_long(
    tmp_path: Path, row: ApiRow, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(add_partitions_to_txn, "MOST_ADDED", 1_000)  # less than the requests here have
    limit, (few, many) = LIMITS[row.key], SIZES
    if limit <= many:
        expected = longest_steps(tmp_path, row, version, limit)
    else:
        before, after = (longest_steps(tmp_path, row, version, most) for most in SIZES)
        expected = {key: cost + (cost - before[key]) * (limit - many) / (many - few) for key, cost in after.items()}
    assert {key: cost for key, cost in expected.items() if cost > IN_LOOPS} == {}
