"use strict";
// long tables are sorted by a click on a heading, and filtered by the words typed above them
const value = (row, place) => {
  const text = row.cells[place].textContent.trim();
  const number = parseFloat(text.replace(/,/g, ""));
  return Number.isNaN(number) ? text : number;
};
const compare = (a, b) =>
  typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;

for (const table of document.querySelectorAll("table[data-long]")) {
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
  const label = document.createElement("label");
  label.className = "filter";
  const input = document.createElement("input");
  input.type = "search";
  const count = document.createElement("span");
  count.setAttribute("aria-live", "polite");
  label.append("Rows with ", input, " ", count);
  table.closest(".scroll").before(label);
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${rows.length}`;
  });
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
