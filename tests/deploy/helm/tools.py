"""What the tests of the chart need, all by Go: Helm, kube-score, a real API server, and definitions of operators' objects."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.toolchains import fetch, make_product, require_command

HELM = ("helm.sh/helm/v3/cmd/helm", "v3.22.0")
KUBE_SCORE = ("github.com/zegl/kube-score/cmd/kube-score", "v1.20.0")
DEFINITIONS = {
    ("github.com/prometheus-operator/prometheus-operator", "v0.85.0"): (
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ),
    ("github.com/cert-manager/cert-manager", "v1.21.2"): ("deploy/crds/cert-manager.io_certificates.yaml",),
}
"""Go modules, and their files with the definitions of the kinds of objects that the chart makes for operators."""
KUBERNETES = "1.34.4"
"""The version of the API server in apiserver/go.mod."""
_GO = "golang-go 1.21 or newer"
_SERVER = Path(__file__).resolve().parent / "apiserver"


def go_command(package: str, version: str) -> str:
    """Return the path of the executable of a Go package at this version: an installed one, or else one built in `.build`."""
    go = require_command("go", _GO)
    name = package.rpartition("/")[2]
    for directory in (*os.get_exec_path(), Path.home() / "go" / "bin"):
        installed = Path(directory) / name
        if installed.is_file():
            built_from = subprocess.run([go, "version", "-m", str(installed)], capture_output=True, text=True)
            if re.search(rf"^\tmod\t\S+\t{re.escape(version)}\t", built_from.stdout, re.MULTILINE):
                return str(installed)

    def install(output: Path) -> None:
        fetch(["env", f"GOBIN={output}", go, "install", f"{package}@{version}"])

    return str(make_product(f"{name}-{version}", [], install) / name)


def helm() -> str:
    """Return the path of Helm (three minutes to build on two CPUs)."""
    return go_command(*HELM)


def kube_score() -> str:
    """Return the path of kube-score (a minute to build on two CPUs)."""
    return go_command(*KUBE_SCORE)


def etcd() -> str:
    """Return the path of etcd."""
    return require_command("etcd", "etcd-server")


def kube_apiserver() -> Path:
    """Return the path of Kubernetes' API server (nine minutes to build on two CPUs, 4 GB in Go's cache)."""
    go = require_command("go", _GO)
    sources = [_SERVER / name for name in ("main.go", "go.mod", "go.sum")]

    def build(output: Path) -> None:
        version = "k8s.io/component-base/version"
        flags = f"-s -w -X {version}.gitVersion=v{KUBERNETES} -X {version}.gitMajor=1 -X {version}.gitMinor=34"
        options = ["-p", "1", f"-ldflags={flags}", "-o", str(output / "kube-apiserver")]
        command = ["nice", go, "build", "-C", str(_SERVER), *options, "."]
        fetch(command, timeout_s=3600)

    return make_product("kube-apiserver", sources, build, [KUBERNETES]) / "kube-apiserver"


def definitions() -> list[Path]:
    """Return the files of `DEFINITIONS`."""
    go = require_command("go", _GO)

    def take(output: Path) -> None:
        for (module, version), files in DEFINITIONS.items():
            command = [go, "mod", "download", "-json", f"{module}@{version}"]
            fetch(command)
            directory = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["Dir"]
            for file in files:
                shutil.copyfile(Path(directory) / file, output / Path(file).name)

    versions = "-".join(version for _, version in DEFINITIONS)
    return sorted(make_product(f"operators-{versions}", [], take).glob("*.yaml"))
