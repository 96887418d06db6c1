"""The faults of the recurrent networks and of what regularises them."""

from __future__ import annotations

from tests.faults.plant import Fault

CELL, SCAN = "torch_impl.recurrent.cell", "torch_impl.recurrent.scan"
PARITY = "test_recurrent.py::test_a_padded_batch_is_each_sequence_through_the_oracle"
BY_HAND = "test_recurrent.py::test_the_scan_and_its_gradients_are_the_literal_form_s"
LIBRARY = "test_recurrent.py::test_the_library_s_lstm_and_its_gradients_are_the_literal_form_s"
ATTENTIVE = "test_recurrent_layers.py::test_the_attentive_lstm_is_the_oracle_s"
ATTENTIVE_SCAN = "torch_impl.recurrent.attentive_scan"
ATTENTIVE_BY_HAND = (
    "test_recurrent_layers.py::test_the_attentive_scan_is_its_steps_with_whatever_regularises"
)
DIRECTIONS = "test_recurrent_layers.py::test_both_directions_are_the_oracle_s"
MODEL = "test_recurrent_models.py::test_a_padded_batch_is_each_source_through_the_oracle"
STEP = "test_recurrent_models.py::test_every_step_is_the_whole_prefix_whatever_the_order"
ERRORS = "test_auto_reconstructor.py::test_errors_of_a_padded_batch_are_the_oracle_s"
JOINT = "test_joint_training.py::test_the_loss_of_a_batch_is_the_joint_one_of_its_words"

