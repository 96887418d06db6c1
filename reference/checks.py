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
    names = list(inspect.signature(condition).parameters)

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)

        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            if not condition(*(bound.arguments[name] for name in names)):
                raise ValueError(message.format(**bound.arguments))
            return function(*args, **kwargs)

        return checked  # type: ignore[return-value]

    return decorate
