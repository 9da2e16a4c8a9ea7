"""A bounded reader of DER, for the few parts of certificates and key stores that the broker reads itself."""


class DerError(ValueError):
    """The bytes are not the expected DER."""


class Reader:
    """A cursor over the elements of one constructed value."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    @property
    def more(self) -> bool:
        """Whether another element follows."""
        return self.at < len(self._data)

    def peek(self) -> int:
        """The tag of the next element; -1 at the end."""
        return self._data[self.at] if self.more else -1

    def element(self) -> tuple[int, bytes, bytes]:
        """The next element: (tag, its content, the whole element). Raises DerError."""
        start, data = self.at, self._data
        if len(data) - start < 2:
            raise DerError("an element is cut off")
        tag, size, at = data[start], data[start + 1], start + 2
        if tag & 0x1F == 0x1F:
            raise DerError("a tag of several bytes is not expected here")
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4 or len(data) - at < count:
                raise DerError("a length is malformed")
            size, at = int.from_bytes(data[at : at + count], "big"), at + count
        if len(data) - at < size:
            raise DerError("an element is longer than what contains it")
        self.at = at + size
        return tag, data[at : self.at], data[start : self.at]

    def expect(self, tag: int) -> bytes:
        """The content of the next element, which must have this tag. Raises DerError."""
        found, content, _ = self.element()
        if found != tag:
            raise DerError(f"found tag {found:#04x} instead of {tag:#04x}")
        return content

    def sequence(self) -> "Reader":
        """A reader of the next element, which must be a SEQUENCE. Raises DerError."""
        return Reader(self.expect(0x30))


def dotted(oid: bytes) -> str:
    """The dotted text of an object identifier's content. Raises DerError."""
    if not oid or oid[-1] & 0x80:
        raise DerError("an object identifier is cut off")
    arcs: list[int] = []
    arc = 0
    for byte in oid:
        arc = arc << 7 | byte & 0x7F
        if arc.bit_length() > 256:
            raise DerError("an arc of an object identifier is too large")
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, [first, arcs[0] - 40 * first, *arcs[1:]]))
