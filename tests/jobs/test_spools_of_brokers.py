"""The spools of several brokers: directories and metrics listeners, what is missing, and what is there twice."""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.jobs.usage_report import gaps, spool, spool_sources
from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.options import SPOOL_LOGIN, check_source
from odradek.metrics import spool_pages
from odradek.metrics.http import HttpServer, Pages
from tests.jobs import spools
from tests.jobs.spools import HOUR_MS, MINUTE_MS, Boot, at
from tests.ports import reserved

DAY = at("2025-11-20")
LOGIN = "report:secret"


class Listener:
    """The metrics listener of a broker with a spool."""

    def __init__(self, directory: Path, login: str = "") -> None:
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self._socket.listen(64)
        self._socket.setblocking(False)
        wanted = f"Basic {base64.b64encode(login.encode()).decode()}" if login else None
        pages = Pages(lambda _: [b""], lambda: None, None, lambda header, _: header == wanted, directory)
        self._server = HttpServer(self._socket, pages)
        self._server.start()
        self.url = "http://{}:{}".format(*self._socket.getsockname())

    def stop(self) -> None:
        self._server.stop()
        self._socket.close()


@pytest.fixture
def boot(tmp_path: Path) -> Boot:
    """A broker with two hours of traffic; the file of the first one is compressed."""
    (tmp_path / "spool").mkdir()
    boot = Boot(tmp_path / "spool", "aa01", DAY)
    spools.live(boot, 90, 1)
    spools.compress(boot.files[0])
    return boot


@pytest.fixture
def listener(boot: Boot) -> Iterator[Listener]:
    listener = Listener(boot.directory)
    yield listener
    listener.stop()


def test_files_come_over_http_in_pieces_and_unchanged(
    boot: Boot, listener: Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_pages, "PIECE_BYTES", 1000)
    (boot.directory / "meta.properties").write_text("cluster.id=secret")
    said: list[str] = []
    found = spool_sources.listed([listener.url], said.append)
    assert [file.path.name for file in found.files] == sorted(path.name for path in boot.directory.glob("usage-*"))
    copies, missing = spool_sources.copied(found.files, tmp_path / "scratch", DAY, DAY + 2 * HOUR_MS, said.append)
    assert (said, missing) == ([], [])
    for copy in copies:
        assert copy.path.read_bytes() == (boot.directory / copy.path.name).read_bytes()
        assert copy.path.stat().st_size == copy.size > 1000
    for wrong in ("meta.properties", "../spool/meta.properties", "%2e%2e/x", "usage-", ""):
        assert spool_sources.get(listener.url, f"/spool/{wrong}") is None


def test_behind_the_end_of_a_file_is_nothing(boot: Boot) -> None:
    size = boot.files[-1].stat().st_size
    for start in (size - 1, size, size + 1, 1 << 43, 1 << 60, (1 << 62) - 1):
        found = spool_pages.piece(boot.directory, boot.files[-1].name, {"from": [str(start)]})
        assert found == (b"\n" if start < size else b"")


def test_a_file_that_was_compressed_or_deleted_since_it_was_listed(
    boot: Boot, listener: Listener, tmp_path: Path
) -> None:
    said: list[str] = []
    for place in (listener.url, str(boot.directory)):
        found = spool_sources.listed([place], said.append)
        [plain] = [path for path in boot.directory.glob("usage-*") if path.suffix != ".gz"]
        content = plain.read_bytes()
        packed = spools.compress(plain)
        copies, _ = spool_sources.copied(found.files, tmp_path / "scratch", DAY, DAY + 2 * HOUR_MS, said.append)
        assert [copy.path.name for copy in copies] == sorted(path.name for path in boot.directory.glob("usage-*.gz"))
        assert said == []
        packed.unlink()
        plain.write_bytes(content)
    found = spool_sources.listed([listener.url], said.append)
    boot.files[0].with_name(boot.files[0].name + ".gz").unlink()
    copies, missing = spool_sources.copied(found.files, tmp_path / "scratch", DAY, DAY + 2 * HOUR_MS, said.append)
    assert len(copies) == 1 and missing == [] and "was deleted before it was copied" in said[0]