RECURRENT = (
    Fault(
        "gates in another order",
        "the forget gate and the output gate change places",
        f"{CELL}:cell",
        "i, f, o, *r =",
        "i, o, f, *r =",
        PARITY,
    ),
    Fault(
        "output without tanh",
        "h_t = o * c_t, as only the read-only paper has it",
        f"{CELL}:cell",
        "c_t.tanh() if squash else c_t",
        "c_t",
        PARITY,
    ),
    Fault(
        "zoneout the other way round",
        "the rate is that of the new value, not of the old one",
        f"{CELL}:_keep",
        "z * old + (1 - z) * new",
        "z * new + (1 - z) * old",
        PARITY,
    ),
    Fault(
        "hidden state of the kept cell",
        "the hidden state is made of the memory cell after zoneout",
        f"{SCAN}:cell_forward",
        "torch.tanh(c_t, out=m)",
        "torch.tanh(c_t if z_c is None else c_t.lerp(c, z_c.expand_as(c)), out=m)",
        PARITY,
    ),
    Fault(
        "zoneout in evaluation",
        "the rates are left out in evaluation, as dropout's are",
        "torch_impl.recurrent.lstm:LSTM.masks",
        "if not rate:",
        "if not rate or not self.training:",
        MODEL,
    ),
    Fault(
        "recurrent dropout unscaled",
        "what recurrent dropout leaves is not scaled up",
        "torch_impl.recurrent.lstm:LSTM.masks",
        " * scale(p)",
        "",
        "test_recurrent.py::test_masks_are_drawn_with_their_rates_and_are_the_rates_in_evaluation",
    ),
    Fault(
        "gradient through a dropped update",
        "the gradient reaches the gates of an update that recurrent dropout hid",
        f"{SCAN}:cell_backward",
        "by_product = dc if update is None else dc * update",
        "by_product = dc",
        BY_HAND,
    ),
    Fault(
        "padded steps taken",
        "the memory cell goes on through padding",
        "torch_impl.recurrent.lstm:LSTM.forward",
        "z_c=_or(masks.z_c, padding, steps)",
        "z_c=masks.z_c",
        PARITY,
    ),
    Fault(
        "the image is read once",
        "at every step the read-only unit reads the input of that step",
        f"{CELL}:read_only_inputs",
        "xs[:, :1].expand_as(xs)",
        "xs",
        MODEL,
    ),
    Fault(
        "what is read is not gated",
        "the read-only gate is always open",
        f"{CELL}:cell",
        "c_t + r[0] * read",
        "c_t + read",
        PARITY,
    ),
    Fault(
        "state lost between chunks",
        "the weights' gradient takes each chunk of steps for a sequence of its own",
        f"{SCAN}:backward",
        "hs[before] if steps.start else",
        "torch.cat([h[None], hs[before][1:]]) if steps.start else",
        BY_HAND,
    ),
    Fault(
        "the cell's gradient without zoneout's share",
        "what zoneout keeps of the memory cell passes no gradient on",
        f"{SCAN}:backward",
        "dc += past_c",
        "dc += 0 * past_c",
        BY_HAND,
    ),
    Fault(
        "gradient through dropped units",
        "the gradient reaches h_{t-1} where recurrent dropout hid it",
        f"{SCAN}:backward",
        "dh *= recurrent[t]",
        "dh *= 1",
        BY_HAND,
    ),
    Fault(
        "the library's gate order",
        "PyTorch's LSTM gets the gates in the papers' order",
        "torch_impl.recurrent.lstm:LSTM._library",
        "torch.cat([i, f, g, o])",
        "torch.cat([i, f, o, g])",
        LIBRARY,
    ),
    Fault(
        "backwards from the padding",
        "the backward direction begins with padding as if it were steps",
        "torch_impl.recurrent.lstm:BidirectionalLSTM.forward",
        "lengths=flipped",
        "lengths=None",
        DIRECTIONS,
    ),
    Fault(
        "padding attended",
        "attention sees padded rows of the memory",
        "torch_impl.recurrent.attentive:SoftAttention.project",
        "mask | ~mask.any(-1, keepdim=True)",
        "mask | True",
        ATTENTIVE,
    ),
    Fault(
        "first context left out",
        "the first step attends to nothing",
        f"{ATTENTIVE_SCAN}:_Scan.forward",
        "addmm_(contexts[t], weight_z.mT)",
        "addmm_(contexts[t] * (t > 0), weight_z.mT)",
        ATTENTIVE,
    ),
    Fault(
        "no gradient through the query",
        "attention passes nothing on to the state that it asked with",
        f"{ATTENTIVE_SCAN}:_Scan.backward",
        "dh.addmm_(dqueries[t], W_query)",
        "pass",
        ATTENTIVE_BY_HAND,
    ),
    Fault(
        "gradient of the keys without tanh's",
        "the perceptron's hidden layer passes its gradient on as if it were linear",
        f"{ATTENTIVE_SCAN}:_Scan.backward",
        "hidden.square_(), value=-1",
        "hidden.square_(), value=0",
        ATTENTIVE_BY_HAND,
    ),
    Fault(
        "mean over padding",
        "x_{-1} is a mean over padded rows too",
        "torch_impl.models.recurrent:RecurrentCaptioner.begin",
        "mask.sum(1, keepdim=True).clamp(min=1)",
        "(mask | True).sum(1, keepdim=True)",
        MODEL,
    ),
    Fault(
        "stale hidden state",
        "hypotheses are reordered, their states are not",
        "torch_impl.models.recurrent:RecurrentState.reorder",
        "hypotheses + torch",
        "0 * hypotheses + torch.arange(K) + torch",
        STEP,
    ),
    Fault(
        "stale last input",
        "hypotheses are reordered, the input that the read-only unit reads is not",
        "torch_impl.models.recurrent:RecurrentState.reorder",
        "self._last = self._last.index_select(0, rows.flatten())",
        "pass",
        STEP,
    ),
    Fault(
        "reconstructs the present",
        "h_t is reconstructed from itself",
        "torch_impl.auto_reconstructor:AutoReconstructor.forward",
        "hs.transpose(0, 1)[:-1]",
        "hs.transpose(0, 1)[1:]",
        ERRORS,
    ),
    Fault(
        "distance instead of its square",
        "the error is the Euclidean distance itself",
        "torch_impl.auto_reconstructor:AutoReconstructor.forward",
        ".square().sum(-1).T",
        ".square().sum(-1).sqrt().T",
        ERRORS,
    ),
    Fault(
        "errors averaged over steps",
        "the joint loss takes the mean of the errors, not their sum",
        "torch_impl.auto_reconstructor:joint_loss",
        "errors.sum(-1)",
        "errors.mean(-1)",
        "test_auto_reconstructor.py::test_the_joint_loss_is_the_oracle_s",
    ),
    Fault(
        "errors of padding",
        "the reconstructor's errors are divided by the padded length",
        "torch_impl.training:CrossEntropyTraining.loss",
        "valid.sum().clamp(min=1)",
        "valid.numel()",
        JOINT,
    ),
    Fault(
        "centroids point by point",
        "d_mc is the mean of the distances",
        "torch_impl.auto_reconstructor:mean_centroid_distance",
        "cosine_distance(U.mean(0), V.mean(0))",
        "cosine_distance(U, V).mean()",
        "test_auto_reconstructor.py::test_distances_are_the_oracle_s",
    ),
    Fault(
        "last state one late",
        "the last state is that which has read the last token",
        "torch_impl.auto_reconstructor:last_states",
        "sizes.to(states.device) - 2",
        "(sizes.to(states.device) - 1).clamp(max=T - 2)",
        "test_auto_reconstructor.py::test_last_states_are_those_that_emit_the_last_token",
    ),
    Fault(
        "sampled after the truth",
        "the model samples a word having read the true words before it",
        "torch_impl.scheduled_sampling:sampled_inputs",
        "state.step(read[-1][:, None])",
        "state.step(tokens[:, t - 1, None])",
        "test_recurrent_models.py::test_words_are_sampled_as_the_oracle_says",
    ),
    Fault(
        "lambda ignored",
        "every weight of the reconstruction trains with Table 1's",
        "benchmarks.experiments.arnet:stages",
        "lambda_=weight",
        "lambda_=LAMBDA",
        "test_experiments.py::test_weights_of_the_reconstruction_share_table_1_s_trainings",
    ),
    Fault(
        "SNE in the plane",
        "points are drawn as by normal distributions, without Student's",
        "benchmarks.experiments.t_sne:gradient",
        "(p - q) * near",
        "p - q",
        "test_t_sne.py::test_the_gradient_is_the_cost_s_by_central_differences",
    ),
    Fault(
        "perplexity by bits",
        "an entropy in nats is held against bits",
        "benchmarks.experiments.t_sne:conditional",
        "np.log(perplexity)",
        "np.log2(perplexity)",
        "test_t_sne.py::test_every_point_has_the_perplexity_that_is_asked_for",
    ),
)
