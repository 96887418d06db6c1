"""The oracle's expansion: against its formula in scalar loops, and the relations it must obey."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.verify.strategies import SEEDS
from benchmarks.verify.tolerances import assert_close
from reference import expansion
from reference.primitives import sigmoid
from tests.support.covers import covers

VANISHING = 1e-300
"""An epsilon that a sum of positive entries does not notice."""
SIZES = st.integers(1, 5)
GROUPS = st.lists(st.integers(1, 4), min_size=1, max_size=3)


@dataclass
class Operands:
    """The arguments of both operators, under the papers' symbols."""

    E_Q: np.ndarray
    E_B: np.ndarray
    C: np.ndarray
    K: np.ndarray
    V_1: np.ndarray
    V_2: np.ndarray
    S: np.ndarray

    def static(self, groups=None, epsilon=expansion.EPSILON):
        shared = (self.K, self.V_1, self.V_2, self.S)
        return expansion.static_expansion(self.E_Q, self.E_B, *shared, groups, epsilon)

    def dynamic(self, causal=True, epsilon=expansion.EPSILON):
        shared = (self.C, self.K, self.V_1, self.V_2, self.S)
        return expansion.dynamic_expansion(self.E_Q, self.E_B, *shared, causal, epsilon)

    def map(self, change, *names):
        """A copy with ``change`` applied to the named arrays."""
        return replace(self, **{name: change(getattr(self, name)) for name in names})


TOKENS = ("C", "K", "V_1", "V_2", "S")
VECTORS = ("E_Q", "E_B")


def normal_operands(seed, N, L, d):
    rng = np.random.default_rng(seed)
    vectors = [rng.standard_normal((N, d)) for _ in VECTORS]
    return Operands(*vectors, *(rng.standard_normal((L, d)) for _ in TOKENS))


@st.composite
def operands(draw, N=SIZES):
    """Ordinary values; zeros among them; tiny ones; and rows or columns with no positive entry."""
    o = normal_operands(draw(SEEDS), draw(N), draw(SIZES), draw(SIZES))
    kind = draw(st.sampled_from(["ordinary", "zeros", "tiny", "huge", "positive", "negative"]))
    if kind == "zeros":
        rng = np.random.default_rng(draw(SEEDS))
        o = o.map(lambda A: A * rng.integers(0, 2, (len(A), 1)), *VECTORS, *TOKENS)
    elif kind in ("tiny", "huge"):
        scale = 1e-40 if kind == "tiny" else 1e40
        o = o.map(lambda A: scale * A, "E_Q", "C", "K")
    elif kind in ("positive", "negative"):
        sign = 1 if kind == "positive" else -1
        o = o.map(lambda A: sign * np.abs(A), "E_Q", "C").map(np.abs, "K")
    return o


@st.composite
def grouped(draw):
    """Operands whose expansion vectors fall into groups."""
    groups = draw(GROUPS)
    return draw(operands(st.just(sum(groups)))), groups


def by_loops(Q, B, K, V, S, groups, sees, epsilon):
    """One output at a time: queries Q and biases B are (N, d), V the pair of values.

    ``sees`` is a pair of tables, forward and backward, whose ``[n][i]`` joins row n and token i.
    """
    N, L, d = len(Q), len(K), K.shape[1]
    group_of = [g for g, size in enumerate(groups) for _ in range(size)]
    out = np.zeros((L, d))
    for sign, V_s, gate in ((1, V[0], sigmoid(S)), (-1, V[1], sigmoid(-S))):
        p = [[max(sign * sum(Q[n] * K[i]) / d**0.5, 0.0) for i in range(L)] for n in range(N)]
        for i in range(L):
            for n in range(N):
                same = [m for m in range(N) if group_of[m] == group_of[n] and sees[1][m][i]]
                weight = p[n][i] / (sum(p[m][i] for m in same) + epsilon) / len(groups)
                seen = [j for j in range(L) if sees[0][n][j]]
                total = sum(p[n][j] for j in seen) + epsilon
                F = sum((p[n][j] / total * V_s[j] for j in seen), start=B[n])
                out[i] += gate[i] * weight * F * sees[1][n][i]
    return out


@covers(expansionnet_v1=[4, 5, 6, 9], expansionnet_v2=[2, 3, 4, 5, 6, 7, 8, 9])
@given(grouped())
def test_the_static_operator_is_its_formula_written_in_loops(case):
    o, groups = case
    everything = np.ones((sum(groups), len(o.K)), dtype=bool)
    sees = (everything, everything)
    expected = by_loops(o.E_Q, o.E_B, o.K, (o.V_1, o.V_2), o.S, groups, sees, 1e-9)
    assert_close(o.static(groups), expected)


