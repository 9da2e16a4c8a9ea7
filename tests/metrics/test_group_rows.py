"""Groups on their way from the coordinator to the reporter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.metrics.group_rows import GroupRow, MalformedGroups, decode_groups, encode_group, encode_offsets

INT32, INT64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
GROUPS = st.lists(
    st.builds(
        GroupRow,
        TEXT,
        TEXT,
        st.integers(0, 1 << 31),
        st.dictionaries(TEXT, st.dictionaries(INT32, INT64, max_size=4), max_size=3),
    ),
    max_size=4,
)


def encoded(groups):
    parts = []
    for group in groups:
        parts.append(encode_group(group.group_id, group.state, group.members, len(group.offsets)))
        parts += [encode_offsets(topic, offsets) for topic, offsets in group.offsets.items()]
    return b"".join(parts)


@given(GROUPS)
def test_groups_arrive_as_they_were_sent(groups):
    assert list(decode_groups(encoded(groups))) == groups


def test_truncated_data_are_refused():
    whole = encoded([GroupRow("g", "Stable", 1, {"t": {0: 5, 1: 6}})])
    for end in range(1, len(whole)):
        with pytest.raises(MalformedGroups):
            list(decode_groups(whole[:end]))
