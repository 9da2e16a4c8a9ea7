"""Log lines that clients cause are limited by client: such a call says which client it is about."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEVELS = {"info", "warning", "error", "exception", "critical", "log"}
OF_A_CLIENT = {
    "client",
    "client_id",
    "client_address",
    "client_host",
    "peer",
    "transactional_id",
    "group_id",
    "member_id",
}
"""Names and attributes whose value a client chooses or that name a client."""
WITHOUT_A_CLIENT = {
    "api/groups/delete_groups.py": "a store that cannot be written",
    "api/groups/offset_commit.py": "a store that cannot be written",
    "api/groups/offset_fetch.py": "a store that cannot be read",
    "api/transactions/write_txn_markers.py": "nobody else records who ended a transaction: no line may be left out",
    "controller/broker_settings.py": "changes of settings, which are stored; and settings that cannot be used",
    "groups/membership.py": "upgrades and downgrades of a group, which change its records",
    "processes/coordinator/transactions/marker_delivery.py": "the end of a transaction, in the background",
    "transactions/coordinator.py": "the expiry of transactions, in the background",
    "transactions/markers.py": "the end of transactions, in the background",
    "transactions/shards.py": "a partition that is loaded",
}
"""Files with calls about clients that name none, because their reason is none of a client's requests."""


def calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LEVELS
            and re.search(r"\blog\b|_log$", ast.unparse(node.func.value))
        ):
            yield node


def names_in(node: ast.AST) -> set[str]:
    found = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.add(part.id)
        elif isinstance(part, ast.Attribute):
            found.add(part.attr)
    return found


def test_every_line_about_a_client_says_whose_limit_it_uses() -> None:
    wrong = []
    for path in sorted((ROOT / "broker/odradek").glob("*/**/*.py")):
        name = str(path.relative_to(ROOT / "broker/odradek"))
        if name.startswith(("_ext", "cli/", "jobs/", "mirror/", "clients/", "testing/")):
            continue  # they do not serve clients
        for call in calls(path):
            arguments = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg != "extra")]
            about = set().union(*map(names_in, arguments)) & OF_A_CLIENT
            if about and not any(keyword.arg == "extra" for keyword in call.keywords):
                wrong.append((name, call.lineno, sorted(about)))
    assert not [item for item in wrong if item[0] not in WITHOUT_A_CLIENT]
    assert not set(WITHOUT_A_CLIENT) - {item[0] for item in wrong}


def test_every_native_line_about_a_client_says_whose_limit_it_uses() -> None:
    found = 0
    for path in sorted((ROOT / "_ext").glob("*/*.pyx")):
        for call in re.findall(r"\bLOG\.(?!isEnabledFor)\w+\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)", path.read_text()):
            if re.search(r"\b\w+\.(?:name|client|peer|client_id)\b", call):
                assert "extra=" in call, (path.name, call)
                found += 1
    assert found
