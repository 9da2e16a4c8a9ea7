"""Values that the roles refuse before anything is changed, and the sentences with which they do.

Each case is a host of one inventory, so that one run of Ansible tries all of them.
"""

import re
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.ansible.collection import LOCAL, Ansible

PLAYBOOK = Path(__file__).parent / "local.yml"
GOOD: dict[str, Any] = {"broker_node_id": 1, "broker_package": "odradek.deb"}
TLS = {"broker_listeners": [{"name": "TLS", "protocol": "SSL", "port": 1}]}
SASL = {"broker_listeners": [{"name": "SASL", "protocol": "SASL_PLAINTEXT", "port": 1}]}

BROKERS: dict[str, tuple[dict[str, Any], str]] = {
    "duplicate-id": (
        {"broker_node_id": 7},
        "broker_node_id=7 of duplicate-id is also the id of duplicate-id-other: give each broker of the group duplicate-id",
    ),
    "no-zookeeper": (
        {},
        "the group no-zookeeper has 2 brokers, but broker_zookeeper_connect is empty: set it, or give the inventory a group",
    ),
    "own-key": (
        {"broker_settings": {"node.id": 3}},
        "broker_settings has the key node.id, which the role writes itself: set broker_node_id",
    ),
    "wrong-key": ({"broker_settings": {"a b": 3}}, "broker_settings has the key a b, which is not the name of a key"),
    "secret-setting": (
        {"broker_settings": {"ssl.keystore.password": "plain-secret"}},
        "broker_settings has the secret ssl.keystore.password itself: add it to broker_secrets (for example from Ansible",
    ),
    "many-replicas": (
        {"broker_replication_factor": 3},
        "broker_replication_factor=3 is more than the 1 broker(s) of the group many-replicas: no topic could be created; set",
    ),
    "many-internal-replicas": (
        {"broker_settings": {"offsets.topic.replication.factor": 2}},
        "offsets.topic.replication.factor=2 is more than the 1 broker(s)",
    ),
    "min-in-sync": (
        {"broker_zookeeper_connect": "zk:2181", "broker_replication_factor": 1, "broker_min_insync_replicas": 2},
        "broker_min_insync_replicas=2 is more than broker_replication_factor=1: every write with acks=all would be refused",
    ),
    "listener-name": (
        {"broker_inter_broker_listener": "BROKERS"},
        "broker_inter_broker_listener=BROKERS is not the name of a listener: broker_listeners has PLAINTEXT",
    ),
    "no-tls-key": (
        {**TLS, "broker_tls_certificate": "PEM"},
        "a listener has TLS, but broker_tls_key of no-tls-key is missing: set broker_tls_key (PEM text",
    ),
    "no-certificate": ({**TLS, "broker_tls_key": "PEM"}, "but broker_tls_certificate of no-certificate is missing"),
    "no-password": (
        {**SASL, "broker_admin_user": "admin", "broker_scram_users": [{"name": "admin"}]},
        "the password of the SCRAM user admin is missing: add it with a password to broker_scram_users",
    ),
    "no-user": ({**SASL, "broker_admin_user": "root"}, "the password of the SCRAM user root is missing"),
    "no-program": (
        {"broker_package": ""},
        "broker_install_method=deb needs broker_package: set it to a file on the control node, or to a URL with",
    ),
    "no-checksum": (
        {"broker_package": "https://x/o.deb"},
        "broker_package=https://x/o.deb is a URL, but broker_package_checksum= is not sha256:HEX",
    ),
}
"""For each host its variables, and the sentence."""
TYPES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown-method": (
        {"broker_install_method": "rpm"},
        "value of broker_install_method must be one of: deb, wheel, none, got: rpm",
    ),
    "wrong-type": (
        {"broker_node_id": "one"},
        "argument 'broker_node_id' is of type str and we were unable to convert to int",
    ),
    "no-id": ({"broker_node_id": None}, "missing required arguments: broker_node_id"),
}
"""What meta/argument_specs.yml refuses: the whole role runs."""
SERVERS: dict[str, tuple[dict[str, Any], str]] = {
    "large-server-id": ({"zookeeper_id": 256}, "zookeeper_id=256 of large-server-id is not from 1 to 255"),
    "even": (
        {"zookeeper_id": 1},
        "the group even has 2 servers: an even number of servers survives no more failures than one server less",
    ),
    "own-server-key": (
        {"zookeeper_id": 1, "zookeeper_settings": {"dataDir": "/x"}},
        "zookeeper_settings has the key dataDir, which the role writes itself: set zookeeper_data_dir",
    ),
    "no-archive": (
        {"zookeeper_id": 1, "zookeeper_install_method": "archive"},
        "zookeeper_install_method=archive needs zookeeper_archive, not nothing",
    ),
}
WITH_ANOTHER_HOST = ("duplicate-id", "no-zookeeper", "min-in-sync", "even")


