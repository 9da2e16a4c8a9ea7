"""The syntax of .properties files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.errors import ConfigError
from odradek.config.properties import decode, parse


def pairs(text):
    return [(row.name, row.value) for row in parse(text)]


@pytest.mark.parametrize("line", ["a=b", "a:b", "a b", "  a = b", "a\t:\tb", "a\f=\fb", "\ta=b", "a   b"])
def test_every_separator_gives_the_same_setting(line):
    assert pairs(line) == [("a", "b")]


def test_only_the_first_separator_counts():
    assert pairs("a==b\nc = :d\ne f=g") == [("a", "=b"), ("c", ":d"), ("e", "f=g")]


def test_comments_and_blank_lines_are_skipped():
    assert pairs("# x=1\n  ! y=2\n\n \t\na=b # not a comment\n") == [("a", "b # not a comment")]


def test_a_comment_does_not_continue():
    assert pairs("# x \\\na=b") == [("a", "b")]


def test_a_continued_line_loses_its_indent_and_may_begin_with_a_hash():
    assert pairs("a = b,\\\n    c,\\\r\n\t#d") == [("a", "b,c,#d")]


def test_an_even_number_of_backslashes_does_not_continue():
    assert pairs("a=b\\\\\nc=d") == [("a", "b\\"), ("c", "d")]


def test_a_blank_line_ends_a_continuation():
    assert pairs("a=b\\\n\nc=d") == [("a", "b"), ("c", "d")]


def test_a_backslash_at_the_end_of_the_file_is_dropped():
    assert pairs("a=b\\") == [("a", "b")]


def test_escapes():
    assert pairs(r"a\ b\=c\:=\t\n\r\f\q\u00e9\ud83d\ude00") == [("a b=c:", "\t\n\r\fqé😀")]


def test_trailing_spaces_of_a_value_stay():
    assert pairs("a=b  ") == [("a", "b  ")]


def test_keys_without_value():
    assert pairs("a\nb=\nc:") == [("a", ""), ("b", ""), ("c", "")]


def test_carriage_return_alone_ends_a_line():
    assert pairs("a=b\rc=d") == [("a", "b"), ("c", "d")]


def test_a_setting_has_the_line_number_of_its_key():
    assert [row.line for row in parse("# 1\na=\\\n b\n\nc=d")] == [2, 5]


@pytest.mark.parametrize("bad", [r"\u12", r"\u12g4", r"\u", r"\u+123", r"\ud800", r"\ude00x"])
def test_a_malformed_unicode_escape_names_file_and_line(bad):
    with pytest.raises(ConfigError, match=r"server\.properties:2"):
        parse("x=1\na=" + bad, "server.properties")


def test_bytes_that_are_not_utf8_are_latin1():
    assert decode("é".encode()) == "é"
    assert decode("é".encode("latin-1")) == "é"


def escape(text, key):
    """Escape like java.util.Properties.store."""
    out = []
    for position, char in enumerate(text):
        if char == " ":
            out.append("\\ " if key or position == 0 else " ")
        elif char in "\t\n\r\f":
            out.append("\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[char])
        elif char in "=:#!\\":
            out.append("\\" + char)
        elif not " " <= char <= "~":
            units = char.encode("utf-16-be")
            out += [f"\\u{units[at]:02X}{units[at + 1]:02x}" for at in range(0, len(units), 2)]
        else:
            out.append(char)
    return "".join(out)


texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(" \t\n\r\f=:#!\\u"))


@given(st.lists(st.tuples(texts, texts)), st.sampled_from(["\n", "\r\n", "\r"]))
def test_what_java_would_store_is_read_back(settings, newline):
    stored = newline.join(f"{escape(name, True)}={escape(value, False)}" for name, value in settings)
    assert pairs(stored) == settings


@given(st.text(st.sampled_from("ab=: \t\\\n\r#!u0")))
def test_any_text_gives_settings_or_one_line_of_error(text):
    try:
        rows = parse(text, "f")
    except ConfigError as error:
        assert str(error).count("\n") == 0 and "f:" in str(error)
    else:
        assert all(row.line <= text.count("\n") + text.count("\r") + 1 for row in rows)
