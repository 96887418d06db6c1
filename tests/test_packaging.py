"""The wheel: every module and data file of the packages, and nothing of the tests."""

import subprocess
import sys
import zipfile
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("reference", "torch_impl", "benchmarks")
DATA = (".py", ".json", ".jsonl", ".html", ".css", ".js")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The files in a wheel that is built offline from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in (*PACKAGES, "tests"):
        copytree(ROOT / name, folder / name, ignore=ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    build = "from setuptools.build_meta import build_wheel; build_wheel('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=folder, check=True, capture_output=True)
    (built,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(built) as file:
        return {name: file.read(name) for name in file.namelist()}


def test_every_module_and_data_file_is_in_the_wheel(wheel):
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.suffix in DATA
    }
    assert "benchmarks/papers/arnet/tables.json" in expected
    assert expected <= set(wheel)


def test_nothing_else_is_installed(wheel):
    tops = {name.split("/")[0] for name in wheel}
    (metadata,) = tops - set(PACKAGES)
    assert metadata.endswith(".dist-info")
    assert b"captionbench = benchmarks.__main__:main" in wheel[f"{metadata}/entry_points.txt"]
