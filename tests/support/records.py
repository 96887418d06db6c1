"""Synthetic records for tests: what a test does not name is filled in by type."""

import types
from typing import Literal, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, convert, structs, to_builtins

from benchmarks import records
from benchmarks.kinds import AnyDetails, Captions
from benchmarks.records import Data, Device, Record

CPU = Device(kind="cpu", name="a machine", cores=2, threads=1)


def filled(kind, **given):
    """Details of a kind from JSON values, with nothing in the fields that are not given."""
    return convert(_fields(kind, to_builtins(given, enc_hook=float)), kind)


def record(kind=Captions, values=None, /, **given):
    """A record; what is no argument of `records.make` is a field of its details."""
    what = {
        "paper": "expansionnet_v2",
        "table": "I",
        "row": "a",
        "status": "embedded",
        "key": "k",
        "data": Data(name="scenes", fingerprint="f", split="test"),
        "device": CPU,
    }
    own = {"n", "seeds", "signature", "checkpoint", "wall_s", "time", *what}
    what |= {name: given.pop(name) for name in own & given.keys()}
    time = what.pop("time", None)
    made = records.make(filled(kind, **given), values=values or {}, **what)
    return records.replace(made, time=time) if time else made


def from_json(value):
    """Records that a command printed as JSON."""
    if isinstance(value, list):
        return list(map(from_json, value))
    return convert(value, Record[AnyDetails])


def altered(made, **changes):
    """The record with other fields, of its own or of its details."""
    own = {n: changes.pop(n) for n in list(changes) if not hasattr(made.details, n)}
    details = structs.replace(made.details, **changes)
    return records.replace(made, details=details, **own)


def _fields(kind, given):
    needed = {f.name: f.type for f in structs.fields(kind) if f.required}
    known = {f.name: f.type for f in structs.fields(kind)}
    assert given.keys() <= known.keys(), f"{kind.__name__} has no {given.keys() - known.keys()}"
    found = {name: _value(known[name], value) for name, value in given.items()}
    return {**{name: _value(each, NODEFAULT) for name, each in needed.items()}, **found}


def _value(kind, given):
    """``given`` with its own missing fields filled in, or a plain value of the type."""
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(kind, types.UnionType):
        if given is None or (given is NODEFAULT and type(None) in inner):
            return None
        return _value(next(each for each in inner if each is not type(None)), given)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _fields(kind, {} if given is NODEFAULT else given)
    if given is not NODEFAULT:
        return [_value(inner[0], each) for each in given] if origin is list else given
    if origin is Literal:
        return inner[0]
    return (origin or kind)() if origin is not tuple else [_value(each, given) for each in inner]
