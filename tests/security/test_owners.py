"""Owners of shares: an address counts as its network, with a login the principal; no code has other keys for clients."""

import ast
import re
from pathlib import Path

import pytest

import odradek
from odradek._ext.shm.owners import network_of
from odradek.net.failure_log import FailureLog
from odradek.net.limits import ConnectionLimits, Limits
from odradek.processes.login_failures import LoginFailures
from odradek.security.owners import Client, network_of_peer, owner_of

SOURCES = Path(odradek.__file__).parent


@pytest.mark.parametrize(
    ("peer", "network"),
    [
        ("10.0.0.1:5", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
        ("[2001:db8:1:2:3:4:5:6]:5", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]:7", "2001:db8:1:2::/64"),
        ("2001:0db8:1:2::9", "2001:db8:1:2::/64"),
        ("[fe80::1%eth0]:5", "fe80::/64"),
        ("[::ffff:10.0.0.1]:5", "10.0.0.1"),
        ("::1", "::/64"),
        ("/run/a.socket", "/run/a.socket"),
        ("", ""),
    ],
)
def test_an_address_counts_as_its_network(peer, network):
    assert network_of_peer(peer) == network


def test_a_network_stays_what_it_is():
    assert network_of(network_of("2001:db8::1")) == "2001:db8::/64"


def test_the_owner_is_the_user_or_the_network_of_a_client_without_a_login():
    assert owner_of("User:alice", "10.0.0.1:1") == owner_of("User:alice", "10.0.0.2:1") == "User:alice"
    anonymous = owner_of("User:ANONYMOUS", "10.0.0.1:1")
    assert anonymous == owner_of("User:ANONYMOUS", "10.0.0.1:2") == owner_of("", "10.0.0.1:3") == "10.0.0.1"
    assert owner_of("", "[2001:db8::1]:1") == owner_of("", "[2001:db8::2]:1") != owner_of("", "[2001:db8:0:1::1]:1")


def test_a_client_in_log_lines():
    assert str(Client("User:alice", "10.0.0.1")) == "10.0.0.1 (User:alice)"
    assert str(Client("User:ANONYMOUS", "2001:db8::1")) == "2001:db8::1"


def test_the_connections_of_a_network_are_counted_together_but_not_those_of_an_address_with_its_own_limit():
    limits = ConnectionLimits(Limits(100, 2, {"2001:db8::9": 3}))
    for number in (1, 2):
        assert limits.refusal(f"2001:db8::{number}") is None
        limits.add(number, f"2001:db8::{number}")
    assert limits.refusal("2001:db8::3") == "2001:db8::/64 has reached max.connections.per.ip=2"
    for number in (3, 4, 5):
        assert limits.refusal("2001:db8::9") is None
        limits.add(number, "2001:db8::9")
    assert limits.refusal("2001:db8::9") == "2001:db8::9 has reached max.connections.per.ip=3"
    limits.remove(1)
    assert limits.refusal("2001:db8::3") is None


def test_new_connections_of_a_network_are_counted_together_but_not_those_of_an_address_with_its_own_quota():
    rates = {"2001:db8::9": 5.0}
    limits = ConnectionLimits(Limits(100, 100), 2, 1000, lambda address: rates.get(address, 1.0), lambda: 1000)
    waits = [limits.address_wait_ms(f"2001:db8::{number:x}") for number in range(0x20, 0x30)]
    assert waits[0] == 0 and waits[-1] > 0
    assert limits.address_wait_ms("2001:db8::9") == 0


def test_lines_about_refused_connections_and_logins_are_limited_by_network(caplog):
    failures = FailureLog(lambda: 0.0)
    assert [failures.admit(f"[2001:db8::{number}]:1", "refused") for number in range(3)] == ["refused", None, None]
    logins = LoginFailures(lambda: 0.0)
    for number in range(3):
        logins.note(f"[2001:db8::{number}]:1", "SASL", "PLAIN", "wrong password")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


# -- no other keys -------------------------------------------------------------------------------------------------------

SHOWN = {
    "api/groups/group_call.py": "host_of: the host of a member, as DescribeGroups shows it",
    "metrics/http.py": "in log lines; its tables use `network_of_peer`",
    "net/limits.py": "the text of an item of max.connections.per.ip.overrides",
    "net/port_holder.py": "the port of a listening socket in /proc/net/tcp",
    "processes/login_failures.py": "the address in the text of a line",
    "processes/supervisor/status.py": "the port of the default of metrics.listener",
    "security/hosts.py": "host_of_peer: ACLs name whole addresses",
    "security/owners.py": "network_of_peer",
}
"""Files that take the address of a client from its peer, and what for. None of them is for a key of a table."""

USERS_OF_HOSTS = {
    "api/groups/group_call.py": "shown, and `Client.host`",
    "api/groups/join_group.py": "client_host, as DescribeGroups shows it",
    "processes/coordinator/groups/service.py": "GroupCall.host, as DescribeGroups shows it",
}
"""Files that call `host_of`, and what for."""


def python_files():
    for path in sorted(SOURCES.rglob("*.py")):
        name = str(path.relative_to(SOURCES))
        if name.split("/")[0] in {"api", "groups", "metrics", "net", "processes", "quotas", "security", "transactions"}:
            yield name, path.read_text()


def test_only_these_files_take_the_address_from_a_peer():
    """Another file probably counts clients by address: use `network_of_peer` or `owner_of`, or add the file with its reason."""
    splits = re.compile(r"\.rpartition\(\":\"\)|\.rsplit\(\":\"|client_address\[0\]")
    found = {name for name, text in python_files() if splits.search(text)}
    assert found == set(SHOWN)
    assert {name for name, text in python_files() if re.search(r"(?<!def )\bhost_of\(", text)} == set(USERS_OF_HOSTS)


def test_native_code_takes_the_address_from_a_peer_only_for_its_network():
    lines = [
        line
        for path in sorted((SOURCES / "_ext").resolve().rglob("*.pyx"))
        for line in path.read_text().splitlines()
        if "peer.rpartition(" in line
    ]
    assert lines and all("network_of(" in line for line in lines)


def test_only_one_module_says_who_is_anonymous_for_shares():
    """Who is an owner is decided in one place: no other function compares a principal with "" and ANONYMOUS."""
    deciding = [
        name
        for name, text in python_files()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Tuple)
        and len(node.elts) == 2
        and {ast.dump(element) for element in node.elts}
        == {ast.dump(ast.Constant("")), ast.dump(ast.Name("ANONYMOUS", ast.Load()))}
    ]
    assert set(deciding) <= {"security/owners.py"}
