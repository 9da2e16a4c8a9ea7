"""config.providers: where values come from, and that no error shows one."""

import pytest

from odradek.config.broker_config import load
from odradek.config.errors import ConfigError

PACKAGE = "org.apache.kafka.common.config.provider."
CLASSES = {"file": "FileConfigProvider", "directory": "DirectoryConfigProvider", "env": "EnvVarConfigProvider"}
JAAS = "listener.name.in.plain.sasl.jaas.config"


@pytest.fixture
def secrets(tmp_path):
    directory = tmp_path / "secrets"
    directory.mkdir()
    (directory / "broker.properties").write_text("rack=r1\npassword = p\\u0041ss:word\n")
    (directory / "token").write_text("two\nlines")
    (tmp_path / "outside").write_text("rack=r2\n")
    (directory / "link").symlink_to(tmp_path / "outside")
    return directory


def loaded(tmp_path, *lines, names="file,directory,env", parameters=()):
    path = tmp_path / "server.properties"
    text = [
        f"config.providers={names}",
        *(f"config.providers.{name}.class={PACKAGE}{kind}" for name, kind in CLASSES.items()),
    ]
    path.write_text("\n".join([*text, *parameters, *lines, ""]))
    return load(path)


def test_values_come_from_files_directories_and_the_environment(tmp_path, secrets, monkeypatch):
    monkeypatch.setenv("ODRADEK_TEST_RACK", "r3")
    config = loaded(
        tmp_path,
        f"broker.rack=a-${{file:{secrets}/broker.properties:rack}}-${{env:ODRADEK_TEST_RACK}}",
        f"{JAAS}=x ${{file:{secrets}/broker.properties:password}} ${{directory:{secrets}:token}}",
    )
    assert config["broker.rack"] == "a-r1-r3"
    assert config.get(JAAS) == "x pAss:word two\nlines"


def test_settings_of_the_command_line_are_replaced_too(tmp_path, secrets):
    path = tmp_path / "server.properties"
    path.write_text(f"config.providers=f\nconfig.providers.f.class={PACKAGE}FileConfigProvider\n")
    assert load(path, [f"broker.rack=${{f:{secrets}/broker.properties:rack}}"])["broker.rack"] == "r1"


def test_without_providers_and_for_unknown_ones_values_stay_as_they_are(tmp_path):
    assert load(None, ["broker.rack=${file:/x:y}"])["broker.rack"] == "${file:/x:y}"
    assert loaded(tmp_path, "broker.rack=${vault:/x:y}${")["broker.rack"] == "${vault:/x:y}${"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("${file:SECRETS/broker.properties:none}", "has no key none"),
        ("${file:SECRETS/none:rack}", "No such file"),
        ("${file::rack}", "with the path of a properties file"),
        ("${file:rack}", "with the path of a properties file"),
        ("${directory:SECRETS:none}", "is not a file"),
        ("${directory:SECRETS:..}", "the name of a file"),
        ("${directory:SECRETS:a/b}", "the name of a file"),
        ("${env:ODRADEK_TEST_NONE}", "has no variable ODRADEK_TEST_NONE"),
        ("${env:x:y}", "without a path"),
    ],
)
def test_a_value_that_cannot_be_found_is_an_error_of_its_key(tmp_path, secrets, value, words):
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, f"broker.rack={value.replace('SECRETS', str(secrets))}")
    assert caught.value.name == "broker.rack" and words in str(caught.value)


def test_all_wrong_values_are_reported_at_once(tmp_path):
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, "broker.rack=${env:ODRADEK_TEST_NONE}", "log.dir=${env:ODRADEK_TEST_NONE}")
    assert [error.name for error in caught.value.errors] == ["broker.rack", "log.dir"]


def test_allowed_paths_hold_also_for_links(tmp_path, secrets):
    allowed = [f"config.providers.{name}.param.allowed.paths={secrets}" for name in ("file", "directory")]
    assert (
        loaded(tmp_path, f"broker.rack=${{file:{secrets}/broker.properties:rack}}", parameters=allowed)["broker.rack"]
        == "r1"
    )
    for value in (
        f"file:{tmp_path}/outside:rack",
        f"file:{secrets}/../outside:rack",
        f"file:{secrets}/link:rack",
        f"directory:{secrets}:link",
    ):
        with pytest.raises(ConfigError, match="is not below a directory in allowed"):
            loaded(tmp_path, f"broker.rack=${{{value}}}", parameters=allowed)


def test_names_of_variables_can_be_restricted(tmp_path, monkeypatch):
    monkeypatch.setenv("ODRADEK_TEST_RACK", "r3")
    monkeypatch.setenv("OTHER_ODRADEK_TEST_RACK", "r4")
    pattern = ["config.providers.env.param.allowlist.pattern=ODRADEK_TEST_.*"]
    assert loaded(tmp_path, "broker.rack=${env:ODRADEK_TEST_RACK}", parameters=pattern)["broker.rack"] == "r3"
    with pytest.raises(ConfigError, match="does not match allowlist"):
        loaded(tmp_path, "broker.rack=${env:OTHER_ODRADEK_TEST_RACK}", parameters=pattern)
    with pytest.raises(ConfigError, match="is not a regular expression"):
        loaded(tmp_path, parameters=["config.providers.env.param.allowlist.pattern=("])


def test_other_classes_are_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"config.providers.x.class: must be one of org.apache.kafka.common.config.provider.File"
    ):
        loaded(tmp_path, names="x")


def test_no_error_of_a_secret_shows_it(tmp_path, secrets):
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, f"ssl.key.password=${{file:{secrets}/broker.properties:password}}", "listeners=x")
    assert "pAss" not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        "delegation.token.secret.key=${secrets:/etc/secrets/tokens.properties:key}",
        "ssl.keystore.password=${env:PASSWORD}",
        f'{JAAS}=PlainLoginModule required user_alice="${{secrets:/etc/passwords:alice}}";',
    ],
)
def test_a_secret_whose_provider_is_not_named_is_refused(tmp_path, line):
    """Otherwise the text of the variable, which is no secret, would be the secret."""
    path = tmp_path / "server.properties"
    path.write_text(line + "\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.name == line.partition("=")[0]
    provider = "env" if "env" in line else "secrets"
    assert f"config.providers names no provider {provider}" in str(caught.value) and "/etc" not in str(caught.value)


@pytest.mark.parametrize("password", ["a${b", "x${a:b}y", "${}", "${abc}"])
def test_a_secret_may_contain_what_is_no_variable(tmp_path, password):
    path = tmp_path / "server.properties"
    path.write_text(f"ssl.keystore.password={password}\n")
    assert load(path)["ssl.keystore.password"] == password
