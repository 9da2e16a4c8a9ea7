"""Two brokers for a module of tests, and settings of a flow between them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from odradek.clients.cluster import Cluster
from odradek.mirror.following import Following
from odradek.mirror.settings import MirrorSettings, load
from odradek.testing import Broker
from tests.frame_relay import FrameRelay
from tests.ports import reserved


class Pair(NamedTuple):
    """The brokers of the clusters a and b."""

    a: Broker
    b: Broker

    def write(self, file: Path, lines: str = "", **keys: str) -> str:
        """A mirror's file with the flow a->b; its name. :param lines: more lines."""
        file.write_text(
            f"clusters = a, b\na.bootstrap.servers = {self.a.bootstrap_servers}\n"
            f"b.bootstrap.servers = {self.b.bootstrap_servers}\na->b.enabled = true\n"
            f"odradek.mirror.metrics.listener =\nemit.heartbeats.enabled = false\n{lines}\n"
            + "".join(f"{key} = {value}\n" for key, value in keys.items())
        )
        return str(file)

    def settings(self, directory: Path, lines: str = "") -> MirrorSettings:
        """The settings of the flow a->b, with more lines."""
        return load(self.write(directory / "mirror.properties", lines))


@contextmanager
def pair(a: Mapping[str, object] | None = None, b: Mapping[str, object] | None = None) -> Iterator[Pair]:
    """Two brokers, with settings of each."""
    with ExitStack() as stack:
        yield Pair(stack.enter_context(Broker(a)), stack.enter_context(Broker(b)))


@contextmanager
def relayed(config: Mapping[str, object]) -> Iterator[tuple[Broker, FrameRelay]]:
    """A broker whose clients reach it through a relay."""
    with ExitStack() as stack:
        port = stack.enter_context(reserved())
        relay = stack.enter_context(FrameRelay(port))
        listeners = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay.port}",
        }
        yield stack.enter_context(Broker(dict(config) | listeners)), relay


@contextmanager
def following(settings: MirrorSettings) -> Iterator[tuple[Following, Cluster, Cluster]]:
    """The `Following` of the file's first flow, and its two clusters."""
    flow = settings.flows[0]
    with flow.source.connect() as source, flow.target.connect() as target:
        yield Following(flow, [each.edge for each in settings.flows], source, target), source, target
