"""The principal of a client certificate: its subject as text, and the rules of `ssl.principal.mapping.rules` that shorten it.

Pure functions and immutable objects. The text is that of Java's `X500Principal.getName()` (RFC 2253): the parts in
reverse order of the certificate, keywords for nine attribute types, and all other types as dotted numbers with `#`
and the value's DER in hexadecimal. ACLs and super users contain such names, so every character counts; the JDK's own
code is the reference of the tests.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import re2

from odradek.printable import cut
from odradek.security.acl import ANONYMOUS_USER
from odradek.security.der import DerError, Reader, dotted

USER = "User:"
LONGEST_NAME = 4096
_KEYWORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_CHARSETS = {  # tag of a string type -> how Java decodes it
    0x0C: "utf-8",  # UTF8String
    0x13: "latin-1",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "latin-1",  # IA5String
    0x1B: "latin-1",  # GeneralString
    0x1E: "utf-16-be",  # BMPString
}
_ESCAPED = set(',=+<>#;"\\')
_BLANKS = " \r"


class MappingError(ValueError):
    """The rules are malformed, or no rule applies to a name."""


def subject_name(certificate: bytes) -> str:
    """The subject of a DER certificate as text. Raises DerError."""
    body = Reader(certificate).sequence().sequence()
    if body.peek() == 0xA0:  # the version
        body.element()
    body.element()  # serial number
    body.element()  # algorithm of the signature
    body.element()  # issuer
    body.element()  # validity
    return name_text(body.expect(0x30))


def name_text(content: bytes) -> str:
    """The text of a distinguished name. :param content: of its DER SEQUENCE. Raises DerError."""
    parts = []
    name = Reader(content)
    while name.more:
        attributes = Reader(name.expect(0x31))
        texts = []
        while attributes.more:
            attribute = attributes.sequence()
            kind = dotted(attribute.expect(0x06))
            tag, value, whole = attribute.element()
            keyword = _KEYWORDS.get(kind)
            charset = _CHARSETS.get(tag)
            if keyword is None or charset is None:
                texts.append(f"{keyword or kind}=#{whole.hex()}")
            else:
                texts.append(f"{keyword}={_escape(value.decode(charset, 'replace'))}")
        parts.append("+".join(texts))
    text = ",".join(reversed(parts))
    if len(text) > LONGEST_NAME:
        raise DerError(f"the subject has {len(text)} characters; the limit is {LONGEST_NAME}")
    return text


def _escape(value: str) -> str:
    text = "".join("\\" + char if char in _ESCAPED else "\\00" if char == "\0" else char for char in value)
    lead = len(text) - len(text.lstrip(_BLANKS))
    trail = len(text.rstrip(_BLANKS)) if lead < len(text) else 0
    return "".join("\\" + char if i < lead or i >= trail else char for i, char in enumerate(text))


class Rule(NamedTuple):
    """One rule. :param pattern: a compiled RE2 expression, which must match the whole name; None: DEFAULT, the name itself.

    :param replacement: literals and numbers of groups. :param case: "L", "U" or "".
    """

    pattern: Any
    replacement: tuple[str | int, ...] = ()
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The short name; None if the rule does not apply."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        short = self._replaced(name)
        return short.lower() if self.case == "L" else short.upper() if self.case == "U" else short

    def _replaced(self, name: str) -> str:
        """Like Java's `replaceAll`, which looks for the pattern again behind each match, also for an empty one at the end."""
        parts: list[str] = []
        at = copied = 0
        while at <= len(name):
            match = self.pattern.search(name, at)
            if match is None:
                break
            parts.append(name[copied : match.start()])
            parts += [item if isinstance(item, str) else (match.group(item) or "") for item in self.replacement]
            copied = match.end()
            at = copied + 1 if match.end() == match.start() else copied
        return "".join(parts) + name[copied:]