@covers(expansionnet_v1=[3, 5, 6, 9], expansionnet_v2=[1, 2, 3, 4, 5, 6, 7, 8])
@given(operands(), st.booleans())
def test_the_dynamic_operator_is_its_formula_written_in_loops(o, causal):
    L, N_E = len(o.C), len(o.E_Q)
    rows = [(j, n) for j in range(L) for n in range(N_E)]
    Q = np.array([o.C[j] + o.E_Q[n] for j, n in rows])
    B = np.array([o.C[j] + o.E_B[n] for j, n in rows])
    forward = [[i <= j or not causal for i in range(L)] for j, _ in rows]
    backward = [[j <= i or not causal for i in range(L)] for j, _ in rows]
    V, groups, sees = (o.V_1, o.V_2), [len(rows)], (forward, backward)
    expected = by_loops(Q, B, o.K, V, o.S, groups, sees, 1e-9)
    assert_close(o.dynamic(causal), expected)


@covers(expansionnet_v1=[3], expansionnet_v2=[1])
@given(operands())
def test_the_block_matrices_and_the_index_form_broad_sum_alike(o):
    E_Q, E_B = expansion.dynamic_expansion_vectors(o.C, o.E_Q, o.E_B)
    assert_close(expansion.broad_sum(o.C, o.E_Q), E_Q, "queries")
    assert_close(expansion.broad_sum(o.C, o.E_B), E_B, "biases")
    N_E = len(o.E_Q)
    for j in range(len(o.C)):
        for n in range(N_E):
            assert (E_Q[j * N_E + n] == o.C[j] + o.E_Q[n]).all()
            assert (E_B[j * N_E + n] == o.C[j] + o.E_B[n]).all()


@covers(expansionnet_v1=[4], expansionnet_v2=[9])
@given(grouped())
def test_a_block_stacks_the_vectors_of_its_groups_in_order(case):
    o, groups = case
    starts = np.cumsum([0, *groups])
    blocks = [slice(a, a + size) for a, size in zip(starts[:-1], groups, strict=True)]
    pairs = [expansion.static_expansion_vectors([*o.E_Q[b]], [*o.E_B[b]]) for b in blocks]
    E_Q, E_B = expansion.block_expansion_vectors(*zip(*pairs, strict=True))
    assert (E_Q == o.E_Q).all()
    assert (E_B == o.E_B).all()


@covers(expansionnet_v1=[5], expansionnet_v2=[4])
@given(SEEDS, SIZES, SIZES, st.floats(1e-6, 1e6))
def test_psi_is_scale_free_once_epsilon_is_scaled_or_vanishes(seed, rows, columns, factor):
    X = np.abs(np.random.default_rng(seed).standard_normal((rows, columns)))
    normalise = expansion.normalise_rows
    assert_close(normalise(factor * X, factor * 1e-3), normalise(X, 1e-3), "epsilon scaled")
    assert_close(normalise(factor * X, VANISHING), normalise(X, VANISHING), "epsilon vanishing")
    assert_close(normalise(X, VANISHING).sum(axis=1), np.ones(rows), "sums")
    assert (normalise(X, 1e-3).sum(axis=1) < 1).all()


@covers(expansionnet_v1=[6], expansionnet_v2=[2])
@given(grouped(), st.floats(1e-6, 1e6))
def test_the_operators_do_not_see_the_scale_of_the_keys_as_epsilon_vanishes(case, factor):
    o, groups = case
    scaled = o.map(lambda A: factor * A, "K")
    assert_close(scaled.static(groups, VANISHING), o.static(groups, VANISHING), "static")
    for causal in (True, False):
        assert_close(scaled.dynamic(causal, VANISHING), o.dynamic(causal, VANISHING), "dynamic")


@covers(expansionnet_v1=[9], expansionnet_v2=[3, 6, 8])
@given(grouped())
def test_negating_m_relabels_the_streams(case):
    o, groups = case
    relabelled = replace(o, K=-o.K, V_1=o.V_2, V_2=o.V_1, S=-o.S)
    assert_close(relabelled.static(groups), o.static(groups), "static")
    for causal in (True, False):
        assert_close(relabelled.dynamic(causal), o.dynamic(causal), "dynamic")


