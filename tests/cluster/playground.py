"""A cluster to try out, on this machine: ZooKeeper, three brokers, and a topic with three replicas. Used by ``make cluster``.

Everything listens on free ports of 127.0.0.1, and keeps its data in a temporary directory that is removed at the end. Needs
what ``make build`` installs, Java, and ZooKeeper: see `class_path`.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from odradek.testing.broker_process import Broker
from tests.toolchains import zookeeper_jars
from tests.zookeeper import ZookeeperServer

OF_DEBIAN = Path("/usr/share/java/zookeeper.jar")
"""Of the package libzookeeper-java; the jar names all jars that it needs."""
COMMAND = [sys.executable, "-m", "odradek.cli.main"]
TOPIC = "demo"
TEXT = """
Three brokers and ZooKeeper are running. Stop them with Ctrl-C.

  export ODRADEK_BOOTSTRAP_SERVERS={servers}
  export PATH={path}:$PATH

  odradek cluster describe
  odradek topic describe {topic}
  odradek partition explain {topic}-0
  seq 1000 | odradek produce {topic} -
  odradek consume {topic} --from beginning --exit
  kill -9 {pid}           # all processes of broker 1 end; another broker leads its partitions soon after

ZooKeeper: {zookeeper}   data and logs: {directory}
"""


def class_path() -> str:
    """ZooKeeper's jars: of a download that is unpacked in the directory ``ZOOKEEPER``, of Debian's package, or from Maven.

    :raises SystemExit: one of the programs is missing; the message says how to get it.
    """
    if shutil.which("java") is None:
        sys.exit(
            "make cluster: ZooKeeper needs Java, which is not installed (Debian: apt install default-jre-headless)"
        )
    download = os.environ.get("ZOOKEEPER")
    if download:
        if not list(Path(download, "lib").glob("zookeeper-*.jar")):
            sys.exit(
                f"make cluster: ZOOKEEPER={download} must be an unpacked download, but its lib/ has no zookeeper-*.jar"
            )
        return f"{download}/lib/*"
    if OF_DEBIAN.exists():
        return str(OF_DEBIAN)
    if shutil.which("mvn") is None:
        sys.exit(
            "make cluster: there is no ZooKeeper on this machine. Install Debian's jar (apt install libzookeeper-java), or"
            " unpack a download and name it (make cluster ZOOKEEPER=DIRECTORY), or install Maven, which then downloads 7 MB"
        )
    return f"{zookeeper_jars()}/*"


def main() -> int:
    """Start the cluster, describe it, and run it until Ctrl-C. Returns the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    jars = class_path()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-cluster-")))
        zookeeper = stack.enter_context(ZookeeperServer(class_path=jars))
        print(f"ZooKeeper runs at {zookeeper.hosts}", flush=True)
        brokers = []
        for broker_id in (1, 2, 3):
            settings = {
                "broker.id": broker_id,
                "zookeeper.connect": zookeeper.hosts,
                "zookeeper.session.timeout.ms": 6000,
                "default.replication.factor": 3,
                "min.insync.replicas": 2,
                "offsets.topic.replication.factor": 3,
            }
            broker = stack.enter_context(Broker(settings, directory=directory / f"broker-{broker_id}"))
            print(f"broker {broker_id} runs at {broker.bootstrap_servers}", flush=True)
            brokers.append(broker)
        servers = ",".join(broker.bootstrap_servers for broker in brokers)
        subprocess.run([*COMMAND, "topic", "create", TOPIC, "-p", "6", "-b", servers], check=True)
        pid, path = brokers[0].pid, Path(sys.executable).parent
        print(
            TEXT.format(
                servers=servers, path=path, topic=TOPIC, pid=pid, zookeeper=zookeeper.hosts, directory=directory
            ),
            flush=True,
        )
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("stopping", flush=True)
            for (
                broker
            ) in brokers:  # an ordered stop would look for other brokers that take over; the data is removed anyway
                if broker.running:
                    broker.kill_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
