"""The device that a command is told to use, and no other, is what it measures."""

import pytest
import torch

from benchmarks.cli.options import check_device
from benchmarks.errors import InputError
from benchmarks.perf.cases.case import settings


@pytest.mark.parametrize(
    ("name", "chosen"), [("cuda:1", ["cuda:1"]), ("cuda:0", ["cuda:0"]), ("cuda", []), ("cpu", [])]
)
def test_a_gpu_that_is_named_becomes_the_current_one(monkeypatch, name, chosen):
    """Events are recorded on the current device, whatever device the tensors are on."""
    current = []
    cpu = torch.zeros(1)
    monkeypatch.setattr(torch, "zeros", lambda *_, device: cpu)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: current.append(str(device)))
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert check_device(name) == name
    assert current == chosen
    assert torch.backends.cudnn.allow_tf32 == (name == "cpu")


@pytest.mark.parametrize("name", ["cpu:1", "no such device", "cuda:99"])
def test_a_device_that_is_none_is_refused_in_one_line(name):
    with pytest.raises(InputError, match=f"--device {name}") as refused:
        check_device(name)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_float32_is_timed_without_tf32_in_cudnn(precision):
    before = torch.backends.cudnn.allow_tf32
    with settings(precision, 1):
        assert torch.backends.cudnn.allow_tf32 == (precision == "tf32")
    assert torch.backends.cudnn.allow_tf32 == before
