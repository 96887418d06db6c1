"use strict";
{{ formulas }}
// ---- what `costs` of benchmarks/report/explorer.py adds up, from the same closed forms

const FORMS = ["literal", "factored"];
const sum = (values) => values.reduce((a, b) => a + b, 0);

function kinds({ G, N_E }) {
  return [["attention", "static"][G.length] ?? "block", N_E ? "dynamic" : "attention"];
}

function variables(state) {
  const v = { N: sum(state.G), g: state.G.length, width: DATA.bytes[state.precision] };
  for (const [name, size] of Object.entries(DATA.same)) v[name] = state[size];
  const { T } = v;
  const lengths = state.captions === "T" ? { T1: T, T2: T * T, T3: T * T * T } : DATA.captions;
  return Object.assign(v, lengths);
}

function parts(state) {
  const v = variables(state);
  const [encoder, decoder] = kinds(state);
  return [...PARTS.encoder[encoder], ...PARTS.decoder[decoder]].map((part) => ({
    name: part.name,
    inPaper: part.inPaper,
    ...Object.fromEntries(
      [...FORMS, "flops", "parameters", "moved"].map((what) => [what, part[what](v)])
    ),
    seconds: (form, { peak, bandwidth }) =>
      SECONDS({ ...v, macs: v.B * part[form](v), moved: part.moved(v), peak: peak[state.precision], bandwidth }),
  }));
}

function costs(state) {
  const v = variables(state);
  const listed = parts(state);
  const found = {
    flops: sum(listed.map((part) => part.flops)),
    parameters: sum(listed.map((part) => part.parameters)),
    cache: CACHE[kinds(state)[1]](v),
  };
  for (const form of FORMS) {
    const inPaper = listed.filter((part) => part.inPaper);
    found[`paper ${form}`] = DATA.images * sum(inPaper.map((part) => part[form]));
    found[`macs ${form}`] = sum(listed.map((part) => part[form]));
    const saving = kinds(state).filter((kind) => kind in SAVED);
    found[`saved ${form}`] = sum(saving.map((kind) => SAVED[kind][form](v)));
    for (const device of DATA.devices)
      if (state.precision in device.peak)
        found[`${device.name} ${form}`] = sum(listed.map((part) => part.seconds(form, device)));
  }
  return found;
}

const unitOf = (name) => DATA.units[name.split(" ")[0]] ?? "s";

function printed(value, unit) {
  let scaled = unit === "s" ? value * 1e9 : value;
  let place = 0;
  for (; scaled >= 1000; place++) scaled /= 1000;
  return (scaled ? scaled.toPrecision(DATA.digits) : "0") + DATA.prefixes[unit][place];
}

// ---- the page: its state is the form's, and the address holds what differs from the defaults

const form = document.getElementById("sizes");
const fields = [...form.elements].filter((field) => field.name);
const here = { ...DATA.defaults, x: "G", y: "paper" };
const textOf = (value) => (Array.isArray(value) ? value.join(",") : String(value));

function show(state) {
  for (const field of fields) {
    field.value = textOf(state[field.name]);
    if (field.selectedIndex === -1) field.value = here[field.name];
  }
}

function read() {
  const state = {};
  const wrong = fields.filter((field) => {
    const text = field.value.trim();
    const listed = field.name === "G";
    const isSize = listed || field.name in DATA.least;
    const numbers = text === "" && listed ? [] : text.split(",").map((part) => Number(part.trim() || NaN));
    const least = listed ? 1 : DATA.least[field.name];
    state[field.name] = listed ? numbers : isSize ? numbers[0] : text;
    const isRight = (n) => Number.isInteger(n) && n >= least && n <= DATA.largest;
    const isWrong = isSize ? !numbers.every(isRight) || (!listed && numbers.length > 1) : !text;
    field.setAttribute("aria-invalid", isWrong);
    return isWrong;
  });
  const named = wrong.map((field) => field.name).join(", ");
  const splits = named || state.d % state.heads === 0;
  if (!splits) form.elements.heads.setAttribute("aria-invalid", true);
  document.getElementById("message").textContent = named
    ? `${named}: expected a whole number up to ${DATA.largest}, at least ${DATA.least[wrong[0].name] ?? 1}.`
    : splits ? "" : `heads: expected a divisor of d = ${state.d}.`;
  return named || !splits ? null : state;
}

