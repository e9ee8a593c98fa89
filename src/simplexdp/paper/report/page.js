"use strict";
// What is on the page, and what do the filters change?  State lives in the address's hash.
const content = JSON.parse(document.getElementById("content").textContent);
const METHODS = content.methods_known;
const DATA = [...new Set(content.accuracy.map((s) => s.data))];
const SHAPES = ["circle", "square", "triangle", "diamond"];
const markOf = (number) => ({ marker: SHAPES[number % 4], hollow: Math.floor(number / 4) % 2 === 1 });
// A lower bound is not rounded up, nor a claim down.
const atLeast = (value) => (Math.floor(100 * value) / 100).toFixed(2);
const atMost = (value) => (Math.ceil(100 * value - 1e-9) / 100).toFixed(2);
const at = (id) => document.getElementById(id);
const color = (method) => `var(--${method})`;

// Methods with a row for a data set; a recipe without privacy stands in the row of its method.
const present = (data) => METHODS.filter((m) => [...content.accuracy, ...content.methods].some((s) => s.data === data && s.method === m));

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
      : content.learning_rate.ours.length ? "ours" : "published",
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

const pointOf = (s) => (p) => {
  const budget = p.epsilon === null ? "∞" : p.epsilon;
  const spread = p.std === null ? "" : ` ± ${p.std.toFixed(2)}`;
  const copy = p.provenance ? `; data: ${p.provenance}` : "";
  const covers = p.covers ? `; ε covers ${p.covers}` : p.epsilon === null ? "; no privacy" : "";
  const runs = p.runs ? ` (${p.runs} ${p.runs === 1 ? "run" : "runs"})` : "";
  const point = { x: p.epsilon === null ? Infinity : p.epsilon, y: p.mean, title: `${s.label}, ε = ${budget}: ${p.mean.toFixed(2)}${spread} %${runs}${covers}${copy}` };
  if (p.std !== null) { point.low = p.mean - p.std; point.high = p.mean + p.std; }
  return point;
};

const drawAccuracy = (state) => {
  const box = at("accuracy-charts");
  box.replaceChildren();
  const chosen = content.accuracy.filter((s) => s.data === state.data && state.shown.includes(s.method) && !s.shortened);
  const copies = new Set(chosen.flatMap((s) => s.points.map((p) => p.provenance).filter(Boolean)));
  at("accuracy-about").textContent =
    `${content.titles[state.data] || state.data}: solid with large marks, our runs; dashed, as published. Bands and bars are one standard deviation over runs; a point of ours with neither is a single run. ` +
    "Right of the dotted line nothing is private, whatever the method. Dirichlet: ε bounds the draws under assumptions that Algorithm 1 breaks, and not the weights; at ε = ∞ it is plain training. Runs shorter than their recipe are in the tables alone." + (copies.size ? ` Our data here: ${[...copies].join("; ")}.` : "");
  for (const split of ["test", "validation"]) {
    const own = chosen.filter((s) => s.split === split);
    if (!own.length) continue;
    const seen = {};
    const series = own.map((s) => {
      const kind = s.method + s.source;
      seen[kind] = (seen[kind] ?? -1) + 1;
      return { points: s.points.map(pointOf(s)), color: color(s.method), dashed: s.source === "published", ...markOf(seen[kind]), label: s.label, source: s.source };
    });
    const budgets = series.flatMap((s) => s.points.map((p) => p.x)).filter(Number.isFinite);
    const often = (x) => budgets.filter((b) => b === x).length;
    const ticks = [...new Set(budgets)].sort((a, b) => often(b) - often(a) || a - b);
    const whole = content.accuracy.filter((s) => s.data === state.data && s.split === split && !s.shortened);
    const nearHundred = whole.some((s) => s.points.some((p) => p.mean > content.near_hundred));
    const label = `${split} accuracy against ε on ${content.titles[state.data] || state.data}, ${series.length} series; the numbers are in the tables below`;
    const svg = lineChart(series, { width: box.clientWidth, height: 380, xTicks: ticks, xLabel: "budget ε (δ = 1e-5)", yLabel: `${split} accuracy, %${nearHundred ? " (log of the error)" : ""}`, most: 100, nearHundred, label });
    const legend = element("p", { class: "legend" }, ...series.map((s) => legendEntry(s, s.label + (s.source === "ours" ? " (ours)" : ""))));
    box.append(element("div", { class: "chart" }, svg, legend));
  }
  if (!box.children.length) box.append(element("p", { class: "empty" }, "No series for this choice."));
};

