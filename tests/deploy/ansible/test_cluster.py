"""The playbooks on machines with systemd: ZooKeeper and brokers with TLS and SCRAM are installed, restarted, upgraded, added
and removed, while a producer writes with acks=all and loses nothing.

One cluster for all tests of this file; each leaves it with three brokers of the first wheel or a newer one that serve.

Measured on two CPUs with a load of 15 to 28 by other work: 1 minute until the machines have booted, 3 for --check on one
machine, 7 for site, 2.5 for the added and removed broker, 3.5 for the broken release and the way back, 2 for the restart, 5.5
for the upgrade.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from tests.deploy import reports, service
from tests.deploy.ansible import wheels
from tests.deploy.ansible.collection import MACHINE_PACKAGES, Ansible, Run
from tests.deploy.machines import Machine, Network, debian_root, remove_files
from tests.toolchains import REPOSITORY
from tests.waiting import until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(7200), pytest.mark.xdist_group("ansible cluster")]

TOPIC = "numbers"
PORT = 9092
OTHER_PORT = 9192
SECRETS = ('broker "secret', 'broker \\"secret', "admin secret", "BEGIN PRIVATE KEY")
PROMETHEUS = "--prometheus http://10.77.0.5:9090 --step 15 --match 'job=\"odradek\"'"
(PLAY,) = re.findall(
    r"```yaml\n(- hosts: brokers\[0\]\n.*?)```", (REPOSITORY / "docs/operate/ansible.md").read_text(), re.DOTALL
)
"""The play that adds the report."""
FAULT = """

def _fail(self):
    raise RuntimeError("this release is broken")


