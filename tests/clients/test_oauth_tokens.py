"""The tokens of our own clients: from files and from an identity provider, and the settings for that."""

import ssl

import pytest

from odradek.clients.oauth_tokens import Tokens, end_of, library_callback
from odradek.clients.security import ClientSecurity
from odradek.config.errors import ConfigError
from odradek.security.sasl import token_grant
from odradek.security.sasl.client import LoginError
from tests import certificates
from tests.identity_provider import CLIENT, SECRET, IdentityProvider, token

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
URL = "sasl.oauthbearer.token.endpoint.url"
ID, SECRET_KEY = "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret"


def credentials(url, options="", **settings):
    base = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{MODULE} {options};",
        URL: url,
    }
    return ClientSecurity.from_settings(base | settings).credentials


@pytest.fixture(scope="module")
def provider():
    with IdentityProvider() as running:
        yield running


def test_a_token_of_a_file_is_read_for_each_login(tmp_path):
    path = tmp_path / "token"
    path.write_text(" \nthe.first.token\n")
    made = credentials(f"file://{path}", 'extension_traceId="7"')
    assert made.token() == "the.first.token" and made.extensions == {"traceId": "7"}
    path.write_text("the.second.token")
    assert made.token() == "the.second.token"


@pytest.mark.parametrize("content", [b"", b"two words", b"a\x01b", b"\xff\xfe", b"a\nb"])
def test_a_file_without_a_token_is_refused(tmp_path, content):
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(LoginError, match="contains no token"):
        credentials(f"file://{path}").token()
    with pytest.raises(LoginError, match="cannot be read: No such file"):
        credentials(f"file://{path}.none").token()


def test_a_token_is_granted_and_used_until_shortly_before_its_end(provider, monkeypatch):
    made = credentials(provider.url("token"), f'clientId="{CLIENT}" clientSecret="{SECRET}" scope="a b"')
    first = made.token()
    assert first.count(".") == 2 and provider.forms[-1] == "grant_type=client_credentials&scope=a+b"
    asked = len(provider.forms)
    assert made.token() == first and len(provider.forms) == asked
    assert SECRET not in f"{made!r}{made.token!r}" and made.user == f"client {CLIENT}"
    now = [0.0]
    tokens = Tokens(made.token._grant, lambda: now[0])
    tokens()
    now[0] = 29.0
    tokens()
    assert len(provider.forms) == asked + 1
    now[0] = 31.0
    tokens()
    assert len(provider.forms) == asked + 2


def test_the_keys_of_the_configuration_precede_the_options(provider):
    keys = {ID: CLIENT, SECRET_KEY: SECRET, "sasl.oauthbearer.scope": "s"}
    assert credentials(provider.url("token"), 'clientId="x" clientSecret="y" scope="z"', **keys).token()
    assert provider.forms[-1].endswith("scope=s")


def test_the_header_is_url_encoded_if_the_setting_says_so(provider):
    keys = {ID: CLIENT, SECRET_KEY: SECRET, "sasl.oauthbearer.header.urlencode": "true"}
    with pytest.raises(LoginError, match="status 401"):  # this provider does not decode
        credentials(provider.url("token"), **keys).token()


def test_a_refused_client_is_one_line_without_its_secret(provider):
    made = credentials(provider.url("token"), f'clientId="{CLIENT}" clientSecret="a-wrong-secret"')
    with pytest.raises(LoginError) as caught:
        made.token()
    text = str(caught.value)
    assert text.endswith(": it responded with the status 401: 'invalid_client - no such client'")
    assert "a-wrong-secret" not in text and "\n" not in text


