"""What goes between the parent and the worker process: frames, and values that are data alone.

A response comes from a process that runs a stranger's code, so it is read as data: numbers, text,
lists, mappings and arrays. Pickle, which runs code, goes to the worker only.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

HEADER = struct.Struct("!QQ")
"""Of a frame: the request's number and the bytes that follow."""

LARGEST = 2**32
"""Bytes of the longest frame that is read."""


def dump(value: Any) -> bytes:
    """``value`` as bytes.

    Raises:
        TypeError: something in it is not data.
    """
    buffers: list[bytes] = []
    head = json.dumps(_packed(value, buffers)).encode()
    return b"".join([struct.pack("!Q", len(head)), head, *buffers])


def _packed(value: Any, buffers: list[bytes]) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        buffers.append(np.ascontiguousarray(value).tobytes())
        return {"array": [value.dtype.str, list(value.shape)]}
    if isinstance(value, Mapping):
        return {"mapping": [[str(key), _packed(item, buffers)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_packed(item, buffers) for item in value]}
    raise TypeError(f"a {type(value).__name__}")


def load(data: bytes) -> Any:
    """The value of ``dump``.

    Raises:
        ValueError: it is none.
    """
    try:
        (length,) = struct.unpack_from("!Q", data)
        value, end = _unpacked(json.loads(data[8 : 8 + length]), data, 8 + length)
    except (struct.error, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a response: {error}") from error
    if end != len(data):
        raise ValueError("not a response: too long")
    return value


def _unpacked(packed: Any, data: bytes, start: int) -> tuple[Any, int]:
    if not isinstance(packed, dict):
        return packed, start
    ((kind, content),) = packed.items()
    if kind == "array":
        dtype, shape = np.dtype(content[0]), tuple(content[1])
        if dtype.kind not in "biuf":
            raise ValueError(f"not a response: an array of {dtype}")
        count = int(np.prod(shape, dtype=np.int64))
        array = np.frombuffer(data, dtype, count, start).reshape(shape).copy()
        return array, start + array.nbytes
    values = []
    for item in content:
        key, inner = item if kind == "mapping" else (None, item)
        value, start = _unpacked(inner, data, start)
        values.append((key, value))
    if kind == "mapping":
        return dict(values), start
    items = [value for _, value in values]
    return (items if kind == "list" else tuple(items)), start


def send(connection: socket.socket, number: int, data: bytes) -> None:
    """Send a frame."""
    connection.sendall(HEADER.pack(number, len(data)))
    connection.sendall(data)


def receive(connection: socket.socket, deadline: float | None = None) -> tuple[int, bytes]:
    """The next frame: its number and its bytes.

    Raises:
        TimeoutError: it is not complete at ``deadline``, of ``time.monotonic``.
        EOFError: the other side is gone.
        ValueError: it is longer than any response.
    """
    number, length = HEADER.unpack(_exactly(connection, HEADER.size, deadline))
    if length > LARGEST:
        raise ValueError(f"not a response: {length} bytes")
    return number, _exactly(connection, length, deadline)


def _exactly(connection: socket.socket, count: int, deadline: float | None) -> bytes:
    parts = []
    while count:
        if deadline is not None:
            connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
