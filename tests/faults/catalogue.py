"""The faults, by the idea that they spoil."""

from __future__ import annotations

from tests.faults.expansion import EXPANSION
from tests.faults.export import EXPORT
from tests.faults.figures import FIGURES
from tests.faults.middle_out import MIDDLE_OUT
from tests.faults.plant import CONFORMANCE, Fault
from tests.faults.recurrent import RECURRENT
from tests.faults.released import RELEASED
from tests.faults.training import TRAINING_LOOP

BEAM = f"{CONFORMANCE}[beam_search-torch]"
XE = f"{CONFORMANCE}[cross_entropy-torch]"
REWARDED = f"{CONFORMANCE}[self_critical-torch]"
ENCODER = f"{CONFORMANCE}[encoder_layer-torch]"
DECODER = f"{CONFORMANCE}[decoder_layer-torch]"

TRANSFORMER = (
    Fault(
        "attention scale",
        "heads are scaled by sqrt(d) instead of sqrt(d_k)",
        "torch_impl.layers.attention:multi_head",
        "Q, K, V, is_causal=causal",
        "Q, K, V, is_causal=causal, scale=queries.shape[-1] ** -0.5",
        "test_models.py::test_a_padded_batch_is_each_image_through_the_oracle",
    ),
    Fault(
        "padded keys attended",
        "a padded key is hidden by a zero, which a softmax still weighs",
        "torch_impl.layers.attention:multi_head",
        "attn_mask=visible | blind",
        "attn_mask=(visible | blind).to(Q)",
        f"{CONFORMANCE}[multi_head_attention-torch]",
    ),
    Fault(
        "attention gate from the query alone",
        "the AoA gate is not applied",
        "torch_impl.layers.attention:AttentionOnAttention.output",
        "self.information(both) * self.gate(both).sigmoid()",
        "self.information(both)",
        f"{CONFORMANCE}[attention_on_attention-torch]",
    ),
    Fault(
        "attention weights of no head",
        "the weights that are shown take keys for heads and heads for keys",
        "torch_impl.layers.attention:attention_weights",
        "weights.unflatten(2, (num_heads, L)).transpose(1, 2)",
        "weights.unflatten(2, (L, num_heads)).permute(0, 3, 1, 2)",
        "test_attention.py::test_weights_sum_to_one_over_what_is_seen_and_make_the_output",
    ),
    Fault(
        "missing residual",
        "the mixer replaces its input instead of adding to it",
        "torch_impl.layers.transformer:Layer.mix",
        "return x + self.dropout(mixed)",
        "return self.dropout(mixed)",
        ENCODER,
    ),
    Fault(
        "norm after",
        "layer norm after the feed-forward instead of before it",
        "torch_impl.layers.transformer:EncoderLayer.forward",
        "x = x + self.dropout(self.feed_forward(self.norm_2(x)))",
        "x = self.norm_2(x + self.dropout(self.feed_forward(x)))",
        ENCODER,
    ),
    Fault(
        "cross-attention without norm",
        "the decoder's cross-attention asks with words that are not normalised",
        "torch_impl.layers.transformer:DecoderLayer.forward",
        "self.cross_attention(self.norm_2(x), memory",
        "self.cross_attention(x, memory",
        DECODER,
    ),
    Fault(
        "reduction without the last layer",
        "the linear reduction replaces the last layer's output instead of adding to it",
        "torch_impl.layers.transformer:Stack.combine",
        "x = x + self.dropout(",
        "x = self.dropout(",
        f"{CONFORMANCE}[captioner-torch]",
    ),
    Fault(
        "embedding without sqrt(d)",
        "word vectors are not scaled",
        "torch_impl.models:Captioner.states",
        " * d_model**0.5",
        "",
        "test_models.py::test_a_padded_batch_is_each_image_through_the_oracle",
    ),
    Fault(
        "positions off by one",
        "the first word takes the second position",
        "torch_impl.models:Captioner.states",
        "self.positions.weight[: tokens.shape[1]]",
        "self.positions.weight.roll(-1, 0)[: tokens.shape[1]]",
        "test_models.py::test_a_padded_batch_is_each_image_through_the_oracle",
    ),
    Fault(
        "positions dropped",
        "dropout falls on the positions too",
        "torch_impl.models:Captioner.states",
        "self.positions.weight[: tokens.shape[1]]",
        "self.dropout(self.positions.weight[: tokens.shape[1]])",
        "test_models.py::test_dropout_of_words_spares_their_positions",
    ),
    Fault(
        "oracle: layer norm's variance",
        "the oracle's layer norm takes the unbiased variance",
        "reference.primitives:layer_norm",
        "(centred * centred).mean(axis=-1, keepdims=True)",
        "(centred * centred).sum(axis=-1, keepdims=True) / max(X.shape[-1] - 1, 1)",
        "test_primitives.py::test_layer_norm_is_torchs",
    ),
)

