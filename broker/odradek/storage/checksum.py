"""The CRC-32C of Python code, by the package `crc32c`; native code has its own (`_ext/records/crc32c.pyx`). Pure."""


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """The CRC-32C of `data`, or of what `crc` is the checksum of, followed by `data`.

    The package is imported at the first use. Its import takes 19 ms, because it looks for its own version, and the start of a
    broker needs no checksum in Python.
    """
    from crc32c import crc32c as checksum

    return checksum(data, crc)