Supervisor.run = _fail
"""


def listeners(port: int) -> list[dict[str, Any]]:
    """The listeners of each broker. :param port: of the one for clients."""
    return [
        {"name": "CLIENTS", "protocol": "SASL_SSL", "port": port},
        {"name": "BROKERS", "protocol": "SASL_SSL", "port": 9091},
    ]


class Cluster:
    """Four machines, of which the first three get ZooKeeper and brokers, and the last Prometheus, and one inventory.

    The first one has the Python packages of the report, as if `install-report-packages` had installed them.
    """

    def __init__(self, directory: Path) -> None:
        self.ansible = Ansible(directory / "ansible")
        self.wheel = wheels.build(directory)
        self.directory = directory
        self.network = Network()
        root, watching = debian_root(*MACHINE_PACKAGES), debian_root(*MACHINE_PACKAGES, "prometheus")
        packages = {service.PACKAGES: service.binds()[service.PACKAGES]}
        self.machines = [
            Machine(f"kafka{number}", directory / f"kafka{number}", *given)
            for number, given in enumerate(((root, packages), (root,), (root,), (watching,)), 1)
        ]
        authority = trustme.CA()
        authority.cert_pem.write_to_path(directory / "ca.pem")
        self.hosts: dict[str, dict[str, Any]] = {}
        for number, machine in enumerate(self.machines, 1):
            machine.start()
            address = self.network.attach(machine, number + 1)
            issued = authority.issue_cert(address, machine.name, "127.0.0.1")
            key = load_pem_private_key(issued.private_key_pem.bytes(), None)
            self.hosts[machine.name] = {
                "machine_leader": machine.leader,
                "broker_node_id": number,
                "broker_advertised_host": address,
                "broker_rack": f"rack{number}",
                "broker_tls_certificate": "".join(part.bytes().decode() for part in issued.cert_chain_pems),
                "broker_tls_key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
            }
        self.settings = directory / "client.json"
        servers = ",".join(f"10.77.0.{number}:{port}" for port in (PORT, OTHER_PORT) for number in (2, 3, 4, 5))
        self.settings.write_text(json.dumps({
            "bootstrap.servers": servers, "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin", "sasl.password": "admin secret", "ssl.ca.location": str(directory / "ca.pem"),
        }))  # fmt: skip

    def inventory(self, *names: str) -> Path:
        """An inventory in which these machines are brokers; the first three are servers of ZooKeeper."""
        servers = {
            f"kafka{number}": {"zookeeper_id": number, "machine_leader": self.hosts[f"kafka{number}"]["machine_leader"]}
            for number in (1, 2, 3)
        }
        return self.ansible.inventory(
            {"zookeeper": servers, "brokers": {name: self.hosts[name] for name in names},
             "monitoring": {"kafka4": {"machine_leader": self.hosts["kafka4"]["machine_leader"]}}},
            monitoring_scrape_interval="1s", monitoring_report_options=reports.OPTIONS,
            broker_metrics_listener="0.0.0.0:9404",
            ansible_connection="machine", ansible_become=False, ansible_python_interpreter="/usr/bin/python3",
            zookeeper_heap="128m", broker_install_method="wheel", broker_wheel=str(self.wheel),
            broker_wheelhouse=str(wheels.wheelhouse()), broker_extras=[], broker_start_timeout=300,
            broker_listeners=listeners(PORT),
            broker_inter_broker_listener="BROKERS", broker_tls_ca_file=str(self.directory / "ca.pem"),
            broker_inter_broker_user="broker", broker_admin_user="admin",
            broker_scram_users=[{"name": "broker", "password": 'broker "secret'},
                                {"name": "admin", "password": "admin secret"}],
            broker_settings={
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:broker;User:admin",
                "num.io.threads": 2, "num.network.threads": 1, "usage.spool.interval.ms": 1000,
            },
        )  # fmt: skip

    def play(self, playbook: str, *options: str, brokers: tuple[int, ...] = (1, 2, 3), **extra: Any) -> Run:
        """Run a playbook with these machines as brokers."""
        return self.ansible.playbook(
            playbook, self.inventory(*(f"kafka{number}" for number in brokers)), *options, **extra
        )

    def odradek(self, *command: str, on: int = 1) -> str:
        """Run a command of odradek on a machine, as the administrator."""
        server = f"10.77.0.{on + 1}:{PORT}"
        return self.machines[on - 1].output(
            "odradek", "-b", server, *command, "--command-config", "/etc/odradek/admin.properties"
        )

    def version(self, number: int) -> str:
        """The version of the program on a machine."""
        return self.machines[number - 1].output("odradek", "--version").split()[1].rstrip(",")

    def starts(self) -> list[str]:
        """When the brokers of the first three machines were started."""
        return [
            machine.output("systemctl", "show", "--property=ActiveEnterTimestampMonotonic", "odradek.service")
            for machine in self.machines[:3]
        ]

    @contextmanager
    def traffic(self, topic: str = TOPIC) -> Iterator[list[int]]:
        """Produce while the body runs; then read every record back. Return a list that then has those acknowledged."""
        command = self.network.command(sys.executable, "-m", "tests.deploy.ansible.traffic")
        produce = [*command, "produce", str(self.settings), topic]
        acknowledged: list[int] = []
        with subprocess.Popen(
            produce, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as producer:
            try:
                assert producer.stdout is not None
                assert producer.stdout.readline() == "ready\n"
                yield acknowledged
                output, _ = producer.communicate(timeout=300)
            finally:
                producer.kill()
        assert producer.returncode == 0, output
        acknowledged += json.loads(output)
        assert len(acknowledged) > 100
        read = subprocess.run(
            [*command, "read", str(self.settings), topic], cwd=REPOSITORY, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip
        assert read.returncode == 0, read.stderr
        assert set(acknowledged) - set(json.loads(read.stdout)) == set()

    def close(self) -> None:
        """End the machines and remove their files."""
        for machine in self.machines:
            machine.kill()
        self.network.close()
        for machine in self.machines:
            remove_files(machine)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that site.yml has installed; before that, --check --diff of the same on the fresh machines."""
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        checked = made.play("site", "--check", "--diff", "--limit", "kafka1")
        assert checked.code == 0, checked.end
        assert not made.machines[0].exists("/opt/odradek")
        assert "+authorizer.class.name=kafka.security.authorizer.AclAuthorizer" in checked.output
        assert [secret for secret in SECRETS if secret in checked.output] == []
        installed = made.play("site", "--diff")
        assert installed.code == 0, installed.end
        assert [secret for secret in SECRETS if secret in installed.output] == []
        made.odradek("topic", "create", TOPIC, "-p", "6")
        yield made
    finally:
        made.close()


