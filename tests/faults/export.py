"""Faults of ensembles, of the search that a captioner gets, and of exported graphs."""

from __future__ import annotations

from tests.faults.plant import Fault

BEAMS = "test_export.py::test_beams_are_those_of_pytorch"

EXPORT = (
    Fault(
        "ensemble of logarithms",
        "the members' log-probabilities are averaged, not their probabilities",
        "torch_impl.decoding.ensemble:_mean",
        "torch.stack(list(log_probs)).logsumexp(0) - math.log(len(log_probs))",
        "torch.stack(list(log_probs)).mean(0)",
        "test_ensemble.py::test_the_members_decode_together",
    ),
    Fault(
        "middle-out from the left",
        "a captioner of two sides is searched as if it had one",
        "benchmarks.scoring.captioners:search",
        "model.configuration.middle_out",
        "not model.configuration.middle_out",
        "test_evaluate_command.py::"
        "test_every_family_is_captioned_by_its_own_search_and_stands_in_its_own_row",
    ),
    Fault(
        "exported scalars",
        "the exporter's own translation rounds scalars to 32 bits",
        "torch_impl.checkpoints.export:_graph",
        "custom_translation_table=TRANSLATIONS",
        "custom_translation_table=None",
        BEAMS,
    ),
    Fault(
        "exported without epsilon",
        "the exporter's rules take adding Psi's epsilon for adding zero",
        "torch_impl.checkpoints.export:_graph",
        "optimize=False",
        "optimize=True",
        "test_export.py::test_verify_compares_the_graphs_with_the_oracle",
    ),
    Fault(
        "exported paths",
        "a step goes on from the hypothesis in its own place, whichever is named",
        "torch_impl.checkpoints.export:_Decoder.forward",
        "ancestry.gather(1, hypotheses[..., None].expand(B, K, t))",
        "ancestry + 0 * hypotheses[..., None]",
        "test_export.py::test_steps_continue_from_the_hypothesis_that_is_named",
    ),
    Fault(
        "driver: what is finished goes on",
        "a finished hypothesis has continuations beside itself",
        "benchmarks.scoring.onnx_captioner:OnnxCaptioner.beam_search",
        "scores[finished] = -np.inf",
        "scores[finished] -= 0",
        BEAMS,
    ),
)
