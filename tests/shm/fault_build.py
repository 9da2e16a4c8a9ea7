"""Determines whether the tests of fault points run in the debug build."""

import pytest

from odradek._ext.testing import fault_points


def require_fault_points(what: str = "FAULT") -> None:
    """Skip the calling module, loudly, if the native modules were built without fault points. :param what: it tests."""
    if not fault_points.faults_compiled():
        pytest.skip(
            f"NO {what} IS TESTED: a release build has no fault points; run make test-faults", allow_module_level=True
        )
