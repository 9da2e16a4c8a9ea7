"""The settings of OAUTHBEARER of a listener."""

import pytest

from odradek.config.broker_config import load
from odradek.config.errors import ConfigError
from odradek.security.sasl.oauth_settings import path_of, url_error
from odradek.security.sasl.settings import key_sources, settings_of

URL = "sasl.oauthbearer.jwks.endpoint.url"
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def config(*lines):
    return load(
        None,
        (
            "listeners=IN://:9092,PLAINTEXT://:9093",
            "listener.security.protocol.map=IN:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "sasl.enabled.mechanisms=OAUTHBEARER",
            *lines,
        ),
    )


def oauth(*lines):
    return settings_of(config(*lines), "IN").oauth


def test_the_defaults_are_those_of_kafka():
    found = oauth(f"{URL}=https://idp/keys")
    assert (found.audience, found.issuer, found.skew_s, found.scope_claim, found.sub_claim) == (
        (),
        None,
        30,
        "scope",
        "sub",
    )
    assert found.source[:4] == ("https://idp/keys", 3_600_000, 100, 10_000) and not any(found.source.trust)


def test_each_key_can_be_set_for_the_listener_and_the_mechanism():
    prefix = "listener.name.in.oauthbearer"
    found = oauth(
        f"{URL}=https://idp/keys",
        f"listener.name.in.{URL}=https://in/keys",
        f"{prefix}.{URL}=https://own/keys",
        f"{prefix}.sasl.oauthbearer.expected.audience=a,b",
        f"{prefix}.sasl.oauthbearer.expected.issuer=i",
        f"{prefix}.sasl.oauthbearer.clock.skew.seconds=0",
        f"{prefix}.sasl.oauthbearer.sub.claim.name=name",
        f'{prefix}.sasl.jaas.config={MODULE} ssl.truststore.location="/ca" ssl.truststore.password="secret";',
    )
    assert (found.audience, found.issuer, found.skew_s, found.sub_claim) == (("a", "b"), "i", 0, "name")
    assert found.source.url == "https://own/keys" and found.source.trust == ("/ca", None, "secret", None)
    assert "secret" not in repr(found)


def test_a_listener_without_a_url_of_keys_is_refused_in_one_sentence():
    with pytest.raises(ConfigError) as caught:
        oauth()
    assert str(caught.value) == (
        f"{URL}: must be set, because listener IN offers OAUTHBEARER: the broker accepts only tokens that are signed with a "
        "key that the identity provider publishes at this URL"
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"{URL}=ftp://x", "must begin with https:, http:, file:"),
        (f"{URL}=jwks.json", "must begin with"),
        (f"{URL}=file:jwks.json", "absolute path"),
        (f"{URL}=https://user:word@idp/keys", "must not contain a user or a password"),
        (f"{URL}=https://idp/k eys", "printable ASCII"),
        ("sasl.oauthbearer.jwks.endpoint.refresh.ms=0", "must be at least 1"),
        ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms=-1", "must be at least 0"),
        ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms=50", "retry.backoff.ms=100"),
        ("sasl.oauthbearer.clock.skew.seconds=-1", "must be at least 0"),
        ("sasl.oauthbearer.sub.claim.name=", "must be the name of a claim"),
        (
            "listener.name.in.oauthbearer.sasl.server.callback.handler.class=org.apache.kafka.common.security.oauthbearer."
            "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
            "is not supported with OAUTHBEARER",
        ),
        (
            "listener.name.in.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required;",
            "must name the login module OAuthBearerLoginModule",
        ),
    ],
)
def test_wrong_settings_are_refused_with_their_name(line, words):
    with pytest.raises(ConfigError) as caught:
        oauth(f"{URL}=https://idp/keys", line)
    assert words in str(caught.value) and line.partition("=")[0] in str(caught.value)


def test_all_errors_are_reported_together():
    with pytest.raises(ConfigError) as caught:
        oauth("sasl.oauthbearer.clock.skew.seconds=-1")
    assert [error.name for error in caught.value.errors] == [URL, "sasl.oauthbearer.clock.skew.seconds"]


def test_keys_are_read_for_listeners_that_may_offer_the_mechanism_later():
    found = key_sources(config("sasl.enabled.mechanisms=SCRAM-SHA-256", f"{URL}=https://idp/keys"))
    assert {name: source.url for name, source in found.items()} == {"IN": "https://idp/keys"}
    assert key_sources(config("sasl.enabled.mechanisms=SCRAM-SHA-256")) == {}
    assert key_sources(config("sasl.enabled.mechanisms=SCRAM-SHA-256", f"{URL}=ftp://x")) == {}


def test_urls():
    assert path_of("file:///a%20b/c") == path_of("file:/a%20b/c") == path_of("file://localhost/a%20b/c") == "/a b/c"
    for url in ("https://idp:8443/a?b=c", "http://[::1]:80/x", "https://127.0.0.1", "file:///x"):
        assert url_error(url) == ""
    for url in (
        "https://",
        "https://:80/",
        "https://h:99999/",
        "https://[::1/",
        "HTTPS//x",
        "https://h/\n",
        "https://h/é",
    ):
        assert url_error(url)
