"""Every test: one thread, one seed, and hypothesis profiles (HYPOTHESIS_PROFILE=thorough)."""

import gc
import os
from collections.abc import Iterator

# before PyTorch is imported, here and in the processes that tests start
os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

from benchmarks.verify import shrink
from benchmarks.verify.chance import set_seed

_shared = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", max_examples=25, derandomize=True, **_shared)
settings.register_profile("thorough", max_examples=400, **_shared)
# a fault is found, not explained: its first failing example will do
settings.register_profile(
    "faults", settings.get_profile("default"), phases=(Phase.explicit, Phase.generate)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_collection_finish() -> None:
    """Modules and test items stay to the end: the garbage collector looks through them no more."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seed() -> None:
    """What is drawn does not depend on the tests before."""
    torch.manual_seed(0)
    set_seed(0)


@pytest.fixture(autouse=True)
def _uninitialised_memory_is_nan() -> Iterator[None]:
    """As PyTorch fills it in its deterministic mode."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(before)


@pytest.fixture(autouse=True)
def _failures_are_shrunk_in_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the time of a test of what is wrong would be that of its smallest case."""
    monkeypatch.setattr(shrink, "SECONDS", 1.0)


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command does by default does not depend on whose machine it is."""
    monkeypatch.delenv("CAPTIONBENCH_DATA", raising=False)
