"""Records of timings as lines on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.kinds import Measured
from benchmarks.perf.targets import Outcome, device_name, roofline
from benchmarks.records import Record, of


def lines(found: Sequence[Record], made: Sequence[Record]) -> list[str]:
    """A case's records as lines of a table; ``made`` has the device's ceilings."""
    printed = [f"\n{found[0].details.row}, {device_name(found[0])}"]
    same_device = [r for r in of(made, Measured) if device_name(r) == device_name(found[0])]
    for record in found:
        values, details = record.values, record.details
        cells = [f"  {details.implementation:18}"]
        if "seconds" not in values:
            cells += [f"{name} {value:.4g}" for name, value in values.items()]
            printed.append("  ".join(cells))
            continue
        low, high = 1000 * values["seconds low"], 1000 * values["seconds high"]
        cells.append(f"{1000 * values['seconds']:10.4g} ms [{low:.4g}, {high:.4g}]")
        if details.verdict != "baseline":
            interval = f"[{values['ratio low']:.3g}, {values['ratio high']:.3g}]"
            cells.append(f"{values['ratio']:.3g} x {interval} {details.verdict}")
        for name in ("saved", "peak"):
            if f"{name} bytes" in values:
                cells.append(f"{name} {values[f'{name} bytes'] / 1e6:.4g} MB")
        if "flops a second" in values:
            cells.append(f"{values['flops a second'] / 1e9:.4g} GFLOP/s")
        for name in ("least", "moved"):
            if f"{name} bytes a second" in values:
                cells.append(f"{values[f'{name} bytes a second'] / 1e9:.4g} GB/s ({name})")
        if reached := roofline(record, same_device):
            cells.append(f"{reached.value:.2f} of its roofline")
        printed.append("  ".join(cells))
    if "floor" in found[0].values:
        floor, rounds = found[0].values["floor"], found[0].n
        jumps = found[0].details.jumps
        lost = f", {jumps} more thrown away: the clock jumped" if jumps else ""
        printed.append(f"  A/A floor {floor:.3f}, {rounds} rounds{lost}")
    unavailable = found[0].details.unavailable
    printed += [f"  {name}: not available ({why})" for name, why in unavailable.items()]
    return printed


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    """Print targets beside what was measured, and on which device where there are several."""
    if outcomes:
        print("\ntargets")
    several = len({outcome.device for outcome in outcomes}) > 1
    for outcome in outcomes:
        target = outcome.target
        on = f"  ({outcome.device})" if several else ""
        print(f"  {target.what:40}{target.bound_text:34}{outcome.measured:28}{outcome.verdict}{on}")
