"""A real Prometheus that scrapes a broker: started on a free port, stopped by process id."""

import contextlib
import json
import subprocess
import urllib.parse
import urllib.request

from tests.ports import reserved
from tests.waiting import PATIENCE_S, until

_CONFIG = """\
global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
  - job_name: odradek
    static_configs:
      - targets: ["{target}"]
"""


class Prometheus:
    """:param directory: for its configuration, data and log. :param broker: with a `metrics.listener`."""

    def __init__(self, directory, broker):
        self._directory = directory
        self._target = urllib.parse.urlsplit(broker.metrics_url).netloc

    def __enter__(self):
        self._directory.mkdir(parents=True, exist_ok=True)
        config = self._directory / "prometheus.yml"
        config.write_text(_CONFIG.format(target=self._target))
        self._port = contextlib.ExitStack()
        self._address = f"127.0.0.1:{self._port.enter_context(reserved())}"
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={config}",
                    f"--storage.tsdb.path={self._directory}/data",
                    f"--web.listen-address={self._address}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            until(self._scrapes, "the first scrape")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        self._port.close()

    def _scrapes(self):
        assert self._process.poll() is None, (self._directory / "log").read_text()
        try:
            return self.value("up") == 1
        except OSError:
            return False

    def query(self, expression):
        """Return [(labels, value)] of the current instant vector."""
        return [(one["metric"], float(one["value"][1])) for one in self._ask(expression)]

    def scraped(self, expression):
        """Return [(labels, [value])] of a range of samples as scraped."""
        return [(one["metric"], [float(value) for _, value in one["values"]]) for one in self._ask(expression)]

    def _ask(self, expression):
        url = f"http://{self._address}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            document = json.load(answer)
        assert document["status"] == "success", document
        return document["data"]["result"]

    def value(self, expression):
        """Return the value of the only series; None if there is none."""
        found = self.query(expression)
        assert len(found) < 2, found
        return found[0][1] if found else None
