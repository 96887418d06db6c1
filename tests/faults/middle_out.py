"""The faults of decoding from the middle, of its search, and of the de-noising regressors."""

from __future__ import annotations

from tests.faults.plant import CONFORMANCE, Fault

DECODER, LOOP = "torch_impl.middle_out.decoder", "torch_impl.middle_out.loop"
MODEL, SEARCH = "torch_impl.models.middle_out", "torch_impl.decoding.middle_out"
DENOISING = "torch_impl.models.denoising"
BY_HAND = "test_middle_out.py::test_the_loop_is_its_steps_forward_and_gradients"
ENDED = "test_middle_out.py::test_sequences_that_have_ended_are_left_out_of_the_loop"
HALVES = "test_middle_out.py::test_a_padded_batch_is_each_caption_from_its_middle_by_the_oracle"
STEPS = "test_middle_out.py::test_single_steps_are_the_whole_whichever_beam_continues"
BEAM = "test_middle_out_decoding.py::test_it_is_the_readable_search"
GRID = f"{CONFORMANCE}[grid_beam_search-torch]"
REGRESSOR = "test_denoising.py::test_every_sequence_of_every_seed_is_the_oracles"

ATTENTION = "test_oracle_middle_out.py::"
ATTENTION += "test_a_step_attends_from_the_state_before_by_a_matrix_for_each"

MIDDLE_OUT = (
    Fault(
        "oracle: context of equal weights",
        "(2) is the mean of the states",
        "reference.attention:context_vector",
        "alpha @ states",
        "states.mean(axis=0)",
        ATTENTION,
    ),
    Fault(
        "oracle: scores with the other sign",
        "(3) gives most weight to what scores least",
        "reference.attention:alignment_weights",
        "score(h, states)",
        "-score(h, states)",
        ATTENTION,
    ),
    Fault(
        "the other side's word",
        "a side reads the newest word, whichever side it is of",
        f"{DECODER}:input_entry",
        "max(0, t + 1 - sides)",
        "t",
        HALVES,
    ),
    Fault(
        "holes attended",
        "a side that is through still shows the states that it would have had",
        f"{MODEL}:MiddleOutCaptioner.states",
        "tokens[:, 1:] != self.pad_id",
        "True",
        HALVES,
    ),
    Fault(
        "scores of values that are hidden",
        "what is masked keeps its share of the softmax",
        f"{LOOP}:_attend",
        ".softmax(-1).masked_fill_(hidden, 0)",
        ".softmax(-1)",
        BY_HAND,
    ),
    Fault(
        "self-attention without keys' gradient",
        "a state's gradient as a key of later steps is left out",
        f"{LOOP}:_SelfAttention.gradient_of_rows",
        "d_rows.baddbmm_(self.d_scores[:N, rows], self.queries[:N])",
        "d_rows",
        BY_HAND,
    ),
    Fault(
        "cell gradient through the output gate only",
        "h's gradient does not reach the memory cell through tanh",
        "torch_impl.recurrent.inplace_cell:cell_backward",
        "dc += _tanh_backward(dm, m) if squash else dm",
        "dm.mul_(0)",
        BY_HAND,
    ),
    Fault(
        "a lane's side changed",
        "of sides run side by side the last is the first",
        f"{DECODER}:_side_by_side",
        ".permute(1, 3, 2, 0, 4)",
        ".flip(0).permute(1, 3, 2, 0, 4)",
        BY_HAND,
    ),
    Fault(
        "weights by ended sequences",
        "the gates' gradients of sequences that have ended are whatever was there",
        f"{LOOP}:_Loop.backward",
        "x[:, t, n:] = 0",
        "x[:, t, n:] = 1",
        ENDED,
    ),
    Fault(
        "one vocabulary layer",
        "the right side predicts by the left side's layer",
        f"{MODEL}:MiddleOutCaptioner.predict",
        "p = (first + t) % P",
        "p = first % P",
        HALVES,
    ),
    Fault(
        "states in the old order",
        "after a choice of hypotheses their past states stay",
        f"{MODEL}:MiddleOutCache.reorder",
        "self._outputs[:, rows], self._states[:, rows]",
        "self._outputs[:, rows], self._states",
        STEPS,
    ),
    Fault(
        "no bonus for length",
        "the score is the sum of log-probabilities alone",
        f"{SEARCH}:middle_out_beam_search",
        "log_p + left + 1 + right",
        "log_p",
        BEAM,
    ),
    Fault(
        "a bonus for nothing",
        "a hypothesis whose side has ended gets a word's bonus at every turn",
        f"{SEARCH}:middle_out_beam_search",
        "longer[side] += ~side_finished",
        "longer[side] += 1",
        BEAM,
    ),
    Fault(
        "a given word unread",
        "the decoder that is given a middle word reads nothing beside its words",
        f"{MODEL}:MiddleOutCaptioner.states",
        "self.dropout(self.embedding(tokens)), given)",
        "self.dropout(self.embedding(tokens)), 0 * given)",
        "test_middle_out.py::test_a_padded_batch_is_each_caption_left_to_right_by_the_oracle",
    ),
    Fault(
        "holes sampled",
        "scheduled sampling puts words where a side from the middle is through",
        "torch_impl.training.cross_entropy:CrossEntropyTraining._inputs",
        "coins &= tokens[:, 1:] != self.model.pad_id",
        "pass",
        "test_joint_training.py::test_where_a_side_from_the_middle_is_through_nothing_is_sampled",
    ),
    Fault(
        "the caption's own word first",
        "a caption begins with its own commonest word although it has its image's",
        "benchmarks.data.middle_words:MiddleWords.encode",
        "if middle not in words:",
        "if True:",
        "test_middle_words.py::test_a_caption_to_learn_is_the_caption_from_its_middle",
    ),
    Fault(
        "oracle and classifier exchanged",
        "the share of Table 3 is of the images with their own word",
        "benchmarks.papers.middle_out.scores:mixed",
        "predicted[i] if u < share else own[i]",
        "own[i] if u < share else predicted[i]",
        "test_experiments_middle_out.py::test_mixed_words_are_the_classifier_s_or_the_image_s_own",
    ),
    Fault(
        "a word taken twice",
        "in the grid the same tokens come by generating and by taking the word",
        "torch_impl.decoding.grid_beam:grid_beam_search",
        "taking.masked_fill((same & unfinished[:, None, K:]).any(-1), -torch.inf)",
        "taking",
        GRID,
    ),
    Fault(
        "a word taken twice behind the fourth",
        "in the grid the same tokens come by taking the word after the fourth hypothesis",
        "torch_impl.decoding.grid_beam:grid_beam_search",
        "(same & unfinished[:, None, K:]).any(-1)",
        "(same & unfinished[:, None, K:])[..., :4].any(-1)",
        GRID,
    ),
    Fault(
        "an end without the word",
        "in the grid a hypothesis ends before it has its word",
        "torch_impl.decoding.grid_beam:grid_beam_search",
        "without[..., model.end_id] = -torch.inf",
        "pass",
        GRID,
    ),
    Fault(
        "backward states at mirrored places",
        "the backward encoder's states stay in reversed order",
        f"{DENOISING}:Denoiser.encode",
        "h[:, 1].gather(2, mirror.unsqueeze(-1).expand_as(h[:, 1]))",
        "h[:, 1]",
        REGRESSOR,
    ),
    Fault(
        "padding in the mean",
        "the error of a short sequence is divided by the longest's length",
        f"{DENOISING}:mse",
        "/ lengths",
        "/ y.shape[-1]",
        "test_denoising.py::test_errors_are_the_oracles_over_each_sequence",
    ),
)
