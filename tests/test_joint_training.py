"""Training a recurrent captioner with a reconstructor beside it, and with words it sampled."""

from dataclasses import replace

import pytest
import torch

from benchmarks.verify.tolerances import assert_close
from tests.support.covers import covers
from tests.support.training import RECIPE, RandomBatches, numbers
from torch_impl import models
from torch_impl.checkpoints import checkpoint as checkpoints
from torch_impl.recurrent.auto_reconstructor import AutoReconstructor
from torch_impl.training import CrossEntropyTraining


def training(reconstructor, **options):
    torch.manual_seed(3)
    model = models.nic(
        11, 5, d_embedding=6, hidden_size=6, zoneout_hidden=0.2, dropout=0.1, max_length=9
    )
    beside = AutoReconstructor(6) if reconstructor else None
    return CrossEntropyTraining(model, RandomBatches(3), RECIPE, reconstructor=beside, **options)


def test_without_lambda_or_sampling_training_is_the_plain_one_to_the_bit():
    plain, other = training(False), training(True, lambda_=0.0, sampling=lambda _: 0.0)
    expected = [numbers(step) for step in plain.run(2)]
    assert [numbers(step) for step in other.run(2)] == expected
    for name, value in plain.model.state_dict().items():
        assert torch.equal(other.model.state_dict()[name], value), name


@covers(arnet=[9])
def test_the_loss_of_a_batch_is_the_joint_one_of_its_words():
    """Cross-entropy and the errors of each caption alone, over all words of the batch."""
    joint = training(True, lambda_=0.7)
    joint.optimisation = replace(RECIPE, label_smoothing=0.0)
    joint.model.double().eval()
    assert joint.reconstructor is not None
    joint.reconstructor.double()
    batch = next(iter(joint.batches.epoch(0, 0)))
    tokens = batch.tokens.clone()
    tokens[0, 3], tokens[0, 4:] = 2, 0
    batch = batch._replace(features=batch.features.double(), tokens=tokens)
    found, total, words = joint.loss(batch).item(), 0.0, 0
    for caption, image in zip(tokens, batch.image_index, strict=True):
        caption = caption[caption != 0]
        features = batch.features[image : image + 1, : batch.lengths[image]]
        states = joint.model.states(caption[None, :-1], joint.model.encode(features))
        log_p = joint.model.predict(states)[0].gather(1, caption[1:, None])
        total += -log_p.sum().item() + 0.7 * joint.reconstructor(states).sum().item()
        words += len(caption) - 1
    assert_close(found, total / words)


@pytest.mark.parametrize("kill", [1, 4])
def test_a_joint_training_resumes_to_the_same_numbers(tmp_path, kill):
    """With sampled words; the reconstructor and its moments are kept, and trained."""
    options = {"lambda_": 0.5, "sampling": lambda step: step / 10}
    whole = training(True, **options)
    assert whole.reconstructor is not None
    began = {n: v.clone() for n, v in whole.reconstructor.state_dict().items()}
    expected = [numbers(step) for step in whole.run(2)]
    first = training(True, **options)
    actual = []
    for step in first.run(2):
        actual.append(numbers(step))
        if step.step == kill:
            break
    path = tmp_path / "last.safetensors"
    checkpoints.save(path, first.model, first.state_dict())
    checkpoint = checkpoints.load(path)
    assert not [name for name in checkpoint.weights if "reconstructor" in name]
    second = training(True, **options)
    second.load_state_dict(checkpoint.weights, checkpoint.state)
    actual += [numbers(step) for step in second.run(2)]
    assert actual == expected
    for name, value in whole.reconstructor.state_dict().items():
        assert second.reconstructor is not None
        assert torch.equal(second.reconstructor.state_dict()[name], value)
        assert not torch.equal(value, began[name]), name
    with pytest.raises(
        checkpoints.CheckpointError, match="expected nothing beside the model, it has reconstructor"
    ):
        training(False).load_state_dict(checkpoint.weights, checkpoint.state)
    with pytest.raises(
        checkpoints.CheckpointError, match="expected reconstructor beside the model, it has nothing"
    ):
        training(True).load_state_dict(checkpoint.weights, training(False).state_dict())


def test_bad_settings_of_a_training_are_named():
    with pytest.raises(ValueError, match=r"lambda is -0.1, expected at least 0"):
        training(True, lambda_=-0.1)
    with pytest.raises(ValueError, match=r"lambda is 0.1, but there is no reconstructor"):
        training(False, lambda_=0.1)
    with pytest.raises(ValueError, match=r"sampling rate of step 0 is 1.5, expected in \[0, 1\]"):
        next(training(False, sampling=lambda _: 1.5).run(1))


def test_where_a_side_from_the_middle_is_through_nothing_is_sampled():
    torch.manual_seed(3)
    model = models.middle_out_captioner(11, 5, d_embedding=6, hidden_size=6).eval()
    sampled = CrossEntropyTraining(model, RandomBatches(3), RECIPE, sampling=lambda _: 1.0)
    tokens = torch.tensor([[3, 2, 4, 0, 5, 0, 6, 0], [7, 8, 2, 2, 0, 0, 0, 0]])
    memory = model.encode(torch.randn(2, 3, 5))
    read = sampled._inputs(tokens, memory, torch.tensor([3, 3]))
    assert torch.equal(read[:, 0], tokens[:, 0]) and not torch.equal(read, tokens)
    assert not read[tokens == 0].any()
