"""The chart and a real API server: every object arrives as the template says, and what may not change is refused.

The pods do not run, because there is no kubelet. The test runs the command of the pod of `helm test` against a local broker;
test_brokers.py runs the brokers.
"""

from __future__ import annotations

import base64
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from odradek.testing import Broker
from tests.deploy.helm import chart, tools
from tests.deploy.helm.kubernetes import ApiError, ApiServer, Object, differences
from tests.waiting import until

pytestmark = [pytest.mark.deploy, pytest.mark.xdist_group("apiserver"), pytest.mark.timeout(4500)]  # with the build

_numbers = itertools.count()
SECRETS = {
    "kafka-users": ("broker", "admin", "alice"),
    "kafka-metrics": ("passwords", "username", "password"),
    "schema-registry": ("registry.properties",),
    "kafka-tls": ("tls.crt", "tls.key", "ca.crt", "keystore.pem"),
    "zookeeper-login": ("password",),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    made = ApiServer(tmp_path_factory.mktemp("apiserver"))
    try:
        for path in tools.definitions():
            for definition in yaml.safe_load_all(path.read_text()):
                if definition:
                    made.create(definition, fieldValidation="Warn")
        for group, version in (("monitoring.coreos.com", "v1"), ("cert-manager.io", "v1")):
            until(lambda g=group, v=version: _serves(made, g, v), f"the API {group}/{version}")  # type: ignore[misc]
        yield made
    finally:
        made.close()


def _serves(server: ApiServer, group: str, version: str) -> bool:
    try:
        return bool(server.request("GET", f"/apis/{group}/{version}")["resources"])
    except ApiError:
        return False


@pytest.fixture
def namespace(server: ApiServer) -> str:
    """A namespace of the test, which admits restricted pods only, with the Secrets that the value sets name."""
    name = f"kafka-{next(_numbers)}"
    label = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/enforce-version": "latest"}
    server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": label}})
    # Kubernetes' controllers make it in each namespace; the chart recognizes by it that it can look objects up.
    server.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kube-root-ca.crt", "namespace": name},
            "data": {"ca.crt": "x"},
        }
    )
    for secret, keys in SECRETS.items():
        data = {key: base64.b64encode(b"secret").decode() for key in keys}
        server.create(
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": name}, "data": data}
        )
    return name


