"""The device that a command is told to use, and no other, is what it measures."""

import pytest
import torch

from benchmarks.cli.options import check_device
from benchmarks.errors import InputError


@pytest.mark.parametrize(
    ("name", "chosen"), [("cuda:1", ["cuda:1"]), ("cuda:0", ["cuda:0"]), ("cuda", []), ("cpu", [])]
)
def test_a_gpu_that_is_named_becomes_the_current_one(monkeypatch, name, chosen):
    """Events are recorded on the current device, whatever device the tensors are on."""
    current = []
    cpu = torch.zeros(1)
    monkeypatch.setattr(torch, "zeros", lambda *_, device: cpu)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: current.append(str(device)))
    assert check_device(name) == name
    assert current == chosen


@pytest.mark.parametrize("name", ["cpu:1", "no such device", "cuda:99"])
def test_a_device_that_is_none_is_refused_in_one_line(name):
    with pytest.raises(InputError, match=f"--device {name}") as refused:
        check_device(name)
    assert "\n" not in str(refused.value)
