"""JAAS lines: what Kafka's own configurations contain, and lines that cannot be read."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.security.jaas import FLAGS, JaasError, parse

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
KAFKAS = f"""{PLAIN} required \\
    username="admin" \\
    password="admin-secret" \\
    user_admin="admin-secret" \\
    user_alice="alice-secret";""".replace("\\\n", "\n")


def test_the_line_of_kafkas_documentation():
    module = parse(KAFKAS)
    assert (module.name, module.simple_name, module.flag) == (PLAIN, "PlainLoginModule", "required")
    assert module.options == {
        "username": "admin",
        "password": "admin-secret",
        "user_admin": "admin-secret",
        "user_alice": "alice-secret",
    }


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a.B required;", {}),
        ("a.B REQUIRED ;", {}),
        ("a.B optional x=1 y=two;", {"x": "1", "y": "two"}),
        ('a.B required x="";', {"x": ""}),
        ("a.B required x=\"a b;c=d,'e'\";", {"x": "a b;c=d,'e'"}),
        (
            r'a.B required x="q\"uote" y="back\\slash" z="tab\tnew\nline";',
            {"x": 'q"uote', "y": "back\\slash", "z": "tab\tnew\nline"},
        ),
        (r'a.B required x="\101\60\0" y="\777";', {"x": "A0\0", "y": "?7"}),
        ("a.B required 'x' = 'it\"s' ;", {"x": 'it"s'}),
        ('a.B required /* comment */ x="1" // another\n y="2";', {"x": "1", "y": "2"}),
        ('a.B required x="1" x="2";', {"x": "2"}),
        ('a.B required user_é="ü";'.replace("user_é", '"user_é"'), {"user_é": "ü"}),
    ],
)
def test_values_are_read_as_javas_tokenizer_reads_them(text, options):
    assert parse(text).options == options


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "exactly one login module"),
        ("a.B required", "must end with ';'"),
        ("a.B;", "control flag"),
        ("a.B sometimes;", "control flag"),
        ('a.B required x "secret";', "'=' after the option x"),
        ("a.B required x=;", "the value of the option x"),
        ('a.B required x="secret;', "quote at character 16 without its end"),
        ('a.B required x="secret\n";', "without its end"),
        ('a.B required x="secret"; c.D required;', "exactly one login module"),
        ("a.B required x=sec%ret;", "in quotes (character 19)"),
        ('a.B required ="secret";', "an option or ';'"),
    ],
)
def test_errors_name_the_place_and_not_the_secret(text, words):
    with pytest.raises(JaasError) as caught:
        parse(text)
    assert words in str(caught.value) and "secret" not in str(caught.value)


def test_neither_repr_nor_str_shows_values():
    module = parse(KAFKAS)
    for shown in (repr(module), str(module), f"{module}", f"{[module]}"):
        assert "secret" not in shown and "user_alice" in shown


def quoted(text):
    escaped = "".join(
        f"\\{ord(char):03o}" if ord(char) < 32 else "\\" + char if char in "\\\"'" else char for char in text
    )
    return f'"{escaped}"'


words = st.text(st.characters(blacklist_categories=("Cs",), max_codepoint=0x2FF), max_size=20)


@given(st.dictionaries(words, words, max_size=5), st.sampled_from(FLAGS))
def test_every_quoted_text_is_read_back(options, flag):
    text = f"a.B {flag} " + " ".join(f"{quoted(key)}={quoted(value)}" for key, value in options.items()) + ";"
    assert parse(text).options == options


@given(st.text(alphabet="ab=;\"'\\ \n/*required.1é", max_size=40))
@example("a.B required x='\\")
@example("/*")
@example("//")
def test_any_text_is_read_or_refused(text):
    try:
        parse(text)
    except JaasError as error:
        assert "\n" not in str(error)
