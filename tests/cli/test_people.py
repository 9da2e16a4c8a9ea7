"""The command on a terminal, in shell completion, with a consuming group; and which modules it imports."""

import os
import pty
import subprocess
import sys

import pytest
from confluent_kafka import Consumer

from tests.cli.test_cluster_commands import fill
from tests.terminals import read_to_the_end
from tests.waiting import until

MAIN = [sys.executable, "-m", "odradek.cli.main"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_shown_and_not_changed(odradek, name, cli_broker, protocol):
    fill(odradek, name, 10, partitions=2)
    consumer = Consumer(
        {
            "bootstrap.servers": cli_broker.bootstrap_servers,
            "group.id": name,
            "group.protocol": protocol,
            "client.id": "worker-7",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([name])
        messages = consumer.consume(4, 90)
        assert len(messages) == 4
        consumer.commit(message=messages[-1], asynchronous=False)
        group = {}

        def stable():
            """In the consumer protocol, a member confirms its assignment in its next heartbeat."""
            group.update(odradek.json("group", "describe", name))
            return group["state"] == "Stable"

        until(stable, lambda: f"the group is stable: {group}")
        (member,) = group["members"]
        assert (group["state"], group["type"].lower(), member["client"]) == ("Stable", protocol, "worker-7")
        assert member["assigned"] == [f"{name}-0", f"{name}-1"] and member["wants"] is None
        assert group["offsets"][0]["lag"] == 6 and group["offsets"][0]["client"] == "worker-7"
        (listed,) = [row for row in odradek.json("group", "list") if row["group"] == name]
        assert (listed["type"], listed["members"], listed["lag"]) == (group["type"], 1, group["lag"])
        odradek.refused("group", "delete", name, "--yes", words=["1 member", "odradek group describe"])
        odradek.refused("group", "reset-offsets", name, "--to", "latest", "--yes", words=["1 member", "--dry-run"])
        odradek("offsets", "migrate", name, "--to", "tree")
        assert odradek.json("group", "reset-offsets", name, "--to", "latest", "--dry-run")["offsets"][0]["after"] == 10
        refused = odradek.run("offsets", "migrate", name, "--to", "log", "--overwrite")
        assert refused.returncode == 0, refused  # equal: nothing to be refused
        assert "joined" in odradek("group", "explain", name) and "worker-7" in odradek("group", "explain", name)
    finally:
        consumer.close()


def test_a_terminal_shows_tables_and_the_confirmation(name, odradek, cli_broker):
    odradek("topic", "create", name)
    shown = on_terminal(cli_broker, b"", "topic", "list")
    assert "\x1b[1mTOPIC" in shown and name in shown and "\x1b[32mok" in shown
    assert "nothing was changed" in on_terminal(cli_broker, b"n\n", "topic", "delete", name)
    assert f"deleted topic {name}" in on_terminal(cli_broker, b"y\n", "topic", "delete", name)


def on_terminal(broker, typed, *arguments):
    """Run the command on a new terminal; return its output."""
    main, other = pty.openpty()
    environment = os.environ | {
        "ODRADEK_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "TERM": "xterm",
        "COLUMNS": "120",
    }
    os.write(main, typed)
    with subprocess.Popen([*MAIN, *arguments], stdin=other, stdout=other, stderr=other, env=environment) as process:
        os.close(other)
        shown = read_to_the_end(main)
        process.wait(60)
    os.close(main)
    return shown.decode()


def test_a_shell_completes_commands_and_topics(odradek, name, cli_broker):
    odradek("topic", "create", name)

    def completed(words, servers, names="1"):
        environment = os.environ | {
            "ODRADEK_COMPLETE_NAMES": names,
            "_ODRADEK_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
            "ODRADEK_BOOTSTRAP_SERVERS": servers,
        }
        code = "from odradek.cli.main import main; main(prog_name='odradek')"
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
        )
        assert not done.stderr
        return done.stdout.split()

    assert "plain,truncate" in completed("odradek topic t", cli_broker.bootstrap_servers)
    assert f"plain,{name}" in completed(f"odradek topic describe {name[:-1]}", cli_broker.bootstrap_servers)
    assert completed("odradek topic describe x", "127.0.0.1:1") == []
    assert completed(f"odradek topic describe {name[:-1]}", cli_broker.bootstrap_servers, names="") == []
    assert completed("odradek start --config x", "127.0.0.1:1") == ["file,x"]
    assert "plain,retention.ms" in completed("odradek config explain ret", "127.0.0.1:1")
    assert "plain,retention.ms" in completed("odradek topic create t -c retention.m", "127.0.0.1:1")
    assert completed("odradek config get -t t log.ret", "127.0.0.1:1") == []


def test_without_the_client_library_only_groups_and_its_settings_do_not_work(odradek, name, cli_broker, tmp_path):
    odradek("topic", "create", name)
    (tmp_path / "confluent_kafka.py").write_text("raise ImportError('not there')\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))

    def run(*arguments):
        return subprocess.run(
            [*MAIN, arguments[0], "-b", cli_broker.bootstrap_servers, *arguments[1:]],
            capture_output=True,
            text=True,
            input="a\n",
            env=os.environ | {"PYTHONPATH": path},
            check=False,
        )

    assert run("produce", name).returncode == 0
    assert run("consume", name, "--from", "beginning", "--exit").stdout == "a\n"
    for arguments in (["produce", name, "-X", "linger.ms=1"], ["consume", name, "-g", name]):
        done = run(*arguments)
        assert done.returncode == 1
        assert done.stderr.startswith(
            "odradek: this option needs confluent-kafka, which is not installed: pip install 'confluent-kafka"
        )
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["topic", "list"], ["group", "list"], ["config", "get", "-t", "t"], ["doctor"]])
def test_a_command_imports_only_what_it_needs(arguments, cli_broker):
    code = (
        "import sys\nfrom odradek.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\nprint('loaded', *sys.modules)"
    )
    environment = os.environ | {"ODRADEK_BOOTSTRAP_SERVERS": cli_broker.bootstrap_servers}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, check=True
    )
    loaded = done.stdout.rpartition("loaded ")[2].split()
    heavy = (
        "rich",
        "confluent_kafka",
        "asyncio",
        "uvloop",
        "odradek.processes",
        "odradek.groups",
        "odradek.api",
        "kazoo",
    )
    assert "odradek.clients.wire" in loaded and not [module for module in loaded if module.startswith(heavy)]
