"use strict";
// What is on the page, and what do the filters change?  State lives in the address's hash.
const content = JSON.parse(document.getElementById("content").textContent);
const METHODS = Object.keys(content.colours);
const DATA = Object.keys(content.data);
const at = (id) => document.getElementById(id);
const color = (method) => `var(--m${content.colours[method]})`;
// A lower bound is not rounded up, nor a claim down.
const atLeast = (value) => (Math.floor(100 * value) / 100).toFixed(2);
const atMost = (value) => (Math.ceil(100 * value - 1e-9) / 100).toFixed(2);
const short = (value) => (value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential(0) : String(Number(value.toPrecision(3))));

const element = (name, attributes, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  for (const child of children) node.append(child);
  return node;
};

// Methods with a row for a data set; a recipe without privacy stands in the row of its method.
const present = (data) => METHODS.filter((m) => content.data[data]?.methods.includes(m));

const readState = () => {
  const given = new URLSearchParams(location.hash.slice(1));
  const data = DATA.includes(given.get("data")) ? given.get("data") : content.first_data;
  const asked = (given.get("method") || "").split(",").filter((m) => METHODS.includes(m));
  const methods = asked.length ? asked : METHODS;
  const shown = present(data).filter((m) => methods.includes(m));
  return {
    data,
    methods,
    shown: shown.length ? shown : present(data),
    figure: given.get("figure") === "ours" || given.get("figure") === "published" ? given.get("figure")
      : document.querySelector('[data-source="ours"]') ? "ours" : "published",
    theme: given.get("theme"),
  };
};

const go = (change) => {
  const state = { ...readState(), ...change };
  const next = new URLSearchParams();
  next.set("data", state.data);
  if (state.methods.length < METHODS.length) next.set("method", state.methods.join(","));
  next.set("figure", state.figure);
  if (state.theme) next.set("theme", state.theme);
  history.replaceState(null, "", "#" + next.toString());
  draw();
};

const button = (text, pressed, act) => {
  const node = element("button", { type: "button", "aria-pressed": String(pressed) }, text);
  node.addEventListener("click", act);
  return node;
};

// New buttons in a box; the keyboard's focus stays where it was.
const refill = (box, buttons) => {
  const focused = [...box.children].indexOf(document.activeElement);
  box.replaceChildren(...buttons);
  if (focused >= 0) buttons[focused].focus();
};

const drawFilters = (state) => {
  refill(at("data-filter"), DATA.map((d) => button(content.titles[d] || d, d === state.data, () => go({ data: d }))));
  const toggle = (m) => {
    const on = state.methods.includes(m) ? state.methods.filter((x) => x !== m) : [...state.methods, m];
    go({ methods: on.length ? on : METHODS });
  };
  refill(at("method-filter"), present(state.data).map((m) => button(content.titles[m] || m, state.shown.includes(m), () => toggle(m))));
};

const show = (nodes, wanted) => nodes.forEach((node) => node.toggleAttribute("hidden", !wanted(node.dataset)));
const all = (selector) => [...document.querySelectorAll(selector)];

const showAccuracy = (state) => {
  const name = content.titles[state.data] || state.data;
  const copies = [...new Set(content.data[state.data]?.copies)];
  at("accuracy-about").textContent =
    `${name}: solid with large marks, our runs; dashed, as published. Bands and bars are one standard deviation over runs; a point of ours with neither is a single run. ` +
    "Right of the dotted line nothing is private, whatever the method. Dirichlet: ε bounds the draws under assumptions that Algorithm 1 breaks, and not the weights; at ε = ∞ it is plain training. Runs shorter than their recipe are in the tables alone." + (copies.length ? ` Our data here: ${copies.join("; ")}.` : "");
  show(all("#accuracy [data-method]"), (of) => state.shown.includes(of.method));
  const figures = all("#accuracy [data-data]");
  const drawn = (node) => [...node.querySelectorAll("[data-method]")].some((one) => state.shown.includes(one.dataset.method));
  figures.forEach((node) => node.toggleAttribute("hidden", node.dataset.data !== state.data || !drawn(node)));
  at("accuracy-empty").hidden = figures.some((node) => !node.hasAttribute("hidden"));
};

const showLearningRate = (state) => {
  refill(at("learning-rate-source"),
    [["ours", "our runs"], ["published", "the paper, CIFAR10"]].map(([name, text]) => button(text, name === state.figure, () => go({ figure: name }))));
  const figures = all("#learning-rate [data-source]");
  show(figures, (of) => of.source === state.figure);
  at("learning-rate-empty").hidden = figures.some((node) => node.dataset.source === state.figure);
  at("learning-rate-note").textContent = state.figure === "ours" ? content.learning_rate_notes.join(" ") : content.as_published;
};

const tableOf = (heads, rows) => {
  const numeric = heads.map((_, i) => rows.length > 0 && rows.every((r) => /^[-–−\d.,e+ ±%∞[\]s/]*( min| h)?$/.test(r[i].text ?? r[i])));
  // Percentages, some with their spread, stand below each other from the left.
  const percent = heads.map((_, i) => rows.every((r) => /^(–|\d+\.\d\d( ± .*)?)$/.test(r[i].text ?? r[i])));
  const mark = (i) => (numeric[i] ? { class: percent[i] ? "number percent" : "number" } : {});
  const cell = (value, i) => {
    const node = element("td", { ...mark(i), "data-head": heads[i] }, element("span", {}, value.text ?? value));
    if (value.class) node.classList.add(value.class);
    if (value.mark) node.firstChild.prepend(element("span", { class: "mark", style: `background:${value.mark}` }));
    return node;
  };
  const head = element("thead", {}, element("tr", {}, ...heads.map((h, i) => element("th", { scope: "col", ...mark(i) }, h))));
  return element("table", {}, head, element("tbody", {}, ...rows.map((r) => element("tr", {}, ...r.map(cell)))));
};

