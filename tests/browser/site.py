"""Every page: at both widths and in both schemes, by keyboard, on paper; its links and tables."""

from __future__ import annotations

import re
from random import Random

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.chromium import NARROW, WIDE, Site

AXE = {"resultTypes": ["violations"], "preload": False}
FILES = 3
"""How many of the pages that show files are tried."""
LAPTOP = 1280
PAPER = 1046
"""The width of A4 on its side within margins of a centimetre, in px."""
OVER = "Math.max(0, document.documentElement.scrollWidth - window.innerWidth)"
OPEN = "document.querySelectorAll('details').forEach(folded => { folded.open = true; })"
LINKS = "[...document.querySelectorAll('a[href]')].map(link => link.href)"
SEEN = """places => places.filter(place => {
  location.hash = place; dispatchEvent(new HashChangeEvent("hashchange"));
  const target = document.getElementById(place);
  const box = target?.checkVisibility() && target.getBoundingClientRect();
  return !box || box.bottom < 0 || box.top > innerHeight;
})"""
STOPS = """() => {
  const all = document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']");
  window.stops = [...all].filter(stop => stop.checkVisibility());
  window.reached = [];
  document.addEventListener("focusin", ({ target }) => reached.push(
    [stops.indexOf(target), getComputedStyle(target).outlineStyle !== "none"]));
  return stops.length;
}"""
CUT = """() => [...document.querySelectorAll(".scroll, pre, .formula")]
  .filter(part => part.checkVisibility() && part.scrollWidth > part.clientWidth + 1)
  .map(part => `${part.ariaLabel ?? part.textContent.slice(0, 40)}: ${part.scrollWidth}`)"""
COLUMN = """rows => rows.filter(row => !row.hidden).map(row => row.cells[{}])
  .map(cell => [cell.textContent.trim(), cell.querySelector("code") !== null])"""
NAMES = "[...document.querySelectorAll('tbody tr')].filter(row => !row.hidden).map(row => row.id)"
CHOOSE = """() => [...document.querySelectorAll("table[data-long]")].every(table => {
  const rows = [...table.tBodies[0].rows];
  const selects = [...table.closest(".scroll").previousElementSibling.querySelectorAll("select")];
  const headings = [...table.querySelectorAll("th[data-choose]")];
  return selects.length === headings.length && selects.every((select, i) =>
    [...select.options].every(({ value }) => {
      select.value = value; select.dispatchEvent(new Event("input"));
      const text = row => row.cells[headings[i].cellIndex].textContent.trim();
      const right = rows.every(row => row.hidden === (value !== "" && text(row) !== value));
      select.value = ""; select.dispatchEvent(new Event("input"));
      return right;
    }));
})"""
NAMED = (
    "case",
    "size",
    "device",
    "what",
    "where",
    "compared",
    "printed",
    "taken",
    "why",
    "devices",
    "source",
)
"""Columns, beside each table's first, whose digits are of names, of sizes or of words in print."""
NUMBERS = r"""named => [...document.querySelectorAll("td, .box, figcaption")].map(part => {
  const table = part.closest("table"), place = part.cellIndex ?? -1;
  const head = table?.tHead.rows[0].cells[place].textContent;
  const words = part.cloneNode(true);
  words.querySelectorAll("code, .whole, button").forEach(name => name.remove());
  const numbers = words.textContent.match(/(?<![\w.:-])[-+−×]?\d/g)?.length ?? 0;
  const is = place !== 0 && !named.includes(head) && !part.closest(".photographs") ? numbers : 0;
  return [is, part.querySelector("a[href]") !== null, `${head ?? ""}: ${part.textContent.trim()}`];
})"""
UNSEEN = """() => [...document.querySelectorAll("th")]
  .filter(head => /^status$| above /.test(head.textContent) && head.checkVisibility()
    && head.getBoundingClientRect().right > head.closest(".scroll").getBoundingClientRect().right)
  .map(head => head.closest(".scroll").ariaLabel)"""
LOADED = """() => Promise.all([...document.querySelectorAll("figure img")].map(image => {
  image.loading = "eager"; return image.decode(); }))"""
WIDER = """() => [...document.querySelectorAll("figure img")]
  .filter(image => image.parentElement.querySelector("source"))
  .filter(image => image.getBoundingClientRect().right > innerWidth).map(image => image.src)"""
