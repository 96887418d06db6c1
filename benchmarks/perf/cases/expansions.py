"""Expansions as operators, without their projections, and as layers, with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.perf.cases import least_bytes
from benchmarks.perf.cases.case import (
    COMPILED,
    HALVES,
    UNAVAILABLE,
    Case,
    Work,
    both_passes,
    prepared,
)
from torch_impl.common.dropout import Dropout
from torch_impl.expansion import (
    DynamicExpansion,
    StaticExpansion,
    dynamic_expansion,
    static_expansion,
)
from torch_impl.layers.transformer import Mixer

EXPANSIONS = ("literal", "factored", "fused", "auto")
"""The implementations of an expansion, the papers' order of operations first."""
ATTENTION = "attention"
"""The one implementation of a mixer that is attention."""


def implement(module: nn.Module, implementation: str) -> None:
    """Set the implementation of every expansion in ``module``, "auto" where it is unavailable.

    Dropout is set too: its literal form is PyTorch's own.

    Raises:
        ValueError: it is unavailable to all of them, or no expansion is in the module.
    """
    name = implementation.removesuffix(COMPILED)
    expansions = [m for m in module.modules() if isinstance(m, StaticExpansion | DynamicExpansion)]
    if bool(expansions) == (name == ATTENTION):
        raise ValueError(f"it has {'expansions' if expansions else 'no expansion'}")
    refused: list[Exception] = []
    for expansion in expansions:
        weight = expansion.key.weight
        expansion.implementation = name
        try:
            with torch.no_grad():
                expansion(weight.new_zeros(1, 1, len(weight)))
        except UNAVAILABLE as error:
            refused.append(error)
            expansion.implementation = "auto"
    if refused and len(refused) == len(expansions):
        raise refused[0]
    for dropout in module.modules():
        if isinstance(dropout, Dropout):
            dropout.implementation = name


def random_normal(*shape: int, device: torch.device) -> Tensor:
    """Standard normal numbers, the same on every device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(device)


def work(
    forward: Callable[..., Tensor],
    arguments: Sequence[Tensor],
    parameters: Sequence[Tensor],
    backward: bool,
) -> Work:
    """A forward pass without gradients or, with ``backward``, both passes.

    Gradients are those of all floating-point arguments and parameters.
    """
    given = [*arguments, *parameters]
    if not backward:

        def infer() -> Tensor:
            with torch.no_grad():
                return forward(*arguments)

        return Work(infer, given)
    with torch.no_grad():
        upstream = torch.randn_like(forward(*arguments))
    wanted = [x.requires_grad_() for x in given if x.is_floating_point()]

    def train() -> None:
        torch.autograd.backward(forward(*arguments), upstream)
        for x in wanted:
            x.grad = None

    return Work(train, [*given, upstream], trains=True)


def _layer(
    case: Case, implementation: str, device: torch.device, *, half: str, backward: bool
) -> Work:
    sizes, decodes = case.sizes, half == "decoder"
    mixer = Mixer.parse(getattr(sizes, half), causal=decodes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = mixer.module(
            sizes.d_model, sizes.heads, causal=decodes, dropout=sizes.dropout if backward else 0.0
        )
    layer.to(device).train(backward)
    implement(layer, implementation)
    x = random_normal(
        sizes.batch, sizes.tokens if decodes else sizes.length, sizes.d_model, device=device
    )

    def mix(x: Tensor) -> Tensor:
        mixed: Tensor = layer(x, x, None, decodes) if mixer.attends else layer(x)
        return mixed

    forward = prepared(mix, case, implementation, device)
    return work(forward, [x], list(layer.parameters()), backward)


def _operator(
    case: Case, implementation: str, device: torch.device, *, half: str, backward: bool
) -> Work:
    sizes, decodes = case.sizes, half == "decoder"
    mixer = Mixer.parse(getattr(sizes, half))
    if mixer.attends:
        raise ValueError(f"{case.subject.name}: {mixer} has no operator of its own")
    name = implementation.removesuffix(COMPILED)
    dtype = HALVES.get(case.precision, torch.float32)
    tokens = sizes.tokens if decodes else sizes.length
    count = 5 if decodes else 4
    vectors = random_normal(2, sum(mixer.coefficients), sizes.d_model, device=device).unbind()
    activations = (
        random_normal(count, sizes.batch, tokens, sizes.d_model, device=device).to(dtype).unbind()
    )
    dropout = sizes.dropout if backward else 0.0
    implement(mixer.module(sizes.d_model, 1, causal=decodes, dropout=dropout).to(device), name)

    def run(*tensors: Tensor) -> Tensor:
        arguments: list[Any] = [*tensors] if decodes else [*tensors, mixer.coefficients]
        form = dynamic_expansion if decodes else static_expansion
        out: Tensor = form(*arguments, dropout=dropout, implementation=name)
        return out

    forward = prepared(run, case, implementation, device)
    # leaves, not views of one tensor
    return work(forward, [x.clone() for x in (*vectors, *activations)], [], backward)


SUBJECTS = [
    subject
    for kind, half, length in (("static", "encoder", "length"), ("dynamic", "decoder", "tokens"))
    for part, make, what in (
        ("layer", _layer, "with its projections"),
        ("operator", _operator, "without its projections"),
    )
    for subject in both_passes(
        f"{kind}-{part}",
        f"{kind} expansion {what}",
        ("batch", length, "d_model", half),
        (*EXPANSIONS, *(name + COMPILED for name in EXPANSIONS)),
        partial(make, half=half),
        least_bytes=partial(least_bytes.least, half=half, part=part),
    )
]