@covers(expansionnet_v2=[3, 5, 6, 7, 8])
@given(operands())
def test_the_second_papers_printed_signs_are_a_relabelling_of_the_first_ones(o):
    M = expansion.length_transformation(o.E_Q, o.K)
    B = []
    for i, V_i in ((1, o.V_1), (2, o.V_2)):
        printed = np.maximum((-1) ** i * M, 0)
        F = expansion.normalise_rows(printed) @ V_i + o.E_B
        B.append(expansion.normalise_rows(printed.T) @ F)
    out = sigmoid(o.S) * B[0] + (1 - sigmoid(o.S)) * B[1]
    assert_close(replace(o, V_1=o.V_2, V_2=o.V_1, S=-o.S).static(), out)


@covers(expansionnet_v1=[7, 8], expansionnet_v2=[3, 5, 6, 7])
@given(operands())
def test_the_first_papers_two_steps_are_the_second_ones_streams(o):
    Z = expansion.length_transformation(o.E_Q, o.K)
    F = expansion.forward_step(Z, o.V_1, o.V_2, o.E_B)
    B = expansion.backward_step(Z, *F)
    for i, V_i, F_i, B_i in ((1, o.V_1, F[0], B[0]), (2, o.V_2, F[1], B[1])):
        expected = expansion.forward_expansion(expansion.forward_weights(Z, i), V_i, o.E_B)
        assert_close(F_i, expected, f"forward {i}")
        expected = expansion.backward_expansion(expansion.backward_weights(Z, i), F_i)
        assert_close(B_i, expected, f"backward {i}")
    assert_close(expansion.selection(o.S, *B), o.static())


@covers(expansionnet_v1=[7, 8])
@given(operands())
def test_the_two_steps_of_minus_z_are_those_of_z_with_the_streams_swapped(o):
    Z = expansion.length_transformation(o.E_Q, o.K)
    F_1, F_2 = expansion.forward_step(Z, o.V_1, o.V_2, o.E_B)
    swapped = expansion.forward_step(-Z, o.V_2, o.V_1, o.E_B)
    assert (np.array(swapped) == [F_2, F_1]).all()
    B_1, B_2 = expansion.backward_step(Z, F_1, F_2)
    assert (np.array(expansion.backward_step(-Z, F_2, F_1)) == [B_2, B_1]).all()


@covers(expansionnet_v2=[6, 9])
@given(grouped(), st.data())
def test_the_order_of_the_vectors_in_a_group_and_of_the_groups_is_free(case, data):
    o, groups = case
    starts = np.cumsum([0, *groups])
    blocks = [[*range(a, a + size)] for a, size in zip(starts[:-1], groups, strict=True)]
    shuffled = [data.draw(st.permutations(block)) for block in data.draw(st.permutations(blocks))]
    order = [n for block in shuffled for n in block]
    permuted = o.map(lambda A: A[order], *VECTORS)
    assert_close(permuted.static([len(block) for block in shuffled]), o.static(groups), "static")
    for causal in (True, False):
        assert_close(permuted.dynamic(causal), o.dynamic(causal), "dynamic")


@covers(expansionnet_v2=[6, 9])
@given(grouped())
def test_a_block_is_the_average_of_its_groups(case):
    o, groups = case
    starts = np.cumsum([0, *groups])
    alone = [
        o.map(lambda A, a=a, size=size: A[a : a + size], *VECTORS).static()
        for a, size in zip(starts[:-1], groups, strict=True)
    ]
    assert_close(o.static(groups), np.mean(alone, axis=0))
    assert (o.static([sum(groups)]) == o.static()).all()


@covers(expansionnet_v1=[3, 4], expansionnet_v2=[6])
@given(operands(), st.integers(1, 4), SEEDS)
def test_copies_of_a_query_are_one_query_with_the_mean_of_their_biases(o, copies, seed):
    spread = np.random.default_rng(seed).standard_normal((len(o.E_B), copies, 1))
    biases = o.E_B[:, None] + spread
    many = replace(o, E_Q=np.repeat(o.E_Q, copies, axis=0), E_B=biases.reshape(-1, o.E_B.shape[1]))
    one = replace(o, E_B=biases.mean(axis=1))
    assert_close(many.static(epsilon=VANISHING), one.static(epsilon=VANISHING), "static")
    for causal in (True, False):
        assert_close(many.dynamic(causal, VANISHING), one.dynamic(causal, VANISHING), "dynamic")


@covers(expansionnet_v1=[3], expansionnet_v2=[1])
@given(operands())
def test_the_bidirectional_dynamic_operator_is_static_on_the_broad_sums(o):
    summed = o.map(lambda E: expansion.broad_sum(o.C, E), *VECTORS)
    assert_close(o.dynamic(causal=False), summed.static())