def test_a_second_run_changes_nothing(cluster: Cluster) -> None:
    starts = cluster.starts()
    again = cluster.play("site", "--diff")
    assert (again.code, again.changed) == (0, 0), again.end
    assert cluster.starts() == starts
    machine = cluster.machines[0]
    for path in ("server.properties", "secrets/broker.properties", "tls/broker.pem"):
        assert machine.output("stat", "--format=%a %U %G", f"/etc/odradek/{path}") == "640 root odradek"
    assert machine.output("stat", "--format=%a %U %G", "/etc/odradek/admin.properties") == "600 root root"
    users = {user["user"] for user in json.loads(cluster.odradek("user", "list", "--json"))}
    assert users == {"broker", "admin"}


def test_the_timer_reports_what_was_sent_to_the_whole_cluster(cluster: Cluster) -> None:
    """From the spools of all brokers, which is the default, and from the Prometheus that the role has set up."""
    first, watching = cluster.machines[0], cluster.machines[3]
    first.run("install", "-d", "/opt/odradek-report")
    first.run("ln", "-s", service.PACKAGES, "/opt/odradek-report/packages")
    reports.hurry(first)
    cluster.odradek("topic", "create", "orders", "-p", "6")

    def counted(direction: str) -> float:
        query = f'sum(odradek_usage_records_{direction}_total{{job="odradek",topic="orders"}})'
        return reports.samples(watching, query).get("", 0)

    with cluster.traffic("orders") as acknowledged:
        until(lambda: counted("in") > 300, "records are scraped")
    sent = len(acknowledged)
    until(lambda: [counted("in"), counted("out")] == [sent] * 2, lambda: f"{sent}: {counted('in')} {counted('out')}")

    def intervals() -> dict[str, float]:
        return reports.samples(watching, "odradek_spool_intervals_total")

    # a scrape that takes longer than the interval of 1 s makes its series stale
    written = until(lambda: found if len(found := intervals()) == 3 else {}, "each broker is scraped")

    def all_have_written() -> bool:
        now = intervals()
        return all(now.get(instance, 0) > count + 1 for instance, count in written.items())

    until(all_have_written, "each broker writes two intervals")
    play = cluster.directory / "report.yml"
    play.write_text(PLAY)
    for name, source in (("spools", {}), ("prometheus", {"monitoring_report_source": PROMETHEUS})):
        out = f"/var/lib/odradek-report/{name}"
        run = cluster.play(str(play), monitoring_report_dir=out, **source)
        assert run.code == 0, run.end
        summary = reports.by_timer(first, out)
        tables = reports.directory(first, out)
        found = {key: counts for key, counts in reports.records(tables).items() if key[0] == "orders"}
        assert found == {("orders", "writer"): (sent, 0), ("orders", "reader"): (0, sent)}, name
        assert {disk["broker"] for disk in summary["disks"]} == {"1", "2", "3"}
        assert not [row for row in reports.rows(tables, "gaps") if "live member" in row["reason"]], name


def test_a_rolling_restart_loses_nothing(cluster: Cluster) -> None:
    before = cluster.starts()
    with cluster.traffic():
        run = cluster.play("rolling_restart")
    assert run.code == 0, run.end
    assert all(new != old for new, old in zip(cluster.starts(), before, strict=True))