DECODING = (
    Fault(
        "finished hypothesis grows",
        "a hypothesis goes on after its end token",
        "torch_impl.decoding.beams:mask_finished",
        "scores.masked_fill_(finished.unsqueeze(-1), -torch.inf)",
        "",
        BEAM,
    ),
    Fault(
        "length off by one",
        "the score is the sum over the generated tokens, without the start token",
        "torch_impl.decoding.beams:Hypothesis.score",
        "len(self.tokens)",
        "(len(self.tokens) - 1)",
        BEAM,
    ),
    Fault(
        "tie order",
        "of equal continuations the last one wins",
        "torch_impl.decoding.beams:stable_topk",
        "torch.cat([within.flatten(1), left], 1)",
        "torch.cat([within.flatten(1), left], 1).flip(1)",
        BEAM,
    ),
    Fault(
        "blocks of the first image",
        "every image's best words are sought in the blocks of the first one's",
        "torch_impl.decoding.beams:stable_topk",
        "within = largest.sort(-1)",
        "within = largest[:1].expand_as(largest).sort(-1)",
        f"{CONFORMANCE}[beam_search-torch]",
    ),
    Fault(
        "beams of other images",
        "memory is repeated image after image where beams stand beam after beam",
        "torch_impl.decoding.search:_encode_repeated",
        "model.encode(features, valid).repeat_interleave(K, 0)",
        "model.encode(features, valid).repeat(K, 1, 1)",
        "test_decoding.py::test_captioners_are_searched_as_one_image_and_one_prefix_at_a_time",
    ),
    Fault(
        "sums in the model's precision",
        "the totals of beams are in float32 where the model's log-probabilities are",
        "torch_impl.decoding.beams:Beams.continuations",
        "torch.empty_like(log_p, dtype=torch.float64)",
        "torch.empty_like(log_p)",
        BEAM,
    ),
    Fault(
        "stops too early",
        "the search ends when the best hypothesis ends",
        "torch_impl.decoding.beams:Beams.is_done",
        "safe | (unfinished == -torch.inf)",
        "self.finished[:, :1]",
        BEAM,
    ),
    Fault(
        "graphs of the first batch",
        "a replayed search reads the features that were captured",
        "torch_impl.decoding.graphs:GraphedBeamSearch.__call__",
        "captured.features.copy_(features)",
        "",
        "test_graphed_search.py::test_replayed_steps_equal_the_search",
    ),
    Fault(
        "oracle: finished hypothesis grows",
        "the oracle extends hypotheses after their end token",
        "reference.decoding:beam_search",
        "if hypothesis.finished(end):",
        "if False:",
        BEAM,
    ),
)

TRAINING = (
    Fault(
        "smoothing over V",
        "the smoothed mass is shared by all words, the target included",
        "torch_impl.training.objectives:cross_entropy",
        "max(log_probs.shape[-1] - 1, 1)",
        "log_probs.shape[-1]",
        XE,
    ),
    Fault(
        "padding counted",
        "the mean is over padded words too",
        "torch_impl.training.objectives:cross_entropy",
        "valid.sum().clamp(min=1)",
        "valid.numel()",
        XE,
    ),
    Fault(
        "leave-one-out over K",
        "the mean of the others divides by K",
        "torch_impl.training.objectives:baselines",
        'K if baseline == "printed" else K - 1',
        "K",
        REWARDED,
    ),
    Fault(
        "baseline with itself",
        "a sample's own reward is in its baseline",
        "torch_impl.training.objectives:baselines",
        "rewards.sum(-1, keepdim=True) - rewards",
        "rewards.sum(-1, keepdim=True) + 0 * rewards",
        REWARDED,
    ),
    Fault(
        "reward's sign",
        "the self-critical loss rewards what it should punish",
        "torch_impl.training.objectives:self_critical",
        "return -(advantages",
        "return (advantages",
        REWARDED,
    ),
    Fault(
        "RAdam moves at once",
        "parameters move on steps 1 to 5, by momentum",
        "torch_impl.training.optimisation:RAdam._update",
        "if r is not None:",
        "r = 1.0 if r is None else r\n    if True:",
        "test_optimisation.py::test_radam_does_nothing_for_five_steps_and_then_what_pytorchs_does",
    ),
    Fault(
        "oracle: RAdam's window",
        "the oracle's window decays once before the last gradient",
        "reference.optimisation:rectification",
        "(age - 1)",
        "age",
        "test_oracle_optimisation.py::test_the_window_of_radam_is_its_closed_form",
    ),
    Fault(
        "oracle: warm-up",
        "the oracle's linear warm-up counts from zero",
        "reference.optimisation:linear_warmup",
        "rate * (iteration + 1)",
        "rate * iteration",
        "test_oracle_optimisation.py::test_a_schedule_is_its_rise_times_a_factor_for_every_few_epochs",
    ),
    Fault(
        "linear warm-up",
        "the warm-up as run rises linearly",
        "torch_impl.training.optimisation:hyperbolic_warmup",
        "lr / max(warmup - iteration, 1)",
        "lr * min((iteration + 1) / max(warmup, 1), 1.0)",
        f"{CONFORMANCE}[hyperbolic_warmup-torch]",
    ),
)

