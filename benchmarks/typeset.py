"""Typeset the subscripts and superscripts of texts such as ``x_t``, ``R^bw`` and ``10^12``."""

from __future__ import annotations

import re
from collections.abc import Mapping

GREEK = {"alpha": "α", "theta": "θ", "Delta": "Δ"}
_SCRIPT = re.compile(
    r"((?<![\w./])(?:[A-Za-z]|he|sum|\d+|alpha|theta|Delta)|[\w)](?=[_^]\{)|\)(?=\^))"
    r"([_^])(\{[^{}]*\}|\([^()]*\)|(?:\w{1,3}|model|[Tt]heta)(?!\w))"
)
HTML = {"_": ("<sub>", "</sub>"), "^": ("<sup>", "</sup>")}
SVG = {
    "_": ('<tspan baseline-shift="sub" font-size="75%">', "</tspan>"),
    "^": ('<tspan baseline-shift="super" font-size="75%">', "</tspan>"),
}


def typeset(escaped: str, tags: Mapping[str, tuple[str, str]] = HTML) -> str:
    """Put subscripts and superscripts of an escaped text into tags, except within backquotes."""

    def scripts(text: str) -> str:
        return _SCRIPT.sub(found, text)

    def found(match: re.Match[str]) -> str:
        base, mark, script = match.groups()
        opened, closed = tags[mark]
        inner = script[1:-1] if script.startswith("{") else script
        return f"{GREEK.get(base, base)}{opened}{scripts(GREEK.get(inner, inner))}{closed}"

    parts = re.split(r"(`[^`]+`)", escaped)
    return "".join(part if n % 2 else scripts(part) for n, part in enumerate(parts))
