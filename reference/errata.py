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
        ARNET,
        "(7), (9)",
        "the sum over t has no bounds",
        "t = 2 ... T: each of the decoder's states h_1 ... h_(T-1) is reconstructed from the one "
        "after it; the auto-reconstructor starts from zeros and reads h_1 too",
        "h_0 is what the network starts from, not a state that it came to",
    ),
    Erratum(
        ARNET,
        "(2), (3), (5)",
        "T, a linear transformation matrix, without a bias",
        "a bias is added where the parameters have one",
        "the formulas are those of the cited work, which leaves biases out",
    ),
    Erratum(
        ARNET,
        "(4)",
        "alpha, usually realized by a multilayer perceptron",
        "w^T tanh(W_s s_i + W_h h_{t-1} + b)",
        "the perceptron of the work that the paper cites",
    ),
    Erratum(
        ARNET,
        "Table 5, recurrent dropout",
        "the reference is to dropout in general; which connection is dropped is not said",
        "both recurrent ones: the gates read h_{t-1} times a mask over the probability of keeping "
        "it, while the memory cell is left alone; and, as a row of its own, the update g_t dropped",
        "the name fits the former, and is that of the latter in Semeniuta et al. (2016)",
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
        READ_ONLY,
        "(2), (15)",
        "(2) sums from t = 0, the start word, (15) from t = 1",
        "as printed",
        "the image's step has a distribution of S_0, which the loss leaves out: the start word is "
        "given",
    ),
    Erratum(
        READ_ONLY,
        "(4)",
        "x_{-1} = Mixed_7c W_i + b_i",
        "Mixed_7c after average pooling",
        "the text appends the pooling; W_i is of the pooled vector's size",
    ),
    Erratum(
        READ_ONLY,
        "(5), (13)",
        "the matrix W_l of the text is W_e in the equations; (13) multiplies W_e by the word's row "
        "of the identity matrix from the right",
        "W_e throughout, (words, N_e); the row of the identity stands on its left",
        "a row of W_e is a word; (13) is then (5)",
    ),
    Erratum(
        READ_ONLY,
        "(17), first step",
        "the input before the image's is not defined",
        "the image's embedding x_{-1} at every step, the image's own included; in "
        "`previous_input` the image's step reads zeros",
        "what is read-only is there from the start; before the first input there is none. At t = 0 "
        "the readings agree",
    ),
    Erratum(
        READ_ONLY,
        "(17), sizes",
        "r_t * x_{t-1} is added to c_t",
        "embeddings have as many channels as the memory",
        "the product is element by element",
    ),
    Erratum(
        READ_ONLY,
        "II.B, first state",
        "the initial state is c_{-1}, filled with zeros",
        "c and m are zero before the image's step, t = -1",
        "that step reads them",
    ),
    Erratum(
        READ_ONLY,
        "(19)",
        "Delta_theta I_{t:t+B}(theta)",
        "the gradient of the loss, the mean over the B examples of the mini-batch",
        "I is the image elsewhere; (15) names the loss L",
    ),
    Erratum(
        READ_ONLY,
        "gradient clipping",
        "the norm of the gradient by theta",
        "one norm, of the gradients of all parameters together",
        "theta are the parameters of the model, in (1)",
    ),
    Erratum(
        READ_ONLY,
        "beam search",
        "a sequence with the end word is not processed later; N best are taken at each step",
        "it keeps its place among the N and its score, and one continuation less is taken; a "
        "limit of the length is added",
        "N sequences are the result. The beam search of the other papers lets ended hypotheses "
        "compete, and lose their place",
    ),
    Erratum(
        MIDDLE_OUT,
        "4.1, Table 1",
        "the text removes the self-attention, the table's row is named with it",
        "both can be run, and are named",
        "text and table contradict each other",
    ),
    Erratum(
        MIDDLE_OUT,
        "(1), (5), (6), (7)",
        "S is not defined",
        "an LSTM whose input are the other arguments, concatenated in their printed order",
        "the decoder is an LSTM",
    ),
    Erratum(
        MIDDLE_OUT,
        "(5), (6), scores",
        "d_t and h~_t are weighted sums, by weights that are not given",
        "by (3), with the general score of (4) and a matrix of their own each, W_d and W_h",
        "the paper's only score",
    ),
    Erratum(
        MIDDLE_OUT,
        "(5), (6), first step",
        "sums over e_1 ... e_(t-1) and h_1 ... h_(t-1), which are empty at t = 1",
        "the first word's embedding, of the start token or the middle word, is among the outputs; "
        "h~_1 is zero, as the state that decoding starts from is not among the hidden states",
        "(5) has no other input; Figure 2: the middle word is attended over",
    ),
    Erratum(
        MIDDLE_OUT,
        "3.1, 3.3, initial state",
        "the final hidden state of the encoder",
        "the two directions' final hidden states side by side, and their memory cells likewise: "
        "a decoder has the channels of both",
        "a decoder's LSTM needs a memory cell too",
    ),
    Erratum(
        MIDDLE_OUT,
        "3.3, turns",
        "alternates between generating a word on the left and a word on the right",
        "left first; a side that is through leaves the turns to the other. The self-attention "
        "reads all outputs, STOP included, and all states in the order in which they came to be",
        "the order of the sentence; without any distinction, as the text has it",
    ),
    Erratum(
        MIDDLE_OUT,
        "3.3, parameters",
        "two LSTM decoders",
        "each has its own LSTM, score matrices and layer before the softmax; they share the "
        "embeddings",
        "the self-attention reads the outputs of both without any distinction",
    ),
    Erratum(
        MIDDLE_OUT,
        "4.1, classifier",
        "a single linear layer on the final hidden state of a bidirectional LSTM encoder",
        "the encoder of the regressor itself; its initial value is the first one for the "
        "sequence-to-sequence model, mu for the middle-out decoder",
        "no other encoder is described",
    ),
    Erratum(
        MIDDLE_OUT,
        "4.1, end",
        "numbers have no STOP token",
        "as many values as the input has, half of the others on each side of the middle",
        "the length of the input is known",
    ),
    Erratum(
        MIDDLE_OUT,
        "4.1, MSE",
        "the mean over sequences of different lengths is not defined",
        "the mean over the sequences of each one's mean",
        "every sequence counts the same",
    ),
    Erratum(
        MIDDLE_OUT,
        "4.2, beam search",
        "adds the length of the output sequence to the beam's score; the search from the middle "
        "is not described",
        "score = sum of log-probabilities + number of tokens, middle and ends included, in the "
        "competition as in the final order; the sides take turns, and a hypothesis whose side has "
        "ended goes on unchanged",
        "the score is the beam's; without the bonus those that ended would be favoured",
    ),
    Erratum(
        MIDDLE_OUT,
        "4.2, middle word",
        "the most-common verb, a word in -ing, among all of the captions of a video",
        "of a caption without that word its own commonest in -ing; a caption without any is not "
        "learned, a video without any is in no split, for whichever model; 40 candidates, the "
        "commonest",
        "the text does not say what such captions and videos become; of the captions of MSVD's "
        "training videos 57 % lack the word and 24 % any; the videos have 211 different ones",
    ),
    Erratum(
        MIDDLE_OUT,
        "4.2, Self-BLEU, Self-METEOR",
        "assess similarity between the different captions in a generated set",
        "the mean over captions of the score of each with all the others as references, then over "
        "sets",
        "the work that the paper cites",
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
