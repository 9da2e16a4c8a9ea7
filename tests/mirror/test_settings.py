"""The mirror's file: what MirrorMaker 2 accepts is accepted; every mistake is one sentence with its value and the remedy."""

import pytest

from odradek.config.errors import ConfigError, ConfigErrors
from odradek.mirror.keys import KEYS
from odradek.mirror.settings import load

BASE = """
clusters = a, b
a.bootstrap.servers = localhost:9092
b.bootstrap.servers = localhost:9093, [::1]:9094
a->b.enabled = true
"""


@pytest.fixture
def read(tmp_path):
    """Load the base file with more lines, or with overrides."""

    def load_text(more="", *overrides, base=BASE):
        file = tmp_path / "mirror.properties"
        file.write_text(base + more)
        return load(str(file), overrides)

    return load_text


def test_the_example_of_mirrormaker_2_is_accepted_with_notes_on_what_has_no_effect(read):
    settings = read(
        """
        a->b.topics = orders.*, payments
        b->a.enabled = false
        replication.factor = 3
        checkpoints.topic.replication.factor = 1
        offset.storage.replication.factor = 1
        b.producer.acks = all
        a.offset.storage.topic = x
        tasks.max = 4
        topic.filter.class = org.apache.kafka.connect.mirror.DefaultTopicFilter
        replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
        """
    )
    (flow,) = settings.flows
    assert (flow.name, flow.group_id, flow.policy.identity) == ("a->b", "odradek-mirror.a->b", True)
    assert flow.integer("replication.factor") == 3
    assert flow.topics.selects("orders-eu") and flow.topics.selects("payments") and not flow.topics.selects("payments2")
    noted = [line.split()[1] for line in settings.notes]
    assert noted == ["offset.storage.replication.factor", "b.producer.acks", "a.offset.storage.topic", "tasks.max"]


def test_a_flow_overrides_the_top_of_the_file_and_later_lines_override_earlier_ones(read):
    settings = read(
        "topics = x\na->b.topics = y\na->b.topics = z\nodradek.mirror.lanes = 3\n", "odradek.mirror.lanes=5"
    )
    assert settings.flows[0].topics.include == ("z",)
    assert settings.flows[0].transactional_id(4) == "odradek-mirror.a->b.5.4"


def test_every_key_has_its_default_and_the_defaults_of_mirrormaker_2_exclude_its_topics(read):
    flow = read().flows[0]
    assert set(flow.values) == set(KEYS)
    for topic in ("mm2-offset-syncs.b.internal", "orders.replica", "__consumer_offsets"):
        assert not flow.topics.selects(topic)
    assert not flow.groups.selects("console-consumer-1") and flow.groups.selects("app")
    assert flow.excluded_settings.selects("min.insync.replicas") and not flow.excluded_settings.selects("retention.ms")
    assert flow.lane_options.exactly_once and flow.lane_options.start == "earliest"


def test_security_settings_of_a_cluster_override_those_of_the_file(read):
    settings = read(
        "security.protocol = SASL_PLAINTEXT\nsasl.mechanism = PLAIN\n"
        'sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";\n'
        "b.security.protocol = PLAINTEXT\n"
    )
    assert settings.clusters["a"].security.protocol == "SASL_PLAINTEXT"
    assert settings.clusters["a"].security.credentials.user == "u"
    assert settings.clusters["b"].security.protocol == "PLAINTEXT"


def test_variables_of_config_providers_are_replaced(read, tmp_path):
    (tmp_path / "servers").write_text("kafka:1234")
    settings = read(
        "config.providers = dir\nconfig.providers.dir.class = org.apache.kafka.common.config.provider.DirectoryConfigProvider\n"
        f"a.bootstrap.servers = ${{dir:{tmp_path}:servers}}\n"
    )
    assert settings.clusters["a"].servers == "kafka:1234"