class Release:
    """A release of the chart in a namespace of the server."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        self._server, self.namespace = server, namespace
        self._environment = os.environ | {"KUBECONFIG": str(server.kubeconfig)}

    def helm(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run a command of Helm in the namespace."""
        return chart.helm(*arguments, "-n", self.namespace, env=self._environment)

    def run(self, *arguments: object) -> str:
        """Run a command of Helm, which must succeed."""
        done = self.helm(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install(self, name: str, *arguments: object) -> None:
        """Install the chart with a value set."""
        self.run("install", chart.RELEASE, chart.CHART, "-f", chart.values_file(name), *arguments)

    def refused(self, name: str, *arguments: object) -> str:
        """Try to upgrade; returns the error. The release must stay as it was."""
        before = self.objects()
        done = self.helm("upgrade", chart.RELEASE, chart.CHART, "-f", chart.values_file(name), *arguments)
        assert done.returncode != 0, "the upgrade was not refused"
        assert self.objects() == before
        return done.stderr

    def objects(self) -> list[Object]:
        """What the chart has made, as its templates say."""
        return chart.objects(self.run("get", "manifest", chart.RELEASE))

    def read_back(self) -> list[Object]:
        """Read each object from the server, and compare it with its template."""
        stored = []
        for item in self.objects():
            found = self._server.read(item)
            name = f"{item['kind']} {item['metadata']['name']}"
            assert found is not None, f"{name} does not exist"
            assert not differences(item, found), name
            stored.append(found)
        return stored


@pytest.fixture
def release(server: ApiServer, namespace: str) -> Release:
    return Release(server, namespace)


def only(found: list[Object], kind: str) -> Object:
    return chart.only(found, kind)


@pytest.mark.parametrize("name", chart.SETS)
def test_a_value_set_is_installed_upgraded_rolled_back_and_removed(
    name: str, release: Release, server: ApiServer
) -> None:
    release.install(name)
    first = release.read_back()
    assert {item["kind"] for item in first} == {item["kind"] for item in chart.objects(chart.manifest(name))} - {"Pod"}
    more = ["--set", "config.log\\.retention\\.ms=3600000", "--set", "minReadySeconds=30"]
    release.run("upgrade", chart.RELEASE, chart.CHART, "-f", chart.values_file(name), *more)
    second = release.read_back()
    template, former = only(second, "StatefulSet")["spec"], only(first, "StatefulSet")["spec"]
    assert template["minReadySeconds"] == 30
    assert template["template"]["metadata"]["annotations"] != former["template"]["metadata"]["annotations"]
    assert all("log.retention.ms=3600000" in text for text in _server_files(second))
    release.run("rollback", chart.RELEASE, "1")
    third = release.read_back()
    assert [item["spec"] for item in third if "spec" in item] == [item["spec"] for item in first if "spec" in item]
    assert _server_files(third) == _server_files(first)
    installed = release.objects()
    release.run("uninstall", chart.RELEASE)
    left = [item["kind"] for item in installed if server.read(item) is not None]
    keeps_files = name in ("monitoring", "tls-scram")  # reports; files of loads
    assert left == (["PersistentVolumeClaim"] if keeps_files else [])


def _server_files(found: list[Object]) -> list[str]:
    data = only(found, "ConfigMap")["data"]
    return [data[file] for file in sorted(data) if file.startswith("server-")]


def test_more_brokers_change_nothing_of_the_pods_and_fewer_are_refused_until_they_are_allowed(release: Release) -> None:
    release.install("tls-scram")
    before = only(release.read_back(), "StatefulSet")["spec"]["template"]
    upgrade = ("upgrade", chart.RELEASE, chart.CHART, "-f", chart.values_file("tls-scram"))
    release.run(*upgrade, "--set", "brokers=5")
    now = only(release.read_back(), "StatefulSet")["spec"]
    assert (now["replicas"], now["template"]) == (5, before)
    error = release.refused("tls-scram", "--set", "brokers=4")
    assert "odradek: brokers is 4, but the release has 5: move the partitions off the last brokers" in error
    release.run(*upgrade, "--set", "brokers=4", "--set", "allowFewerBrokers=true")
    assert only(release.read_back(), "StatefulSet")["spec"]["replicas"] == 4


def test_what_may_not_change_is_refused(release: Release, server: ApiServer) -> None:
    release.install("cluster")
    for arguments, sentence in (
        (
            ["nodeIdBase=0"],
            "nodeIdBase is 0, but the brokers were installed with 1, and their logs and replicas belong to",
        ),
        (
            ["storage.size=10Gi"],
            "storage.size is 10Gi, but the volumes of the brokers have 20Gi, and a volume cannot shrink",
        ),
        (["storage.size=19.5Gi"], "storage.size is 19.5Gi, but the volumes of the brokers have 20Gi"),
        (
            ["storage.size=30Gi"],
            "storage.size is 30Gi, but the StatefulSet prod-odradek has 20Gi, which Kubernetes does not",
        ),
        (
            ["zookeeper.replicas=1"],
            "zookeeper.replicas is 1, but the ensemble has 3: a majority of its servers would go",
        ),
        (
            ["zookeeper.replicas=7"],
            "zookeeper.replicas is 7, but the ensemble has 3: the new servers would be a majority",
        ),
        (
            ["fullnameOverride=kafka"],
            "nameOverride and fullnameOverride give the name kafka, but the release has the brokers prod-odradek",
        ),
        (["zookeeper.chroot=/other"], "zookeeper.chroot is /other, but the cluster's nodes are below /odradek"),
        (
            ["zookeeper.enabled=false", "brokers=1", "allowFewerBrokers=true"],
            "zookeeper would change the metadata store from zookeeper to embedded, and the topics would be missing",
        ),
    ):
        options = [word for argument in arguments for word in ("--set", argument)]
        assert f"odradek: {sentence}" in release.refused("cluster", *options)
    # The volumes are enlarged as docs/operate/helm.md says: claims first, then the StatefulSet is replaced.
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-prod-odradek-1", "namespace": release.namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "30Gi"}}},
    }
    server.create(claim)
    upgrade = ("upgrade", chart.RELEASE, chart.CHART, "-f", chart.values_file("cluster"))
    stateful_set = only(release.objects(), "StatefulSet")
    path = f"{server.path(stateful_set)}/{stateful_set['metadata']['name']}?propagationPolicy=Orphan"
    server.request("DELETE", path)
    until(lambda: _released(server, stateful_set), "the StatefulSet is removed")
    done = release.helm(*upgrade)
    assert done.returncode != 0
    assert (
        "storage.size is 20Gi, but the volume claim data-prod-odradek-1 has 30Gi, and a volume cannot shrink"
        in done.stderr
    )
    release.run(*upgrade, "--set", "storage.size=30Gi")
    release.read_back()