@covers(expansionnet_v2=[5, 7])
@given(operands(), st.data())
def test_causal_outputs_before_a_changed_token_are_the_same_to_the_bit(o, data):
    L = len(o.C)
    t = data.draw(st.integers(0, L - 1))
    rng = np.random.default_rng(data.draw(SEEDS))

    def change(A):
        A = A.copy()
        A[t:] = 10 * rng.standard_normal(A[t:].shape)
        return A

    assert (o.map(change, *TOKENS).dynamic()[:t] == o.dynamic()[:t]).all()


@covers(expansionnet_v2=[5, 7])
@given(operands(), st.data())
def test_the_causal_operator_on_a_prefix_is_the_prefix_of_the_causal_operator(o, data):
    t = data.draw(st.integers(1, len(o.C)))
    assert_close(o.map(lambda A: A[:t], *TOKENS).dynamic(), o.dynamic()[:t])


@given(operands())
def test_a_single_token_has_no_direction(o):
    single = o.map(lambda A: A[:1], *TOKENS)
    assert (single.dynamic(causal=True) == single.dynamic(causal=False)).all()


@covers(expansionnet_v2=[3, 5, 6, 7])
@given(operands())
def test_the_order_of_the_tokens_is_free_where_nothing_is_causal(o):
    reverse = o.map(lambda A: A[::-1], *TOKENS)
    assert_close(reverse.static(), o.static()[::-1], "static")
    assert_close(reverse.dynamic(causal=False), o.dynamic(causal=False)[::-1], "dynamic")


@covers(expansionnet_v1=[9], expansionnet_v2=[5, 7, 8])
@given(SEEDS, SIZES, SIZES, SIZES)
def test_equal_values_and_biases_come_back_through_the_only_live_stream(seed, N, L, d):
    o = normal_operands(seed, N, L, d).map(np.abs, "E_Q", "C", "K")
    value, bias = o.V_1[0], o.E_B[0]
    o = replace(o, V_1=np.tile(value, (L, 1)), E_B=np.tile(bias, (N, 1)))
    assert_close(o.static(epsilon=VANISHING), sigmoid(o.S) * (value + bias))


@given(grouped())
def test_a_matrix_of_zeros_gives_exact_zeros(case):
    o, groups = case
    dead = o.map(np.zeros_like, "K")
    assert not dead.static(groups).any()
    assert not dead.dynamic().any()


@covers(expansionnet_v1=[9], expansionnet_v2=[8])
@given(SEEDS, SIZES, SIZES)
def test_the_gate_chooses_channel_by_channel(seed, L, d):
    S, B_1, B_2 = np.random.default_rng(seed).standard_normal((3, L, d))
    assert_close(expansion.selection(S, B_1, B_1), B_1, "of equals")
    assert_close(expansion.selection(-S, B_2, B_1), expansion.selection(S, B_1, B_2), "swapped")
    ends = np.where(S > 0, 1e4, -1e4)
    assert (expansion.selection(ends, B_1, B_2) == np.where(S > 0, B_1, B_2)).all()


@given(SEEDS, GROUPS, SIZES, SIZES)
def test_the_layers_are_the_operators_on_five_projections(seed, groups, L, d):
    rng = np.random.default_rng(seed)
    X, N = rng.standard_normal((L, d)), sum(groups)
    maps = {
        name: {"weight": rng.standard_normal((d, d)), "bias": rng.standard_normal(d)}
        for name in ("condition", "key", "value_1", "value_2", "selector")
    }
    vectors = {name: rng.standard_normal((N, d)) for name in ("query_vectors", "bias_vectors")}
    parameters = {f"{name}.{key}": v for name, p in maps.items() for key, v in p.items()} | vectors
    o = Operands(*vectors.values(), *(X @ p["weight"].T + p["bias"] for p in maps.values()))
    assert_close(expansion.static_expansion_layer(X, parameters, groups), o.static(groups))
    for causal in (True, False):
        layer = expansion.dynamic_expansion_layer(X, parameters, causal)
        assert_close(layer, o.dynamic(causal))


@pytest.mark.parametrize("groups", [[], [3], [2, 3], [4, 0], [5, -1]])
def test_groups_that_do_not_make_up_the_vectors_are_refused(groups):
    with pytest.raises(ValueError, match="must be positive and sum to 4"):
        normal_operands(0, 4, 2, 3).static(groups)


@given(SEEDS, GROUPS, SIZES, SIZES)
def test_the_dtype_is_kept(seed, groups, L, d):
    o = normal_operands(seed, sum(groups), L, d)
    for dtype in (np.float32, np.float64):
        typed = o.map(lambda A, dtype=dtype: A.astype(dtype), *VECTORS, *TOKENS)
        results = [typed.static(groups), typed.dynamic(True), typed.dynamic(False)]
        assert {result.dtype for result in results} == {np.dtype(dtype)}
