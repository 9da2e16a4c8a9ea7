"""Descriptors that are closed together with the object that opened them."""

import os
import weakref


def close_with(owner: object, *descriptors: int) -> None:
    """Close `descriptors` when `owner` is freed, but not at the exit of the process, which closes them anyway.

    A forked child that has the object must not close them itself: their numbers may belong to other files later.
    """
    for descriptor in descriptors:
        weakref.finalize(owner, os.close, descriptor).atexit = False
