"""metrics.listener with TLS, passwords and tokens, and the commands that read it."""

import base64
import ssl
import urllib.error
import urllib.request

import pytest

from odradek.config.broker_config import resolve
from odradek.config.errors import ConfigError
from odradek.metrics.http_access import Credentials, presented_login
from odradek.testing import Broker
from odradek.testing.broker_process import BrokerError
from tests.certificates import broker_settings, client_context, write_files
from tests.cli.command import Command


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = write_files(tmp_path_factory.mktemp("tls"))
    (directory / "passwords").write_text("prometheus:ge:heim\nother:x\n")
    (directory / "tokens").write_text("token-1\ntoken-2\n")
    (directory / "command.properties").write_text(
        (directory / "client.properties").read_text() + f"metrics.listener.token.file={directory}/tokens\n"
    )
    return directory


@pytest.fixture(scope="module")
def broker(files):
    settings = broker_settings(files, "required") | {
        "metrics.listener": "127.0.0.1:0",
        "metrics.listener.tls": "true",
        "metrics.listener.password.file": f"{files}/passwords",
        "metrics.listener.token.file": f"{files}/tokens",
    }
    with Broker(settings) as running:
        yield running


def get(broker, path, header=None, context=None):
    """(status, body) of a page."""
    request = urllib.request.Request(
        f"{broker.metrics_url}{path}", headers={} if header is None else {"Authorization": header}
    )
    try:
        with urllib.request.urlopen(request, timeout=60, context=context or client_context()) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def basic(text):
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("header", [basic("prometheus:ge:heim"), basic("other:x"), "Bearer token-2", "bearer  token-1"])
def test_a_password_or_token_opens_the_pages(broker, header):
    status, body = get(broker, "/metrics", header)
    assert status == 200 and 'odradek_tls_certificate_expiry_timestamp_seconds{listener="METRICS"}' in body
    assert 'odradek_tls_certificate_expiry_timestamp_seconds{listener="SSL"}' in body
    assert get(broker, "/usage", header)[0] == 200


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer token-3", "Basic", "Basic !", basic("prometheus"), basic("prometheus:"), basic("token-1"),
     "Basic token-1", "Bearer prometheus:ge:heim", basic("prometheus:ge:heim\n"), "Digest x"],
)  # fmt: skip
def test_other_credentials_do_not(broker, header):
    for path in ("/metrics", "/usage", "/", "/nothing"):
        status, body = get(broker, path, header)
        assert status == 401 and "odradek_" not in body
    assert get(broker, "/healthz", header)[0] == get(broker, "/readyz", header)[0] == 200


def test_a_wrong_login_is_logged_with_its_user_and_one_without_credentials_is_not(broker):
    for header in (None, basic("mallory:guess"), "Bearer guess"):
        assert get(broker, "/metrics", header)[0] == 401
    text = broker.log_file.read_text()
    assert "a login as 'mallory' from 127.0.0.1 on listener METRICS failed with basic: invalid credentials" in text
    assert "a login from 127.0.0.1 on listener METRICS failed with bearer: invalid credentials" in text
    assert "guess" not in text


def test_plain_http_and_unverified_certificates_fail(broker):
    with pytest.raises((OSError, urllib.error.URLError)):
        urllib.request.urlopen(broker.metrics_url.replace("https", "http"), timeout=60)
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        get(broker, "/healthz", context=ssl.create_default_context())
    assert get(broker, "/healthz")[0] == 200


def test_commands_read_it_with_a_command_config(broker, files):
    command, how = Command("127.0.0.1:1").run, ("--command-config", files / "command.properties")
    for select in (("-m", broker.metrics_url), ("--data-dir", broker.data_dir), ("-b", broker.bootstrap_servers)):
        result = command("usage", "top", *select, *how)
        ports = "port 0, so its actual port is not known" in result.stderr  # the test's broker has a free port
        assert result.returncode == 0 or (select[0] == "-b" and ports), result.stderr
    throttled = command("quota", "throttled", "-m", broker.metrics_url, *how)
    assert throttled.returncode == 0, throttled.stderr
    plain = command("quota", "throttled", "-m", broker.metrics_url.removeprefix("https://"))
    assert "use https://" in plain.stderr
    doctor = command("doctor", "-b", broker.bootstrap_servers, "-m", broker.metrics_url, *how)
    assert (
        doctor.returncode == 0 and "certificate" not in doctor.stdout and "metrics cannot be read" not in doctor.stdout
    )
    refused = command("usage", "top", "-m", broker.metrics_url, "--command-config", files / "client.properties")
    assert "requires a password or token" in refused.stderr
    untrusted = command("usage", "top", "-m", broker.metrics_url)
    assert "ssl.truststore.location" in untrusted.stderr


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (basic("alice:secret"), ("basic", "alice")),
        (basic("glpat-a-token-without-a-colon"), ("basic", "")),
        (basic("a-token-as-user:"), ("basic", "")),
        (basic(":secret"), ("basic", "")),
        ("Basic no base64!", ("an unknown scheme", "")),
        ("Bearer a:token", ("bearer", "")),
        ("a-token-alone", ("an unknown scheme", "")),
        ("Digest username=secret", ("an unknown scheme", "")),
    ],
)
def test_a_secret_is_never_shown_as_the_name_of_a_user(header, found):
    assert presented_login(header) == found


def test_changed_files_of_credentials_are_read_again(tmp_path):
    path = tmp_path / "tokens"
    path.write_text("one\n")
    credentials = Credentials(resolve([("metrics.listener.token.file", str(path), "test")]))
    assert credentials.required and credentials.permit("Bearer one") and not credentials.permit("Bearer second")
    path.write_text("second\n")
    assert credentials.permit("Bearer second") and not credentials.permit("Bearer one")
    path.write_text("")
    assert credentials.permit("Bearer second"), "the former ones stay in use"


@pytest.mark.parametrize(
    ("key", "text"), [("metrics.listener.password.file", "x\n"), ("metrics.listener.token.file", "")]
)
def test_malformed_files_of_credentials_are_refused(tmp_path, key, text):
    path = tmp_path / "f"
    path.write_text(text)
    with pytest.raises(ConfigError, match=key):
        Credentials(resolve([(key, str(path), "test")]))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"metrics.listener.tls": "true"}, "ssl.keystore.location must be set"),
        ({"metrics.listener.token.file": "/no/file"}, "metrics.listener.token.file=/no/file: cannot be read"),
    ],
)
def test_a_metrics_listener_that_cannot_work_refuses_the_start(changed, message):
    with pytest.raises(BrokerError) as caught, Broker({"metrics.listener": "127.0.0.1:0"} | changed):
        pass
    assert message in str(caught.value) and "Traceback" not in str(caught.value)
