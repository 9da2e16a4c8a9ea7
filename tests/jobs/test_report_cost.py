"""Costs by owner: the files of prices and owners, each of their errors with file and line, and the sums."""

from pathlib import Path

import pytest

from odradek.jobs.usage_report import cost
from odradek.jobs.usage_report.cost import UNOWNED, Prices, Rule
from odradek.jobs.usage_report.errors import ReportError

RIGHT_PRICES = 'currency = "EUR"\n\n[per_gb]\nin = 0.02\nout = 0\nstored_month = 0.1\n'


def test_prices_are_read(tmp_path: Path) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(RIGHT_PRICES)
    assert cost.read_prices(path) == Prices("EUR", 0.02, 0.0, 0.1)
    path.write_text("per_gb = { in = 1, out = 2, stored_month = 3 }\n")
    assert cost.read_prices(path) == Prices("", 1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        ("in = = 3\n", 1, "not TOML"),
        ('currency = "EUR"\n[per_gb]\nin = 0.02\nout = 0,01\n', 4, "not TOML"),
        (RIGHT_PRICES.replace("0.02", "-1"), 4, "in = -1: expected a number of at least 0"),
        (RIGHT_PRICES.replace("0.02", '"cheap"'), 4, "in = 'cheap': expected a number"),
        (RIGHT_PRICES.replace("0.02", "inf"), 4, "in = inf: expected a number"),
        (RIGHT_PRICES.replace("0.02", "true"), 4, "in = True: expected a number"),
        (RIGHT_PRICES.replace("out = 0\n", ""), 3, "[per_gb] has no out: expected a number, 0 if free"),
        (RIGHT_PRICES + "disk = 3\n", 7, "unknown price 'disk': expected in, out, stored_month"),
        ("tax = 3\n" + RIGHT_PRICES, 1, "unknown key 'tax': expected currency and [per_gb]"),
        (RIGHT_PRICES.replace('"EUR"', "3"), 1, "currency: expected a short name"),
        ('currency = "EUR"\n', 1, "expected a table [per_gb] with in, out, stored_month"),
        ("", 1, "expected a table [per_gb]"),
    ],
)
def test_a_wrong_price_file_is_named_with_its_line(tmp_path: Path, content: str, line: int, said: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(content)
    with pytest.raises(ReportError) as caught:
        cost.read_prices(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_owners_are_read_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "owners.csv"
    path.write_text('\ufeffkind,pattern,team\n# the shop\n\nclient, checkout-* , Shop\ntopic,"web.*","Web, Mobile"\n')
    assert cost.read_owners(path) == [Rule("client", "checkout-*", "Shop"), Rule("topic", "web.*", "Web, Mobile")]


@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        ("", 1, "the file is empty: expected a first line kind,pattern,team"),
        ("client,a,b\n", 1, "the first line is 'client,a,b': expected kind,pattern,team"),
        ("kind,pattern,team\nclient,a\n", 2, "2 columns: expected 3: kind,pattern,team"),
        ("kind,pattern,team\n\n# x\nuser,a,b\n", 4, "kind 'user': expected client, principal or topic"),
        ("kind,pattern,team\nclient,,b\n", 2, "the pattern is empty"),
        ("kind,pattern,team\nclient,a,\n", 2, "the team is empty"),
        ('kind,pattern,team\nclient,"a,b\n', 2, "not CSV"),
    ],
)
def test_a_wrong_owners_file_is_named_with_its_line(tmp_path: Path, content: str, line: int, said: str) -> None:
    path = tmp_path / "owners.csv"
    path.write_text(content)
    with pytest.raises(ReportError) as caught:
        cost.read_owners(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert said in str(caught.value)


@pytest.mark.parametrize("read", [cost.read_prices, cost.read_owners])
def test_files_that_cannot_be_read_are_named(tmp_path: Path, read) -> None:
    with pytest.raises(ReportError, match=r"missing: the file of .* cannot be read: No such file"):
        read(tmp_path / "missing")
    with pytest.raises(ReportError, match="cannot be read: Is a directory"):
        read(tmp_path)
    (tmp_path / "latin").write_bytes(b"kind,pattern,team\nclient,caf\xe9,b\n")
    with pytest.raises(ReportError, match="latin:2: not UTF-8"):
        read(tmp_path / "latin")


def test_the_first_matching_line_decides_and_every_byte_has_one_owner() -> None:
    rules = [Rule("client", "spark-*", "Lake"), Rule("topic", "orders.*", "Shop"), Rule("principal", "User:web", "Web")]
    traffic = [
        ("User:etl", "spark-1", "orders.a", 0, 5 * 10**9),
        ("User:shop", "checkout", "orders.a", 2 * 10**9, 0),
        ("User:web", "clicks", None, 10**9, 10**9),
        ("User:x", "y", "z", 7, 8),
    ]
    stored = [("orders.a", 730 * 4 * 10**9), ("z", 730)]
    rows = {row.owner: row for row in cost.costs(Prices("EUR", 1.0, 2.0, 3.0), rules, traffic, stored)}
    assert set(rows) == {"Lake", "Shop", "Web", UNOWNED}
    assert (rows["Lake"].bytes_out, rows["Lake"].total) == (5 * 10**9, 10.0)
    assert (rows["Shop"].cost_in, rows["Shop"].cost_stored) == (2.0, 12.0)
    assert rows["Web"].total == 3.0
    assert sum(row.bytes_in for row in rows.values()) == sum(row[3] for row in traffic)
    assert sum(row.bytes_out for row in rows.values()) == sum(row[4] for row in traffic)
    assert sum(row.stored_byte_hours for row in rows.values()) == sum(hours for _, hours in stored)
