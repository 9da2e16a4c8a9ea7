"""A real Prometheus for tests, with the project's configuration and rules on a shorter time scale; queried over HTTP."""

import contextlib
import json
import math
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.grafana.boards import ROOT
from tests.ports import reserved

MINUTE_S = 2
"""Duration of a minute of the rules in tests."""
HURRY = {"m": MINUTE_S, "h": 60 * MINUTE_S}

PATIENCE_S = 240.0
PAUSE_S = 0.2


def hurried(rules: str) -> str:
    """Return the rules with shortened durations; names are not changed."""

    def shorter(match: re.Match[str]) -> str:
        return f"{match[1]}{int(match[2]) * HURRY[match[3]]}s"

    return re.sub(r"(\[|offset |for: )(\d+)([mh])\b", shorter, rules)


class Prometheus:
    """Scrapes ``target`` each second from ``directory``; a context. Raises TimeoutError if it does not become ready."""

    def __init__(self, directory: Path, target: str) -> None:
        self._directory = directory
        self._target = target
        self._process: subprocess.Popen[bytes] | None = None
        self._url = ""
        self._port = contextlib.ExitStack()

    def __enter__(self) -> "Prometheus":
        self._directory.mkdir(parents=True)
        for rules in (ROOT / "deploy/prometheus/rules").glob("*.yml"):
            (self._directory / "rules").mkdir(exist_ok=True)
            (self._directory / "rules" / rules.name).write_text(hurried(rules.read_text()))
        config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        config["scrape_configs"][0]["static_configs"][0]["targets"] = [self._target]
        del config["alerting"]
        (self._directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        port = self._port.enter_context(reserved())
        self._url = f"http://127.0.0.1:{port}"
        command = [
            "prometheus", "--config.file=prometheus.yml", f"--web.listen-address=127.0.0.1:{port}",
            "--storage.tsdb.path=data", "--log.level=warn",
        ]  # fmt: skip
        with (self._directory / "log").open("wb") as log:
            self._process = subprocess.Popen(command, cwd=self._directory, stdout=log, stderr=log)
        end = time.monotonic() + PATIENCE_S
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise TimeoutError(f"Prometheus is not ready: {(self._directory / 'log').read_text()[-2000:]}")
            time.sleep(PAUSE_S)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._port.close()

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of a response of the API. Raises AssertionError with Prometheus' error message."""
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                response = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode(errors='replace')}") from error
        assert response["status"] == "success", response
        return response["data"]

    def query(self, expr: str) -> list[dict[str, Any]]:
        """Return the current series whose value is a number, each with ``metric`` and ``value``."""
        data = self.ask("query", query=expr)
        assert data["resultType"] == "vector", expr
        return [one for one in data["result"] if not math.isnan(float(one["value"][1]))]

    def value(self, expr: str) -> float:
        """Return the value of a query with one series. Raises AssertionError for another number of series."""
        (one,) = self.query(expr)
        return float(one["value"][1])

    def firing(self) -> list[dict[str, str]]:
        """Return the labels of all alerts that fire."""
        return [alert["labels"] for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"]

    def wait_for_alert(self, name: str, **labels: str) -> dict[str, str]:
        """Wait until an alert with these labels fires; return its labels. Raises AssertionError with the firing alerts."""
        found: list[dict[str, str]] = []
        firing: list[dict[str, str]] = []

        def fires() -> bool:
            firing[:] = self.firing()
            found[:] = [one for one in firing if one["alertname"] == name and labels.items() <= one.items()]
            return bool(found)

        _until(fires, lambda: f"{name} {labels} does not fire; what does: {firing}")
        return found[0]

    def wait_for_values(self, selector: str, label: str, *values: str) -> None:
        """Wait until the label has had all these values. Raises AssertionError with its values."""
        seen: set[str] = set()

        def offered() -> bool:
            seen.update(one["metric"].get(label, "") for one in self.query(selector))
            return seen.issuperset(values)

        _until(offered, lambda: f"{label} of {selector} is {seen}, not {values}")

    def wait_for_data(self, queries: dict[str, str], labels: dict[str, set[str]] | None = None) -> None:
        """Wait until each query has had data once, with a series that has all ``labels`` of the query of that name.

        Raises AssertionError naming those without.
        """
        missing = dict(queries)

        def all_had_data() -> bool:
            for name, expr in list(missing.items()):
                wanted = (labels or {}).get(name, set())
                if any(wanted <= one["metric"].keys() for one in self.query(expr)):
                    del missing[name]
            return not missing

        _until(all_had_data, lambda: f"{len(missing)} of {len(queries)} queries have no data: {missing}")


def _until(holds: Callable[[], bool], why: Callable[[], str]) -> None:
    """Poll until the condition holds; fail with the last result."""
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, why()
        time.sleep(PAUSE_S)
