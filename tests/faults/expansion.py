"""The faults of the expansion mechanism."""

from __future__ import annotations

from tests.faults.plant import Fault

FAST, ORACLE = "torch_impl.expansion", "reference.expansion"
PARITY = "test_expansion.py::test_a_padded_batch_is_each_sequence_through_the_oracle"
CAUSAL = "test_expansion.py::test_the_causal_form_does_not_see_later_tokens"
LAYER = "test_expansion.py::test_a_layer_is_the_oracle_s_whatever_padding_holds"
STATIC_LOOPS = "test_oracle_expansion.py::test_the_static_operator_is_its_formula_written_in_loops"
DYNAMIC_LOOPS = (
    "test_oracle_expansion.py::test_the_dynamic_operator_is_its_formula_written_in_loops"
)

EXPANSION = (
    Fault(
        "stream sign",
        "both streams take the positive part of M",
        f"{FAST}:_streams",
        "(-M, values_2)",
        "(M, values_2)",
        PARITY,
    ),
    Fault(
        "streams swapped",
        "stream 1 takes -M and stream 2 +M, as v2 prints it, with v1's values",
        f"{FAST}:_streams",
        "((M, values_1), (-M, values_2))",
        "((-M, values_1), (M, values_2))",
        PARITY,
    ),
    Fault(
        "no mean over groups",
        "the backward weights of a block are not divided by the number of groups",
        f"{FAST}:_streams",
        " / len(groups)",
        "",
        "test_expansion.py::test_a_block_is_the_mean_of_its_groups",
    ),
    Fault(
        "one sum for all groups",
        "the backward step normalises over all groups at once",
        f"{FAST}:_streams",
        "[normalise(group) for group in transposed]",
        "[normalise(torch.cat(transposed, dim=-1))]",
        "test_expansion.py::test_a_block_is_the_mean_of_its_groups",
    ),
    Fault(
        "epsilon dropped",
        "Psi divides by the bare sum",
        f"{FAST}:normalise",
        " + EPSILON",
        "",
        "test_expansion.py::test_empty_sequences_are_finite_and_zero",
    ),
    Fault(
        "epsilon in the numerator",
        "Psi adds epsilon to every entry instead of to the sum",
        f"{FAST}:normalise",
        "x / (x.sum(-1, keepdim=True) + EPSILON)",
        "(x + EPSILON) / (x + EPSILON).sum(-1, keepdim=True)",
        PARITY,
    ),
    Fault(
        "columns normalised",
        "Psi sums the columns instead of the rows",
        f"{FAST}:normalise",
        "x.sum(-1, keepdim=True)",
        "x.sum(-2, keepdim=True)",
        PARITY,
    ),
    Fault(
        "bias in one stream",
        "the expansion bias is added in the first stream alone",
        f"{FAST}:_streams",
        "@ V + E_B",
        "@ V + (E_B if V is values_1 else 0)",
        PARITY,
    ),
    Fault(
        "bias after the backward step",
        "the bias is averaged over the expanded rows instead of read back by their weights",
        f"{FAST}:_streams",
        "@ V + E_B",
        "@ V + E_B.mean(-2, keepdim=True)",
        PARITY,
    ),
    Fault(
        "bias without condition",
        "the dynamic bias is b_n alone, as v1's equation 7 can be read",
        f"{FAST}:_dynamic_literal",
        "E_B = broad_sum(conditions, bias_vectors)",
        "E_B = broad_sum(torch.zeros_like(conditions), bias_vectors)",
        PARITY,
    ),
    Fault(
        "index order",
        "row (j, n) of the dynamic expansion stands at n L + j",
        f"{FAST}:broad_sum",
        "conditions[:, :, None] + vectors.to(conditions.dtype)",
        "conditions[:, None] + vectors.to(conditions.dtype)[:, None]",
        PARITY,
    ),
    Fault(
        "mask off by one, open",
        "a token sees the one after it",
        f"{FAST}:_dynamic_literal",
        ".tril()",
        ".tril(1)",
        CAUSAL,
    ),
    Fault(
        "mask off by one, closed",
        "a token does not see itself",
        f"{FAST}:_dynamic_literal",
        ".tril()",
        ".tril(-1)",
        PARITY,
    ),
    Fault(
        "backward step unmasked",
        "a token reads back the expanded rows of later tokens",
        f"{FAST}:_dynamic_literal",
        "readers = pairs.repeat_interleave(num_expansions, dim=2)",
        "readers = None",
        CAUSAL,
    ),
    Fault(
        "padded keys leak",
        "expanded rows gather from padded tokens",
        f"{FAST}:_static_literal",
        "visible = None if mask is None else mask[:, None, :]",
        "visible = None",
        PARITY,
    ),
    Fault(
        "NaN in padding leaks",
        "padded rows enter the projections as they are",
        f"{FAST}:StaticExpansion.forward",
        "x = zero_padding(x, mask)",
        "",
        LAYER,
    ),
    Fault(
        "gate swapped",
        "the selector weighs the second stream",
        f"{FAST}:_streams",
        "gate * backward[0] + (1 - gate) * backward[1]",
        "(1 - gate) * backward[0] + gate * backward[1]",
        PARITY,
    ),
    Fault(
        "no dropout on M",
        "dropout falls on the expanded values alone",
        f"{FAST}:_streams",
        "M = F.dropout(M, dropout)",
        "",
        "test_expansion.py::test_dropout_falls_on_m_and_on_every_forward_and_backward_value",
    ),
    Fault(
        "length transformation unscaled",
        "M is not divided by sqrt(d)",
        f"{FAST}:length_transformation",
        " / math.sqrt(keys.shape[-1])",
        "",
        PARITY,
    ),
    Fault(
        "oracle: stream sign",
        "the oracle's second stream takes the positive part too",
        f"{ORACLE}:forward_weights",
        "SIGN[i] * M",
        "M",
        STATIC_LOOPS,
    ),
    Fault(
        "oracle: no mean over groups",
        "the oracle's backward weights are not divided by the number of groups",
        f"{ORACLE}:backward_weights",
        " / len(blocks)",
        "",
        STATIC_LOOPS,
    ),
    Fault(
        "oracle: index order",
        "the oracle's block matrices put row (j, n) at n L + j",
        f"{ORACLE}:broad_sum",
        "np.kron(np.eye(L, dtype=C.dtype), np.ones((1, N_E), dtype=C.dtype))",
        "np.kron(np.ones((1, N_E), dtype=C.dtype), np.eye(L, dtype=C.dtype))",
        DYNAMIC_LOOPS,
    ),
    Fault(
        "oracle: mask",
        "the oracle's tokens do not see themselves",
        f"{ORACLE}:causal_masks",
        "np.tri(L, dtype=np.bool_)",
        "np.tri(L, k=-1, dtype=np.bool_)",
        DYNAMIC_LOOPS,
    ),
    Fault(
        "oracle: gradient of Psi",
        "the oracle's derivative of Psi forgets that the sum moves too",
        "reference.expansion_gradients:normalise_rows_vjp",
        "(dY - (dY * X / totals).sum(axis=1, keepdims=True))",
        "dY",
        "test_oracle_gradients.py::test_the_gradient_of_psi_is_central_differences",
    ),
)
