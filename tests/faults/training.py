"""The faults of the training loop, its objectives and the recipes."""

from __future__ import annotations

from tests.faults.plant import Fault

LOOP = "torch_impl.training.loop:TrainingLoop"
PARTS = "test_computation.py::test_micro_batches_make_the_update_of_the_whole_batch"
KILLED = "test_computation.py::test_killed_anywhere_each_computation_of_each_objective_resumes"

TRAINING_LOOP = (
    Fault(
        "parts weighed alike",
        "the loss is the mean of the parts' means, however many words each has",
        f"{LOOP}._gradient",
        "count / total",
        "1 / len(parts)",
        PARTS,
    ),
    Fault(
        "gradient of the last part",
        "each part forgets the gradient of those before",
        f"{LOOP}._gradient",
        "scaled = self.scaler.scale(terms.loss)",
        "self.optimiser.zero_grad(); scaled = self.scaler.scale(terms.loss)",
        PARTS,
    ),
    Fault(
        "loss left scaled",
        "gradients keep the scale of a loss in float16",
        f"{LOOP}._gradient",
        "self.scaler.unscale_(self.optimiser)",
        "pass",
        "test_computation.py::test_a_step_in_16_bits_is_as_good_as_the_literal_form",
    ),
    Fault(
        "a new scale on resuming",
        "what the loss was scaled by is forgotten",
        f"{LOOP}.load_state_dict",
        'if state["scaler"]:',
        "if False:",
        f"{KILLED}_bit_for_bit",
    ),
    Fault(
        "the same draws in every step",
        "a step's samples are a function of the seed alone",
        f"{LOOP}._seed_of",
        ", self.step",
        "",
        "test_training.py::test_dropout_differs_from_step_to_step_and_from_seed_to_seed",
    ),
    Fault(
        "masks of another draw",
        "log-probabilities have other dropout masks than their samples",
        "torch_impl.training.sampling:SharedMasks.decode",
        "_set_rng_state(sampled.rng, memory.device)",
        "pass",
        "test_shared_masks.py::test_samples_have_the_log_probabilities_that_are_trained",
    ),
    Fault(
        "unk is a word",
        "who says unk is rewarded for it where a reference has a rare word",
        "benchmarks.training.objective:cider_d",
        "strangers[word] if i == UNKNOWN_ID else i",
        "i",
        "test_recipes.py::"
        "test_the_reward_is_cider_d_with_end_tokens_and_no_reward_for_unknown_words",
    ),
    Fault(
        "references without end",
        "the references of the reward have no end token",
        "benchmarks.training.objective:cider_d",
        "for word, i in named), end]",
        "for word, i in named)]",
        "test_recipes.py::"
        "test_the_reward_is_cider_d_with_end_tokens_and_no_reward_for_unknown_words",
    ),
    Fault(
        "from the last weights",
        "a step begins with the last weights of the one before, not its best",
        "benchmarks.training.fit:fit",
        "state.best_weights.items()",
        "model.state_dict().items()",
        "test_recipes.py::test_a_step_that_does_not_improve_gives_back_what_it_began_with",
    ),
)
