"""The image under Podman, as root and rootless: it works for clients on the host, in a container beside it, and by its name."""

import json
import os
import pwd
import resource
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests import toolchains
from tests.packaging import images
from tests.ports import reserved
from tests.waiting import until

pytestmark = [pytest.mark.deploy, pytest.mark.timeout(2000)]

TAG = "localhost/odradek:test"
CGROUPS = Path("/sys/fs/cgroup/unified")
"""Where a machine has both versions of control groups; crun does not run there, runc does."""


class Podman:
    """Podman with its storage in a directory of its own. :param user: None for root."""

    def __init__(self, directory: Path, user: pwd.struct_passwd | None) -> None:
        self._directory = directory
        self._user = user
        self.volumes: list[str] = []
        runtime = directory / "run"
        runtime.mkdir(mode=0o700)
        limits = [f"{name}={min(soft, 10_000)}:{min(soft, 10_000)}" for name, soft in (
            ("nofile", resource.getrlimit(resource.RLIMIT_NOFILE)[0]), ("nproc", 10_000))]  # fmt: skip
        lines = ["[containers]", f"default_ulimits = {json.dumps(limits)}"]
        if CGROUPS.exists():
            lines += ["[engine]", 'runtime = "runc"']
        configuration = directory / "containers.conf"
        configuration.write_text("\n".join(lines) + "\n")
        self._environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "CONTAINERS_CONF": str(configuration),
            "HOME": str(directory),
            "XDG_RUNTIME_DIR": str(runtime),
        }
        if user is not None:
            for path in (directory, runtime, configuration):
                os.chown(path, user.pw_uid, user.pw_gid)

    def command(self, *words: str) -> list[str]:
        as_user: list[str] = []
        if self._user is not None:
            as_user = ["setpriv", f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}", "--init-groups"]
        storage = [f"--root={self._directory / 'storage'}", f"--runroot={self._directory / 'run/storage'}"]
        return [*as_user, "podman", *storage, *words]

    def run(self, *words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            input=text,
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=600,
            check=False,
            cwd="/",
        )

    def output(self, *words: str, text: str | None = None) -> str:
        done = self.run(*words, text=text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def odradek(self, network: str, *words: str, text: str | None = None) -> str:
        """The output of a command of the image in a container of its own, which needs no health check."""
        options = ["--rm", "--interactive", "--health-cmd=none", f"--network={network}"]
        return self.output("run", *options, TAG, *words, text=text)


@pytest.fixture(scope="module", params=["root", "rootless"])
def podman(request: pytest.FixtureRequest, image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    toolchains.require_command("podman", "podman")
    missing = [name for name in ("netavark", "aardvark-dns") if not Path("/usr/lib/podman", name).exists()]
    if missing:
        toolchains.unavailable(
            f"needs {' and '.join(missing)} of Podman (deploy/debian/install-test-packages --nightly)"
        )
    user = _rootless_user() if request.param == "rootless" else None
    if request.param == "rootless" and user is None:
        toolchains.unavailable("needs a user with subordinate ids (/etc/subuid) for rootless containers")
    directory = (
        Path("/var/tmp") / f"odradek-podman-{os.getpid()}-{request.param}"
    )  # the paths of pytest are for root only
    directory.mkdir(mode=0o755)
    podman = Podman(directory, user)
    try:
        context = directory / "context"
        context.mkdir()
        (context / "Containerfile").write_text(images.containerfile_of(image))
        subprocess.run(["cp", "--archive", image / "rootfs", context], check=True)
        # COPY keeps no owners: those of the directories that the broker writes to are set in the copy by the build of root
        archive = directory / "rootfs.tar"
        subprocess.run(
            ["tar", "--create", f"--file={archive}", f"--directory={context / 'rootfs'}", "--numeric-owner", "."],
            check=True,
        )
        subprocess.run(["rm", "-rf", "--one-file-system", context / "rootfs"], check=True)
        archive.rename(context / "rootfs.tar")
        file = context / "Containerfile"
        file.write_text(file.read_text().replace("COPY rootfs/ /", "ADD rootfs.tar /"))
        podman.output("build", "--format", "docker", "--tag", TAG, str(context))
        yield podman
    finally:
        podman.run("rm", "--force", "--all", "--volumes", "--time", "0")
        podman.run("network", "prune", "--force")
        podman.run("unshare", "rm", "-rf", str(directory / "storage")) if user is not None else None
        subprocess.run(["rm", "-rf", "--one-file-system", directory], check=True)


def _rootless_user() -> pwd.struct_passwd | None:
    for line in Path("/etc/subuid").read_text().splitlines() if Path("/etc/subuid").exists() else ():
        try:
            user = pwd.getpwnam(line.partition(":")[0])
        except KeyError:
            continue
        if user.pw_uid != 0:
            return user
    return None


class Broker:
    """A container with a broker in a network of its own. `port` is its port, and `published` that of the host."""

    def __init__(self, podman: Podman, port: int, *options: str, published: int | None = None) -> None:
        self._podman = podman
        self.port, self.published = port, published or port
        self.name = f"odradek-{os.getpid()}-{port}"
        podman.output("network", "create", self.name)
        given = [f"--name={self.name}", f"--network={self.name}", "--read-only", f"--publish={self.published}:{port}"]
        podman.output("run", "--detach", *given, f"--env=KAFKA_LISTENERS=PLAINTEXT://:{port}", *options, TAG)
        until(self.is_healthy, self.log)

    def is_healthy(self) -> bool:
        return self._podman.run("healthcheck", "run", self.name).returncode == 0

    def log(self) -> str:
        done = self._podman.run("logs", self.name)
        return done.stdout + done.stderr

    def address(self) -> str:
        """Of the container in its network."""
        shape = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        return self._podman.output("inspect", "--format", shape, self.name).strip()

    def stop(self) -> int:
        self._podman.output("stop", "--time", "60", self.name)
        return int(self._podman.output("inspect", "--format", "{{.State.ExitCode}}", self.name))


def told(servers: str) -> list[str]:
    """The address of the broker that a client on the host receives, after it has sent and read a record with it."""
    producer = Producer({"bootstrap.servers": servers, "message.timeout.ms": 30_000})
    failed: list[object] = []
    producer.produce("from-host", servers, on_delivery=lambda error, _: failed.append(error))
    producer.flush(60)
    assert failed == [None]
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "host", "auto.offset.reset": "earliest"})
    consumer.subscribe(["from-host"])
    message = consumer.poll(60)
    assert message is not None and message.error() is None
    consumer.close()
    return [f"{broker.host}:{broker.port}" for broker in producer.list_topics(timeout=30).brokers.values()]


