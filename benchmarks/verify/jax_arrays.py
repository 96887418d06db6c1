"""JAX's arrays, for candidates in JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.verify.cases import Place, get, replaced
from benchmarks.verify.frameworks import Function, NumPy
from benchmarks.verify.originals import np, own_builtins

own_builtins(globals())


class Jax(NumPy):
    """JAX arrays, which have no strides and are immutable; 64-bit dtypes are enabled."""

    name = "jax"

    def __init__(self) -> None:
        import jax  # lazily

        jax.config.update("jax_enable_x64", True)
        self.jax: Any = jax

    def from_numpy(self, array: Any, layout: str = "plain", copy: bool = True) -> Any:
        return self.jax.numpy.array(array)

    def to_numpy(self, value: Any) -> Any:
        return super().to_numpy(np.asarray(value))

    def refill(self, given: Any, array: Any, is_seen: bool = True) -> None:
        raise NotImplementedError

    def gradient(
        self,
        loss: Function,
        case: Sequence[Any],
        places: Sequence[Place],
        weights: Any,
        read: Function,
        uses: int = 1,
        layout: str = "plain",
        then: Sequence[Any] | None = None,
    ) -> list[Any]:
        def total(arrays: Sequence[Any]) -> Any:
            moved = replaced(case, dict(zip(places, arrays, strict=True)))
            outputs = [loss(*moved) for _ in range(uses)]
            also = [] if then is None else [loss(*then)]
            losses = ((i * output * weights).sum() for i, output in enumerate(outputs, 1))
            return sum(losses), [*outputs, *also]

        gradient = self.jax.grad(total, has_aux=True)
        at = [get(case, place) for place in places]
        try:  # one program takes a fifth of the time of compiling each operation
            found, outputs = self.jax.jit(gradient)(at)
        except Exception:  # for example, a function that branches on values
            found, outputs = gradient(at)
        numbers = [read(output) for output in outputs]
        passes = [gradient for _ in range(uses) for gradient in read(found)]
        return [*passes, numbers]
