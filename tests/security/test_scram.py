"""SCRAM on the server: the vectors of the RFCs, malformed messages, and users who do not exist."""

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.sasl import scram_credential
from odradek.security.sasl.mechanism import Challenge, CredentialQuestion, Proven, Refused
from odradek.security.sasl.scram import LONGEST_MESSAGE, Scram, parse_client_final, parse_client_first
from odradek.security.sasl.scram_credential import (
    SHA_256,
    SHA_512,
    CorruptCredential,
    ScramMechanism,
    credential_of,
    decode_credential,
    encode_credential,
    made_up,
    salted_password,
)

SHA_1 = ScramMechanism(0, "SCRAM-SHA-1", "sha1")  # only for the vector of RFC 5802
VECTORS = [
    (  # RFC 5802, section 5
        SHA_1,
        "QSXCR+Q6sek8bf92",
        "n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
        "3rfcNHYJY1ZVvWVs7j",
        "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    (  # RFC 7677, section 3
        SHA_256,
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
]


def credential(mechanism, password=b"pencil", salt=b"salt of sixteen.", iterations=4096):
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


@pytest.mark.parametrize(("mechanism", "salt", "first", "nonce", "server_first", "last", "server_last"), VECTORS)
def test_the_vectors_of_the_rfcs(mechanism, salt, first, nonce, server_first, last, server_last):
    scram = Scram(mechanism, lambda: nonce)
    assert scram.evaluate(first.encode()) == CredentialQuestion(mechanism.name, "user")
    assert scram.answered(credential(mechanism, salt=base64.b64decode(salt))) == Challenge(server_first.encode())
    assert scram.evaluate(last.encode()) == Proven(server_last.encode(), "user")


def proof_of(mechanism, password, first, server_first, without_proof, salt=b"salt of sixteen.", iterations=4096):
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    signature = hmac.digest(stored_key, f"{first},{server_first},{without_proof}".encode(), mechanism.hash_name)
    return base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()


def finish(
    mechanism=SHA_512,
    password=b"pencil",
    head="n,,",
    user="user",
    known=None,
    change=lambda text: text,
    channel=None,
    nonce="clientserver",
):
    """A login; `change` changes the client's last message."""
    scram = Scram(mechanism, lambda: "server")
    bare = f"n={user},r=client"
    scram.evaluate(f"{head}{bare}".encode())
    server_first = scram.answered(credential(mechanism) if known is None else known).token.decode()
    binding = base64.b64encode(head.encode()).decode() if channel is None else channel
    without_proof = f"c={binding},r={nonce}"
    proof = proof_of(mechanism, password, bare, server_first, without_proof)
    return scram.evaluate(change(f"{without_proof},p={proof}").encode())


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_client_with_the_password_proves_it(mechanism):
    assert finish(mechanism).user == "user"
    assert finish(mechanism, head="y,,").user == "user"
    assert finish(mechanism, head="n,a=user,").user == "user"
    assert finish(mechanism, user="a=3Db=2Cc").user == "a=b,c"


def test_the_repeated_nonce_of_old_librdkafka_is_accepted_and_no_other():
    """librdkafka before 2.6.1 sends its nonce and then the nonce of the server's message, which begins with it."""
    assert finish(nonce="clientclientserver").user == "user"
    for nonce in ("clientserverserver", "clientclientclientserver", "xclientserver", "server", "client"):
        with pytest.raises(Refused, match="another nonce"):
            finish(nonce=nonce)


def test_another_authorization_id_is_refused_with_kafkas_text():
    with pytest.raises(Refused) as caught:
        finish(head="n,a=other,")
    assert (
        caught.value.text
        == "Authentication failed: Client requested an authorization id that is different from username"
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-8] + "AAAAAAA=",
        lambda text: text.rpartition(",p=")[0] + ",p=",
        lambda text: text.rpartition(",p=")[0] + ",p=AAAA",
        lambda text: text.rpartition(",p=")[0],
        lambda text: text.replace("r=clientserver", "r=clientserveR"),
        lambda text: text.replace("r=clientserver", "r=server"),
        lambda text: text.replace("r=clientserver", "r=clientserver\u00e9"),
        lambda text: text + "=",
        lambda text: "",
    ],
)
def test_a_changed_last_message_proves_nothing(change):
    with pytest.raises(Refused) as caught:
        finish(change=change)
    assert caught.value.text is None


def test_a_wrong_password_or_channel_binding_proves_nothing():
    with pytest.raises(Refused):
        finish(password=b"Pencil")
    with pytest.raises(Refused, match="channel binding"):
        finish(channel=base64.b64encode(b"y,,").decode())
    with pytest.raises(Refused):
        finish(known=credential(SHA_512)._replace(known=False))


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"nonsense",
        b"n",
        b"n,",
        b"n,,",
        b"n,,n=user",
        b"n,,r=x,n=user",
        b"n,,n=,r=x",
        b"n,,n=user,r=",
        b"p=x,,n=user,r=x",
        b"n,x,n=user,r=x",
        b"n,,n=us=er,r=x",
        b"n,,n=us=2cer,r=x",
        b"n,,n=user,r=x y",
        b"n,,n=user,r=\xc3\xa9",
        b"n,,n=user,r=x,1",
        b"n,,n=\xff,r=x",
        b"x,,n=user,r=x",
    ],
)
def test_a_malformed_first_message_is_refused(token):
    with pytest.raises(Refused) as caught:
        Scram(SHA_256).evaluate(token)
    assert caught.value.text is None


