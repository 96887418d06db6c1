"""Our Middle-Out decoders and de-noising losses as candidates."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.verify.project.modules import call_beside, read_by_steps, select
from torch_impl.common.padding import Lengths
from torch_impl.middle_out import Weights, attend, interleave, run, run_by_steps, step
from torch_impl.models import denoising
from torch_impl.models.middle_out import MiddleOutCaptioner, MiddleOutConfiguration

Parameters = Mapping[str, Tensor]


def general_attention(h: Tensor, rows: Tensor, W: Tensor, mask: Tensor) -> Tensor:
    """``torch_impl.middle_out.attend``."""
    return attend(h @ W, rows.masked_fill(~mask[..., None], 0), mask)


def _weights(*sides: Parameters) -> Weights:
    names = [name for name in ("W_a", "W_d", "W_h") if name in sides[0]]
    return Weights(
        torch.stack([p["lstm.weight"].T for p in sides])[:, None],
        torch.stack([p["lstm.bias"] for p in sides])[:, None],
        **{name: torch.stack([p[name] for p in sides])[:, None] for name in names},
    )


def middle_out_step(
    h: Tensor,
    c: Tensor,
    e: Tensor,
    memory: Tensor,
    outputs: Tensor,
    states: Tensor,
    parameters: Parameters,
    self_attention: str,
) -> Tensor:
    """``torch_impl.middle_out.step``."""
    h, c, e, memory, outputs, states = (x[None, None] for x in (h, c, e, memory, outputs, states))
    found = step(_weights(parameters).side(0), (h, c), e, memory, None, outputs, states)
    return torch.stack(found).flatten(1, 2)[:, 0]


def _last(x: Tensor) -> Tensor:
    """(2, 2, *x.shape): ``x`` as the last sequence of the last lane; in the others its reverse."""
    other = x.flip(-1)
    return torch.stack([other, other, other, x]).unflatten(0, (2, 2))


def middle_out_captioner(
    left: Tensor,
    middle: int,
    right: Tensor,
    memory: Tensor,
    h: Tensor,
    c: Tensor,
    parameters: Parameters,
    self_attention: str,
    *,
    implementation: str = "custom_backward",
    beside_ended: bool = False,
) -> Tensor:
    """``torch_impl.middle_out.run``, or literal ``run_by_steps``; batch of two, two lanes.

    The memory of the others has a row more. The case's sequence is the last, or the first, beside
    one that ends half-way.
    """
    sides = [select(parameters, f"{side}.") for side in ("left", "right")]
    # words may use every id, so padding is negative
    words = interleave(left.tolist(), middle, right.tolist(), -1)
    tokens, following = (torch.tensor(part, device=h.device) for part in (words[:-1], words[1:]))
    if not len(tokens):
        return parameters["embedding.weight"].new_zeros(0, len(parameters["embedding.weight"]))
    inputs = parameters["embedding.weight"][tokens.clamp(min=0)]
    of_lanes = (None if w is None else torch.cat([w.flip(0), w], 1) for w in _weights(*sides))
    weights = Weights(*of_lanes)  # type: ignore[arg-type]
    decode = run_by_steps if implementation == "literal" else run
    T, at = len(tokens), 0 if beside_ended else -1

    def beside(x: Tensor) -> Tensor:
        return _last(x).flip(1) if beside_ended else _last(x)

    state = beside(h), beside(c)
    rows = F.pad(beside(memory), (0, 0, 0, 1), value=1000.0)
    mask = torch.ones(rows.shape[:3], dtype=torch.bool, device=h.device)
    mask[-1, at, -1] = False
    ended: Any = {"active": [1 + (t < T // 2) for t in range(T)]} if beside_ended else {}
    attended = beside(following >= 0)
    hs, _ = decode(weights, state, beside(inputs), rows, mask, attended, **ended)
    log_p = []
    for p, (side, half) in enumerate(zip(sides, (left, right), strict=True)):
        of_side = hs[-1, at, p::2][: len(half)]
        logits = of_side @ side["vocabulary.weight"].T + side["vocabulary.bias"]
        log_p.append(logits.log_softmax(-1))
    return torch.cat(log_p)


class _OfMemory(MiddleOutCaptioner):
    """The captioner without its encoder: features are the memory."""

    def __init__(self, configuration: MiddleOutConfiguration) -> None:
        super().__init__(configuration)
        del self.encoder

    def encode(self, features: Tensor, lengths: Lengths | None = None) -> Tensor:
        return features


def _wider(x: Tensor, *sizes: int) -> Tensor:
    """``x`` with zeros behind, so that its last axes have these ``sizes``."""
    missing = [size - now for size, now in zip(sizes, x.shape[-len(sizes) :], strict=True)]
    return F.pad(x, [n for size in reversed(missing) for n in (0, size)])


def _captioner_weights(parameters: Parameters, d: int, d_c: int, D: int) -> Parameters:
    """``MiddleOutCaptioner``'s parameters with states and a memory of D channels, and one more word
    that has probability 0.
    """
    V, e = parameters["embedding.weight"].shape
    left, right = (select(parameters, f"{side}.") for side in ("left", "right"))
    plain = _weights(left, right)
    # of the LSTM's inputs: words, memory, states; those of words are not wider
    words = [e] * (plain.reads_word + (plain.W_d is not None))
    others = [d_c] + [d] * (1 + (plain.W_h is not None))
    W = plain.W[:, 0].unflatten(-1, (4, d)).split([*words, *others], 1)
    gates = [_wider(x, 4, D) for x in W]
    gates = [*gates[: len(words)], *(_wider(x, D, 4, D) for x in gates[len(words) :])]
    b = _wider(plain.b[:, 0].unflatten(-1, (4, d)), D)
    wider = {"W": torch.cat(gates, 1).flatten(2), "b": b.flatten(1)}
    for name, columns in (("W_a", D), ("W_d", e), ("W_h", D)):
        if (w := getattr(plain, name)) is not None:
            wider[name] = _wider(w[:, 0], D, columns)
    of_words = torch.stack([side["vocabulary.bias"] for side in (left, right)])
    return {f"decoder_{name}": w for name, w in wider.items()} | {
        "embedding.weight": _wider(parameters["embedding.weight"], V + 1, e),
        "vocabulary_W": torch.stack(
            [_wider(side["vocabulary.weight"], V + 1, D) for side in (left, right)]
        ),
        "vocabulary_b": F.pad(of_words, (0, 1), value=-torch.inf),
    }


def captioner_of_memory(
    left: Tensor,
    middle: int,
    right: Tensor,
    memory: Tensor,
    h: Tensor,
    c: Tensor,
    parameters: Parameters,
    self_attention: str,
    *,
    by_steps: bool = False,
) -> Tensor:
    """``torch_impl.models.MiddleOutCaptioner``, or its ``init_cache``, which is for NumPy's arrays.

    Its memory is as wide as its states: the narrower has further channels of zeros. It has a
    further word, for padding.
    """
    if by_steps:
        memory, h, c = map(torch.tensor, (memory, h, c))
        parameters = {name: torch.tensor(value) for name, value in parameters.items()}
    (V, e), d, d_c = parameters["embedding.weight"].shape, len(h), memory.shape[1]
    D = (max(d, d_c) + 1) // 2 * 2
    halves = [list(map(int, half)) for half in (left, right)]
    tokens = torch.tensor(interleave(halves[0], middle, halves[1], V)[:-1], device=h.device)
    if not len(tokens):
        return memory.new_zeros(0, V)
    configuration = MiddleOutConfiguration(
        vocabulary_size=V + 1,
        d_feature=3 * D,
        d_embedding=e,
        hidden_size=D,
        self_attention=self_attention,
        max_length=1 + max(map(len, halves)),
        dropout=0.0,
        start_id=0,
        end_id=1,
        pad_id=V,
    )
    module, weights = partial(_OfMemory, configuration), _captioner_weights(parameters, d, d_c, D)
    rows = [_wider(memory, D), *(_wider(x, D).expand(len(memory), D) for x in (h, c))]
    given = torch.cat(rows, 1)
    if by_steps:
        log_p = read_by_steps(module, weights, given, tokens)
    else:
        log_p = call_beside(module, weights, given, tokens)
    return torch.cat([log_p[p::2][: len(half), :V] for p, half in enumerate(halves)])


def middle_out_loss(
    left: Tensor, middle: int, right: Tensor, *rest: Any, implementation: str = "custom_backward"
) -> Tensor:
    """Cross-entropy of both halves by ``middle_out_captioner``."""
    log_p = middle_out_captioner(left, middle, right, *rest, implementation=implementation)
    return -log_p.gather(1, torch.cat([left, right])[:, None]).sum()


def symmetric_sequence(mu: float, N: int) -> Tensor:
    """``torch_impl.models.denoising.symmetric``."""
    middle = torch.tensor(mu, dtype=torch.float64)
    return denoising.symmetric(middle, torch.tensor(N), 2 * N + 1)


def mse(y_hat: Tensor, y: Tensor) -> Tensor:
    """``torch_impl.models.denoising.mse``."""
    return denoising.mse(y_hat, y, torch.tensor(len(y), device=y.device))


def symmetric_mse(y_hat: Tensor) -> Tensor:
    """``torch_impl.models.denoising.symmetric_mse``."""
    return denoising.symmetric_mse(y_hat, torch.tensor(len(y_hat), device=y_hat.device))
