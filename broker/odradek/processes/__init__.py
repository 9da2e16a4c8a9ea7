"""One file per process of the broker, each opening with its contract; the only package that composes the others."""