def assert_refused(
    ansible: Ansible, directory: Path, tasks: str, **roles: dict[str, tuple[dict[str, Any], str]]
) -> str:
    """Run tasks of roles with the variables of all cases, each on a host in a group of its own. Each must fail.

    Returns the output.
    """
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for role, cases in roles.items():
        for name, (variables, _) in cases.items():
            common = {"tested_role": role, "tested_tasks": tasks, f"{role}_group": name}
            host = {**(GOOD if role == "broker" else {}), **common, **variables}
            groups[name] = {name: {key: value for key, value in host.items() if value is not None}}
            if role == "zookeeper":
                groups[name][name]["zookeeper_data_dir"] = str(directory / "zookeeper")
            if name in WITH_ANOTHER_HOST:
                groups[name][f"{name}-other"] = {**groups[name][name], "broker_node_id": 7, "zookeeper_id": 7}
    run = ansible.playbook(str(PLAYBOOK), ansible.inventory(groups, **LOCAL))
    for name, (_, sentence) in (case for cases in roles.values() for case in cases.items()):
        assert run.hosts[name].failed == 1, f"{name}:\n{run.output}"
        found = re.findall(rf"(?:fatal|failed): \[{name}\][^\n]*\n((?: +.*\n|\n)*)", run.output)
        assert sentence in " ".join(" ".join(found).split()), f"{name}:\n{found}"
    return run.output


def test_bad_values_are_refused_with_a_sentence_that_names_them(ansible: Ansible, tmp_path: Path) -> None:
    output = assert_refused(ansible, tmp_path, "validate", broker=BROKERS, zookeeper=SERVERS)
    assert "plain-secret" not in output


def test_wrong_types_and_choices_are_refused(ansible: Ansible, tmp_path: Path) -> None:
    assert_refused(ansible, tmp_path, "main", broker=TYPES)


def test_one_server_with_data_does_not_become_three(ansible: Ansible, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as alone:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = alone.accept()
                    with connection:
                        connection.recv(4)
                        connection.sendall(b"Zookeeper version: 3.8.4\nMode: standalone\n")

        threading.Thread(target=answer, daemon=True).start()
        common = {
            "tested_role": "zookeeper", "tested_tasks": "validate", "zookeeper_group": "servers",
            "zookeeper_client_port": alone.getsockname()[1], "zookeeper_data_dir": str(tmp_path),
        }  # fmt: skip
        hosts: dict[str, dict[str, Any]] = {
            f"zk{number}": {**common, "zookeeper_id": number, "zookeeper_host": host}
            for number, host in ((1, "::1"), (2, "127.0.0.1"), (3, "::1"))
        }
        run = ansible.playbook(str(PLAYBOOK), ansible.inventory({"servers": hosts}, **LOCAL))
        alone.shutdown(socket.SHUT_RDWR)
    assert all(host.failed for host in run.hosts.values()), run.output
    assert "zk2 runs as the only server, but the group servers has 3 servers" in run.text


def test_a_machine_that_cannot_run_the_report_is_refused(ansible: Ansible, tmp_path: Path) -> None:
    """One without PySpark, and one whose Java is missing."""
    venvs = {"no-spark": "exit 1", "no-java": f'JAVA_HOME={tmp_path}/java exec {sys.executable} "$@"'}
    for name, script in venvs.items():
        python = tmp_path / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    hosts = {name: {"monitoring_report_venv": str(tmp_path / name)} for name in venvs}
    inventory = ansible.inventory({"brokers": hosts}, **LOCAL, tested_role="monitoring", tested_tasks="validate_report")
    run = ansible.playbook(str(PLAYBOOK), inventory)
    assert all(host.failed for host in run.hosts.values()), run.output
    assert f"monitoring_report_venv={tmp_path}/no-spark of no-spark cannot import pyspark" in run.text, run.output
    needed = f"Spark needs Java 17 or newer, but JAVA_HOME is {tmp_path}/java, where bin/java is missing"
    assert f"monitoring_report is true, but no-java cannot run Spark: {needed}" in run.text, run.output


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A machine's files: a broker with the id 4 has used two log directories."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text("version=0\ncluster.id=x\nbroker.id=4\n")
    (tmp_path / "server.properties").write_text(f"node.id=4\nlog.dirs={tmp_path}/one,{tmp_path}/two\n")
    return tmp_path


def test_a_changed_id_and_a_removed_log_directory_are_refused(ansible: Ansible, used: Path) -> None:
    both = [f"{used}/one", f"{used}/two"]
    hosts: dict[str, dict[str, Any]] = {
        "same": {"broker_node_id": 4, "broker_log_dirs": both},
        "one-more": {"broker_node_id": 4, "broker_log_dirs": [*both, f"{used}/three"]},
        "other-id": {"broker_node_id": 5, "broker_log_dirs": both},
        "removed": {"broker_node_id": 4, "broker_log_dirs": [f"{used}/three"]},
        "allowed": {"broker_node_id": 4, "broker_log_dirs": both[:1], "broker_allow_removed_log_dirs": True},
    }
    inventory = ansible.inventory({"brokers": hosts}, **LOCAL, tested_role="broker", tested_tasks="identity")
    run = ansible.playbook(str(PLAYBOOK), inventory, "--check", __broker_config=f"{used}/server.properties")
    assert {name for name, host in run.hosts.items() if host.failed} == {"other-id", "removed"}, run.output
    assert f"broker_node_id=5 of other-id, but {used}/one/meta.properties belongs to broker 4" in run.text
    assert (
        f"broker_log_dirs of removed does not contain {used}/one, {used}/two, where the broker has replicas" in run.text
    )