def _released(server: ApiServer, item: Object) -> bool:
    """Whether the object is removed; does what the garbage collector does with its finalizer."""
    found = server.read(item)
    if found is not None and found["metadata"].get("finalizers"):
        server.patch(item, {"metadata": {"finalizers": None}})
    return server.read(item) is None


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"),
    [
        ("tls-scram", ["brokerUser=broker", "users[0].passwordSecret.name=none"],
         "the passwordSecret of the user broker names the Secret none, which does not exist in the namespace"),
        ("tls-scram", ["users[1].passwordSecret.key=root"],
         "the passwordSecret of the user admin names the key root of the Secret kafka-users, which has only the keys admin"),
        ("tls-scram", ["tls.secret=certificates"], "tls.secret names the Secret certificates, which does not exist"),
        ("tls-scram", ["tls.keystoreKey=keystore.p12"], "tls.secret names the key keystore.p12 of the Secret kafka-tls"),
        ("monitoring", ["metrics.passwordSecret.passwordKey=x"],
         "metrics.passwordSecret names the key x of the Secret kafka-metrics, which has only the keys"),
        ("tls-scram", ["load.registrySecret.key=x"], "load.registrySecret names the key x of the Secret schema-registry,"),
        ("external", ["configFromSecrets[0].secret=zk"], "configFromSecrets (odradek.zookeeper.password) names the Secret zk,"),
    ],
)  # fmt: skip
def test_a_missing_secret_is_refused(name: str, arguments: list[str], sentence: str, release: Release) -> None:
    options = [word for argument in arguments for word in ("--set", argument)]
    values = yaml.safe_load(chart.values_file(name).read_text())
    if any(argument.startswith(("users[", "configFromSecrets[")) for argument in arguments):
        options += _whole_list(values, arguments)
    install = ("install", chart.RELEASE, chart.CHART, "-f", chart.values_file(name))
    done = release.helm(*install, *options)
    assert done.returncode != 0
    assert f"odradek: {sentence}" in done.stderr, done.stderr
    assert "secret" not in done.stderr.replace("passwordSecret", "").replace("tls.secret", "").split("odradek: ")[0]
    release.run(*install, *options, "--set", "checkSecrets=false")


@pytest.mark.parametrize("password", [b'a"b', b"a\\b", b"ab\n"])
def test_a_password_that_no_configuration_can_hold_is_refused(
    server: ApiServer, release: Release, password: bytes
) -> None:
    data = {"broker": base64.b64encode(password).decode(), "admin": base64.b64encode(b"a:'{$}b").decode()}
    metadata = {"name": "passwords", "namespace": release.namespace}
    server.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    values = yaml.safe_load(chart.values_file("tls-scram").read_text())
    named = [f"users[{number}].passwordSecret.name=passwords" for number in (0, 1)]
    options = [word for argument in named for word in ("--set", argument)] + _whole_list(values, named)
    done = release.helm("install", chart.RELEASE, chart.CHART, "-f", chart.values_file("tls-scram"), *options)
    assert done.returncode != 0
    assert (
        "odradek: the password of the user broker, key broker of the Secret passwords, contains a quotation mark, a"
        in done.stderr
    )
    assert password.decode().strip() not in done.stderr


def _whole_list(values: Object, arguments: list[str]) -> list[str]:
    """`--set` of one field of a list's element replaces the list: repeat its other fields."""
    given = {argument.partition("=")[0] for argument in arguments}
    options: list[str] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(inner, f"{path}.{name}")
        elif path not in given:
            options.extend(("--set", f"{path}={value}"))

    for name in ("users", "configFromSecrets"):
        for i, element in enumerate(values.get(name, ())):
            walk(element, f"{name}[{i}]")
    return options


@pytest.mark.parametrize("name", chart.SETS)
def test_the_namespace_admits_all_pods_although_it_restricts_them(
    name: str, release: Release, server: ApiServer
) -> None:
    release.install(name)
    count = 0
    for where, template in chart.pod_templates([*release.objects(), *_hooks(release)]):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": f"pod-{count}", "namespace": release.namespace},
            "spec": _with_claims(template["spec"]),
        }
        created = server.create(pod, dryRun="All")
        assert created["spec"]["securityContext"]["runAsNonRoot"], where
        for container in created["spec"]["containers"]:
            mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
            assert not any("serviceaccount" in mount for mount in mounts), where
        count += 1
        with pytest.raises(ApiError, match='violates PodSecurity "restricted:latest"'):
            server.create({**pod, "spec": {**pod["spec"], "hostNetwork": True}}, dryRun="All")
    assert count >= 2


def _with_claims(spec: Object) -> Object:
    """A pod's specification with the volumes that a StatefulSet adds."""
    known = {volume["name"] for volume in spec.get("volumes", ())}
    mounted = {
        mount["name"]
        for container in [*spec["containers"], *spec.get("initContainers", ())]
        for mount in container.get("volumeMounts", ())
    }
    claims = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in sorted(mounted - known)]
    return {**spec, "volumes": [*spec.get("volumes", ()), *claims]}


