"""The README's commands."""

import re

from benchmarks import records

README = records.ROOT / "README.md"


def commands():
    """Every indented line that starts with captionbench, continued lines joined."""
    text = README.read_text().replace("\\\n", " ")
    return re.findall(r"^    captionbench (.+)$", text, re.MULTILINE)


def exports():
    """Those of the exported folder, which is made of ``runs/scenes``."""
    return [command for command in commands() if "runs/onnx" in command]
