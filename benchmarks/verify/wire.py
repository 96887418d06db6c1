"""The protocol between the parent and the worker process: frames, and values that are only data.

A response comes from a process that runs untrusted code, so it is parsed as data: numbers, text,
lists, mappings and arrays. Pickle, which can run code, is sent to the worker only.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

from msgspec.msgpack import Ext, decode, encode

from benchmarks.verify.originals import named, np, own_builtins

own_builtins(globals())

send_all = socket.socket.sendall
"""As it is before a candidate is imported."""

HEADER = struct.Struct("!QQ")
"""A frame's header: the request's number and the length of the frame."""

LARGEST = 2**32
"""Maximum length of a received frame, in bytes."""

DEEPEST, MOST = 16, 2**22
"""Maximum depth of lists and mappings within each other, and of items in all of them."""


def dump(value: Any) -> bytes:
    """``value`` as bytes.

    Raises:
        TypeError: something in it is not data.
    """
    try:
        return encode(value, enc_hook=_packed)
    except (ValueError, OverflowError) as error:
        raise TypeError(f"what cannot be sent: {error}") from error


def is_large(value: Any) -> bool:
    """Whether lists and mappings in a value are deeper within each other than ``DEEPEST``, or have
    more than ``MOST`` items.
    """
    inner, items = [value] if isinstance(value, (list, dict)) else [], 0
    for _ in range(DEEPEST + 1):
        lists = [each.values() if isinstance(each, dict) else each for each in inner]
        items += sum(map(len, lists))
        if items > MOST:
            return True
        inner = [x for each in lists for x in each if isinstance(x, (list, dict))]
    return bool(inner)


def _packed(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        data = np.ascontiguousarray(value).data
        return Ext(0, encode((value.dtype.str, value.shape, data)))
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    raise TypeError(named(type(value)))


def load(data: bytes) -> Any:
    """The value of ``dump``, with lists for tuples.

    Raises:
        ValueError: it is not a value of ``dump``.
    """
    try:
        return decode(data, ext_hook=_array)
    except Exception as error:
        raise ValueError(f"not a response: {error}") from error


def _array(_: int, data: memoryview) -> Any:
    dtype, shape, content = decode(data, type=tuple[str, tuple[int, ...], memoryview])
    if np.dtype(dtype).kind not in "biuf":
        raise ValueError(f"an array of {dtype}")
    return np.frombuffer(content, dtype).reshape(shape).copy()


def send(
    connection: socket.socket, number: int, data: bytes, descriptor: int | None = None
) -> None:
    """Send a frame, and an open file if one is given."""
    header = HEADER.pack(number, len(data))
    if descriptor is not None:
        socket.send_fds(connection, [header], [descriptor])
        header = b""
    send_all(connection, header + data)


def receive(connection: socket.socket, deadline: float | None = None) -> tuple[int, bytes]:
    """The next frame: its number and its bytes.

    Raises:
        TimeoutError: it is not complete at ``deadline``, a time of ``time.monotonic``.
        EOFError: the connection was closed.
        ValueError: it is longer than any response.
    """
    number, length = HEADER.unpack(_exactly(connection, HEADER.size, deadline))
    if length > LARGEST:
        raise ValueError(f"not a response: {length} bytes")
    return number, _exactly(connection, length, deadline)


def receive_request(connection: socket.socket) -> tuple[int, bytes, int]:
    """The next frame that was sent with an open file: its number, its bytes and the descriptor.

    Raises:
        EOFError: the connection was closed.
    """
    header, descriptors, _, _ = socket.recv_fds(connection, HEADER.size, 1)
    if not header:
        raise EOFError
    number, length = HEADER.unpack(header + _exactly(connection, HEADER.size - len(header), None))
    return number, _exactly(connection, length, None), descriptors[0]


def _exactly(connection: socket.socket, count: int, deadline: float | None) -> bytes:
    parts = []
    while count:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:  # however much there is to read
                raise TimeoutError
            connection.settimeout(max(left, 1e-3))
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
