"""Argument checks as decorators, outside the bodies of the functions that they guard."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def requires(condition: Callable[..., object], message: str) -> Callable[[Function], Function]:
    """Decorator: the function raises ValueError with ``message`` unless ``condition`` holds.

    The condition takes arguments of the function by name; the message is formatted with them.
    """
    names = inspect.signature(condition).parameters.keys()

    @wraps(condition)
    def check(*values: object) -> None:
        if not condition(*values):
            raise ValueError(message.format(**dict(zip(names, values, strict=True))))

    return checked_by(check)


def checked_by(check: Callable[..., None]) -> Callable[[Function], Function]:
    """Decorator: ``check``, which takes arguments of the function by name, is called before it."""
    names = inspect.signature(check).parameters.keys()

    def decorate(function: Function) -> Function:
        parameters = inspect.signature(function).parameters
        defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}

        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            # ``Signature.bind`` would take as long as a small function itself
            given = {**defaults, **dict(zip(parameters, args, strict=False)), **kwargs}
            # with an argument missing, the call below raises TypeError
            if given.keys() >= names:
                check(*map(given.get, names))
            return function(*args, **kwargs)

        return checked  # type: ignore[return-value]

    return decorate
