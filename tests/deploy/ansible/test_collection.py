"""The collection's files: ansible-lint, syntax, the archive that is published, and that its documents agree with its roles."""

import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.ansible.collection import BIN, COLLECTION, LOCAL, Ansible
from tests.toolchains import REPOSITORY

ROLES = ("broker", "zookeeper", "monitoring")
PLAYBOOKS = ("site", "rolling_restart", "upgrade", "add_broker", "remove_broker")


def read(path: str) -> Any:
    return yaml.safe_load((COLLECTION / path).read_text())


def options_of(role: str) -> dict[str, dict[str, Any]]:
    options: dict[str, dict[str, Any]] = read(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"][
        "options"
    ]
    return options


def test_ansible_lint_finds_nothing(ansible: Ansible) -> None:
    """The profile of published collections. No file may switch a rule off."""
    command = [BIN / "ansible-lint", "--offline", "--profile", "production", "--strict", "--project-dir", COLLECTION]
    done = subprocess.run(
        [*map(str, command), str(COLLECTION)], cwd=ansible.directory, env=ansible.environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    skips = [path for path in COLLECTION.rglob("*.y*ml") if re.search("noqa|skip_ansible_lint", path.read_text())]
    assert skips == []
    assert not list(COLLECTION.glob(".ansible-lint*"))


@pytest.mark.parametrize("inventory", ["single", "cluster", "docs/operate/ansible.md"])
def test_all_playbooks_can_be_read_with_the_example_inventories(ansible: Ansible, inventory: str) -> None:
    """Without a warning: a group that is missing looks like a mistake."""
    first, *others = (f"odradek.broker.{name}" for name in PLAYBOOKS)
    path = COLLECTION / "inventories" / inventory
    if inventory.startswith("docs/"):
        example = re.search(r"```yaml\n(.*?)```", (REPOSITORY / inventory).read_text(), re.DOTALL)
        assert example is not None
        path = ansible.directory / "hosts.yml"
        path.write_text(example[1])
    run = ansible.playbook(first, path, "--syntax-check", *others)
    assert run.code == 0, run.output
    assert "WARNING" not in run.output
    assert all(f"playbooks/{name}.yml" in run.output for name in PLAYBOOKS)
    assert {path.stem for path in (COLLECTION / "playbooks").glob("*.yml")} == set(PLAYBOOKS)


@pytest.mark.parametrize("role", ROLES)
def test_argument_specs_defaults_and_readme_agree(role: str) -> None:
    options = options_of(role)
    defaults: dict[str, Any] = read(f"roles/{role}/defaults/main.yml")
    required = {name for name, option in options.items() if option.get("required")}
    assert set(options) - required == set(defaults)
    for name, value in defaults.items():
        is_template = isinstance(value, str) and "{{" in value
        if is_template:  # the description says what the default is
            assert "default" not in options[name] and "The default is" in options[name]["description"], name
        else:
            assert options[name]["default"] == value, name
            assert type(options[name]["default"]) is type(value), name
    readme = (COLLECTION / "README.md").read_text()
    section = readme.split(f"## Role `{role}`")[1].split("\n## ")[0]
    rows = re.findall(rf"(?m)^\| `({role}_\w+)` \| ([^|]*) \|", section)
    assert [name for name, _ in rows] == list(options)
    for name, default in rows:
        option = options[name]
        if name in required:
            assert default == "required", name
        elif "default" in option:
            assert default == f"`{json.dumps(option['default'], ensure_ascii=False)}`", name
        else:
            assert default not in ("", "required") and "`" not in default, name


def test_the_published_archive_contains_what_the_links_point_to(ansible: Ansible) -> None:
    """Files of other directories of the source (unit, rules, dashboards) are links here and must be files there."""
    run = [BIN / "ansible-galaxy", "collection", "build", str(COLLECTION), "--output-path", str(ansible.directory)]
    subprocess.run([*map(str, run)], env=ansible.environment, cwd=ansible.directory, check=True, timeout=60)
    (archive,) = ansible.directory.glob("odradek-broker-*.tar.gz")
    with tarfile.open(archive) as content:
        assert [member.name for member in content if member.issym() or member.islnk()] == []
        for link in (path for path in COLLECTION.rglob("*") if path.is_symlink()):
            member = content.extractfile(str(link.relative_to(COLLECTION)))
            assert member is not None and member.read() == link.read_bytes(), link


def test_every_dashboard_is_provisioned() -> None:
    dashboards = COLLECTION / "roles" / "monitoring" / "files" / "dashboards"
    expected = {path.name for path in (REPOSITORY / "grafana" / "dashboards").glob("*.json")}
    assert {path.name for path in dashboards.iterdir()} == expected
    rules = COLLECTION / "roles" / "monitoring" / "files" / "rules"
    assert {path.name for path in rules.iterdir()} == {
        path.name for path in (REPOSITORY / "deploy" / "prometheus" / "rules").glob("*.yml")
    }


def test_prometheus_accepts_the_rendered_configuration(ansible: Ansible, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    brokers = {f"kafka{number}": {"broker_node_id": number} for number in (1, 2, 3)}
    inventory = ansible.inventory({"brokers": brokers, "monitoring": {"prometheus": {}}}, **LOCAL)
    play = tmp_path / "render.yml"
    templates = ["prometheus.yml", "targets.yml", "dashboards.yaml", "datasource.yaml", "report.env"]
    play.write_text(yaml.safe_dump([{
        "name": "Render", "hosts": "monitoring", "gather_facts": False,
        "vars_files": [str(COLLECTION / "roles/monitoring/defaults/main.yml")],
        "tasks": [{
            "name": "Render", "ansible.builtin.template": {
                "src": f"{COLLECTION}/roles/monitoring/templates/{{{{ item }}}}.j2", "dest": f"{tmp_path}/{{{{ item }}}}",
                "mode": "0600"},
            "loop": templates,
        }],
    }]))  # fmt: skip
    run = ansible.playbook(str(play), inventory, monitoring_alertmanager=True, monitoring_docs_url="https://docs")
    assert run.code == 0, run.output
    configuration = yaml.safe_load((tmp_path / "prometheus.yml").read_text())
    assert configuration["global"]["external_labels"] == {"odradek_docs": "https://docs"}
    assert configuration["alerting"]["alertmanagers"] == [{"static_configs": [{"targets": ["127.0.0.1:9093"]}]}]
    assert yaml.safe_load((tmp_path / "targets.yml").read_text()) == [
        {"targets": ["kafka1:9404", "kafka2:9404", "kafka3:9404"]}
    ]
    if promtool:
        command = [promtool, "check", "config", "--syntax-only", str(tmp_path / "prometheus.yml")]
        checked = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert checked.returncode == 0, checked.stdout + checked.stderr
