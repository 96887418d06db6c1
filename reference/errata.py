"""Where the papers' print and sense differ: what is printed, what the oracle takes, and why."""

from __future__ import annotations

from reference.equations import Erratum

V1, V2, ARNET = "expansionnet_v1", "expansionnet_v2", "arnet"
READ_ONLY, MIDDLE_OUT = "lstm_readonly", "middle_out"

ERRATA: tuple[Erratum, ...] = (
    Erratum(
        V1,
        "(1)",
        "v_j is a sum over t of he_i alpha_ij",
        "v_j = sum_i alpha_ij he_i",
        "the sum runs over the encoder's states",
    ),
    Erratum(
        V1,
        "(2), (6)",
        "scaled by sqrt(D) and by sqrt(d_model)",
        "expansion: sqrt(d_model); multi-head attention: sqrt(d_k) in each head",
        "eq. (2) is written for a single head, where both are the same",
    ),
    Erratum(
        V2,
        "(2)",
        "scaled by sqrt(d_m)",
        "expansion: sqrt(d_m); multi-head cross-attention: sqrt(d_k) in each head",
        "the expansion has no heads",
    ),
    Erratum(
        V1,
        "(7), (8)",
        "stream 1 takes ReLU(Z), stream 2 ReLU(-Z)",
        "as printed, for both papers",
        "v2 prints the opposite signs; the released weights follow v1's order",
    ),
    Erratum(
        V2,
        "(3), (6)",
        "stream i takes ReLU((-1)^i M), so that stream 1 takes -M",
        "stream 1 takes M, stream 2 takes -M",
        "the same function after swapping V_1 with V_2 and turning S into -S; the released weights "
        "follow v1's order",
    ),
    Erratum(
        V2,
        "(3), (5)",
        "R^bw in the forward step",
        "R^fw",
        "misprint: R^bw is defined in (6), from the transposed matrix",
    ),
    Erratum(
        V1,
        "(7)",
        "E_B, in the dynamic case",
        "c_j + b_n for row (j, n): the bias vectors broad-summed with the condition",
        "eq. (3) defines the dynamic biases so, like the queries",
    ),
    Erratum(
        V2,
        "(5)",
        "B_E, in the dynamic case",
        "c_j + b_n for row (j, n): the bias vectors broad-summed with the condition",
        "eq. (1) defines the dynamic biases so, like the queries",
    ),
    Erratum(
        V2,
        "(5), (7), masking",
        "masking is applied when calculating the results in (5) and (7)",
        "hidden entries are zero before the normalisations of (3) and (6)",
        "a normalising sum over later tokens would depend on them, against the auto-regressive "
        "property that the mask is there to keep",
    ),
    Erratum(
        V2,
        "(6), Block Static",
        "the matrix is scaled by the inverse number of elements in the group G",
        "the transposed matrix is normalised within each group's columns, the groups are "
        "concatenated, then divided by the number of groups: an average over groups",
        "matches the released weights",
    ),
    Erratum(
        V2,
        "(8)",
        "S in R^L",
        "S in R^(L x d_m): one gate for every channel",
        "S multiplies B^bw element by element; matches the released weights",
    ),
    Erratum(
        V2, "(11)", "FF(Norm(B_n))", "FF(Norm(E_n))", "misprint: B_n is the decoder's, in (12)"
    ),
    Erratum(
        V2,
        "III-B",
        "all layers are summed through a linear projection",
        "out = LayerNorm(x_N + Linear([x_1, ..., x_N])) in the encoder and in the decoder; the "
        "cross-attention reads the encoder's out, where (12) prints X_Nenc",
        "matches the released weights",
    ),
    Erratum(
        V1,
        "(15)",
        "b(c_i) = 1/K sum_{j != i} R(c_j)",
        "both, as `printed` (1/K) and `leave_one_out` (1/(K-1)); training uses the latter",
        "the mean over the other K-1 samples of the work that the paper cites",
    ),
    Erratum(
        ARNET,
        "(8)",
        "p(y_t | y_{t-1})",
        "conditioned through h_{t-1} on all earlier words",
        "the network is recurrent",
    ),
    Erratum(
        ARNET,
        "(11)",
        "the second mean, over j, is of v_{I_i}",
        "it is over its own index",
        "misprint",
    ),
    Erratum(
        READ_ONLY,
        "(10)",
        "m_t = o_t * c_t, without a tanh",
        "as printed",
        "the model is defined so, unlike the usual LSTM",
    ),
    Erratum(
        READ_ONLY,
        "(17)",
        "r_t * x_{t-1}",
        "r_t * x_{-1}, the image embedding; `previous_input` gives the printed form",
        "the text: a new LSTM state which depends on the image content",
    ),
    Erratum(
        MIDDLE_OUT,
        "4.1, Table 1",
        "the text removes the self-attention, the table's row is named with it",
        "both are run, and named",
        "text and table contradict each other",
    ),
    Erratum(
        V2,
        "Table IV, ExpansionNet v2, B2 c5",
        "8.8",
        "68.8",
        "misprint: BLEU-2 lies between the row's BLEU-1 and BLEU-3",
    ),
    Erratum(
        V1,
        "4.4",
        "the two results are reflected in the reinforcement step, as illustrated in Table 3",
        "Table 2",
        "misprint: Table 3 is of the cross-entropy stage alone",
    ),
)
