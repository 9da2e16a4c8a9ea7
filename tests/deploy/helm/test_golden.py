"""The objects that the chart makes of the main value sets, and those of what they promise that a golden file cannot show."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.cli.jobs.load import run_load
from tests.deploy.helm import chart


@pytest.mark.parametrize("name", chart.SETS)
def test_a_value_set_makes_the_objects_of_its_golden_file(name: str) -> None:
    golden = (chart.GOLDEN / f"{name}.yaml").read_text()
    assert chart.golden(name) == golden, "`python -m tests.deploy.helm.chart` writes the golden files again"


def test_each_golden_file_belongs_to_a_value_set() -> None:
    assert sorted(path.stem for path in chart.GOLDEN.iterdir()) == chart.SETS


def test_more_brokers_do_not_restart_the_others() -> None:
    def template(brokers: int) -> object:
        return chart.only(chart.rendered("tls-scram", extra={"brokers": brokers}), "StatefulSet")["spec"]["template"]

    assert template(3) == template(5)


def test_another_setting_of_the_brokers_restarts_them() -> None:
    def checksum(**config: object) -> object:
        found = chart.rendered("cluster", extra={"config": config})
        return chart.only(found, "StatefulSet")["spec"]["template"]["metadata"]["annotations"]["odradek/config"]

    assert checksum() != checksum(**{"log.retention.ms": 1000})


def test_the_users_are_written_again_by_another_job_when_their_list_or_the_revision_changes() -> None:
    def job(**extra: object) -> str:
        (found,) = (item for item in chart.rendered("tls-scram", extra=extra) if item["kind"] == "Job")
        return str(found["metadata"]["name"])

    carol = {"name": "carol", "passwordSecret": {"name": "kafka-users", "key": "carol"}}
    broker = {"name": "broker", "passwordSecret": {"name": "kafka-users", "key": "broker"}}
    assert job() == job(minReadySeconds=1)
    assert len({job(), job(usersRevision="2"), job(users=[broker, carol])}) == 3


def _load(*values: str, **load: Any) -> dict[str, Any]:
    """The pod of the load."""
    image = {"repository": "registry.example.org/odradek-report"}
    found = chart.rendered(*values, extra={"load": {"enabled": True, "image": image, **load}})
    job = chart.only(found, "CronJob", f"{chart.RELEASE}-odradek-load")
    return dict(job["spec"]["jobTemplate"]["spec"]["template"]["spec"])


def test_there_is_no_load_unless_it_is_enabled() -> None:
    assert not any("load" in str(item["metadata"]["name"]) for item in chart.objects(chart.manifest("cluster")))


def test_the_command_of_the_load_is_one_of_odradek() -> None:
    (container,) = _load("tls-scram")["containers"]
    assert container["command"][:3] == ["odradek", "load", "run"]
    values = run_load.make_context("run", container["command"][3:]).params
    assert (values["topics"], values["topics_matching"], values["reader"]) == (("payments",), "shop[.].*", "python")
    assert (values["value"], values["registry"]) == ("avro", "https://registry.example.org")
    assert values["registry_config"] == "/run/odradek/registry/registry.properties"
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    secrets = {"/run/odradek/tls", "/run/odradek/secrets/kafka-users", "/run/odradek/registry"}
    assert {values["out"], "/tmp", "/etc/odradek", *secrets} == mounted


def test_only_the_load_has_the_secret_of_the_registry() -> None:
    found = chart.objects(chart.manifest("tls-scram"))
    holders = [
        where
        for where, template in chart.pod_templates(found)
        for volume in template["spec"].get("volumes", ())
        if volume.get("secret", {}).get("secretName") == "schema-registry"
    ]
    assert len(holders) == 1 and "load" in str(holders[0])
    assert "--registry-config" not in _load("tls-scram", registrySecret={"name": ""})["containers"][0]["command"]


@pytest.mark.parametrize(("chosen", "user"), [("", "broker"), ("admin", "admin")])
def test_the_load_logs_in_as_its_user_and_has_no_other_password(chosen: str, user: str) -> None:
    (login,) = (volume for volume in _load("tls-scram", user=chosen)["volumes"] if volume["name"] == "login")
    assert login["secret"]["items"] == [{"key": user, "path": user}]
    found = chart.rendered("tls-scram", extra={"load": {"user": chosen}})
    properties = chart.only(found, "ConfigMap")["data"]["load.properties"]
    assert f'username="{user}" password="${{secrets:/run/odradek/secrets/kafka-users:{user}}}"' in properties


def test_a_load_without_logins_has_no_secrets() -> None:
    pod = _load("monitoring", topics=["orders"])
    assert {volume["name"] for volume in pod["volumes"]} == {"config", "loads", "tmp"}
    (container,) = pod["containers"]
    assert "--registry-config" not in container["command"]
    assert "--registry" not in container["command"] and "--topics-matching" not in container["command"]


@pytest.mark.parametrize("name", chart.SETS)
def test_a_pod_has_time_for_its_wait_and_its_stop(name: str) -> None:
    pod = chart.only(chart.objects(chart.manifest(name)), "StatefulSet")["spec"]["template"]["spec"]
    (broker,) = pod["containers"]
    wait_s = 0
    if "lifecycle" in broker:
        command = broker["lifecycle"]["preStop"]["exec"]["command"]
        wait_s = int(command[command.index("--timeout") + 1].removesuffix("s"))
    assert pod["terminationGracePeriodSeconds"] > wait_s + 180 - 1


@pytest.mark.parametrize("name", chart.SETS)
def test_only_the_container_that_reads_the_zone_has_a_token(name: str) -> None:
    for where, template in chart.pod_templates(chart.objects(chart.manifest(name))):
        pod = template["spec"]
        assert pod["automountServiceAccountToken"] is False, where
        projected = [volume["name"] for volume in pod.get("volumes", ()) if "projected" in volume]
        holders = [
            container["name"]
            for container in [*pod["containers"], *pod.get("initContainers", ())]
            if {mount["name"] for mount in container.get("volumeMounts", ())} & set(projected)
        ]
        assert holders == (["zone"] if projected else []), where
        assert not projected or name == "cluster", where
