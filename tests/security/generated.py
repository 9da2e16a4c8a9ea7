"""Sets of ACLs and questions, generated so that names, principals and hosts meet often."""

from hypothesis import strategies as st

from odradek.security.acl import Acl, Operation, PatternType, Permission, ResourceType

NAMES = ("a", "ab", "abc", "b", "ba", "hardcode", "*")
PRINCIPALS = ("User:alice", "User:bob", "User:ANONYMOUS", "User:*")
HOSTS = ("127.0.0.1", "10.0.0.1", "*")
TYPES = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)
OPERATIONS = tuple(operation for operation in Operation if operation > Operation.ANY)
ASKED = tuple(operation for operation in OPERATIONS if operation != Operation.ALL)

acls = st.lists(
    st.builds(
        Acl,
        st.sampled_from(TYPES),
        st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
        st.sampled_from(NAMES),
        st.sampled_from(PRINCIPALS),
        st.sampled_from(HOSTS),
        st.sampled_from(OPERATIONS),
        st.sampled_from((Permission.DENY, Permission.ALLOW, Permission.ALLOW)),
    ),
    max_size=12,
    unique=True,
)
super_users = st.lists(st.sampled_from(PRINCIPALS[:2]), max_size=1)