METRICS = (
    Fault(
        "reward unclipped",
        "CIDEr-D on tensors counts repeated n-grams in full",
        "torch_impl.cider:CiderD.forward",
        "torch.minimum(weight[..., None], of_references)",
        "weight[..., None]",
        "test_cider.py::test_scores_are_the_published_ones",
    ),
    Fault(
        "reward: words that no reference has",
        "CIDEr-D on tensors takes them for the same word",
        "torch_impl.cider:CiderD._numbered",
        "1 + rank",
        "1 + 0 * rank",
        "test_cider.py::test_scores_are_the_published_ones",
    ),
    Fault(
        "reward without end",
        "the captions that are rewarded have lost their end token",
        "torch_impl.training.self_critical:self_critical",
        "masked_fill(~samples.mask, PAD)",
        "masked_fill(~samples.mask | (samples.tokens[..., 1:] == model.end_id), PAD)",
        "test_self_critical.py::test_a_step_is_the_oracle_s_from_the_samples_to_the_gradient",
    ),
    Fault(
        "CIDEr-D unclipped",
        "a word repeated counts every time",
        "reference.cider:cider_d",
        "min(weight, s[gram]) * s[gram]",
        "weight * s[gram]",
        "test_oracle_metrics.py::test_cider_d_equals_the_published_implementation",
    ),
    Fault(
        "CIDEr-D's sigma",
        "the length penalty divides by sigma^2, not 2 sigma^2",
        "reference.cider:cider_d",
        "(2 * sigma**2)",
        "(sigma**2)",
        "test_oracle_metrics.py::test_cider_d_equals_the_published_implementation",
    ),
    Fault(
        "CIDEr-D's document frequencies by caption",
        "an n-gram counts once for each caption it is in, not for each image",
        "reference.cider:document_frequencies",
        "grams = {gram for s in captions for k in range(1, n + 1) for gram in ngrams(s, k)}",
        "grams = [gram for s in captions for k in range(1, n + 1) for gram in ngrams(s, k)]",
        "test_oracle_metrics.py::test_cider_d_equals_the_published_implementation",
    ),
    Fault(
        "BLEU without brevity penalty",
        "short captions are not punished",
        "reference.metrics:bleu",
        "1.0 if ratio >= 1 else math.exp(1 - 1 / ratio)",
        "1.0",
        "test_oracle_metrics.py::test_bleu_equals_the_published_implementation",
    ),
    Fault(
        "BLEU against the shortest",
        "the brevity penalty takes the shortest reference, not the closest",
        "reference.metrics:_closest_length",
        "min((abs(len(r) - len(candidate)), len(r)) for r in references)[1]",
        "min(len(r) for r in references)",
        "test_oracle_metrics.py::test_bleu_equals_the_published_implementation",
    ),
    Fault(
        "ROUGE-L of one reference",
        "precision and recall of the same reference, the one with the best precision",
        "reference.metrics:rouge_l",
        "R = max(lcs / len(target) for lcs, target in zip(common, targets, strict=True))",
        "R = max((c / len(hypothesis), c / len(t)) for c, t in zip(common, targets))[1]",
        "test_oracle_metrics.py::test_rouge_l_equals_the_published_implementation",
    ),
)

FAULTS: tuple[Fault, ...] = (
    *EXPANSION,
    *TRANSFORMER,
    *DECODING,
    *TRAINING,
    *METRICS,
    *RELEASED,
    *RECURRENT,
    *MIDDLE_OUT,
    *TRAINING_LOOP,
    *EXPORT,
    *FIGURES,
)
