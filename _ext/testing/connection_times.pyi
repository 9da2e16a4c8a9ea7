from odradek._ext.net.connection import Connection


def set_last_activity(connection: Connection, at_ms: int) -> None: ...