const percentText = (r) => r.mean.toFixed(2) + (r.std === null ? "" : ` ± ${r.std.toFixed(2)}`) + (r.runs > 1 ? ` [${r.runs}]` : "");
const time = (s) => (s < 90 ? `${s.toFixed(1)} s` : s < 5400 ? `${(s / 60).toFixed(0)} min` : `${(s / 3600).toFixed(1)} h`);

const drawMethods = (state) => {
  const rows = content.methods.filter((r) => r.data === state.data && state.shown.includes(r.method));
  const body = rows.map((r) => [
    { text: r.label, mark: color(r.method) },
    r.epsilon === null ? "∞" : short(r.epsilon), percentText(r), time(r.seconds),
    { text: r.covers, class: r.covers.startsWith("the released") ? "yes" : "no" }]);
  at("methods-table").replaceChildren(rows.length ? tableOf(["method", "ε", "test accuracy, %", "training time", "ε covers"], body) : element("p", { class: "empty" }, "No runs of ours for this choice. Runs on a part of a data set are in the tables."));
};

const drawClasses = (state) => {
  const found = content.classes;
  const rows = found.cells.filter((r) => r[0] === state.data).map((r) => [...r.slice(1, -1), { text: r.at(-1), class: r.at(-1) === "–" ? "yes" : "no" }]);
  at("classes-about").textContent = found.notes.join(" ");
  at("classes-table").replaceChildren(rows.length ? tableOf(found.heads.slice(1), rows) : element("p", { class: "empty" }, "Not measured on this data set."));
};

const drawStatic = () => {
  at("version").textContent = content.version;
  at("left-out").replaceChildren(...content.left_out.map((said) => element("li", {}, said)));
  const rows = content.covers.cells.map((r) => r.map((text, i) => (i < 3 ? text : { text, class: text.startsWith("yes") ? "yes" : "no" })));
  at("covers-table").replaceChildren(tableOf(content.covers.heads, rows));
  drawAudits();
  for (const t of content.tables) {
    const chart = all("[data-table]").find((node) => node.dataset.table === t.name);
    const title = chart ? `The numbers: ${t.title}` : t.title;
    const node = element("details", {}, element("summary", {}, title), element("div", { class: "scroll" }, tableOf(t.heads, t.cells)));
    if (t.notes.length) node.append(element("ul", {}, ...t.notes.map((n) => element("li", {}, n))));
    (chart || at("table-list")).append(node);
  }
};

const drawAudits = () => {
  const rows = content.audits;
  const attacks = [...new Set(rows.flatMap((r) => Object.keys(r.bounds)))];
  const sure = [...new Set(rows.map((r) => r.confidence).filter(Boolean))].map((c) => `${short(100 * c)} %`).join(" or ");
  at("audits-about").textContent = rows.length
    ? `Each with confidence ${sure}: lower bounds on ε that an attack on the released weights has shown, and after the stroke the ε that is claimed for the attack's own neighbouring relation: two inputs in each other's place may cost more than a record in or out. A bound above it means that the claim does not hold for the weights. AUC: of membership inference; 0.5 is a guess. ${content.other_deltas}`
    : "";
  const bound = (r, a) => {
    const found = r.bounds[a];
    if (!found) return "–";
    if (found.claim === null || found.claim === undefined) return atLeast(found.lower);
    return { text: `${atLeast(found.lower)} / ${atMost(found.claim)}`, class: found.lower > found.claim ? "no" : "yes" };
  };
  const body = rows.map((r) => [content.titles[r.data] || r.data, { text: content.titles[r.method] || r.method, mark: color(r.method) },
    r.claimed === null || r.claimed === undefined ? "none" : atMost(r.claimed),
    { text: r.covers_weights ? "yes" : "no", class: r.covers_weights ? "yes" : "no" }, ...attacks.map((a) => bound(r, a)),
    typeof r.auc === "number" ? r.auc.toFixed(3) : "–"]);
  at("audits-table").replaceChildren(rows.length
    ? tableOf(["data", "method", "claimed ε", "covers weights", ...attacks.map((a) => `${a.replaceAll("_", " ")}: ε ≥`), "AUC"], body)
    : element("p", { class: "empty" }, "No audit results yet."));
  at("pictures-about").textContent = content.pictures.length
    ? "Inputs rebuilt from one update, on one record and on a batch: under each row of originals stands what the attack made of them from an update of the method named."
    : "";
  at("pictures").replaceChildren(...content.pictures.map((p) => element("figure", {}, element("img", { src: p.source, alt: `Inputs above what an attack rebuilt from one update: ${p.caption}`, loading: "lazy" }), element("figcaption", {}, p.caption))));
};

const draw = () => {
  const state = readState();
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  drawFilters(state);
  showAccuracy(state);
  showLearningRate(state);
  drawMethods(state);
  drawClasses(state);
  document.body.dataset.state = `${state.data}|${state.methods.join(",")}|${state.figure}`;
  document.body.dataset.problems = window.problems.join("; ");
  document.body.dataset.ready = "yes";
};

at("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  go({ theme: dark ? "light" : "dark" });
});
window.addEventListener("hashchange", draw);
// On paper nothing can be opened.
window.addEventListener("beforeprint", () => all("details").forEach((node) => { node.open = true; }));
drawStatic();
draw();
