"""The model of a cluster, driven at random: no acknowledged record is lost, and everything heals."""

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.controller.cluster.model import Choices, Model

STEPS = 400


def run(seed):
    rng = random.Random(seed)
    model = Model(Choices([rng.randrange(1 << 16) for _ in range(STEPS * 2)]))
    model.run(STEPS)
    model.heal()
    return model


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32))
def test_the_invariants_hold(seed):
    run(seed)
