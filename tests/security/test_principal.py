"""Names of certificates and mapping rules, against the JDK's and Kafka's own code."""

import random

import pytest

from odradek.security.der import DerError
from odradek.security.principal import MappingError, mapper, name_text, parse_rules, subject_name
from tests.certificates import of_client
from tests.toolchains import run_java

OIDS = {
    "CN": "550403", "C": "550406", "L": "550407", "ST": "550408", "STREET": "550409", "O": "55040a", "OU": "55040b",
    "DC": "0992268993f22c640119", "UID": "0992268993f22c640101", "emailAddress": "2a864886f70d010901", "T": "55040c",
    "SERIALNUMBER": "550405", "own": "2b0601040182f17d010203",
}  # fmt: skip
UTF8, PRINTABLE, IA5, BMP, INTEGER = 0x0C, 0x13, 0x16, 0x1E, 0x02
ALPHABET = [
    "a",
    "B",
    "7",
    " ",
    ",",
    "=",
    "+",
    "<",
    ">",
    "#",
    ";",
    '"',
    "\\",
    "\0",
    "/",
    "é",
    "漢",
    "😀",
    "\r",
    "\n",
    "\t",
    "'",
]


def der(tag, content):
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def attribute(kind, value, tag=UTF8):
    content = value if isinstance(value, bytes) else value.encode("utf-16-be" if tag == BMP else "utf-8")
    return der(0x30, der(0x06, bytes.fromhex(OIDS[kind])) + der(tag, content))


def name(*parts):
    """Content of a name. Each part is an attribute, or a list of several for one relative name."""
    sets = (part if isinstance(part, list) else [part] for part in parts)
    return b"".join(der(0x31, b"".join(sorted(one))) for one in sets)


def generated(seed):
    rng = random.Random(seed)
    parts = []
    for _ in range(rng.randint(1, 5)):
        attributes = []
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            text = "".join(rng.choice(ALPHABET) for _ in range(rng.choice([0, 1, 2, 3, 8, 150])))
            kind, tag = (
                rng.choice(list(OIDS)),
                rng.choice([UTF8, UTF8, PRINTABLE, IA5, INTEGER]),
            )  # BMP: older JDKs differ
            if tag in (PRINTABLE, IA5):
                text = "".join(
                    char for char in text if char.isascii() and (tag == IA5 or char.isalnum() or char in " ,=+/")
                )
            attributes.append(attribute(kind, b"\x05" if tag == INTEGER else text, tag))
        parts.append(attributes)
    return name(*parts)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            name(attribute("C", "DE", PRINTABLE), attribute("O", "Acme"), attribute("CN", "alice")),
            "CN=alice,O=Acme,C=DE",
        ),
        (name(attribute("CN", "a, b")), "CN=a\\, b"),
        (name(attribute("CN", " a ")), "CN=\\ a\\ "),
        (name(attribute("CN", "  ")), "CN=\\ \\ "),
        (name(attribute("CN", "#1")), "CN=\\#1"),
        (name(attribute("CN", "a\0b")), "CN=a\\00b"),
        (name(attribute("emailAddress", "a@b", IA5), attribute("CN", "x")), "CN=x,1.2.840.113549.1.9.1=#1603614062"),
        (name([attribute("CN", "x"), attribute("OU", "y")]), "CN=x+OU=y"),
        (name(attribute("DC", "org", IA5), attribute("UID", "u")), "UID=u,DC=org"),
    ],
)
def test_names_have_the_form_of_java(content, text):
    assert name_text(content) == text


def test_the_subject_of_a_certificate_is_found():
    certificate = of_client().cert_chain_pems[0].bytes()
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    loaded = x509.load_pem_x509_certificate(certificate)
    assert subject_name(loaded.public_bytes(Encoding.DER)) == loaded.subject.rfc4514_string().replace("#", "\\#"), (
        "Java escapes # everywhere"
    )


