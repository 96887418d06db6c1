"""Checks of arguments, apart from the bodies of the functions that they guard."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def requires(condition: Callable[..., object], message: str) -> Callable[[Function], Function]:
    """The decorated function raises ValueError with ``message`` unless ``condition`` holds.

    The condition takes arguments of the function by their names; the message is formatted with
    them.
    """
    names = inspect.signature(condition).parameters.keys()

    def decorate(function: Function) -> Function:
        parameters = inspect.signature(function).parameters
        defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}

        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            # not by ``Signature.bind``, which would take as long as a small function
            given = {**defaults, **dict(zip(parameters, args, strict=False)), **kwargs}
            # what lacks an argument is told so by the function itself
            if given.keys() >= names and not condition(*map(given.get, names)):
                raise ValueError(message.format(**given))
            return function(*args, **kwargs)

        return checked  # type: ignore[return-value]

    return decorate
