"""A cluster to try out, on this machine: ZooKeeper, three brokers, and a topic with three replicas. Used by ``make cluster``.

Everything listens on free ports of 127.0.0.1, and keeps its data in a temporary directory that is removed at the end. Needs
Java; Maven downloads ZooKeeper on the first use.
"""

import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from odradek.testing.broker_process import Broker
from tests.zookeeper import ZookeeperServer

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


def main() -> int:
    """Start the cluster, describe it, and run it until Ctrl-C. Returns the exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-cluster-")))
        zookeeper = stack.enter_context(ZookeeperServer())
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