def test_malformed_certificates_are_refused():
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    data = x509.load_pem_x509_certificate(of_client().cert_chain_pems[0].bytes()).public_bytes(Encoding.DER)
    for end in range(0, 200, 7):
        with pytest.raises(DerError):
            subject_name(data[:end])
    with pytest.raises(DerError, match="limit is 4096"):
        name_text(name(attribute("CN", "x" * 5000)))


RULES = (
    "DEFAULT",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,DEFAULT",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, DEFAULT",
    "RULE:.*/x/",
    "RULE:CN=(.*?)/[$1]/",
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
    "RULE:(C)(N)=.*/$2$1$12$3\\$1\\\\/L",
    "RULE:^OU=(.*?)\\/(.*?),.*$/$1\\/$2/,DEFAULT",
    "RULE:^O=(.*?)$/$1/ , RULE:^CN=(.*?)$/$0-$1/",
    "RULE:^CN=[^,]*,?(O=.*)?$/<$1>/,DEFAULT",
    "RULE:/x/",
)
NAMES = (
    "CN=duke,OU=ServiceUsers,O=Org,C=US",
    "CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US",
    "cn=JohnDoe,ou=x,dc=a,dc=b",
    "CN=kafka\\, inc",
    "OU=a/b,CN=x",
    "O=Org",
    "CN=alice",
    "CN=Ünï Çødé,O=ÄÖ",
    "",
)


def expected_of_java(lines):
    printed = run_java("PrincipalNames", text="\n".join(lines) + "\n", classes=True)
    answers = [line for line in printed.splitlines() if line[:2] in ("= ", "! ")]
    assert len(answers) == len(lines)
    return [bytes.fromhex(line[2:]).decode() if line[0] == "=" else None for line in answers]


@pytest.mark.java
@pytest.mark.timeout(600)
def test_names_and_rules_are_those_of_the_jdk_and_of_kafka():
    names = [generated(seed) for seed in range(2000)]
    pairs = [(rules, text) for rules in RULES for text in NAMES]
    lines = [f"name\t{der(0x30, content).hex()}" for content in names]
    lines += [f"rule\t{rules.encode().hex()}\t{text.encode().hex()}" for rules, text in pairs]
    answers = expected_of_java(lines)
    for content, answer in zip(names, answers, strict=False):
        if answer is not None:  # the JDK refuses some
            assert name_text(content) == answer, content.hex()
    assert sum(answer is not None for answer in answers[: len(names)]) > 1000
    for (rules, text), answer in zip(pairs, answers[len(names) :], strict=True):
        parsed = parse_rules(rules)
        ours = next((short for rule in parsed if (short := rule.apply(text)) is not None), None)
        assert ours == answer, (rules, text)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ("", "contains no rule"),
        ("CN=x", "is neither DEFAULT nor RULE:"),
        ("RULE:^CN=(.*)$/$1", "is cut off"),
        ("RULE:^CN=(.*)$", "is cut off"),
        ("RULE:(?!x)a/b/", "not a regular expression of RE2"),
        ("RULE:(a/b/", "not a regular expression of RE2"),
        ("RULE:a/b/X", "follows a rule"),
        ("RULE:a/$1/", "names group 1"),
        ("RULE:a/$x/", "without the number of a group"),
        ("DEFAULT DEFAULT", "separated by"),
    ],
)
def test_malformed_rules_are_refused(rules, message):
    with pytest.raises(MappingError) as caught:
        parse_rules(rules)
    assert message in str(caught.value)


def test_a_name_without_a_rule_is_refused():
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    data = x509.load_pem_x509_certificate(of_client().cert_chain_pems[0].bytes()).public_bytes(Encoding.DER)
    with pytest.raises(MappingError, match="no rule"):
        mapper("RULE:^CN=bob.*$/bob/")(data)
    assert mapper("RULE:^CN=([a-z]*),.*$/$1/")(data) == "User:alice"
    with pytest.raises(MappingError, match=r"ANONYMOUS of 'CN=alice.*the name of clients without"):
        mapper("RULE:^CN=.*$/ANONYMOUS/, DEFAULT")(data)
