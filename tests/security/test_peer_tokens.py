"""The settings of OAUTHBEARER between brokers: what is read, what is refused, and what a changed setting does."""

import pytest

from odradek.config.errors import ConfigError
from odradek.security.peer_settings import check, settings_of
from odradek.security.peers import PeerSecurity
from odradek.security.sasl.client import TokenCredentials
from odradek.security.sasl.token_settings import Grant, Renewal, TokenSource
from tests.security.test_peers import MECHANISM, config

PREFIX = "listener.name.b.oauthbearer."
JAAS = f"{PREFIX}sasl.jaas.config"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
OPTIONS = 'clientId="broker" clientSecret="a-secret" scope="kafka"'
URL = "sasl.oauthbearer.token.endpoint.url"
ID, SECRET = "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret"
FACTOR, JITTER = "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter"


def oauth(*lines: str, options: str = OPTIONS, url: str = "https://idp.example.org/token"):
    """The configuration of a broker; further lines replace others."""
    fixed = [
        "sasl.enabled.mechanisms=OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url=https://idp.example.org/keys",
        f"{MECHANISM}=OAUTHBEARER",
        f"{JAAS}={MODULE} {options};",
        *([f"{URL}={url}"] if url else []),
    ]
    return config("SASL_SSL", *fixed, *lines)


def test_the_options_of_the_login_module_are_the_client():
    found = settings_of(oauth(options=f'{OPTIONS} extension_traceId="7" ssl.truststore.location="/ca.pem"'))
    trust = ("/ca.pem", None, None, None)
    grant = Grant("https://idp.example.org/token", "broker", "a-secret", "kafka", trust=trust)
    assert found.credentials == TokenSource(grant, (("traceId", "7"),))
    assert found.renewal == Renewal() and "a-secret" not in repr(found)


def test_keys_precede_options_and_those_of_the_listener_precede_others():
    lines = [f"{ID}=other", f"{SECRET}=other-secret", "sasl.oauthbearer.scope=other-scope"]
    lines += [
        f"{PREFIX}{ID}=own",
        f"{PREFIX}{URL}=http://127.0.0.1:7/own",
        "listener.name.b.sasl.oauthbearer.scope=own",
    ]
    lines += ["sasl.login.connect.timeout.ms=1500", "sasl.login.read.timeout.ms=2000"]
    grant = settings_of(oauth(*lines)).credentials.source
    assert grant == Grant("http://127.0.0.1:7/own", "own", "other-secret", "own", limit_s=3.5)
    assert settings_of(oauth(f"{ID}=x", f"{SECRET}=y", options="")).credentials.source.client_id == "x"


def test_the_renewal_has_the_keys_of_kafka():
    values = {FACTOR: 0.5, JITTER: 0.25, "sasl.login.refresh.min.period.seconds": 1}
    values |= {"sasl.login.refresh.buffer.seconds": 2, "sasl.login.retry.backoff.ms": 3}
    values |= {"sasl.login.retry.backoff.max.ms": 4}
    lines = [f"{PREFIX}{key}={value}" for key, value in values.items()]
    assert settings_of(oauth(*lines)).renewal == Renewal(0.5, 0.25, 1, 2, 3, 4)


def test_a_token_can_be_in_a_file():
    assert settings_of(oauth(url="file:///run/secrets/token", options="")).credentials == TokenSource(
        "/run/secrets/token"
    )