def test_a_message_that_is_too_long_is_refused_before_it_is_cut():
    for parse, head in ((parse_client_first, b"n,,n=user,r=abc"), (parse_client_final, b"c=biws,r=abc")):
        with pytest.raises(Refused, match="bytes; allowed are"):
            parse(head + b"," * LONGEST_MESSAGE)
    assert parse_client_first(b"n,,n=user,r=" + b"x" * 10_000).user == "user"


def test_a_reserved_extension_is_skipped_and_others_are_kept():
    parsed = parse_client_first(b"n,,m=x,n=user,r=abc,one=1,two=2=3")
    assert (parsed.user, parsed.extensions) == ("user", {"one": "1", "two": "2=3"})
    assert parsed.bare == "m=x,n=user,r=abc,one=1,two=2=3"


@given(st.binary(max_size=60) | st.text(alphabet="n,ya=pmcr=u,23CDé", max_size=40).map(str.encode))
def test_any_token_is_read_or_refused(token):
    for parse in (parse_client_first, parse_client_final):
        try:
            parse(token)
        except Refused as refusal:
            assert refusal.text is None


# -- users who do not exist ------------------------------------------------------------------------------------------


def test_a_made_up_credential_is_the_same_for_each_attempt_and_differs_by_user_mechanism_and_secret():
    first = made_up(SHA_256, "nobody", b"secret")
    assert first == made_up(SHA_256, "nobody", b"secret") and not first.known
    others = [
        made_up(SHA_256, "nobody2", b"secret"),
        made_up(SHA_512, "nobody", b"secret"),
        made_up(SHA_256, "nobody", b"2"),
    ]
    assert len({one.salt for one in (first, *others)}) == 4
    real = credential(SHA_256, salt=b"s" * scram_credential.SALT_BYTES)
    assert [len(part) for part in first[:3]] == [len(part) for part in real[:3]] and first.iterations == real.iterations


def test_a_login_as_nobody_computes_what_a_login_with_a_wrong_password_computes(monkeypatch):
    """The time does not show whether a user exists, because the same functions get inputs of the same sizes."""

    def trace(known):
        calls = []
        real_digest, real_compare, real_new = hmac.digest, hmac.compare_digest, hashlib.sha512
        with monkeypatch.context() as patched:
            patched.setattr(hmac, "digest", lambda *a: (calls.append(("hmac", *map(len, a[:2]))), real_digest(*a))[1])
            patched.setattr(
                hmac, "compare_digest", lambda a, b: (calls.append(("same", len(a), len(b))), real_compare(a, b))[1]
            )
            patched.setattr(hashlib, "sha512", lambda *a: (calls.append(("hash", *map(len, a))), real_new(*a))[1])
            with pytest.raises(Refused) as caught:
                finish(SHA_512, password=b"wrong", known=known)
        return calls, caught.value.text, caught.value.reason

    salt = b"s" * scram_credential.SALT_BYTES
    existing = trace(credential(SHA_512, salt=salt))
    assert existing == trace(made_up(SHA_512, "user", b"secret")) and len(existing[0]) > 4


# -- the stored form -------------------------------------------------------------------------------------------------


def test_a_credential_has_kafkas_stored_form():
    stored = encode_credential(credential(SHA_256))
    assert [part.partition("=")[0] for part in stored.split(",")] == ["salt", "stored_key", "server_key", "iterations"]
    assert decode_credential(SHA_256, stored) == credential(SHA_256)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=x",
        "salt=AAAA,stored_key=AAAA,server_key=AAAA,iterations=4096",
        "salt=!,stored_key=!,server_key=!,iterations=1",
        *(
            f"salt=AAAA,stored_key={'A' * 43}=,server_key={'A' * 43}=,iterations={iterations}"
            for iterations in ("0", "-1", "2147483648", "1" + "0" * 5000)
        ),
    ],
)
def test_a_stored_credential_that_cannot_be_read_is_reported_without_it(text):
    with pytest.raises(CorruptCredential) as caught:
        decode_credential(SHA_256, text)
    assert "AAAA" not in str(caught.value)


def test_no_text_form_shows_a_credential():
    one = credential(SHA_256)
    for shown in (repr(one), str(one), f"{[one]}"):
        assert (
            "4096" in shown and base64.b64encode(one.stored_key).decode() not in shown and repr(one.salt) not in shown
        )


@pytest.mark.parametrize(
    ("extension", "by_token"),
    [
        (b"", False),
        (b",tokenauth=true", True),
        (b",tokenauth=TRUE", True),
        (b",tokenauth=false", False),
        (b",x=true", False),
    ],
)
def test_a_client_with_a_token_logs_in_as_its_owner(extension, by_token):
    scram = Scram(SHA_256, lambda: "nonce")
    assert scram.evaluate(b"n,,n=id,r=x" + extension) == CredentialQuestion("SCRAM-SHA-256", "id", by_token)
    of_token = credential(SHA_256)._replace(owner="alice", expires_ms=77) if by_token else credential(SHA_256)
    server_first = scram.answered(of_token).token
    without_proof = b"c=biws,r=xnonce"
    message = b"n=id,r=x" + extension + b"," + server_first + b"," + without_proof
    client_key = SHA_256.hmac(salted_password(SHA_256, b"pencil", b"salt of sixteen.", 4096), b"Client Key")
    proof = bytes(a ^ b for a, b in zip(client_key, SHA_256.hmac(of_token.stored_key, message), strict=True))
    proven = scram.evaluate(without_proof + b",p=" + base64.b64encode(proof))
    assert (proven.user, proven.expires_ms) == (("alice", 77) if by_token else ("id", 0))