// what the paper's convention depends on
const counted = ({ G, N_E, L, T, d, ff, layers, V, captions }) =>
  JSON.stringify([G, N_E, L, captions === "T" ? T : captions, d, ff, layers, V]);

function row(cells) {
  const tr = document.createElement("tr");
  for (const cell of cells) tr.insertCell().append(cell);
  return tr;
}

function render() {
  const state = read();
  if (!state) return;
  const found = costs(state);
  for (const cell of document.querySelectorAll("[data-cost]")) {
    const name = cell.dataset.cost;
    const known = name in found;
    cell.textContent = known ? printed(found[name], unitOf(name)) : `no ${state.precision}`;
    cell.classList.toggle("muted", !known);
  }
  const slowest = Math.max(...DATA.devices.map(({ name }) => found[`${name} ${state.form}`] ?? 0));
  for (const tr of document.querySelectorAll("#devices tbody tr")) {
    const name = tr.cells[0].firstChild.textContent;
    tr.classList.toggle("chosen", name === state.device);
    const bar = document.createElement("span");
    bar.className = "bar";
    bar.style.width = `${(100 * (found[`${name} ${state.form}`] ?? 0)) / slowest}%`;
    tr.cells[0].replaceChildren(name, bar);
  }
  const device = DATA.devices.find(({ name }) => name === state.device);
  const known = state.precision in device.peak;
  document.querySelector("#parts tbody").replaceChildren(
    ...parts(state).map((part) =>
      row([
        part.inPaper ? part.name : `${part.name} (not in Table VI)`,
        printed(part[state.form], ""),
        printed(part.parameters, ""),
        known ? printed(part.seconds(state.form, device), "s") : `no ${state.precision}`,
      ])
    )
  );
  const preset = DATA.presets.findIndex((preset) => counted(preset.state) === counted(state));
  document.getElementById("preset").value = preset < 0 ? "" : preset;
  document.getElementById("paper").textContent =
    preset < 0 ? "" : `The paper prints ${(DATA.presets[preset].paper / 1e12).toFixed(2)} × 10¹² in this row: ` +
      `ours differs by ${(100 * (found["paper literal"] / DATA.presets[preset].paper - 1)).toFixed(3).replace("-", "−")} %.`;
  draw(state);
  const changed = fields.filter(({ name }) => textOf(state[name]) !== textOf(here[name]));
  const query = new URLSearchParams(changed.map(({ name }) => [name, textOf(state[name])]));
  history.replaceState(null, "", `#${query}`);
}

// ---- the chart: one number over one size, both axes logarithmic

const NS = "http://www.w3.org/2000/svg";
function add(parent, name, attributes, text) {
  const node = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

const valueOf = (state, x) => (x === "G" ? sum(state.G) : state[x]);

function at(state, x, size) {
  const changed = { ...state, ...(x === "T" ? { captions: "T" } : {}) };
  if (x !== "G") return { ...changed, [x]: size };
  const total = sum(state.G);
  return { ...changed, G: total ? state.G.map((n) => (n * size) / total) : [size] };
}

function ticks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++)
    found.push(...[1, 2, 5].map((digit) => digit * 10 ** power).filter((n) => n >= low && n <= high));
  return found.length > 7 ? found.filter((n) => /^1/.test(n.toExponential())) : found;
}

