"""Texts of clients on one line."""

import sys

from odradek.printable import one_cell, one_line


def test_no_printable_character_is_escaped_and_each_that_controls_a_terminal_is() -> None:
    """`str.isprintable` decides whether a text is searched at all."""
    printable = "".join(character for character in map(chr, range(sys.maxunicode + 1)) if character.isprintable())
    for function, kept in ((one_line, "\t"), (one_cell, "")):
        assert function(f"\x1b{printable}") == f"\\x1b{printable}"
        for character in ("\n", "\x1b", "\x9b", "\xad", "\u202e", "\u2028", "\ud800", "\U000e0041", "\t"):
            assert (function(f"a{character}") == f"a{character}") == (character in kept)
