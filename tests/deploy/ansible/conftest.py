"""Fixtures of the collection's tests."""

from pathlib import Path

import pytest

from tests.deploy.ansible.collection import Ansible


@pytest.fixture
def ansible(tmp_path: Path) -> Ansible:
    """Ansible with the collection, in a directory of this test."""
    return Ansible(tmp_path / "ansible")