def test_a_broker_that_fails_after_it_was_listed_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first file copied is that before the period, so the gap must not begin there; boots are not in the order of time."""
    yesterday = DAY - HOUR_MS
    place = "http://b:9404"
    files = [
        spool.SpoolFile(Path(f"usage-{number}"), hour_ms, boot, 1, place)
        for number, (boot, hour_ms) in enumerate([("a", yesterday), ("a", DAY), ("a", DAY + HOUR_MS), ("b", DAY)])
    ]

    def missing(copied: int, answer: Path | None) -> list[tuple[int, int, str]]:
        def copy(file: spool.SpoolFile, _: Path) -> Path | None:
            if files.index(file) < copied:
                return file.path
            if answer is None:
                raise spool_sources._Unreachable("cannot be reached")
            return None

        monkeypatch.setattr(spool_sources, "_copied", copy)
        copies, found = spool_sources.copied(files, tmp_path, DAY, DAY + 2 * HOUR_MS, lambda _: None)
        assert len(copies) == copied
        return [(gap.from_ms, gap.to_ms, gap.reason) for gap in gaps.clip(found, DAY, DAY + 2 * HOUR_MS)]

    unread = "its spool was not read from this hour on: cannot be reached"
    assert missing(0, None) == missing(1, None) == missing(2, None) == [(DAY, DAY + 2 * HOUR_MS, unread)]
    assert missing(4, None) == []
    gone = "the files of its spool were deleted before they were copied"
    assert missing(0, Path()) == [(DAY, DAY + 2 * HOUR_MS, gone)]
    assert missing(3, Path()) == []  # what is missing follows from the intervals


def test_a_login_is_needed_and_used(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = Listener(boot.directory, LOGIN)
    try:
        with pytest.raises(ReportError, match=f"requires a password: set {SPOOL_LOGIN}=USER:PASSWORD"):
            spool_sources.listed([listener.url], print)
        monkeypatch.setenv(SPOOL_LOGIN, LOGIN)
        assert len(spool_sources.listed([listener.url], print).files) == 2
        monkeypatch.setenv(SPOOL_LOGIN, "secret")
        with pytest.raises(ReportError, match="expected USER:PASSWORD"):
            spool_sources.listed([listener.url], print)
    finally:
        listener.stop()


def test_a_broker_that_cannot_be_reached_is_named(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_sources, "PAUSES_S", ())
    with reserved() as port:
        away = f"http://127.0.0.1:{port}"
        said: list[str] = []
        places = (str(boot.directory), away)
        found = spool_sources.listed(places, said.append)
        with pytest.raises(ReportError, match=f"--spool {away}: cannot be reached: Connection refused"):
            spool_sources.listed([away], said.append)
    assert re.fullmatch(f"warning: --spool {away}: cannot be reached: .*; this report does not contain .*", said[0])
    missing = spool_sources.gaps_of_places(places, found, DAY, DAY + HOUR_MS)
    assert [(gap.from_ms, gap.to_ms, gap.source) for gap in missing] == [(DAY, DAY + HOUR_MS, away)]


def test_a_spool_without_a_file_of_the_period_is_named(boot: Boot, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    places = (str(boot.directory), str(tmp_path / "empty"))
    found = spool_sources.listed(places, print)
    missing = spool_sources.gaps_of_places(places, found, DAY, DAY + HOUR_MS)
    assert [(gap.reason, gap.source) for gap in missing] == [("this spool has no file of this time", places[1])]


def test_a_copied_file_counts_once_and_the_complete_one_wins(boot: Boot, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    for file in boot.files:
        name = file.name if file.exists() else f"{file.name}.gz"
        (tmp_path / "copy" / file.name).write_bytes((boot.directory / name).read_bytes()[:500])
    found = spool_sources.listed([str(tmp_path / "copy"), str(boot.directory)], print)
    assert {file.place for file in found.files} == {str(boot.directory)}
    assert len(found.files) == 2


def span(broker: int, boot: str, from_ms: int, end_ms: int) -> gaps.Span:
    minutes = (end_ms - from_ms) // MINUTE_MS
    return gaps.Span(
        boot, 1, minutes, from_ms, end_ms, minutes, end_ms - from_ms, MINUTE_MS, 0, from_ms, "file", broker
    )


def files_of(places: dict[str, str]) -> list[spool.SpoolFile]:
    return [spool.SpoolFile(Path("f"), DAY, boot, 1, place) for boot, place in places.items()]


def test_two_brokers_of_one_id_are_refused_but_not_a_moved_directory() -> None:
    first, second = span(1, "a", DAY, DAY + HOUR_MS), span(1, "b", DAY + HOUR_MS + MINUTE_MS, DAY + 2 * HOUR_MS)
    spool_sources.check_brokers([second, first], files_of({"a": "/old", "b": "/new"}))
    other = span(1, "b", DAY + 30 * MINUTE_MS, DAY + 2 * HOUR_MS)
    with pytest.raises(ReportError, match=r"--spool /x and --spool /y are both of broker 1.*2025-11-20T00:30"):
        spool_sources.check_brokers([first, other], files_of({"a": "/x", "b": "/y"}))
    spool_sources.check_brokers([first, other._replace(broker=2)], files_of({"a": "/x", "b": "/y"}))


def test_two_scrapes_of_one_broker_are_refused_but_not_a_new_address() -> None:
    def scraped(instance: str, from_ms: int, end_ms: int) -> gaps.Scraped:
        return gaps.Scraped(instance, DAY, from_ms, end_ms, 60, 1.0)

    own = [{"job": "j", "instance": name, "id": "7"} for name in ("old", "new")]
    ids = gaps.brokers_of(own, ["j/old", "j/new"], ["7"])
    first, moved = scraped("j/old", DAY, DAY + HOUR_MS), scraped("j/new", DAY + HOUR_MS, DAY + 2 * HOUR_MS)
    gaps.check_instances([moved, first], ids, "", MINUTE_MS)
    with pytest.raises(ReportError, match=r"two instances of broker 7 at 2025-11-20T00:30.*: j/old and j/new"):
        gaps.check_instances([first, moved._replace(from_ms=DAY + 30 * MINUTE_MS)], ids, "", MINUTE_MS)
    assert gaps.brokers_of([], ["j/a"], ["3"]) == {"j/a": 3}  # an older broker, alone
    assert gaps.brokers_of([], ["j/a", "j/b"], ["3", "4"]) == {}


def test_the_gaps_of_each_broker_are_found_and_named() -> None:
    spans = [
        span(1, "a", DAY, DAY + 2 * HOUR_MS),
        span(2, "b", DAY, DAY + 30 * MINUTE_MS),
        span(2, "c", DAY + HOUR_MS, DAY + 2 * HOUR_MS),
    ]
    found = gaps.find_gaps_of_brokers(spans, [], DAY, DAY + 2 * HOUR_MS, DAY + 9 * HOUR_MS, {1, 2})
    assert [(gap.from_ms, gap.to_ms, gap.source) for gap in found] == [
        (DAY + 30 * MINUTE_MS, DAY + HOUR_MS, "broker 2: between boots, the later one is c")
    ]
    one = gaps.find_gaps_of_brokers(spans[1:], [], DAY, DAY + 2 * HOUR_MS, DAY + 9 * HOUR_MS, {2})
    assert [gap.source for gap in one] == ["between boots, the later one is c"]  # a single broker needs no name
    covered = {
        (row["hour_ms"], row["broker"]): (row["intervals"], row["covered_ms"])
        for row in gaps.coverage(spans[1:] + spans[:1])
    }
    assert covered[DAY, 1] == (120, 2 * HOUR_MS) and covered[DAY, 2] == (30, 30 * MINUTE_MS)


def test_nothing_is_missing_of_a_broker_before_it_joined() -> None:
    spans = [span(1, "a", DAY, DAY + 2 * HOUR_MS), span(2, "b", DAY + HOUR_MS, DAY + 2 * HOUR_MS)]

    def missing(known_before: set[int] | None, spans: list[gaps.Span] = spans) -> list[str]:
        found = gaps.find_gaps_of_brokers(spans, [], DAY, DAY + 2 * HOUR_MS, DAY + 9 * HOUR_MS, known_before)
        return [gap.source for gap in found]

    assert missing({1}) == []
    assert missing({1, 2}) == missing(None) == ["broker 2: before the first interval of the spool"]
    # only the data of the new broker are given, while tables of another one exist
    assert missing({1}, spans[1:]) == missing(set(), spans[1:]) == []
    assert missing({2}, spans[1:]) == missing(None, spans[1:]) == ["before the first interval of the spool"]

    places = ("/one", DAY - HOUR_MS, "z"), ("/one", DAY, "a"), ("/two", DAY, "b")
    files = [spool.SpoolFile(Path(boot), hour_ms, boot, 1, place) for place, hour_ms, boot in places]
    assert spool_sources.brokers_before(files, spans, DAY) == {1}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["http://b:9404/metrics"], "expected a directory, or the metrics.listener of a broker"),
        (["http://user:password@b:9404"], "without a login"),
        (["http://b:port"], "expected a directory, or the metrics.listener"),
        (["http://b:9404", "http://b:9404/"], "--spool http://b:9404: is given twice"),
        ([], "neither is given"),
    ],
)
def test_wrong_spools_are_refused(given: list[str], message: str) -> None:
    with pytest.raises(ReportError, match=message) as refused:
        check_source(given, None)
    assert "password@" not in str(refused.value)
