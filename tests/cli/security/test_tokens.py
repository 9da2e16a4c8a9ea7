"""odradek token: on a running broker, with the login of a user and with that of a token."""

import pytest

from odradek.clients.errors import ClientError
from odradek.clients.security import ClientSecurity
from odradek.testing import Broker
from tests.cli.command import Command
from tests.metrics.scraping import scrape
from tests.sasl import port_of, settings
from tests.tokens import PLAIN_USERS
from tests.waiting import until

TOKENS = "odradek_delegation_tokens"
pytestmark = pytest.mark.xdist_group("tokens")

CONFIG = settings() | {
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
    "delegation.token.secret.key": "the secret of all brokers",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with Broker(CONFIG, directory=tmp_path_factory.mktemp("tokens")) as running:
        yield running


@pytest.fixture
def command(broker):
    return Command(f"127.0.0.1:{port_of(broker, 'SASL_PLAINTEXT')}")


def login(path, mechanism, user, password, more="", module="scram.Scram"):
    """A file for --command-config."""
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module}LoginModule required "
        f'username="{user}" password="{password}"{more};\n'
    )
    return "--command-config", path


def test_a_token_is_created_described_used_renewed_and_removed(broker, command, tmp_path):
    alice = login(tmp_path / "alice", "PLAIN", "alice", "alice-secret", module="plain.Plain")
    bob = login(tmp_path / "bob", "PLAIN", "bob", "bob-secret", module="plain.Plain")
    made = command.json("token", "create", "--renewer", "bob", "--max-lifetime", "2h", *alice)
    assert (made["owner"], made["requester"], made["renewers"]) == ("User:alice", "User:alice", ["User:bob"])
    assert made["max_ms"] - made["issued_ms"] == made["expires_ms"] - made["issued_ms"] == 7_200_000
    token_id, password = made["token_id"], made["password"]
    listed = {name: value for name, value in made.items() if name != "password"}
    assert command.json("token", "describe", *bob) == [listed]
    assert command.json("token", "describe", "--show-passwords", *alice) == [made]
    assert command.json("token", "describe", "--owner", "nobody", *alice) == []
    text = command("token", "describe", *alice)
    assert token_id in text and "User:bob" in text and password not in text
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        by_token = login(tmp_path / mechanism, mechanism, token_id, password, ' tokenauth="true"')
        assert command.json("topic", "list", *by_token) == []
        command.refused("token", "create", *by_token, words=["cannot create a token", "REQUEST_NOT_ALLOWED"])
    command("produce", "t", "--create", *by_token, stdin="x\n")
    assert len(command.json("topic", "list", *by_token)) == 1
    with pytest.raises(ClientError, match="librdkafka, which cannot log in with a delegation token"):
        ClientSecurity.from_file(by_token[1]).librdkafka()
    plain = login(tmp_path / "plain", "PLAIN", token_id, password, ' tokenauth="true"', module="plain.Plain")
    command.refused("topic", "list", *plain, words=["tokenauth=true", "needs a SCRAM mechanism"])
    renewed = command.json("token", "renew", token_id, "--period", "1h", *bob)
    assert renewed["expires_ms"] < made["expires_ms"]
    shortened = command.json("token", "expire", token_id, "--after", "30m", *bob)
    assert shortened["expires_ms"] < renewed["expires_ms"]
    assert f"token {token_id} was removed" in command("token", "expire", token_id, "--yes", *alice)
    words = ["cannot log in as", "invalid credentials"]
    command.refused("topic", "list", *by_token, words=words[1:])
    command.refused("token", "renew", token_id, *alice, words=[f"there is no token {token_id}"])
    assert password not in broker.log_file.read_text()


def test_the_text_of_a_new_token_contains_the_line_for_clients(command, tmp_path):
    alice = login(tmp_path / "alice", "PLAIN", "alice", "alice-secret", module="plain.Plain")
    lines = command("token", "create", "--owner", "carol", *alice).splitlines()
    assert lines[2] == "owner: User:carol"
    jaas = next(line for line in lines if line.startswith("sasl.jaas.config="))
    path = tmp_path / "carol"
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n{jaas}\n")
    assert command("topic", "list", "--command-config", path) is not None


def test_the_missing_right_is_named_and_the_shown_command_adds_it(tmp_path):
    config = CONFIG | {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
        "metrics.listener": "127.0.0.1:0",
    }
    with Broker(config, directory=tmp_path / "data") as broker:
        run = Command(f"127.0.0.1:{port_of(broker, 'SASL_PLAINTEXT')}")
        admin, alice, bob = (
            login(tmp_path / name, "PLAIN", name, f"{name}-secret", module="plain.Plain")
            for name in ("admin", "alice", "bob")
        )
        hint = "odradek acl add --allow User:alice --user User:bob --operation create-tokens"
        words = ["cannot create a token for User:bob: User:alice has no right CREATE_TOKENS on User:bob", hint]
        run.refused("token", "create", "--owner", "bob", *alice, words=words)
        run(*hint.split()[1:], *admin)
        made = run.json("token", "create", "--owner", "bob", *alice)
        assert made["owner"] == "User:bob"
        until(lambda: scrape(broker).value(TOKENS) == 1, "the gauge")
        run.json("token", "create", *alice)
        run("token", "renew", made["token_id"], *bob)
        run("token", "expire", made["token_id"], "--yes", *bob)
        until(lambda: scrape(broker).value(TOKENS) == 1, "the gauge")
        found = scrape(broker)
        assert [found.value(f"{TOKENS}_{event}_total") for event in ("created", "renewed", "expired")] == [2, 1, 1]


def test_wrong_uses(broker, command, tmp_path):
    alice = login(tmp_path / "alice", "PLAIN", "alice", "alice-secret", module="plain.Plain")
    command.refused("token", "create", "--max-lifetime", "0", *alice, words=["--max-lifetime must be greater than 0"])
    command.refused("token", "renew", "x", "--period", "0", *alice, words=["--period must be greater than 0"])
    command.refused("token", "expire", "x", "--after", "-1", *alice, words=["--after must not be negative"])
    command.refused("token", "expire", "x", *alice, words=["there is no token x that this user may see"])
    without = Command(broker.bootstrap_servers)
    without.refused("token", "describe", words=["cannot read the tokens", "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"])