def test_an_unknown_key_is_refused_before_anything_stops(cluster: Cluster) -> None:
    before = cluster.starts()
    settings = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "num.oi.threads": 3}
    run = cluster.play("site", broker_settings=settings)
    assert run.code != 0
    assert "unknown key num.oi.threads" in run.text
    assert "did you mean 'num.io.threads'" in run.text
    assert "The broker was not stopped" in run.text
    assert cluster.starts() == before
    assert "num.oi.threads" not in cluster.machines[0].read("/etc/odradek/server.properties")


def test_the_files_of_a_running_broker_stay_until_the_cluster_can_do_without_it(cluster: Cluster) -> None:
    first, second = cluster.machines[:2]
    before, configuration = cluster.starts(), first.read("/etc/odradek/server.properties")
    second.output("systemctl", "stop", "odradek.service")
    run = cluster.play("site", "--limit", "kafka1", broker_listeners=listeners(OTHER_PORT), broker_sync_timeout=3)
    assert run.code != 0
    assert 'failed at the task "Wait until the cluster can do without this broker"' in run.text
    assert "The broker was not stopped" in run.text
    assert cluster.starts()[0] == before[0]
    assert first.read("/etc/odradek/server.properties") == configuration
    assert f":{PORT}" in first.read("/etc/odradek/admin.properties")
    assert first.output("ls", "-A", "/etc/odradek/secrets").split() == ["broker.properties"]
    back = cluster.play("site")
    assert back.code == 0, back.end
    assert cluster.starts()[0] == before[0]


def test_the_port_of_all_brokers_changes(cluster: Cluster) -> None:
    with cluster.traffic():
        run = cluster.play("site", broker_listeners=listeners(OTHER_PORT))
        assert run.code == 0, run.end
        assert f":{OTHER_PORT}" in cluster.machines[2].read("/etc/odradek/server.properties")
        back = cluster.play("site")
        assert back.code == 0, back.end


def test_a_broken_release_stops_the_roll_and_the_others_serve(cluster: Cluster) -> None:
    before = cluster.starts()
    version = cluster.version(1)
    broken = wheels.changed(
        cluster.wheel, "0.9.9", cluster.directory, "odradek/processes/supervisor/supervisor.py", FAULT
    )
    with cluster.traffic():
        run = cluster.play("upgrade", broker_wheel=str(broken))
        assert run.code != 0
        assert "Broker 1 on kafka1 failed at the task" in run.text
        assert "Do not restart another broker before this one serves" in run.text
        assert "this release is broken" in run.text  # the end of its log
        assert cluster.starts()[1:] == before[1:]
        assert [cluster.version(number) for number in (2, 3)] == [version, version]
        back = cluster.play("upgrade", "--limit", "kafka1")  # what the message says
        assert back.code == 0, back.end
    assert cluster.version(1) == version


def test_a_rolling_upgrade_loses_nothing(cluster: Cluster) -> None:
    newer = wheels.changed(cluster.wheel, "0.2.0", cluster.directory)
    with cluster.traffic():
        run = cluster.play("upgrade", broker_wheel=str(newer))
    assert run.code == 0, run.end
    assert [cluster.version(number) for number in (1, 2, 3)] == ["0.2.0"] * 3
    cluster.wheel = newer


def test_a_broker_is_added_and_another_one_removed(cluster: Cluster) -> None:
    with cluster.traffic():
        added = cluster.play("add_broker", brokers=(1, 2, 3, 4), new_broker="kafka4", balance=True)
        assert added.code == 0, added.end
        replicas = json.loads(cluster.odradek("topic", "describe", TOPIC, "--json"))
        assert "4" in json.dumps(replicas)
        removed = cluster.play("remove_broker", brokers=(1, 2, 3, 4), old_broker="kafka4")
        assert removed.code == 0, removed.end
    assert cluster.machines[3].state_of("odradek.service") == "inactive"
    too_few = cluster.play("remove_broker", old_broker="kafka3")
    assert too_few.code != 0
    assert "without kafka3, 2 broker(s) remain in the group brokers, but broker_replication_factor=3" in too_few.text
