from collections.abc import Callable
from typing import Any, Callable, TypedDict


class Sealed(TypedDict):
    data: int
    length: int
    room: int

class Records(TypedDict):
    received: int
    received_left: int
    sealed: Sealed
    bio: Any

class Library(TypedDict):
    OpenSSL_version_num: Callable[[], int]
    SSL_read: Callable[[Any, Any, int], int]
    SSL_write: Callable[[Any, Any, int], int]
    SSL_pending: Callable[[Any], int]
    SSL_CTX_ctrl: Callable[[Any, int, int, Any], int]
    SSL_CTX_add_client_CA: Callable[[Any, Any], int]
    d2i_X509: Callable[[Any, int, int], Any]
    X509_free: Callable[[Any], None]
    X509_get_subject_name: Callable[[Any], Any]
    i2d_X509_NAME: Callable[[Any, int], int]
    SSL_shutdown: Callable[[Any], int]
    SSL_get_error: Callable[[Any, int], int]
    SSL_get_SSL_CTX: Callable[[Any], Any]
    SSL_set_bio: Callable[[Any, Any, Any], None]
    ERR_clear_error: Callable[[], None]
    ERR_peek_last_error: Callable[[], int]
    ERR_reason_error_string: Callable[[int], int]
    BIO_get_new_index: Callable[[], int]
    BIO_meth_new: Callable[[int, int], Any]
    BIO_meth_set_read: Callable[[Any, Callable[[Any, bytes, int], int]], int]
    BIO_meth_set_write: Callable[[Any, Callable[[Any, bytes, int], int]], int]
    BIO_meth_set_ctrl: Callable[[Any, Callable[[Any, int, int, Any], int]], int]
    BIO_new: Callable[[Any], Any]
    BIO_set_init: Callable[[Any, int], None]
    BIO_set_data: Callable[[Any, Any], None]
    BIO_get_data: Callable[[Any], Any]
    BIO_set_flags: Callable[[Any, int], None]
    BIO_clear_flags: Callable[[Any, int], None]
