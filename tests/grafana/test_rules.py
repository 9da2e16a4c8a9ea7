"""Rules, scrape configuration and the Alertmanager example are valid, unit tests pass, and each alert has a chapter."""

import re
import shutil
import subprocess

import click
import pytest
import yaml

from odradek.cli.packaging import man
from tests.grafana.boards import ROOT

COMMANDS = (
    "odradek",
    "journalctl",
    "systemctl",
    "curl",
    "dmesg",
    "iostat",
    "vmstat",
    "df",
    "date",
    "coredumpctl",
    "kafka-[a-z-]+",
)
PROMETHEUS = ROOT / "deploy/prometheus"
NEEDS_PROMTOOL = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian: prometheus)")
NEEDS_AMTOOL = pytest.mark.skipif(
    shutil.which("amtool") is None, reason="needs amtool (Debian: prometheus-alertmanager)"
)


def _rules(name):
    groups = yaml.safe_load((PROMETHEUS / "rules" / f"{name}.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in _rules("alerts")}


def recorded_names():
    """Return the names of all recording rules."""
    return [rule["record"] for rule in _rules("recording")]


CASES = yaml.safe_load((PROMETHEUS / "tests/alerts.yml").read_text())["tests"]


def _run(*command):
    done = subprocess.run(command, cwd=PROMETHEUS, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@NEEDS_PROMTOOL
def test_promtool_accepts_configuration_and_rules():
    output = _run("promtool", "check", "config", "prometheus.yml")
    assert "2 rule files found" in output
    assert f"{len(ALERTS)} rules found" in output
    assert f"{len(_rules('recording'))} rules found" in output


@NEEDS_PROMTOOL
@pytest.mark.parametrize("name", ["alerts", "recording"])
def test_the_rules_pass_their_unit_tests(name):
    _run("promtool", "test", "rules", f"tests/{name}.yml")


@NEEDS_PROMTOOL
def test_the_unit_tests_notice_a_rule_that_never_fires(tmp_path):
    """The unit tests themselves: if no rule fires, each of them must fail."""
    shutil.copytree(PROMETHEUS, tmp_path / "prometheus")
    rules = tmp_path / "prometheus/rules/alerts.yml"
    silent = yaml.safe_load(rules.read_text())
    for group in silent["groups"]:
        for rule in group["rules"]:
            rule["expr"] = f"({rule['expr']}) and on () (vector(1) == 2)"
    rules.write_text(yaml.safe_dump(silent))
    done = subprocess.run(
        ["promtool", "test", "rules", "tests/alerts.yml"], cwd=rules.parents[1], capture_output=True, text=True
    )
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert {name for name in ALERTS if f"alertname: {name}, " in output} == set(ALERTS)


@NEEDS_AMTOOL
def test_amtool_accepts_the_example():
    assert "SUCCESS" in _run("amtool", "check-config", "alertmanager.yml")


@NEEDS_AMTOOL
@pytest.mark.parametrize(("severity", "receiver"), [("critical", "on-call"), ("warning", "team"), ("info", "team")])
def test_severities_go_to_their_receivers(severity, receiver):
    routed = _run("amtool", "config", "routes", "test", "--config.file=alertmanager.yml", f"severity={severity}")
    assert routed.strip() == receiver


def test_inhibition_rules_name_existing_alerts():
    rules = yaml.safe_load((PROMETHEUS / "alertmanager.yml").read_text())["inhibit_rules"]
    for rule in rules:
        for matcher in rule["source_matchers"] + rule["target_matchers"]:
            pattern = re.fullmatch(r'alertname!?=~?"(.+)"', matcher)[1]
            assert any(re.fullmatch(pattern, name) for name in ALERTS), matcher


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_all_annotations_and_a_chapter(name):
    rule = ALERTS[name]
    assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
    assert all(rule["annotations"].values())
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    address, page = rule["annotations"]["runbook_url"].split("{{ end }}/")
    assert address == "{{ with $externalLabels.odradek_docs }}{{ . }}{{ else }}file:///opt/odradek/share/docs"
    page, _, anchor = page.partition("#")
    chapters = re.split(r"^### ", (ROOT / "docs" / page).read_text(), flags=re.M)[1:]
    (chapter,) = [text for text in chapters if text.splitlines()[0].lower() == anchor]
    assert chapter.splitlines()[0] == name
    assert chapter.splitlines()[1].startswith(f"*{rule['labels']['severity']}.*")
    assert re.search(r"\*\*(What to do|Why, what to do):\*\*", chapter)


def _commands(text):
    """The commands in a text of docs/reference/alerts.md."""
    quoted = re.findall(r"`([^`]+)`", " ".join(text.split()))
    return [words for words in quoted if re.match(rf"({'|'.join(COMMANDS)})( |$)", words)]


@pytest.mark.parametrize("name", ALERTS)
def test_a_chapter_names_a_command_or_refers_to_one_that_does(name):
    text = (ROOT / "docs/reference/alerts.md").read_text()
    chapters = {part.splitlines()[0]: part for part in re.split(r"^### ", text, flags=re.M)[1:]}
    chapter = chapters[name]
    referred = [chapters[other] for other in ALERTS if other != name and other in chapter]
    assert any(map(_commands, [chapter, *referred])), "an operator needs something to look at"
    for words in _commands(chapter):
        if words.startswith("odradek "):
            context = man.root_context()
            for word in words.split()[1:]:
                if not isinstance(context.command, click.Group):
                    break
                child = context.command.get_command(context, word)
                assert child is not None, f"{words}: there is no such command"
                context = click.Context(child, info_name=word, parent=context)
            options = {option for parameter in context.command.params for option in parameter.opts}
            assert set(re.findall(r" (--?[a-z-]+)", words)) <= options, words


def test_there_is_no_chapter_without_an_alert():
    assert set(re.findall(r"^### (\w+)$", (ROOT / "docs/reference/alerts.md").read_text(), re.M)) == set(ALERTS)


@pytest.mark.parametrize("name", ALERTS)
def test_the_unit_tests_see_an_alert_fire_and_not_fire(name):
    checks = [check for case in CASES for check in case["alert_rule_test"] if check["alertname"] == name]
    assert any(check["exp_alerts"] for check in checks)
    assert any(not check["exp_alerts"] for check in checks)


@pytest.mark.parametrize("name", recorded_names())
def test_the_unit_tests_compute_each_recording_rule(name):
    cases = yaml.safe_load((PROMETHEUS / "tests/recording.yml").read_text())["tests"]
    checks = [check for case in cases for check in case["promql_expr_test"]]
    assert any(name in check["expr"] and check["exp_samples"] for check in checks)
