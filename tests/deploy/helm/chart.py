"""Renders the Helm chart for tests: value sets, golden files, and the objects in them.

`python -m tests.deploy.helm.chart` writes the golden files again.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests import toolchains
from tests.deploy.helm import tools

CHART = toolchains.REPOSITORY / "deploy" / "helm" / "odradek"
HERE = Path(__file__).resolve().parent
VALUES = HERE / "values"
GOLDEN = HERE / "golden"
SETS = sorted(path.stem for path in VALUES.glob("*.yaml"))
"""The names of the value sets."""
KUBERNETES = "1.34.0"
RELEASE, NAMESPACE = "prod", "kafka"

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Object = dict[str, Any]


def values_file(name: str) -> Path:
    """The file of a value set."""
    return VALUES / f"{name}.yaml"


def helm(
    *arguments: object, text: str | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Helm, and return how it ended."""
    command = [tools.helm(), *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, env=env)


def render(*values: str, extra: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """`helm template` with value sets, and with the values `extra`."""
    command: list[object] = ["template", RELEASE, CHART, "-n", NAMESPACE, "--kube-version", KUBERNETES]
    for name in values:
        command += ["-f", values_file(name)]
    if extra is not None:
        command += ["-f", "-"]
    return helm(*command, text=None if extra is None else json.dumps(extra))


@cache
def manifest(name: str) -> str:
    """The objects of a value set, as YAML."""
    done = render(name)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text: str) -> list[Object]:
    """The objects in a text of YAML documents."""
    return [document for document in yaml.load_all(text, LOADER) if document]


def rendered(*values: str, extra: Mapping[str, Any] | None = None) -> list[Object]:
    """The objects of value sets with more values. They must be accepted."""
    if not extra and len(values) == 1:
        return objects(manifest(*values))
    done = render(*values, extra=extra)
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)


def only(found: Iterable[Object], kind: str, name: str = f"{RELEASE}-odradek") -> Object:
    """The object of this kind and name."""
    (one,) = (item for item in found if item["kind"] == kind and item["metadata"]["name"] == name)
    return one


def pod_templates(found: Iterable[Object]) -> Iterator[tuple[str, Object]]:
    """The metadata and specification of each pod that the objects make, with a name for messages."""
    for item in found:
        name = f"{item['kind']} {item['metadata']['name']}"
        if item["kind"] == "Pod":
            yield name, {"metadata": item["metadata"], "spec": item["spec"]}
        elif item["kind"] == "CronJob":
            yield name, item["spec"]["jobTemplate"]["spec"]["template"]
        elif item["kind"] in ("StatefulSet", "Job"):
            yield name, item["spec"]["template"]


def golden(name: str) -> str:
    """What the golden file of a value set contains: the objects, without the copies that test_copies.py compares."""
    found = objects(manifest(name))
    for item in found:
        if item["kind"] == "ConfigMap" and "-dashboard-" in item["metadata"]["name"]:
            item["data"] = dict.fromkeys(item["data"], "(a dashboard)")
        if item["kind"] == "PrometheusRule":
            item["spec"]["groups"] = [group["name"] for group in item["spec"]["groups"]]
    found.sort(key=lambda item: (item["kind"], item["metadata"]["name"]))
    return yaml.dump_all(found, sort_keys=False, width=140, Dumper=_Dumper)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def main() -> None:
    """Write the golden files, and remove those of value sets that do not exist any more."""
    GOLDEN.mkdir(exist_ok=True)
    for path in GOLDEN.glob("*.yaml"):
        if path.stem not in SETS:
            path.unlink()
    for name in SETS:
        (GOLDEN / f"{name}.yaml").write_text(golden(name))


if __name__ == "__main__":
    main()
