"""The files that the roles write for the main kinds of clusters, compared with golden files, and read by the broker's own code.

``ODRADEK_UPDATE_GOLDEN=1`` writes the golden files again.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from odradek.config.broker_config import load
from odradek.config.properties import decode, parse
from odradek.security import jaas
from tests.deploy.ansible.collection import COLLECTION, LOCAL, Ansible

pytestmark = pytest.mark.xdist_group("ansible rendering")  # one rendering for all tests

PLAYBOOK = Path(__file__).parent / "local.yml"
GOLDEN = Path(__file__).parent / "golden"
PASSWORD = 'a "quoted" \\ password'
SECURE: dict[str, Any] = {
    "broker_group": "secure",
    "broker_zookeeper_connect": "zk1:2181,zk2:2181/odradek",
    "broker_listeners": [
        {"name": "CLIENTS", "protocol": "SASL_SSL", "port": 9092, "advertised_host": "public.example.net"},
        {"name": "BROKERS", "protocol": "SASL_SSL", "port": 9091, "address": "10.0.0.1"},
    ],
    "broker_inter_broker_listener": "BROKERS",
    "broker_rack": "a",
    "broker_log_dirs": ["/data1/odradek", "/data2/odradek"],
    "broker_tls_certificate": "CERTIFICATE\n",
    "broker_tls_key": "KEY\n",
    "broker_tls_key_password": " key password",
    "broker_tls_ca": "AUTHORITIES\n",
    "broker_inter_broker_user": "broker",
    "broker_admin_user": "admin",
    "broker_scram_users": [{"name": "broker", "password": PASSWORD}, {"name": "admin", "password": "secret"}],
    "broker_secrets": {"tokens": "token secret"},
    "broker_memory_max": "8G",
    "broker_settings": {
        "auto.create.topics.enable": False,
        "num.partitions": 6,
        "delegation.token.secret.key": "${odradek:/etc/odradek/secrets/broker.properties:tokens}",
        "ssl.principal.mapping.rules": "RULE:^CN=(\\w+)$/$1/L,DEFAULT",
        "super.users": "User:admin;User:broker",
    },
}
HOSTS: dict[str, dict[str, Any]] = {
    "single": {"broker_group": "single", "broker_node_id": 1},
    "plain-1": {"broker_group": "plain", "broker_node_id": 1},
    "plain-2": {"broker_group": "plain", "broker_node_id": 2},
    "plain-3": {"broker_group": "plain", "broker_node_id": 3},
    "secure-1": {**SECURE, "broker_node_id": 1},
    "secure-2": {**SECURE, "broker_node_id": 2, "broker_advertised_host": "10.0.0.2"},
}
TEMPLATES = ["server.properties", "secrets.properties", "admin.properties", "unit.conf"]


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the rendered files, HOST.TEMPLATE."""
    tmp_path = tmp_path_factory.mktemp("rendering")
    ansible = Ansible(tmp_path / "ansible")
    groups: dict[str, dict[str, dict[str, Any]]] = {}
    for name, variables in HOSTS.items():
        groups.setdefault(variables["broker_group"], {})[name] = {
            "tested_role": "broker", "tested_tasks": "validate", "tested_templates": TEMPLATES,
            "broker_package": "odradek.deb", "broker_zookeeper_group": f"{variables['broker_group']}-zookeeper", **variables,
        }  # fmt: skip
    groups["plain-zookeeper"] = {}
    servers = {f"zk{number}": {"zookeeper_id": number} for number in (1, 2, 3)}
    for name, variables in servers.items():
        groups["plain-zookeeper"][name] = {
            "tested_role": "zookeeper", "tested_tasks": "validate", "tested_templates": ["zoo.cfg", "zookeeper.service"],
            "zookeeper_group": "plain-zookeeper", "zookeeper_data_dir": str(tmp_path / "none"), **variables,
        }  # fmt: skip
    directory = tmp_path / "rendered"
    directory.mkdir()
    inventory = ansible.inventory(groups, **LOCAL, collection=str(COLLECTION), rendered=str(directory))
    run = ansible.playbook(str(PLAYBOOK), inventory)
    assert run.code == 0, run.output
    for path in directory.iterdir():
        path.write_text(path.read_text().replace(str(tmp_path / "none"), "/var/lib/zookeeper/data"))
    return directory


def test_the_rendered_files_are_the_golden_ones(rendered: Path) -> None:
    if os.environ.get("ODRADEK_UPDATE_GOLDEN"):
        shutil.rmtree(GOLDEN, ignore_errors=True)
        shutil.copytree(rendered, GOLDEN)
    names = {path.name for path in rendered.iterdir()}
    assert names == {path.name for path in GOLDEN.iterdir()}
    for name in sorted(names):
        assert (rendered / name).read_text() == (GOLDEN / name).read_text(), name


def test_the_broker_reads_what_was_meant(rendered: Path, tmp_path: Path) -> None:
    """Escapes, providers and keys, by the broker's own parsers."""
    secrets = {
        name: value
        for name, value, _ in parse(decode((rendered / "secure-1.secrets.properties").read_bytes()), "secrets")
    }
    assert secrets["tls.key.password"] == " key password"
    assert jaas.parse(secrets["inter.broker.jaas"]).options == {"username": "broker", "password": PASSWORD}
    (tmp_path / "secrets").mkdir()
    shutil.copy(rendered / "secure-1.secrets.properties", tmp_path / "secrets" / "broker.properties")
    for host in HOSTS:
        path = tmp_path / f"{host}.properties"
        text = (rendered / f"{host}.server.properties").read_text()
        path.write_text(text.replace("/etc/odradek/secrets", str(tmp_path / "secrets")))
        config = load(path, (), to_start=True)
        assert config.unknown_key_warnings == [], host
        assert config.node_id == HOSTS[host]["broker_node_id"]
    config = load(tmp_path / "secure-1.properties", (), to_start=True)
    assert config["ssl.principal.mapping.rules"] == SECURE["broker_settings"]["ssl.principal.mapping.rules"]
    assert config["auto.create.topics.enable"] is False