EMPTY = """() => [...document.querySelectorAll("td")].filter(cell => !cell.textContent.trim())
  .map(cell => cell.closest("tr").textContent)"""
ROWS = "rows => rows.filter(row => !row.hidden).map(row => row.textContent)"


def some(site: Site, random: Random) -> list[str]:
    """Every page, of those that show files a few."""
    files = [name for name in site.pages if name.startswith("source-")]
    return sorted({*site.pages} - {*files} | {*random.sample(files, FILES)})


def both_widths_and_schemes(site: Site, random: Random) -> str:
    """No page is wider than its window, folded or not; axe-core finds no violation in all of it."""
    names = some(site, random)
    shown = [(WIDE, "light", ""), (NARROW, "dark", "")]
    shown += [(NARROW, "light", OPEN), (WIDE, "dark", OPEN)]
    for name in names:
        for width, scheme, script in shown:
            with site.open(name, width=width, scheme=scheme) as page:
                page.evaluate(script)
                over = page.evaluate(OVER)
                assert over == 0, f"{name} is {over} px wider than {width}"
                if not script:
                    continue
                # axe judges no contrast over a gradient: without the edges' shadows it judges all
                page.add_style_tag(content=".scroll, .formula { background: none !important; }")
                found = Axe().run(page, options=AXE).response
                for violation in found["violations"]:
                    where = violation["nodes"][0]["html"][:200]
                    raise AssertionError(f"{name}, {scheme}: {violation['help']}: {where}")
    return f"{len(names)} pages at {NARROW} and {WIDE} px, in light and in dark"


def what_decides_is_in_sight(site: Site, _: Random) -> str:
    """Every status and difference at 1,280 px, whole drawings at 390 px, the first page at once."""
    for name in site.pages:
        for width, script in ((LAPTOP, UNSEEN), (NARROW, WIDER)):
            with site.open(name, width=width) as page:
                page.evaluate(OPEN)
                page.evaluate(LOADED)
                cut = page.evaluate(script)
                assert not cut, f"{name} at {width} px: out of sight: {cut[0]}"
    with site.open("index") as page:
        height = page.evaluate("document.documentElement.scrollHeight")
        assert height <= 900, f"the first page is {height} px high"
    return f"statuses at {LAPTOP} px, drawings at {NARROW} px, the first page in {WIDE} x 900"


def links_lead_to_their_places(site: Site, _: Random) -> str:
    """To a page of the site and a place that is then seen, inside something folded too."""
    links: dict[str, set[str]] = {name: set() for name in site.pages}
    for name in site.pages:
        with site.open(name) as page:
            for link in page.evaluate(LINKS):
                target, _, place = link.partition("#")
                target = target.partition("?")[0]
                assert target.startswith("file:"), f"{name} links to {link}"
                target = target.rpartition("/")[2]
                assert target.removesuffix(".html") in links, f"{name} links to {target}"
                links[target.removesuffix(".html")].add(place)
    for name, places in links.items():
        with site.open(name) as page:
            unseen = page.evaluate(SEEN, sorted(places - {""}))
            assert not unseen, f"{name}: {unseen[0]} is not seen when it is linked"
    return f"{sum(map(len, links.values()))} places"


def every_number_links_to_its_evidence(site: Site, _: Random) -> str:
    """In tables, figures and boxed sentences: to records or to the paper's file. No cell is empty.

    The explorer computes its numbers, and the lists of records and the files are the evidence.
    """
    walked = 0
    for name in site.pages:
        if name == "explorer" or name.startswith(("evidence-", "source-")):
            continue
        with site.open(name) as page:
            for numbers, linked, text in page.evaluate(NUMBERS, NAMED):
                assert linked or not numbers, f"{name}: {text!r} has no link"
                walked += numbers
            empty = page.evaluate(EMPTY)
            assert not empty, f"{name}: an empty cell in {empty[0]!r}"
    return f"{walked} numbers"


