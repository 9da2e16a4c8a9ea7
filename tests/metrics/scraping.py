"""Scrapes of a real broker for tests: samples by name and labels."""

import urllib.request

from prometheus_client.parser import text_string_to_metric_families as parse

from tests.waiting import PATIENCE_S, until


def get(broker, path, **headers):
    """(headers, body). Raises urllib.error.HTTPError."""
    request = urllib.request.Request(f"{broker.metrics_url}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return answer.headers, answer.read()


class Scrape:
    """One scrape."""

    def __init__(self, text):
        self.text = text
        self.families = list(parse(text))
        self.samples = {
            (one.name, frozenset(one.labels.items())): one.value for family in self.families for one in family.samples
        }

    def value(self, name, **labels):
        """Return the value of a sample; None if there is none."""
        return self.samples.get((name, frozenset(labels.items())))

    def sum(self, name, **labels):
        """Return the sum over all samples that have at least these labels."""
        wanted = frozenset(labels.items())
        return sum(value for (one, has), value in self.samples.items() if one == name and has >= wanted)

    def counters(self):
        """Return all samples of counters."""
        names = {one.name for family in self.families if family.type == "counter" for one in family.samples}
        return {key: value for key, value in self.samples.items() if key[0] in names}


def scrape(broker):
    return Scrape(get(broker, "/metrics")[1].decode())


def scrape_with_groups(broker):
    """Return a scrape with groups: while the coordinator loads groups, or is slow, scrapes omit them."""
    states = "kafka_coordinator_group_groupmetadatamanager_numgroups"

    def group_samples():
        samples = scrape(broker)
        return samples if samples.value(states, state="Stable") is not None else None

    return until(group_samples, "groups in the metrics")


def parsed(parse, text):
    """All families of a text, so that two texts of different writers are comparable. :param parse: of prometheus_client."""
    return [
        (
            family.name,
            family.type,
            family.documentation,
            [(s.name, s.labels, repr(float(s.value))) for s in family.samples],
        )
        for family in parse(text)
    ]