def test_an_alias_may_be_the_beginning_of_another(read):
    settings = read(
        base="clusters = eu, eu-2\neu.bootstrap.servers = a:1\neu-2.bootstrap.servers = b:2\neu-2->eu.enabled = true\n"
    )
    assert settings.flows[0].name == "eu-2->eu"
    assert settings.flows[0].source.servers == "b:2"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("a->c.enabled = true", "a->c.enabled: 'c' is not an alias in `clusters`; the aliases are a, b"),
        ("a->b.topcs = x", "a->b.topcs: is not a key of the mirror; did you mean 'topics'?"),
        ("a.bootstrap.server = x", "a.bootstrap.server: is not a key of the mirror; did you mean 'bootstrap.servers'?"),
        ("b.replication.factor = 1", "b.replication.factor: is a key of flows: write `a->b.replication.factor`"),
        ("a->b.topics = *x", "a->b.topics=*x: '*x' is not a regular expression: nothing to repeat at position 0"),
        ("odradek.mirror.lanes = 0", "odradek.mirror.lanes=0: must be a whole number from 1 to 1000"),
        ("odradek.mirror.lanes = 8.5", "odradek.mirror.lanes=8.5: must be a whole number from 1 to 1000"),
        ("a->b.sync.topic.acls.enabled = yes", "a->b.sync.topic.acls.enabled=yes: must be true or false"),
        ("a.security.protocol = TLS", "a.security.protocol=TLS: must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("a.ssl.truststore.location = /nowhere", "a.ssl.truststore.location"),
        ("replication.policy.class = x.Mine", "replication.policy.class=x.Mine: must be DefaultReplicationPolicy or Identity"),
        ("replication.policy.separator = /", "replication.policy.separator=/: must consist of 1 to 10 of the characters"),
        ("topic.filter.class = x.Mine", "topic.filter.class=x.Mine: only org.apache.kafka.connect.mirror.DefaultTopicFilter"),
        ("a->a.enabled = true", "a->a.enabled: a flow needs two different clusters"),
        ("a.bootstrap.servers = host:port", "a.bootstrap.servers=host:port: 'host:port' is not a broker address"),
        ("odradek.mirror.metrics.listener = 9405", "odradek.mirror.metrics.listener=9405: must be HOST:PORT"),
        ("odradek.mirror.start = newest", "odradek.mirror.start=newest: must be earliest or latest"),
        ("clusters = a", "clusters=a: must list the aliases of at least two clusters"),
        ("clusters = a b, c", "clusters=a b: an alias must consist of letters, digits"),
        ("a->b.enabled = false", "enables no flow; set e.g. `a->b.enabled = true`"),
        ("clusters = a, b, c\na->c.enabled = true", "c.bootstrap.servers: is missing: name the brokers"),
        ("a->b.odradek.mirror.metrics.listener = x:1", "is not a key of the mirror"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_with_its_value(read, line, sentence):
    with pytest.raises(ConfigError) as caught:
        read(line)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "mirror.properties" in str(caught.value)  # where it is


def test_all_mistakes_are_reported_at_once(read):
    with pytest.raises(ConfigErrors) as caught:
        read("odradek.mirror.lanes = x\na.security.protocol = y\n")
    assert [error.name for error in caught.value.errors] == ["odradek.mirror.lanes", "a.security.protocol"]


def test_an_alias_with_the_separator_is_refused_because_names_would_not_show_their_source(read):
    base = (
        "clusters = eu.west, b\neu.west.bootstrap.servers = a:1\nb.bootstrap.servers = b:1\neu.west->b.enabled = true\n"
    )
    with pytest.raises(ConfigError, match=r"clusters=eu\.west: contains the separator '\.'"):
        read(base=base)
    assert read("replication.policy.separator = _\n", base=base).flows[0].policy.separator == "_"


def test_flows_are_selected_by_alias(read):
    settings = read("b->a.enabled = true\n")
    assert [flow.name for flow in settings.of(["a"]).flows] == ["b->a"]
    assert [flow.name for flow in settings.of([], ["a"]).flows] == ["a->b"]
    with pytest.raises(ConfigError, match=r"'c' is not in `clusters` of .*; the aliases are a, b"):
        settings.of(["c"])
    with pytest.raises(ConfigError, match="no enabled flow"):
        settings.of(["a"], ["a"])


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read the mirror's file .*nowhere: No such file"):
        load(str(tmp_path / "nowhere"))
