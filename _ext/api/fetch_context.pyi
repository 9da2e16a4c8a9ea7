from odradek._ext.api.purgatory import Waiter


class FetchPartition:
    def __dealloc__(self): ...

class FetchContext(Waiter): ...