def _hooks(release: Release) -> list[Object]:
    return chart.objects(release.run("get", "hooks", chart.RELEASE))


@pytest.mark.parametrize("ready", [True, False])
def test_helm_test_succeeds_exactly_if_its_command_does(ready: bool, release: Release, server: ApiServer) -> None:
    """The test takes the place of the kubelet: it runs the command of the pod against a local broker, and reports its end."""
    release.install("single", *([] if ready else ["--set", "test.timeout=1s"]))
    (pod,) = _hooks(release)
    ended: list[subprocess.CompletedProcess[str]] = []

    def kubelet() -> None:
        found = until(lambda: server.read(pod), "Helm creates the pod")
        assert found is not None
        (container,) = found["spec"]["containers"]
        program, *arguments = container["command"]
        assert program == "odradek"
        if not ready:
            arguments[arguments.index("--brokers") + 1] = "2"
        with Broker(topics={"orders": 3}) as broker:
            environment = os.environ | {"ODRADEK_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
            names = {variable["name"] for variable in container["env"]}
            assert names == {"ODRADEK_BOOTSTRAP_SERVERS", "ODRADEK_COMMAND_CONFIG"}
            command = [sys.executable, "-m", "odradek.cli.main", *arguments]
            ended.append(subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment))
        phase = "Failed" if ended[0].returncode else "Succeeded"
        server.patch(pod, {"status": {"phase": phase}}, "/status")

    thread = threading.Thread(target=kubelet)
    thread.start()
    done = release.helm("test", chart.RELEASE, "--timeout", "2m")
    thread.join()
    assert ended[0].returncode == (0 if ready else 1), ended[0].stderr
    assert (done.returncode == 0) == ready, done.stdout + done.stderr


def test_the_zone_of_a_node_is_read_with_no_more_rights_than_that(
    release: Release, server: ApiServer, tmp_path: Path
) -> None:
    release.install("cluster")
    for name, labels in (("node-a", {"topology.kubernetes.io/zone": "zone-a"}), ("node-b", {"other": "x"})):
        server.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
    account = tmp_path / "account"
    account.mkdir()
    path = f"/api/v1/namespaces/{release.namespace}/serviceaccounts/prod-odradek/token"
    token = server.request("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}})
    (account / "token").write_text(token["status"]["token"])
    (account / "ca.crt").write_bytes(server.certificate)
    template = only(release.objects(), "StatefulSet")["spec"]["template"]["spec"]
    (container,) = template["initContainers"]
    program, script, label, _ = container["command"]
    assert program == "python3"
    file = tmp_path / "node_zone.py"
    file.write_text(only(release.objects(), "ConfigMap")["data"][Path(script).name])
    zone = tmp_path / "zone"

    def read(node: str) -> subprocess.CompletedProcess[str]:
        host, _, port = server.url.removeprefix("https://").partition(":")
        environment = os.environ | {
            "ODRADEK_NODE_NAME": node,
            "ODRADEK_SERVICE_ACCOUNT": str(account),
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": port,
        }
        command = [sys.executable, "-I", str(file), label, str(zone)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)

    done = read("node-a")
    assert (done.returncode, done.stderr, zone.read_text()) == (0, "", "zone-a")
    done = read("node-b")
    assert done.returncode == 1
    assert done.stderr.startswith("the node node-b has no label topology.kubernetes.io/zone: set the value rack.label")
    done = read("node-c")
    assert (done.returncode, done.stderr) == (1, "cannot read the node node-c: HTTP Error 404: Not Found\n")
    for resource in (f"namespaces/{release.namespace}/secrets", "nodes", "pods"):
        with pytest.raises(ApiError, match=r"403: .* is forbidden"):
            server.request("GET", f"/api/v1/{resource}", token=token["status"]["token"])


def test_the_definitions_are_used(server: ApiServer, namespace: str) -> None:
    """Objects of operators with a field that does not exist would be refused."""
    for item in chart.rendered("monitoring") + chart.rendered("cert-manager"):
        if item["kind"] in ("ServiceMonitor", "PrometheusRule", "Certificate"):
            item["metadata"]["namespace"] = namespace
            server.create(item, dryRun="All")
            with pytest.raises(ApiError, match="unknown field"):
                server.create({**item, "spec": {**item["spec"], "nonsense": 1}}, dryRun="All")


def test_a_file_of_the_chart_exists_for_each_definition() -> None:
    assert [Path(file).name for file in map(str, tools.definitions())] == sorted(
        Path(file).name for files in tools.DEFINITIONS.values() for file in files
    )
