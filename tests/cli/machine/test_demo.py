"""The demo's corpus and its comparison; test_start runs the whole demo."""

import pytest

from odradek.cli.machine.demo import DemoError, collect, compare


def test_the_corpus_is_whole_files_of_text_within_the_limit(tmp_path):
    (tmp_path / "a.py").write_bytes(b"one\n\r\ntwo")
    (tmp_path / "b.txt").write_bytes(b"x" * 50)
    (tmp_path / "c.py").write_bytes(b"y\n")
    (tmp_path / "empty.py").touch()
    (tmp_path / "d.so").write_bytes(b"binary")
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "e.py").write_bytes(b"not part of Python")
    assert collect(tmp_path, 12) == {"a.py": [b"one\n", b"\r\n", b"two"], "c.py": [b"y\n"]}


def test_no_corpus_is_an_error(tmp_path):
    with pytest.raises(DemoError, match=str(tmp_path)):
        collect(tmp_path, 100)


@pytest.mark.parametrize(
    ("received", "word"),
    [
        ({"a": [b"1", b"2"]}, "b: sent 1 records, read 0"),
        ({"a": [b"1"], "b": [b"3"]}, "a: sent 2 records, read 1"),
        ({"a": [b"1", b"2", b"2"], "b": [b"3"]}, "a: sent 2 records, read 3"),
        ({"a": [b"2", b"1"], "b": [b"3"]}, "a: record 0 was sent as b'1' and read as b'2'"),
        ({"a": [b"1", b"2"], "b": [b"3"], "c": [b"4"]}, "'c'"),
    ],
)
def test_every_difference_is_found(received, word):
    corpus = {"a": [b"1", b"2"], "b": [b"3"]}
    compare(corpus, {name: list(lines) for name, lines in corpus.items()})
    with pytest.raises(DemoError) as caught:
        compare(corpus, received)
    assert word in str(caught.value)
