"""Checks of others for Helm charts and for objects of Kubernetes: none of them finds anything."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import toolchains
from tests.deploy.helm import chart, tools

IGNORED = (
    # Kubernetes sets the label that selects the pod of one broker (apps.kubernetes.io/pod-index): it is not in the template.
    ("service-targets-pod", r"^prod-odradek-external-[0-9]+$"),
    # Chosen by the value external.type, which has another default.
    ("service-type", r"^prod-odradek-external(-[0-9]+)?$"),
)
"""Checks of kube-score whose findings are accepted, the objects for which they are, and why."""
OPERATORS = ("Certificate", "ServiceMonitor", "PrometheusRule")
"""Kinds of objects of operators, for which Kubernetes has no schema; tests/deploy/helm/test_apiserver.py creates them."""


@pytest.mark.parametrize("name", chart.SETS)
def test_helm_lint_finds_nothing(name: str) -> None:
    done = chart.helm(
        "lint", "--strict", chart.CHART, "-f", chart.values_file(name), "--kube-version", chart.KUBERNETES
    )
    assert done.returncode == 0, done.stdout + done.stderr
    findings = re.findall(r"^\[(?:WARNING|ERROR)\].*", done.stdout + done.stderr, re.MULTILINE)
    assert not findings


@pytest.mark.parametrize("name", chart.SETS)
def test_kube_score_finds_nothing(name: str) -> None:
    # A limit of CPU would stop a broker in the middle of requests, because its processes use whole CPUs in short times.
    options = ["--kubernetes-version", "v1.34", "--ignore-container-cpu-limit", "--output-format", "json"]
    command = [tools.kube_score(), "score", *options, "-"]
    done = subprocess.run(command, input=chart.manifest(name), capture_output=True, text=True, timeout=60)
    scored = json.loads(done.stdout)
    assert "StatefulSet" in {item["type_meta"]["kind"] for item in scored}
    findings = []
    for item in scored:
        for found in item["checks"]:
            if found["skipped"] or found["grade"] >= 10:
                continue
            object_name = item["object_meta"]["name"]
            check = found["check"]["id"]
            if not any(check == ignored and re.match(pattern, object_name) for ignored, pattern in IGNORED):
                texts = [comment["summary"] for comment in found["comments"] or ()]
                findings.append(f"{item['type_meta']['kind']} {object_name}: {check}: {texts}")
    assert not findings


@pytest.mark.parametrize("name", chart.SETS)
def test_the_objects_have_the_fields_of_their_kinds_and_no_others(name: str, tmp_path: Path) -> None:
    file = tmp_path / "objects.yaml"
    known = [item for item in chart.objects(chart.manifest(name)) if item["kind"] not in OPERATORS]
    file.write_text("---\n".join(json.dumps(item) + "\n" for item in known))
    tool = Path(sys.executable).with_name("kubernetes-validate")
    if not tool.exists():
        toolchains.unavailable("kubernetes-validate is not installed (pip install 'odradek[dev]')")
    done = subprocess.run([tool, "-k", "1.34", "--strict", file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (done.stdout + done.stderr).splitlines()
    assert [line for line in lines if not line.startswith("INFO")] == []
    assert len(lines) == len(known)


@pytest.mark.parametrize("name", chart.SETS)
def test_every_container_is_restricted(name: str) -> None:
    """kube-score checks most of it; the API server's own admission is in tests/deploy/helm/test_apiserver.py."""
    for where, template in chart.pod_templates(chart.objects(chart.manifest(name))):
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["fsGroup"] == 10001, where
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"], where
            assert security["capabilities"] == {"drop": ["ALL"]}, where
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}, where
            assert {"requests", "limits"} <= container["resources"].keys(), where
        mounts = [mount["mountPath"] for container in pod["containers"] for mount in container.get("volumeMounts", ())]
        nested = [(a, b) for a in mounts for b in mounts if a.startswith(f"{b}/")]
        assert not nested, f"{where}: a container runtime cannot make a directory in a read-only volume"