def test_tls_is_verified(tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificates.of_broker().configure_cert(context)
    certificates.write_files(tmp_path)
    options = f'clientId="{CLIENT}" clientSecret="{SECRET}"'
    with IdentityProvider(context) as provider:
        trusting = f'{options} ssl.truststore.location="{tmp_path}/ca.pem" ssl.truststore.type="PEM"'
        assert credentials(provider.url("token"), trusting).token()
        with pytest.raises(LoginError, match="is not accepted"):
            credentials(provider.url("token"), options).token()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no access_token"),
        (b"[]", "no access_token"),
        (b"{", "no access_token"),
        (b'{"access_token":7}', "no access_token"),
        (b'{"access_token":"a\\u0001b"}', "no access_token"),
        (b'{"access_token":""}', "no access_token"),
    ],
)
def test_responses_without_a_token_are_refused(monkeypatch, body, words):
    monkeypatch.setattr(token_grant, "request", lambda *_, **__: oauth_tokens_response(body))
    with pytest.raises(LoginError, match=words):
        credentials("http://x/", 'clientId="a" clientSecret="b"').token()


def oauth_tokens_response(body):
    from odradek.http_request import Response

    return Response(200, body)


@pytest.mark.parametrize("expires_in", ["60", None, True, -5, 1e300, [60]])
def test_a_lifetime_that_is_no_time_means_a_new_token_for_each_login(monkeypatch, expires_in):
    import json

    asked = []

    def respond(*_, **__):
        asked.append(1)
        return oauth_tokens_response(json.dumps({"access_token": "a.b.c", "expires_in": expires_in}).encode())

    monkeypatch.setattr(token_grant, "request", respond)
    made = credentials("http://x/", 'clientId="a" clientSecret="b"')
    assert (made.token(), made.token(), len(asked)) == ("a.b.c", "a.b.c", 2)


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("", "", f"{URL}: must be set"),
        ("ftp://x/", "", "must begin with https:, http:, file:"),
        ("file://host/x", "", "absolute path"),
        ("file:x", "", "absolute path"),
        ("https:///x", "", "host name"),
        ("https://u:secret@h/", "", "must not contain a user or a password"),
        ("https://h/a b", "", "printable ASCII"),
        ("https://h:x/", "", "is not a URL"),
        ("https://h/", 'clientSecret="secret"', f"{ID}: must be set"),
        ("https://h/", 'clientId="x"', f"{SECRET_KEY}: must be set"),
        ("file:///x", 'extension_auth="secret"', "must not be auth"),
        ("file:///x", 'extension_a1="secret"', "must consist of letters"),
        ("file:///x", 'extension_a=""', "printable ASCII"),
        (
            "https://h/",
            'clientId="x" clientSecret="secret" ssl.truststore.location="/none" ssl.truststore.type="PEM"',
            "/none",
        ),
    ],
)
def test_wrong_settings_are_one_line_without_secrets(url, options, words):
    with pytest.raises(ConfigError) as caught:
        credentials(url, options)
    text = str(caught.value)
    assert words in text and "\n" not in text
    assert "secret" not in text.replace("client.secret", "").replace("clientSecret", "")


def test_the_module_must_be_that_of_the_mechanism():
    for line in ("", "org.apache.kafka.common.security.plain.PlainLoginModule required;"):
        with pytest.raises(ConfigError, match="OAuthBearerLoginModule"):
            credentials("file:///x", **{"sasl.jaas.config": line})


def test_the_library_gets_the_token_and_its_end(tmp_path):
    path = tmp_path / "token"
    path.write_text(token(exp=12345))
    made = credentials(f"file://{path}", 'extension_a="b"')
    assert library_callback(made)("") == (path.read_text(), 12345.0, "", {"a": "b"})
    assert all(end_of(text) > 1e9 for text in ("x", "a.b.c", "a.W10.c", "a.e30.c"))


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://idp.example.org/t", True),
        ("http://127.0.0.1:1/t", False),
        ("http://localhost/t", False),
        ("https://h/t", False),
    ],
)
def test_a_secret_that_travels_without_encryption_is_one_warning(tmp_path, url, warned):
    path = tmp_path / "client.properties"
    options = f'clientId="{CLIENT}" clientSecret="a-secret"'
    lines = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=OAUTHBEARER", f"sasl.jaas.config={MODULE} {options};")
    path.write_text("\n".join((*lines, f"{URL}={url}", "")))
    warnings = ClientSecurity.from_file(path).warnings
    assert len(warnings) == warned
    for line in warnings:
        assert line.startswith(f"{path}: {URL}={url}: the secret of client {CLIENT}") and "use https" in line
        assert "a-secret" not in line
