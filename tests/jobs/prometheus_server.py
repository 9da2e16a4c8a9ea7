"""A real Prometheus with backfilled samples, and a proxy that injects failures."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests import toolchains
from tests.waiting import until

Sample = tuple[str, dict[str, str], int, float]  # metric, labels, milliseconds, value


def open_metrics(samples: list[Sample]) -> str:
    """Return the samples in the text format from which promtool makes blocks."""

    def quoted(value: str) -> str:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    lines = []
    for metric, labels, at_ms, value in sorted(samples, key=lambda one: (one[0], sorted(one[1].items()), one[2])):
        named = ",".join(f'{name}="{quoted(text)}"' for name, text in labels.items())
        lines.append(f"{metric}{{{named}}} {value!r} {at_ms / 1000:.3f}\n")
    return "".join(lines) + "# EOF\n"


class PrometheusServer:
    """Serves the given samples, and scrapes nothing but `targets`, every second.

    :param arguments: further ones of the command, such as limits. :param targets: addresses HOST:PORT
    :param job: settings of the job of the targets, such as another name than `odradek`
    """

    def __init__(
        self, directory: Path, samples: list[Sample], *arguments: str, targets: Sequence[str] = (),
        job: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        prometheus = toolchains.require_command("prometheus", "prometheus")
        promtool = toolchains.require_command("promtool", "prometheus")
        directory.mkdir(parents=True)
        text, blocks, config = directory / "samples.om", directory / "blocks", directory / "prometheus.yml"
        text.write_text(open_metrics(samples))
        scraped = {"job_name": "odradek", "static_configs": [{"targets": [*targets]}], **(job or {})}
        scraping = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [scraped] if targets else [],
        }
        config.write_text(json.dumps(scraping))
        if samples:
            made = [promtool, "tsdb", "create-blocks-from", "openmetrics", str(text), str(blocks)]
            subprocess.run(made, check=True, stdout=subprocess.DEVNULL, timeout=120)
        log = directory / "log"
        self._log = log.open("wb")
        self._process = subprocess.Popen(
            [prometheus, f"--config.file={config}", f"--storage.tsdb.path={blocks}", "--storage.tsdb.retention.time=50y",
             "--web.listen-address=127.0.0.1:0", *arguments],
            stdout=self._log, stderr=subprocess.STDOUT,
        )  # fmt: skip

        def port() -> str | None:
            match = re.search(r'"Listening on" address=127\.0\.0\.1:(\d+)\s', log.read_text())
            assert match or self._process.poll() is None, log.read_text()
            return match and match[1]

        def ready() -> bool:
            assert self._process.poll() is None, log.read_text()
            try:
                with urllib.request.urlopen(self.url + "/-/ready", timeout=60):
                    return True
            except OSError:
                return False

        try:
            # the kernel chose a port that nobody else can have taken in between
            self.url = f"http://127.0.0.1:{until(port, log.read_text, 240)}"
            until(ready, log.read_text, 240)
        except BaseException:
            self.stop()
            raise

    def value(self, expression: str) -> float:
        """Return the only value of an expression; 0 if there is none."""
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}", timeout=60) as answer:
            result = json.load(answer)["data"]["result"]
        return float(result[0]["value"][1]) if result else 0.0

    def stop(self) -> None:
        """Stop the server and wait for its end."""
        self._process.kill()
        self._process.wait(60)
        self._log.close()


class Proxy:
    """A proxy of a Prometheus. Each request uses one of `faults`, which answers it (and returns True) or lets it pass."""

    def __init__(self, url: str) -> None:
        self.faults: list[Callable[[BaseHTTPRequestHandler], bool]] = []
        self.requests: list[str] = []
        self.change: Callable[[dict[str, Any]], None] | None = None
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.requests.append(self.path + " " + body.decode())
                if outer.faults and outer.faults.pop(0)(self):
                    return
                request = urllib.request.Request(
                    url + self.path, body or None, {"Content-Type": self.headers["Content-Type"] or ""}
                )
                try:
                    with urllib.request.urlopen(request, timeout=60) as answer:
                        status, content = answer.status, answer.read()
                except urllib.error.HTTPError as error:
                    status, content = error.code, error.read()
                if outer.change is not None:
                    document = json.loads(content)
                    outer.change(document)
                    content = json.dumps(document).encode()
                answer_with(self, status, content)

            do_POST = do_GET

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    def stop(self) -> None:
        """Stop the server and wait for its end."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(60)


def answer_with(handler: BaseHTTPRequestHandler, status: int, content: bytes, length: int | None = None) -> bool:
    """:param length: value of the header; None: the actual length"""
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(content) if length is None else length))
    handler.send_header("Connection", "close")
    handler.end_headers()
    handler.wfile.write(content)
    handler.close_connection = True
    return True