function draw(state) {
  const { x, y } = state;
  const now = valueOf(state, x);
  const middle = now || 16;
  const sizes = [];
  for (let step = -16; step <= 16; step++) {
    const size = Math.round(middle * 2 ** (step / 4));
    if (size >= Math.max(1, DATA.least[x] ?? 1) && size <= DATA.largest && !sizes.includes(size)) sizes.push(size);
  }
  const keyOf = (form) => (y === "seconds" ? `${state.device} ${form}` : DATA.byForm.includes(y) ? `${y} ${form}` : y);
  const drawn = keyOf("literal") === keyOf("factored") ? ["literal"] : FORMS;
  const lines = drawn.map((form) => sizes.map((size) => [size, costs(at(state, x, size))[keyOf(form)]]));
  const chart = document.getElementById("chart");
  const all = lines.flat().map(([, value]) => value).filter((value) => value > 0);
  if (!all.length) return chart.replaceChildren("Nothing to draw: no such cost here.");
  const unit = unitOf(keyOf("literal"));
  const [width, height, left, bottom] = [chart.clientWidth || 640, 320, 92, 40];
  const [low, high] = [Math.min(...all) / 1.15, Math.max(...all) * 1.15];
  const toX = (size) => left + ((width - left - 70) * Math.log(size / sizes[0])) / Math.log(sizes.at(-1) / sizes[0]);
  const toY = (value) => 10 + ((height - bottom - 10) * Math.log(high / value)) / Math.log(high / low);
  const words = (name) => document.querySelector(`[name=${name}] option:checked`).textContent;
  const label = `${words("y")} over ${words("x")}`;
  const svg = document.createElementNS(NS, "svg");
  for (const [key, value] of Object.entries({ viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }))
    svg.setAttribute(key, value);
  for (const value of ticks(low, high)) {
    add(svg, "line", { class: "grid", x1: left, x2: width - 70, y1: toY(value), y2: toY(value) });
    add(svg, "text", { x: left - 6, y: toY(value) + 4, "text-anchor": "end" }, printed(value, unit).replace(/\.?0+(?= |$)/, ""));
  }
  let free = 0;
  for (const size of ticks(sizes[0], sizes.at(-1))) {
    const wide = 8 * String(size).length;
    if (toX(size) - wide / 2 < free) continue;
    free = toX(size) + wide / 2 + 8;
    add(svg, "text", { x: toX(size), y: height - bottom + 18, "text-anchor": "middle" }, size);
  }
  add(svg, "text", { x: (left + width - 70) / 2, y: height - 4, "text-anchor": "middle" }, words("x"));
  if (now) add(svg, "line", { class: "here", x1: toX(now), x2: toX(now), y1: 10, y2: height - bottom });
  const ends = [];
  lines.forEach((line, place) => {
    const points = line.map(([size, value]) => `${toX(size)},${toY(value || low)}`);
    add(svg, "path", { class: drawn[place], d: `M${points.join("L")}` });
    if (drawn.length === 1) return;
    let end = toY(line.at(-1)[1] || low) + 4;
    if (ends.length && Math.abs(ends[0] - end) < 15) end = ends[0] + 15;
    ends.push(end);
    add(svg, "text", { class: drawn[place], x: width - 66, y: end }, drawn[place]);
  });
  for (const { state: row, paper } of y === "paper" && (x === "G" || x === "N_E") ? DATA.presets : []) {
    const size = valueOf(row, x);
    if (size < sizes[0] || size > sizes.at(-1) || counted(row) !== counted(at(state, x, size))) continue;
    const [cx, cy] = [toX(size), toY(paper)];
    const cross = `M${cx - 5},${cy - 5}l10,10m0,-10l-10,10`;
    add(add(svg, "path", { class: "paper", d: cross }), "title", {}, `v2, Table VI: ${paper / 1e12} × 10¹²`);
  }
  chart.replaceChildren(svg);
}

function load() {
  show({ ...here, ...Object.fromEntries(new URLSearchParams(location.hash.slice(1))) });
  render();
}

form.addEventListener("submit", (event) => event.preventDefault());
document.getElementById("preset").addEventListener("change", (event) => {
  const preset = DATA.presets[event.target.value];
  if (preset) show({ ...Object.fromEntries(fields.map(({ name, value }) => [name, value])), ...preset.state });
  render();
});
for (const field of fields) field.addEventListener("input", render);
addEventListener("hashchange", load);
addEventListener("resize", () => render());
load();