def tables_are_sorted_and_filtered(site: Site, random: Random) -> str:
    """By each heading, up and down; by words of a row of theirs."""
    sorted_by = 0
    for name in site.pages:
        with site.open(name) as page:
            for table in page.locator("table[data-sorted]").all():
                table.evaluate("at => { for (; at; at = at.parentElement) at.open = true; }")
                rows = table.locator("tbody tr")
                for place, heading in enumerate(table.locator("thead th").all()):
                    for order in ("ascending", "descending"):
                        heading.locator("button").press("Enter")
                        assert heading.get_attribute("aria-sort") == order
                        keys = [_key(*cell) for cell in rows.evaluate_all(COLUMN.format(place))]
                        expected = sorted(keys, reverse=order == "descending")
                        assert keys == expected, f"{name} is not sorted by {heading.inner_text()}"
                        sorted_by += 1
                if table.get_attribute("data-long") is None:
                    continue
                texts = rows.evaluate_all(ROWS)
                words = random.choice(texts).lower().split()[:3]
                scroll = table.locator("xpath=ancestor::*[contains(@class, 'scroll')]")
                box = scroll.locator("xpath=preceding-sibling::*[1]//input")
                box.press_sequentially(" ".join(words))
                kept = [text for text in texts if all(word in text.lower() for word in words)]
                assert rows.evaluate_all(ROWS) == kept, f"{name} with {words}"
                box.fill("")
                assert len(rows.evaluate_all(ROWS)) == len(texts)
            assert _chosen(page), f"{name}: a choice among a column's texts shows other rows"
    return f"{sorted_by} orders"


def _chosen(page: Page) -> bool:
    """Whether each choice of a column shows exactly the rows with the chosen text."""
    right: bool = page.evaluate(CHOOSE)
    return right


def several_records_of_a_number_are_shown_alone(site: Site, random: Random) -> str:
    """Where a number is made from several; and all are shown again when asked for."""
    tried = 0
    for name in site.pages:
        with site.open(name) as page:
            links = [link for link in page.evaluate(LINKS) if "?of=" in link]
        for link in random.sample(links, min(len(links), 2)):
            target = link.rpartition("/")[2].partition("?")[0].removesuffix(".html")
            wanted = link.partition("?of=")[2].partition("#")[0].split(",")
            with site.open(target, "?" + link.partition("?")[2]) as page:
                shown = page.evaluate(NAMES)
                assert sorted(shown) == sorted(wanted), f"{link} shows {shown}"
                page.get_by_role("button", name="show all").click()
                assert len(page.evaluate(NAMES)) > len(wanted)
                tried += 1
    return f"{tried} numbers"


def _key(text: str, is_code: bool) -> tuple[bool, float, str]:
    """Numbers, with a unit or an interval behind them, come before words, dates and hashes."""
    try:
        number = float(re.split(r"[\s%×\[;]", text, maxsplit=1)[0].replace(",", ""))
    except ValueError:
        return (True, 0.0, text)
    return (True, 0.0, text) if is_code else (False, number, "")


def the_keyboard_reaches_everything(site: Site, random: Random) -> str:
    """In the order of the page, and what has the focus is marked; the skip link skips."""
    reached = 0
    for name in some(site, random):
        with site.open(name) as page:
            stops = page.evaluate(STOPS)
            for _stop in range(stops):
                page.keyboard.press("Tab")
            found = page.evaluate("reached")
            assert [place for place, _ in found] == list(range(stops)), f"{name}: another order"
            assert all(marked for _, marked in found), f"{name}: a focus that is not seen"
            reached += stops
        with site.open(name) as page:
            for key in ("Tab", "Enter", "Tab"):
                page.keyboard.press(key)
            assert page.evaluate("!document.activeElement.closest('body > nav, .skip')")
    return f"{reached} stops"


def paper_cuts_nothing_off(site: Site, random: Random) -> str:
    """Printed from a dark window, the text is dark, and no table or line of code is cut."""
    names = some(site, random)
    for name in names:
        with site.open(name, width=PAPER, scheme="dark") as page:
            page.emulate_media(media="print", color_scheme="dark")
            cut = page.evaluate(CUT)
            assert not cut, f"{name}: cut off on paper: {cut[0]}"
            ink = page.evaluate("getComputedStyle(document.body).color")
            assert max(map(int, re.findall(r"\d+", ink))) < 128, f"{name}: light text on paper"
            assert page.pdf(landscape=True).startswith(b"%PDF")
    return f"{len(names)} pages"


CHECKS = (
    both_widths_and_schemes,
    what_decides_is_in_sight,
    links_lead_to_their_places,
    every_number_links_to_its_evidence,
    tables_are_sorted_and_filtered,
    several_records_of_a_number_are_shown_alone,
    the_keyboard_reaches_everything,
    paper_cuts_nothing_off,
)
