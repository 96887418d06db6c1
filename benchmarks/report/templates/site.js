"use strict";
// tables are sorted by a click on a heading, and long ones filtered by the words typed above them
const NUMBER = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?(?![\w.-])/; // no date, no hash
const value = (row, place) => {
  const text = row.cells[place].textContent.trim();
  const number = NUMBER.exec(text.replace(/,(?=\d{3})/g, ""));
  return number && !row.cells[place].querySelector("code") ? Number(number[0]) : text;
};
const compare = (a, b) =>
  typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;

for (const table of document.querySelectorAll("table[data-sorted]")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  [...table.tHead.rows[0].cells].forEach((heading, place) => {
    const button = document.createElement("button");
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const rising = heading.getAttribute("aria-sort") !== "ascending";
      for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const order = (a, b) => compare(value(a, place), value(b, place)) * (rising ? 1 : -1);
      body.append(...rows.sort(order));
    });
  });
  if (!("long" in table.dataset)) continue;
  const filter = document.createElement("div");
  filter.className = "filter";
  const labelled = (words, control) => {
    const label = document.createElement("label");
    label.append(`${words} `, control);
    control.addEventListener("input", () => show(null));
    filter.append(label);
    return control;
  };
  const input = labelled("Rows with", document.createElement("input"));
  input.type = "search";
  const chosen = [...table.querySelectorAll("th[data-choose]")].map((heading) => {
    const place = heading.cellIndex;
    const texts = new Set(rows.map((row) => row.cells[place].textContent.trim()));
    const options = ["", ...[...texts].sort()].map((text) => new Option(text || "any", text));
    const select = labelled(heading.textContent, document.createElement("select"));
    select.append(...options);
    return [place, select];
  });
  const count = document.createElement("span");
  count.setAttribute("aria-live", "polite");
  filter.append(count);
  table.closest(".scroll").before(filter);
  const show = (names) => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const fits = ([place, { value }]) => !value || row.cells[place].textContent.trim() === value;
      const kept = words.every((word) => text.includes(word)) && chosen.every(fits);
      row.hidden = names ? !names.includes(row.id) : !kept;
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${rows.length}`;
    if (!names) return;
    const all = document.createElement("button");
    all.append("show all");
    all.addEventListener("click", () => show(null));
    count.append(" behind one number ", all);
  };
  // the address names the records of a number that is made from several
  const names = new URLSearchParams(location.search).get("of")?.split(",");
  if (names) show(names);
}

// a link to a place inside something folded opens it, and a link to a row what the row folds
const open = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (target.tagName === "TR") for (const folded of target.querySelectorAll("details")) folded.open = true;
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  target.scrollIntoView();
};
addEventListener("hashchange", open);
open();
