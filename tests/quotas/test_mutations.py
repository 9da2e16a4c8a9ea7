"""The quota for changes of topics: token buckets, refusals per topic in new versions, throttle times in old ones."""

import pytest

from odradek.quotas.mutations import BUCKETS_KEPT, LONGEST_MS, MutationRates, QuotaExceeded
from odradek.quotas.quotas import DEFAULT, Quotas

KEY = "controller_mutation_rate"


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_bucket_is_full_at_first_and_is_refilled_at_the_rate():
    clock = Clock()
    rates = MutationRates(11, 1, clock)
    quotas = Quotas([(("alice", None, None), {KEY: 2.0})])
    charge = rates.charge_for(quotas, "User:alice", "a", strict=True)
    charge.partitions(22)  # 11 windows of 2
    charge.partitions(5)  # admitted while the tokens are not negative
    with pytest.raises(QuotaExceeded) as refused:
        charge.partitions(1)
    assert refused.value.throttle_ms == charge.throttle_ms == 2500
    clock.now += 2.4
    with pytest.raises(QuotaExceeded):
        rates.charge_for(quotas, "User:alice", "b", strict=True).partitions(1)
    clock.now += 0.1
    rates.charge_for(quotas, "User:alice", "c", strict=True).partitions(1)
    clock.now += 1000
    charge = rates.charge_for(quotas, "User:alice", "a", strict=True)
    charge.partitions(22)
    charge.partitions(1)
    with pytest.raises(QuotaExceeded):
        charge.partitions(1)


def test_a_client_of_an_old_version_is_throttled_instead():
    rates = MutationRates(2, 1, Clock())
    quotas = Quotas([((None, DEFAULT, None), {KEY: 1.0})])
    charge = rates.charge_for(quotas, "User:x", "old", strict=False)
    charge.partitions(2)
    assert charge.throttle_ms == 0
    charge.partitions(3)
    assert charge.throttle_ms == 3000
    other = rates.charge_for(quotas, "User:x", "another", strict=False)
    other.partitions(2)
    assert other.throttle_ms == 0


@pytest.mark.parametrize("rate", [5e-324, 1e-9])
def test_a_throttle_time_fits_into_the_response_however_small_the_rate_is(rate):
    rates = MutationRates(11, 1, Clock())
    quotas = Quotas([(("alice", None, None), {KEY: rate})])
    charge = rates.charge_for(quotas, "User:alice", "a", strict=False)
    charge.partitions(100)
    assert charge.throttle_ms == LONGEST_MS


def test_an_endless_rate_throttles_nobody_also_after_it_was_changed():
    rates = MutationRates(11, 1, Clock())
    for rate in (1.7e308, 1.0, 1.7e308):
        quotas = Quotas([(("alice", None, None), {KEY: rate})])
        charge = rates.charge_for(quotas, "User:alice", "a", strict=False)
        charge.partitions(5)
        assert charge.throttle_ms == 0


def test_a_client_without_the_quota_is_not_charged():
    charge = MutationRates(2, 1, Clock()).charge_for(Quotas(), "User:x", "a", strict=True)
    charge.partitions(10**9)
    assert charge.throttle_ms == 0


def test_the_number_of_buckets_is_bounded():
    rates = MutationRates(2, 1, Clock())
    quotas = Quotas([((None, DEFAULT, None), {KEY: 1.0})])
    for number in range(BUCKETS_KEPT + 100):
        rates.charge_for(quotas, "User:x", f"flood-{number}", strict=False).partitions(1)
    assert len(rates._buckets) == BUCKETS_KEPT
