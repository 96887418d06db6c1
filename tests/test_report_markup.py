"""Strangers' records: markup in any field of any kind is shown as text, or refused."""

import re
from contextlib import suppress
from functools import cache
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import records
from benchmarks.records import PUBLISHED, Record
from benchmarks.report import build, equations, evidence, html, markdown
from benchmarks.report.document import TARGET

MARK = "<xss onload='x'>|\n| a |</td></script>[x](javascript:x)[y](//foreign.example/y)`\"y a$x^{$b"


@cache
def published():
    """The last record of every kind, as JSON."""
    made = records.newest(records.load(PUBLISHED))
    return {r.kind: records.to_json([r])[0] for r in made}


def fields(value, path=()):
    """The places of texts and of dictionaries, an item of a list standing for all."""
    if isinstance(value, str | dict):
        yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from fields(inner, (*path, name))
    elif isinstance(value, list):
        for inner in value:
            yield from fields(inner, (*path, "*"))


def marked(value, path):
    """``value`` with markup at ``path``: after a text, or as one more name of a dictionary."""
    if path:
        name, *rest = path
        if isinstance(value, list):
            return [marked(inner, rest) for inner in value]
        return {**value, name: marked(value[name], rest)} if name in value else value
    if isinstance(value, dict):
        return {**value, MARK: next(iter(value.values()), 1)}
    return value + MARK


@st.composite
def strangers(draw):
    """A record with markup in some of its fields, of those in which its kind takes any text."""
    one = published()[draw(st.sampled_from(sorted(published())))]
    places = st.sampled_from(list(dict.fromkeys(fields(one))))
    found = None
    for path in draw(st.lists(places, min_size=1, max_size=8, unique=True)):
        with suppress(ValueError):
            found = msgspec.convert(marked(one, path), Record[records.AnyDetails])
            one = marked(one, path)
    return found


@pytest.fixture(scope="module", autouse=True)
def formulas_once():
    """The parts that do not depend on the records, made once."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in (
            (html, "mathml"),
            (html, "python"),
            (html, "lines"),
            (equations, "code"),
        ):
            patch.setattr(module, name, cache(getattr(module, name)))
        yield


def without_code(text):
    # of CommonMark: a run of backticks that no backslash escapes ends at the next of its length
    return re.sub(r"(?<![`\\])(`+)(?!`).*?(?<!`)\1(?!`)", "", text)


@given(st.text("`<\\a", max_size=12))
def test_markup_is_text_beside_any_backticks(text):
    assert "<" not in without_code(markdown.inline(text))


PIECES = ["](", "[a]: //e", "(//e)", "(b.html)", "\r", *"[]()`\\ /a\n"]


@given(st.lists(st.sampled_from(PIECES), max_size=14))
def test_a_link_is_within_the_site_beside_any_brackets(parts):
    written = without_code(markdown.inline("".join(parts)))
    assert not re.search(rf"\](?=\()(?!{TARGET})", written)
    assert not re.search(r"[\n\r]|^\s*\[[^\[\]]+\]:", written)


@settings(max_examples=12)
@given(strangers().filter(bool))
def test_markup_in_a_record_is_text_in_the_report(stranger):
    try:
        pages = build.pages([stranger])
    except Exception:  # which `captionbench import` says in a line
        return
    for text in html.texts(pages, evidence.link).values():
        assert "<xss" not in text and "onload='" not in text and '`"y' not in text
        assert not re.search(r"(href|src)=.([^'\">]*javascript:|//)", text)
    for name, text in markdown.files(pages):
        if name.endswith(".svg"):
            tags = {element.tag for element in ElementTree.fromstring(text).iter()}
            assert "xss" not in tags
            continue
        assert (
            "<xss" not in text
            and "</script>" not in text
            and not re.search(r"(?<!\\)\]\((javascript|//)", text)
        )
        columns = 0
        for line in text.splitlines():
            cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("| ") else 0
            assert cells == columns or not cells or not columns, line
            columns = cells
