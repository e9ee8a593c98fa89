"use strict";
// How is a line chart drawn?  SVG from plain numbers; no library, no network.
const svgNode = (name, attributes, text) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
};

const element = (name, attributes, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  for (const child of children) node.append(child);
  return node;
};

const short = (value) => {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e4 || size < 1e-3) return value.toExponential(0).replace("e+", "e");
  return String(Number(value.toPrecision(3)));
};

const linearTicks = (low, high, count) => {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough);
  const ticks = [];
  for (let t = Math.ceil(low / step) * step; t <= high + 1e-9; t += step) ticks.push(t);
  return ticks;
};

const decadeTicks = (low, high) => {
  const first = Math.ceil(Math.log10(low) - 1e-9), last = Math.floor(Math.log10(high) + 1e-9);
  const every = Math.max(1, Math.ceil((last - first) / 5));
  const ticks = [];
  for (let p = first; p <= last; p += every) ticks.push(10 ** p);
  return ticks;
};

// Near 100 % what is wrong is told apart, and not what is right: percent by the log of the error.
const NEAR_HUNDRED = [0, 20, 50, 80, 90, 95, 98, 99, 99.5, 99.8, 99.9];
const rightness = (y) => -Math.log(Math.max(0.05, 100 - y));

// series: [{points: [{x, y, low, high, title}], color, dashed, marker, hollow}]; x may be Infinity.
const lineChart = (series, options) => {
  const width = Math.max(280, options.width), height = options.height || 320;
  const margin = { left: 54, right: 18, top: 14, bottom: 46 };
  const inner = { width: width - margin.left - margin.right, height: height - margin.top - margin.bottom };
  const all = series.flatMap((s) => s.points);
  const finite = all.map((p) => p.x).filter(Number.isFinite);
  const endless = all.some((p) => p.x === Infinity);
  let [x0, x1] = [Math.min(...finite), Math.max(...finite)];
  if (x0 === x1) { x0 /= 1.5; x1 *= 1.5; }
  // Points at ∞ stand beside each other, right of a line: training without privacy is the same for several series.
  const ending = series.filter((s) => s.points.some((p) => p.x === Infinity));
  const zone = endless ? Math.max(0.14 * inner.width, 64, 10 * ending.length + 12) : 0;
  const plotted = inner.width - zone;
  const apart = Math.min(14, (zone - 12) / Math.max(1, ending.length));
  const end = margin.left + plotted + zone / 2;
  const shift = (s) => (ending.indexOf(s) - (ending.length - 1) / 2) * apart;
  const along = (x) => margin.left + 10 + (plotted - 20) * (Math.log(x) - Math.log(x0)) / (Math.log(x1) - Math.log(x0));
  const px = (x) => (x === Infinity ? end : along(x));
  const lows = all.map((p) => (p.low === undefined ? p.y : p.low));
  const highs = all.map((p) => (p.high === undefined ? p.y : p.high));
  let [y0, y1] = [Math.min(...lows), Math.max(...highs)];
  let py;
  if (options.logY) {
    py = (y) => margin.top + inner.height * (1 - (Math.log(y) - Math.log(y0)) / (Math.log(y1) - Math.log(y0)));
  } else if (options.nearHundred) {
    const room = 0.06 * (rightness(y1) - rightness(y0));
    const [bottom, top] = [rightness(y0) - room, rightness(y1) + room];
    py = (y) => margin.top + inner.height * (1 - (rightness(y) - bottom) / (top - bottom));
  } else {
    const room = Math.max(1, 0.06 * (y1 - y0));
    [y0, y1] = [y0 - room, Math.min(options.most === undefined ? Infinity : options.most, y1 + room)];
    py = (y) => margin.top + inner.height * (1 - (y - y0) / (y1 - y0));
  }
  const svg = svgNode("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.label });
  const near = NEAR_HUNDRED.filter((t) => py(t) >= margin.top && py(t) <= margin.top + inner.height);
  const yTicks = options.logY ? decadeTicks(y0, y1) : options.nearHundred ? near : linearTicks(y0, y1, 5);
  for (const t of yTicks) {
    svg.append(svgNode("line", { class: "axis", x1: margin.left, x2: margin.left + inner.width, y1: py(t), y2: py(t) }));
    svg.append(svgNode("text", { x: margin.left - 8, y: py(t) + 4, "text-anchor": "end" }, short(t)));
  }
  const placed = []; // the first ticks take their place; one too near to them is left out
  for (const t of options.xTicks || decadeTicks(x0, x1)) {
    if (placed.some((x) => Math.abs(px(t) - x) < 30)) continue;
    placed.push(px(t));
    svg.append(svgNode("text", { x: px(t), y: margin.top + inner.height + 19, "text-anchor": "middle" }, short(t)));
  }
  if (endless) {
    svg.append(svgNode("text", { x: px(Infinity), y: margin.top + inner.height + 19, "text-anchor": "middle" }, "∞"));
    svg.append(svgNode("text", { x: px(Infinity), y: height - 6, "text-anchor": "middle" }, "no privacy"));
    svg.append(svgNode("line", { class: "divider", x1: margin.left + plotted, x2: margin.left + plotted, y1: margin.top, y2: margin.top + inner.height }));
  }
  svg.append(svgNode("text", { x: margin.left + plotted / 2, y: height - 6, "text-anchor": "middle" }, options.xLabel));
  svg.append(svgNode("text", { x: 13, y: margin.top + inner.height / 2, "text-anchor": "middle", transform: `rotate(-90 13 ${margin.top + inner.height / 2})` }, options.yLabel));
  for (const s of series) drawSeries(svg, s, (x) => px(x) + (x === Infinity ? shift(s) : 0), py);
  return svg;
};

// Neighbours that have a spread; a band does not reach over a point without one.
const bandsOf = (line) => {
  const bands = [[]];
  for (const p of line) {
    if (p.low === undefined) bands.push([]);
    else bands.at(-1).push(p);
  }
  return bands.filter((band) => band.length > 1);
};

const drawSeries = (svg, s, px, py) => {
  const line = s.points.filter((p) => Number.isFinite(p.x)).sort((a, b) => a.x - b.x);
  const bands = bandsOf(line);
  for (const band of bands) {
    const upper = band.map((p) => `${px(p.x)},${py(p.high)}`);
    const lower = band.map((p) => `${px(p.x)},${py(p.low)}`).reverse();
    svg.append(svgNode("path", { class: "band", fill: s.color, d: `M${[...upper, ...lower].join("L")}Z` }));
  }
  if (line.length > 1) {
    svg.append(svgNode("path", { class: `line ${s.dashed ? "published" : "ours"}`, stroke: s.color, d: "M" + line.map((p) => `${px(p.x)},${py(p.y)}`).join("L") }));
  }
  for (const p of s.points) {
    if (p.low !== undefined && !bands.some((band) => band.includes(p))) {
      svg.append(svgNode("line", { stroke: s.color, "stroke-width": 1.4, x1: px(p.x), x2: px(p.x), y1: py(p.low), y2: py(p.high) }));
    }
    const dot = dotNode(s, px(p.x), py(p.y), s.dashed ? 3.4 : 4.6);
    if (s.dashed) dot.setAttribute("opacity", ".75");
    dot.append(svgNode("title", {}, p.title || ""));
    svg.append(dot);
  }
};

const dotNode = (s, x, y, r) => {
  const look = s.hollow ? { class: "dot hollow", stroke: s.color } : { class: "dot", fill: s.color };
  return svgNode("path", { ...look, d: marker(s.marker || "circle", x, y, r) });
};

const marker = (shape, x, y, r) => {
  if (shape === "square") return `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`;
  if (shape === "triangle") return `M${x},${y - 1.2 * r}L${x + 1.1 * r},${y + r}L${x - 1.1 * r},${y + r}Z`;
  if (shape === "diamond") return `M${x},${y - 1.3 * r}L${x + 1.3 * r},${y}L${x},${y + 1.3 * r}L${x - 1.3 * r},${y}Z`;
  return `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`;
};

const legendEntry = (s, text) => {
  const key = svgNode("svg", { viewBox: "0 0 30 12", "aria-hidden": "true" });
  key.append(svgNode("path", { class: `line ${s.dashed ? "published" : "ours"}`, stroke: s.color, d: "M1,6L29,6" }));
  key.append(dotNode(s, 15, 6, s.dashed ? 3.2 : 4.2));
  return element("span", {}, key, text);
};
