"""Each call that changes a file fails, by turns: a full device costs an error that may be retried, a broken one the log
directory; neither an acknowledged record. Also with half of a write done before."""

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.faults.failing_calls import FailingCalls, build, missing

SEED = int(os.environ.get("ODRADEK_FAULT_SEED") or 1)
SCRIPTS = max(1, int(os.environ.get("ODRADEK_FAULT_ROUNDS", "0")) // 300)

pytestmark = [
    pytest.mark.timeout(600 + 300 * SCRIPTS),
    pytest.mark.skipif(bool(missing()), reason=f"NO FAILING CALL IS TESTED: {missing()}"),
]


def test_no_call_that_fails_costs_an_acknowledged_record(tmp_path, count_faults):
    calls = FailingCalls(tmp_path / "control", tmp_path)
    environment = os.environ | calls.environment(build(tmp_path))
    done = Counter()
    for seed in range(SEED, SEED + SCRIPTS):
        print(f"ODRADEK_FAULT_SEED={seed}")
        (tmp_path / f"{seed}").mkdir()
        command = [sys.executable, "-m", "tests.faults.failing_writes", tmp_path / f"{seed}", calls.path, str(seed)]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        done.update(json.loads(ended.stdout))
    assert done["rounds calls that failed by turns"] > 100 * SCRIPTS
    count_faults(done)
