"""The commands of all ways to run the report are accepted: by `odradek report usage`, and by the program for spark-submit."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest
import yaml

from odradek.cli.jobs.report import usage
from odradek.jobs.usage_report.__main__ import parser
from tests import toolchains

DEPLOY = toolchains.REPOSITORY / "deploy"
UNIT = (DEPLOY / "systemd/odradek-report.service").read_text()
SETTINGS = (DEPLOY / "systemd/report.env").read_text()
ROLE = DEPLOY / "ansible/odradek/broker/roles/monitoring"
COMMAND = ["odradek", "report", "usage"]


def words(start: str, environment: dict[str, str]) -> list[str]:
    """The words of an ExecStart as systemd makes them: $NAME is split, ${NAME} is one word."""
    result = []
    for word in start.split():
        if word.startswith("$") and not word.startswith("${"):
            result += shlex.split(environment[word[1:]])
        else:
            result.append(re.sub(r"\$\{(\w+)\}", lambda found: environment[found[1]], word))
    return result


def environment_of(unit: str) -> dict[str, str]:
    assignments = (word for line in re.findall("(?m)^Environment=(.*)", unit) for word in shlex.split(line))
    return dict(word.split("=", 1) for word in assignments)


def settings_of(text: str) -> dict[str, str]:
    """The last value of each variable in an environment file, also of those that are commented out."""
    return {name: value_of(text) for name, text in re.findall(r"(?m)^#?(ODRADEK_\w+)=(.*)$", text)}


def value_of(text: str) -> str:
    """The value as systemd reads it from an environment file; in double quotes, a backslash escapes only a few characters."""
    if text.startswith('"') and text.endswith('"'):
        return re.sub(r'\\(["\\`$])', r"\1", text[1:-1])
    return re.sub(r"\\(.)", r"\1", text)


def units() -> Iterator[tuple[str, list[str]]]:
    """The unit as it is, with each line of its settings, and with what Ansible writes for each host of a cluster."""
    (start,) = re.findall("(?m)^ExecStart=(.*)", UNIT)
    defaults = environment_of(UNIT)
    yield "unit", words(start, defaults)
    for number, (name, value) in enumerate(re.findall(r"(?m)^#(ODRADEK_\w+)=(.*)$", SETTINGS)):
        yield f"report.env {number}", words(start, defaults | {name: value})
    ansible = yaml.safe_load((ROLE / "defaults/main.yml").read_text())
    jinja = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    hosts = {"b1": {}, "b2": {"broker_advertised_host": "10.0.0.2"}, "b3": {}}
    for host in (*hosts, "prometheus"):
        facts = ansible | {
            "groups": {"brokers": [*hosts]},
            "hostvars": hosts,
            "inventory_hostname": host,
            "ansible_managed": "",
        }
        source = jinja.from_string(ansible["monitoring_report_source"]).render(facts)
        assert source.count("--spool") == 3 and ("/var/lib/odradek/data" in source) == (host in hosts)
        assert "http://10.0.0.2:9404" in source or host == "b2"
        facts["monitoring_report_source"] = source
        drop_in = jinja.from_string((ROLE / "templates/report.conf.j2").read_text()).render(facts)
        written = jinja.from_string((ROLE / "templates/report.env.j2").read_text()).render(facts)
        assert "IPAddressAllow=any" in drop_in
        yield (
            f"Ansible on {host}",
            words(re.findall("(?m)^ExecStart=(.+)", drop_in)[0], defaults | settings_of(written)),
        )


def charts() -> Iterator[tuple[str, list[str]]]:
    """The commands of the rendered chart; tests/deploy/helm compares these files with the chart."""
    for path in sorted((toolchains.REPOSITORY / "tests/deploy/helm/golden").glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document and document["kind"] == "CronJob":
                template = document["spec"]["jobTemplate"]["spec"]["template"]
                for container in template["spec"]["containers"]:
                    if container["command"][:3] == COMMAND:
                        yield path.name, container["command"]


def documents() -> Iterator[tuple[str, list[str]]]:
    """The commands in the documents. Where one shows ... instead of values, it is no command."""
    paths = [
        *(toolchains.REPOSITORY / "docs").rglob("*.md"),
        toolchains.REPOSITORY / "README.md",
        *DEPLOY.rglob("*.md"),
    ]
    for path in sorted(paths):
        for line in path.read_text().splitlines():
            if re.match(r"\s*odradek report usage (?!\[OPTIONS)", line) and "..." not in line:
                yield path.name, shlex.split(line, comments=True)


ROWS = [*units(), *charts(), *documents()]


@pytest.mark.parametrize("command", [row[1] for row in ROWS], ids=[row[0] for row in ROWS])
def test_the_command_is_accepted(command: list[str]) -> None:
    at = command.index("usage")
    assert [Path(command[0]).name, *command[1:at]] == ["odradek", "report"]
    options = command[at + 1 :]
    context = usage.make_context("usage", [*options])
    assert bool(context.params["spool"]) != bool(context.params["prometheus"])
    joined = re.sub(r"(--from|--to)\0(?=-)", r"\1=", "\0".join(options)).split("\0")  # as `main` does it
    parsed = vars(parser().parse_args(joined))
    same = ("prometheus", "match", "step", "out", "from_", "to", "prices", "owners")
    assert {name: parsed[name] for name in same} == {name: context.params[name] for name in same}
    assert parsed["spool"] == list(context.params["spool"])


def test_each_way_has_a_row() -> None:
    names = {name for name, _ in ROWS}
    assert {"unit", "Ansible on b1", "monitoring.yaml", "usage-report.md"} <= names
    assert any("--prometheus" in command for name, command in ROWS if name.startswith("report.env"))


def test_both_parsers_have_the_same_options() -> None:
    of_program = {option for action in parser()._actions for option in action.option_strings} - {"-h"}
    assert {option for parameter in usage.params for option in parameter.opts} | {"--help"} == of_program


def test_a_cluster_s_unit_can_reach_other_machines_by_one_documented_line() -> None:
    line = "systemctl set-property odradek-report.service IPAddressAllow="
    assert line in UNIT and line in (toolchains.REPOSITORY / "docs/operate/install.md").read_text()


def test_ansible_writes_values_that_systemd_reads_as_they_are() -> None:
    given = {
        "monitoring_report_source": """--prometheus http://p:9090 --match 'job=~"od\\.*",site="a b"'""",
        "monitoring_report_dir": "/var/lib/the reports",
        "monitoring_report_options": r"""--what-if "topic=x\\y" # $HOME `id`""",
        "monitoring_report_login": """'me:p"a\\ss$w\\\\'""",
    }
    jinja = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    text = jinja.from_string((ROLE / "templates/report.env.j2").read_text()).render(given, ansible_managed="by Ansible")
    assert text.startswith("# by Ansible\n")
    written = settings_of(text)
    login = given["monitoring_report_login"]
    assert written == {
        "ODRADEK_REPORT_SOURCE": given["monitoring_report_source"], "ODRADEK_REPORT": given["monitoring_report_dir"],
        "ODRADEK_REPORT_OPTIONS": given["monitoring_report_options"], "ODRADEK_PROMETHEUS_LOGIN": login,
        "ODRADEK_METRICS_LOGIN": login,
    }  # fmt: skip
    assert all(line.endswith('"') for line in text.splitlines() if "=" in line)