@pytest.mark.parametrize(
    "lines, name, words",
    [
        (("sasl.enabled.mechanisms=PLAIN",), "sasl.enabled.mechanisms", "=PLAIN: must contain OAUTHBEARER, because"),
        ((f"{JAAS}=PlainLoginModule required;",), JAAS, "must name the login module OAuthBearerLoginModule"),
        ((f"{JAAS}={MODULE}",), JAAS, "[hidden]"),
        ((f'{JAAS}={MODULE} extension_auth="a-secret";',), JAAS, "must not be auth"),
        ((f"{JAAS}={MODULE};",), ID, "must be set, or the option clientId of sasl.jaas.config"),
        ((f'{JAAS}={MODULE} clientId="x";',), SECRET, "must be set, or the option clientSecret"),
        ((f"{URL}=ftp://x/",), URL, "=ftp://x/: must begin with https:, http:, file:"),
        ((f"{PREFIX}{URL}=https://u:a-secret@h/",), PREFIX + URL, "=[hidden]: must not contain a user or a password"),
        ((f"{URL}=file:relative",), URL, "absolute path"),
        (("sasl.login.read.timeout.ms=-1",), "sasl.login.read.timeout.ms", "=-1: must be a number of ms above 0"),
        ((f"{FACTOR}=0.4",), FACTOR, "=0.4: must be from 0.5 to 1.0"),
        ((f"{PREFIX}{JITTER}=0.3",), PREFIX + JITTER, "=0.3: must be from 0.0 to 0.25"),
        (
            ("sasl.login.refresh.min.period.seconds=901",),
            "sasl.login.refresh.min.period.seconds",
            "=901: must be from 0",
        ),
        (("sasl.login.refresh.buffer.seconds=-1",), "sasl.login.refresh.buffer.seconds", "=-1: must be from 0 to 3600"),
        (("sasl.login.retry.backoff.ms=-1",), "sasl.login.retry.backoff.ms", "=-1: must be at least 0"),
        (
            (f"{PREFIX}sasl.login.callback.handler.class=org.example.Own",),
            f"{PREFIX}sasl.login.callback.handler.class",
            "=org.example.Own: is not supported between brokers; leave it unset, or name Kafka's OAuthBearerLoginCallback",
        ),
        (
            ("sasl.oauthbearer.jwt.retriever.class=org.example.JwtBearerJwtRetriever",),
            "sasl.oauthbearer.jwt.retriever.class",
            "is not supported between brokers",
        ),
    ],
)
def test_one_error_names_the_key_and_the_value_that_are_wrong(lines, name, words):
    with pytest.raises(ConfigError) as caught:
        settings_of(oauth(*lines))
    text = str(caught.value)
    assert caught.value.name == name and words in text and "a-secret" not in text and "\n" not in text


def test_what_must_be_set_is_named():
    with pytest.raises(ConfigError, match=f"{URL}: must be set"):
        settings_of(oauth(url=""))
    unset = config("SASL_SSL", "sasl.enabled.mechanisms=OAUTHBEARER", f"{MECHANISM}=OAUTHBEARER")
    with pytest.raises(ConfigError, match=f"{JAAS}: must be set.*OAuthBearerLoginModule required;"):
        settings_of(unset)
    with pytest.raises(ConfigError) as caught:
        settings_of(config("SASL_SSL"))
    assert "=GSSAPI (the default): is not supported: there is no Kerberos" in str(caught.value)
    assert "yet" not in str(caught.value) and "OAUTHBEARER" in str(caught.value)


@pytest.mark.parametrize(
    "url, warned",
    [
        ("http://idp.example.org/token", True),
        ("http://127.0.0.1:1/token", False),
        ("http://localhost/token", False),
        ("http://[::1]:1/token", False),
        ("https://idp.example.org/token", False),
        ("file:///x", False),
    ],
)
def test_a_secret_without_encryption_is_one_warning(url, warned):
    lines = check(oauth(url=url))
    assert len(lines) == warned
    assert all("idp.example.org without encryption" in line and "a-secret" not in line for line in lines)


def test_a_trust_store_that_cannot_be_read_is_an_error_of_the_start():
    with pytest.raises(ConfigError, match="/none"):
        check(oauth(options=f'{OPTIONS} ssl.truststore.location="/none" ssl.truststore.type="PEM"'))


def test_a_changed_client_is_used_for_the_next_login(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("the.first.token"), second.write_text("the.second.token")
    settings = oauth(url=f"file://{first}", options="")
    security = PeerSecurity(settings, None, lambda: None)

    def token() -> str:
        found = security.credentials()
        assert isinstance(found, TokenCredentials)
        return found.token()

    assert token() == "the.first.token"
    former = security._token
    assert not settings.run_with({}, {JAAS: f'{MODULE} extension_a="b";'})
    security.refresh()
    assert token() == "the.first.token" and security.credentials().extensions == {"a": "b"}
    assert former.closed and not security._token.closed
    assert not settings.run_with({}, {f"{FACTOR}": "0.1"})
    former = security._token
    security.refresh()
    assert security._token is former and token() == "the.first.token", "a wrong setting changes nothing"
    former.close()