def test_clients_on_the_host_beside_and_by_name(podman: Podman) -> None:
    with reserved() as port:
        topics = "--env=KAFKA_CREATE_TOPICS=orders:3:1,events:1:1:compact"
        broker = Broker(podman, port, topics)
        assert told(f"127.0.0.1:{port}") == [f"localhost:{port}"]
        listed = podman.odradek(broker.name, "topic", "list", "-b", f"{broker.name}:{port}", "--json")
        assert {"orders", "events", "from-host"} <= {row["topic"] for row in json.loads(listed)}
        for number, host in enumerate((broker.name, broker.address())):
            server = f"{host}:{port}"
            podman.odradek(broker.name, "produce", "orders", "-b", server, "-k", str(number), text=f"{host}\n")
            described = podman.odradek(broker.name, "cluster", "describe", "-b", server, "--json")
            assert f'"{broker.address()}' in described
        read = podman.odradek(
            broker.name, "consume", "orders", "-b", f"{broker.name}:{port}", "--from", "beginning", "--exit"
        )
        assert sorted(read.splitlines()) == sorted((broker.name, broker.address()))
        inside = podman.output("exec", broker.name, "odradek", "consume", "from-host", "-b", f"localhost:{port}",
                               "--from", "beginning", "--exit")  # fmt: skip
        assert inside == f"127.0.0.1:{port}\n"
        assert broker.stop() == 0
        assert [line for line in broker.log().splitlines() if '"ERROR"' in line or '"FATAL"' in line] == []


def test_another_port_of_the_host(podman: Podman) -> None:
    with reserved() as port, reserved() as published:
        option = f"--env=ODRADEK_PUBLISHED_ADDRESS=localhost:{published}"
        broker = Broker(podman, port, option, published=published)
        assert told(f"127.0.0.1:{published}") == [f"localhost:{published}"]
        podman.odradek(broker.name, "topic", "create", "beside", "-p", "1", "-b", f"{broker.name}:{port}")
        assert broker.stop() == 0


def test_data_are_in_the_volume_of_a_stack_of_another_image(podman: Podman) -> None:
    with reserved() as port, ExitStack() as ends:
        volume = f"--volume=odradek-{port}:/bitnami/kafka"
        broker = Broker(podman, port, volume)
        assert told(f"127.0.0.1:{port}") == [f"localhost:{port}"]
        files = podman.output("exec", broker.name, "odradek", "status", "--pid", "1", "--json")
        assert [row["path"] for row in json.loads(files)["log_dirs"]] == ["/bitnami/kafka/odradek"]
        assert broker.stop() == 0
        ends.callback(podman.run, "volume", "rm", "--force", f"odradek-{port}")
        podman.output("start", broker.name)
        until(broker.is_healthy, broker.log)
        assert told(f"127.0.0.1:{port}") == [f"localhost:{port}"]
        read = podman.odradek(
            broker.name, "consume", "from-host", "-b", f"{broker.name}:{port}", "--from", "beginning", "--exit"
        )
        assert read == f"127.0.0.1:{port}\n" * 2
        podman.output("rm", "--force", "--time", "0", broker.name)


def test_a_process_whose_parent_has_ended_is_reaped(podman: Podman) -> None:
    with reserved() as port:
        broker = Broker(podman, port)
        fork = "import os; os.fork() or os.fork() or os._exit(0)"
        podman.output("exec", broker.name, "/opt/odradek/venv/bin/python", "-c", fork)
        count = "import os; print(sum(') Z ' in open(f'/proc/{n}/stat').read() for n in os.listdir('/proc') if n.isdigit()))"
        until(
            lambda: podman.output("exec", broker.name, "/opt/odradek/venv/bin/python", "-c", count).strip() == "0",
            lambda: "no process of the container waits to be reaped",
        )
        assert broker.stop() == 0