const drawLearningRate = (state) => {
  const found = content.learning_rate;
  const curves = found[state.figure];
  refill(at("learning-rate-source"),
    [["ours", "our runs"], ["published", "the paper, CIFAR10"]].map(([name, text]) => button(text, name === state.figure, () => go({ figure: name }))));
  for (const side of ["left", "right"]) {
    const box = at(`learning-rate-${side}`);
    if (!curves.length) { box.replaceChildren(element("p", { class: "empty" }, "No runs yet.")); continue; }
    const scale = (c) => (side === "left" ? 1 : c.kappa);
    const series = curves.map((c, i) => ({
      color: `color-mix(in oklab, var(--accent) ${100 - 100 * i / Math.max(1, curves.length - 1)}%, var(--warn))`,
      ...markOf(i),
      points: c.points.map(([lr, y]) => ({ x: lr * scale(c), y, title: `α = ${c.alpha}, γ = ${lr}, γκ = ${short(lr * c.kappa)}: ${y.toFixed(2)} %` })),
    }));
    box.replaceChildren(lineChart(series, { width: box.clientWidth, height: 300, most: 100, xLabel: side === "left" ? "learning rate γ" : "effective learning rate γ·κ", yLabel: "test accuracy, %", label: `accuracy over the ${side === "left" ? "" : "effective "}learning rate` }));
    if (side === "left") at("learning-rate-legend").replaceChildren(...series.map((s, i) => legendEntry(s, `α = ${curves[i].alpha}`)));
  }
  at("learning-rate-note").textContent = state.figure === "ours" ? found.notes.join(" ") : "As published: CIFAR10, ResNet-18, 10 runs a point.";
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
  const rows = content.covers.rows.map((r) => content.covers.columns.map((c, i) => (i < 3 ? r[c.key] : { text: r[c.key], class: r[c.key].startsWith("yes") ? "yes" : "no" })));
  at("covers-table").replaceChildren(tableOf(content.covers.columns.map((c) => c.head), rows));
  drawAudits();
  const details = content.tables.map((t) => {
    const node = element("details", {}, element("summary", {}, t.title), element("div", { class: "scroll" }, tableOf(t.heads, t.cells)));
    if (t.notes.length) node.append(element("ul", {}, ...t.notes.map((n) => element("li", {}, n))));
    return node;
  });
  at("table-list").replaceChildren(...details);
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

const drawMechanism = () => {
  for (const what of ["kappa", "variance"]) {
    const box = at(`${what}-chart`);
    const series = [["linear", true], ["calibrated", false]].map(([name, dashed]) => ({
      dashed, color: dashed ? "var(--soft)" : "var(--accent)",
      points: content.asymptotics.map((r) => ({ x: r.alpha, y: r[`${name}_${what}`], title: `α = ${short(r.alpha)}: ${short(r[`${name}_${what}`])}` })),
    }));
    box.replaceChildren(lineChart(series, { width: box.clientWidth, height: 280, logY: true, xLabel: "α", yLabel: what === "kappa" ? "κ" : "variance of the loss", label: `${what} over α` }));
  }
};

const draw = () => {
  const state = readState();
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  drawFilters(state);
  drawAccuracy(state);
  drawLearningRate(state);
  drawMethods(state);
  drawClasses(state);
  drawMechanism();
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
let waiting = 0;
window.addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(draw, 120); });
drawStatic();
draw();