def parse_rules(text: str) -> tuple[Rule, ...]:
    """The rules of `ssl.principal.mapping.rules`: `RULE:pattern/replacement/`, with L or U at the end, and DEFAULT,
    separated by commas. Raises MappingError."""
    rules: list[Rule] = []
    rest = text.strip()
    while rest:
        if rest.startswith("RULE:"):
            pattern, after = _until_slash(rest, 5)
            replacement, after = _until_slash(rest, after)
            case = rest[after] if after < len(rest) and rest[after] in "LU" else ""
            after += len(case)
            rules.append(_rule(pattern, replacement, case))
        elif rest.startswith("DEFAULT"):
            rules.append(Rule(None))
            after = len("DEFAULT")
        elif rest.startswith(","):
            after = 0
        else:
            raise MappingError(f"{rest!r} is neither DEFAULT nor RULE:pattern/replacement/[LU]")
        rest = rest[after:].lstrip()
        if rest and not rest.startswith(","):
            raise MappingError(f"{rest!r} follows a rule; rules are separated by commas")
        rest = rest[1:].lstrip()
    if not rules:
        raise MappingError("contains no rule; DEFAULT takes the whole subject of the certificate")
    return tuple(rules)


def _until_slash(text: str, start: int) -> tuple[str, int]:
    """The text from `start` to the next slash without a backslash before it, and the position behind that slash."""
    at = start
    while at < len(text):
        if text[at] == "/":
            return text[start:at], at + 1
        at += 2 if text[at] == "\\" else 1
    raise MappingError(f"{text!r} is cut off; a rule has the form RULE:pattern/replacement/[LU]")


def _rule(pattern: str, replacement: str, case: str) -> Rule:
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else str(error)
        raise MappingError(
            f"the pattern {pattern!r} is not a regular expression of RE2: {reason}; look-ahead, look-behind and back"
            " references do not exist there"
        ) from None
    return Rule(compiled, tuple(_replacement(replacement, compiled.groups, pattern)), case)


def _replacement(text: str, groups: int, pattern: str) -> list[str | int]:
    """Literals and numbers of groups, as Java reads a replacement. A number above that of the groups is literal (KIP-371)."""
    items: list[str | int] = []
    literal, at = "", 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            if at + 1 == len(text):
                raise MappingError(f"the replacement {text!r} ends with a backslash")
            literal, at = literal + text[at + 1], at + 2
        elif char == "$":
            digits = at + 1
            while digits < len(text) and text[digits].isascii() and text[digits].isdigit():
                digits += 1
            number = text[at + 1 : digits]
            if not number:
                raise MappingError(
                    f"the replacement {text!r} has a $ without the number of a group; \\$ is a literal one"
                )
            while len(number) > 1 and int(number) > groups:  # $12 is group 1 and the digit 2 if there is no group 12
                number = number[:-1]
            if int(number) <= groups:
                items += [literal, int(number)]
                literal = ""
            elif groups == 0:
                raise MappingError(
                    f"the replacement {text!r} names group {number}, but the pattern {pattern!r} has no group"
                )
            else:
                literal += f"${number}"
            at += 1 + len(number)
        else:
            literal, at = literal + char, at + 1
    return [*items, literal]


def mapper(rules: str) -> Callable[[bytes], str]:
    """A function from a DER certificate to its principal, such as "User:CN=alice". Raises MappingError for malformed rules.

    The function raises MappingError if no rule applies, and DerError if the certificate's subject is malformed.
    """
    parsed = parse_rules(rules)

    def principal_of(certificate: bytes) -> str:
        name = subject_name(certificate)
        for rule in parsed:
            short = rule.apply(name)
            if short == ANONYMOUS_USER:
                raise MappingError(
                    f"ssl.principal.mapping.rules makes {ANONYMOUS_USER} of {cut(name)!r}, the name of clients without a login"
                )
            if short is not None:
                return USER + short
        raise MappingError(f"no rule of ssl.principal.mapping.rules applies to {cut(name)!r}")

    return principal_of
