"""Values that cannot work are refused with a sentence that names the value, before anything is installed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.deploy.helm import chart

USERS = [{"name": "broker", "passwordSecret": {"name": "users", "key": "broker"}}]

SENTENCES: dict[str, tuple[str, dict[str, Any], str]] = {
    "no image": (
        "cluster",
        {"image": {"repository": ""}},
        "image.repository is empty: set it to the registry and name of the image",
    ),
    "brokers without ZooKeeper": (
        "single",
        {"brokers": 3},
        "brokers is 3, but there is no ZooKeeper, which more than one broker needs: set zookeeper.enabled=true or",
    ),
    "two ZooKeepers": (
        "external",
        {"zookeeper": {"enabled": True}},
        "zookeeper.connect is zk1.example.org:2181,zk2.example.org:2181, but zookeeper.enabled=true installs another",
    ),
    "a path in zookeeper.connect": (
        "external",
        {"zookeeper": {"connect": "zk:2181/kafka"}},
        "zookeeper.connect is zk:2181/kafka: it must be host:port,... without a path; set zookeeper.chroot",
    ),
    "an even number of ZooKeepers": (
        "cluster",
        {"zookeeper": {"replicas": 2}},
        "zookeeper.replicas is 2: it must be odd",
    ),
    "an unknown key": (
        "cluster",
        {"config": {"log.retention.msec": 1}},
        "config sets log.retention.msec, which is not a key of a broker: docs/reference/configuration.md lists all keys",
    ),
    "an unknown key of a listener": (
        "cluster",
        {"config": {"listener.name.clients.ssl.client.autt": "none"}},
        "config sets listener.name.clients.ssl.client.autt, which is not a key of a broker",
    ),
    "an unknown listener": (
        "cluster",
        {"config": {"listener.name.internal.ssl.client.auth": "none"}},
        "config sets listener.name.internal.ssl.client.auth, but there is no listener internal: the names are brokers,",
    ),
    "a key of the chart": (
        "cluster",
        {"config": {"advertised.listeners": "PLAINTEXT://a:1"}},
        "config sets advertised.listeners, which the chart sets itself: use the value listeners and external instead",
    ),
    "a provider": (
        "cluster",
        {"config": {"config.providers.x.class": "y"}},
        "config sets config.providers.x.class: the chart has a provider for Secrets; use the value configFromSecrets",
    ),
    "a key twice": (
        "external",
        {"config": {"odradek.zookeeper.password": "secret"}},
        "configFromSecrets and config both set odradek.zookeeper.password: remove one of them",
    ),
    "a stop that Kubernetes would cut": (
        "cluster",
        {"config": {"controlled.shutdown.max.retries": 60}},
        "shutdown.stopSeconds is 180, but odradek.stop.timeout.ms and the pauses of controlled.shutdown allow a stop 330 s",
    ),
    "metrics with TLS and without a certificate": (
        "cluster",
        {"config": {"metrics.listener.tls": True}},
        "config.metrics.listener.tls is true, but no listener has TLS",
    ),
    "probes without a certificate": (
        "tls-scram",
        {"config": {"listener.name.metrics.ssl.client.auth": "required"}},
        "config.listener.name.metrics.ssl.client.auth is required, but the probes of Kubernetes have no certificate",
    ),
    "a long number": (
        "cluster",
        {"config": {"log.retention.bytes": 9223372036854775807}},
        "config.log.retention.bytes has more than 15 digits, which Helm rounds: write the number in quotes",
    ),
    "more replicas than brokers": (
        "cluster",
        {"brokers": 2, "config": {"default.replication.factor": 3}},
        "config.default.replication.factor is 3, more than brokers, which is 2: a partition cannot have more replicas",
    ),
    "more replicas of offsets than brokers": (
        "single",
        {"config": {"offsets.topic.replication.factor": "3"}},
        "config.offsets.topic.replication.factor is 3, more than brokers, which is 1",
    ),
    "more in-sync replicas than replicas": (
        "cluster",
        {"config": {"min.insync.replicas": 3, "default.replication.factor": 2}},
        "config.min.insync.replicas is 3, more than default.replication.factor, which is 2: no record would be accepted",
    ),
    "listeners that collide": (
        "cluster",
        {"listeners": {"brokers": {"port": 9092}}},
        "listeners.brokers.port and listeners.clients.port are both 9092: each listener needs a port of its own",
    ),
    "a listener on the port of the metrics": (
        "external",
        {"external": {"port": 9404}},
        "metrics.port and external.port are both 9404: each listener needs a port of its own",
    ),
    "no external addresses": (
        "cluster",
        {"external": {"enabled": True, "protocol": "PLAINTEXT"}},
        "external.enabled is true, but there are no addresses to advertise: set external.hosts, external.hostTemplate",
    ),
    "two kinds of external addresses": (
        "external",
        {"external": {"hosts": ["a", "b", "c"]}},
        "external.hosts and external.hostTemplate are set together: keep one of them",
    ),
    "too few external addresses": (
        "cert-manager",
        {"brokers": 5},
        "external.hosts has 3 addresses, but brokers is 5: each broker needs one",
    ),
    "an external address twice": (
        "cert-manager",
        {"external": {"hosts": ["a", "a", "b"]}},
        "external.hosts has an address twice (a, a, b): with external.type=LoadBalancer each broker needs its own",
    ),
    "a template without {id}": (
        "external",
        {"external": {"hostTemplate": "kafka.example.org"}},
        "external.hostTemplate is kafka.example.org: it must contain {id}",
    ),
    "the address of nodes without their ports": (
        "nodeport",
        {"external": {"type": "LoadBalancer"}},
        "external.useNodeAddress needs external.type=NodePort, but external.type is LoadBalancer",
    ),
    "ports of nodes that do not exist": (
        "nodeport",
        {"external": {"firstNodePort": 32768}},
        "external.firstNodePort is 32768, so the last broker would have the port 32768, above 32767",
    ),
    "ports of nodes that collide": (
        "nodeport",
        {"external": {"bootstrapNodePort": 31090}},
        "external.bootstrapNodePort is 31090, which a broker has: external.firstNodePort and brokers use the ports 31090",
    ),
    "TLS without a certificate": (
        "cluster",
        {"listeners": {"clients": {"protocol": "SSL"}}},
        "listeners.clients.protocol is SSL, which needs a certificate: set tls.secret or tls.certManager.enabled",
    ),
    "two certificates": (
        "cert-manager",
        {"tls": {"secret": "mine"}},
        "tls.secret is mine, but tls.certManager.enabled=true makes another Secret: keep one of them",
    ),
    "no issuer": (
        "cert-manager",
        {"tls": {"certManager": {"issuerRef": {"name": ""}}}},
        "tls.certManager.issuerRef.name is empty",
    ),
    "a key store that commands cannot read": (
        "external",
        {"listeners": {"clients": {"protocol": "SSL"}}, "tls": {"clientAuth": "required", "keystoreKey": "broker.p12"}},
        "tls.keystoreKey is broker.p12, but with tls.clientAuth=required the chart's own commands present this certificate",
    ),
    "a user twice": ("cluster", {"users": USERS * 2}, "users has broker twice"),
    "no user for brokers": (
        "cluster",
        {"listeners": {"brokers": {"protocol": "SASL_PLAINTEXT"}}},
        "brokerUser is empty, but the listener brokers or clients requires logins: set it to one of users",
    ),
    "an unknown user for brokers": (
        "tls-scram",
        {"brokerUser": "carol"},
        "brokerUser is carol, who is not among users: add the user with a passwordSecret",
    ),
    "an authorizer without super users": (
        "cluster",
        {"authorizer": {"enabled": True}},
        "authorizer.enabled is true, but nobody has rights: set brokerUser or authorizer.superUsers",
    ),
    "a job that no rule selects": (
        "monitoring",
        {"metrics": {"job": "kafka"}},
        "metrics.job is kafka: it must begin with odradek, because the rules and dashboards select these jobs",
    ),
    "a report without Prometheus": (
        "monitoring",
        {"report": {"prometheus": ""}},
        "report.prometheus is empty: set it to the URL",
    ),
    "a password file that is not mounted": (
        "monitoring",
        {"config": {"metrics.listener.password.file": "/run/odradek/metrics/passwords"}},
        "config sets metrics.listener.password.file, which the chart sets itself: use the value metrics.passwordSecret instead",
    ),
    "a report without an image": (
        "monitoring",
        {"report": {"image": {"repository": ""}}},
        "report.image.repository is empty: set it to the image that was built from deploy/image/Containerfile.report",
    ),
    "a load of nothing": (
        "tls-scram",
        {"load": {"topics": [], "topicsMatching": ""}},
        "load.topics and load.topicsMatching are empty: name the topics to load",
    ),
    "a load without an image": (
        "tls-scram",
        {"load": {"image": {"repository": ""}}},
        "load.image.repository is empty: set it to the image that was built from deploy/image/Containerfile.report",
    ),
    "a load by nobody": (
        "tls-scram",
        {"load": {"user": "bob"}},
        "load.user is bob, who is not among users: add the user with a passwordSecret",
    ),
    "a login for no registry": (
        "tls-scram",
        {"load": {"registry": ""}},
        "load.registrySecret.name is schema-registry, but load.registry is empty: set it to the URL of the schema registry",
    ),
    "a load with a login where there are none": (
        "monitoring",
        {"load": {"enabled": True, "user": "bob", "topics": ["a"], "image": {"repository": "r"}}},
        "load.user is bob, but listeners.clients.protocol is PLAINTEXT, which has no logins: remove load.user",
    ),
}

SCHEMA: dict[str, tuple[dict[str, Any], str]] = {
    "unknown value": ({"replicaCount": 3}, "additional properties 'replicaCount' not allowed"),
    "unknown value in a group": ({"storage": {"sizes": "1Gi"}}, "additional properties 'sizes' not allowed"),
    "unknown value of the sub-chart": (
        {"zookeeper": {"replicaCount": 3}},
        "additional properties 'replicaCount' not allowed",
    ),
    "no broker": ({"brokers": 0}, "brokers"),
    "too many brokers": ({"brokers": 65}, "brokers"),
    "a text for a number": ({"brokers": "3"}, "brokers"),
    "a protocol": ({"listeners": {"clients": {"protocol": "TLS"}}}, "protocol"),
    "a port": ({"listeners": {"clients": {"port": 70000}}}, "port"),
    "a size": ({"storage": {"size": "20 GB"}}, "size"),
    "a list in config": ({"config": {"log.dirs": ["/a"]}}, "log.dirs"),
    "a user without a password": ({"users": [{"name": "alice"}]}, "passwordSecret"),
    "a password in the values": (
        {"users": [{**USERS[0], "password": "secret"}]},
        "additional properties 'password' not allowed",
    ),
    "a user name that would end its quotes": ({"users": [{**USERS[0], "name": 'a"b'}]}, "name"),
    "a super user without User:": ({"authorizer": {"superUsers": ["admin"]}}, "superUsers"),
    "a network": ({"external": {"sourceRanges": ["10.0.0.1"]}}, "sourceRanges"),
    "a schedule": ({"report": {"schedule": "daily"}}, "schedule"),
    "a topic": ({"load": {"topics": ["a b"]}}, "topics"),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_values_that_cannot_work_fail_with_a_sentence_that_names_the_value(case: str) -> None:
    name, extra, sentence = SENTENCES[case]
    done = chart.render(name, extra=extra)
    assert done.returncode != 0
    assert f"odradek: {sentence}" in done.stderr, done.stderr
    assert not done.stdout.strip()


@pytest.mark.parametrize("case", SCHEMA)
def test_the_schema_refuses_what_it_does_not_know(case: str) -> None:
    extra, words = SCHEMA[case]
    done = chart.render("cluster", extra=extra)
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr, done.stderr
    assert words in done.stderr, done.stderr
