// What the explorer's pictures are made of: elements, numbers as texts, and tables of columns. Every
// text from data enters as a text node.
const ArithLensElements = (() => {
  "use strict";
  const PATHS = { via_mlps: "via MLPs, as Zhang et al. 2024", direct: "direct", total: "total" };
  const METRICS = {
    relative_logit: "logit of C, relative", logit: "logit of C", probability: "probability of C",
    logprob: "log-probability of C", digit_contrast: "C's lead over other digits",
  };
  const UNITS = { logit: " logits", digit_contrast: " logits" };
  // The metrics' names for prompts whose answers are no digits.
  const metricNames = facts => facts.candidates?.length
    ? { ...METRICS, digit_contrast: "C's lead over the other answers" } : METRICS;

  // Elements: h("button", { onclick, class: "x" }, "text", child)
  function h(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name.startsWith("on")) { if (value) element.addEventListener(name.slice(2), value); continue; }
      if (name.startsWith("aria-")) { element.setAttribute(name, String(value)); continue; }
      if (value === undefined || value === false || value === null) continue;
      element.setAttribute(name, value === true ? "" : String(value));
    }
    element.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined));
    return element;
  }
  function svg(tag, properties = {}, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, String(value));
    }
    element.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== ""));
    return element;
  }
  const number = (x, digits = 2) => x === null || Number.isNaN(x) ? "–"
    : Number(x).toFixed(digits).replace(/^-(?=[0.]*$)/, "").replace("-", "−");
  const percent = (x, digits = 1) => x === null ? "–" : `${number(100 * x, digits)}%`;
  const signed = (text, x) => x > 0 ? `+${text}` : text;
  const visible = token => token.replace(/[▁Ġ]/g, "␣").replace(/^ | $/g, "␣").replace(/\n/g, "↵") || "∅";
  const parts = name => name.startsWith("MLP") ? [+name.slice(4), 1e6] : name.split(".").map(Number);
  const ordered = names => [...names].sort((a, b) => parts(a)[0] - parts(b)[0] || parts(a)[1] - parts(b)[1]);
  const named = name => name.startsWith("MLP") || !name.includes(".") ? name : `head ${name}`;
  // Whether an interval excludes 0; a single prompt has none.
  const certain = row => (row.ci_low ?? 1) > 0 || (row.ci_high ?? -1) < 0;
  const counted = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
  const capital = text => text[0].toUpperCase() + text.slice(1);

  // Tables: columns of plain values; rows(where) gives objects.
  class Table {
    constructor(columns) {
      this.columns = {};
      for (const [name, column] of Object.entries(columns)) {
        this.columns[name] = Array.isArray(column) ? column
          : column.codes.map(code => column.levels[code]);
      }
    }
    get length() { return Object.values(this.columns)[0]?.length ?? 0; }
    append(other) {
      const before = this.length;
      this.made = null;
      for (const name of new Set([...Object.keys(this.columns), ...Object.keys(other.columns)])) {
        const mine = this.columns[name] ?? Array(before).fill(null);
        this.columns[name] = mine.concat(other.columns[name] ?? Array(other.length).fill(null));
      }
    }
    // Rows are made once and frozen: pictures read them for each edge. The list is the caller's own.
    rows(where = {}) {
      const names = Object.keys(this.columns), conditions = Object.entries(where);
      this.made ??= Array.from({ length: this.length }, (_, i) =>
        Object.freeze(Object.fromEntries(names.map(name => [name, this.columns[name][i]]))));
      return this.made.filter(row => conditions.every(([name, value]) => row[name] === value));
    }
  }
  function unpackText(text) {
    const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }
  const unpack = async text => JSON.parse(await unpackText(text));
  // CircuitsVis, from the file beside the page; it is read when it is needed.
  async function circuitsVis() {
    const add = properties => new Promise((resolve, reject) => document.head.append(
      Object.assign(document.createElement("script"), { onload: resolve, onerror: reject, ...properties })));
    if (!window.CircuitsVis) {
      if (!window.ArithLensBundles?.circuitsvis) await add({ src: "circuitsvis.js" });
      add({ textContent: `${await unpackText(window.ArithLensBundles.circuitsvis)};window.CircuitsVis=CircuitsVis` });
    }
    return window.CircuitsVis;
  }
  const isHead = name => /^\d+\.\d+$/.test(name);
  const isMlp = name => /^MLP \d+$/.test(name);
  // A file that the browser saves.
  function download(name, type, text) {
    h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name }).click();
  }
  return { PATHS, UNITS, metricNames, h, svg, number, percent, signed, visible, parts, ordered, named, capital, certain, counted, isHead, isMlp, download, Table, unpack, circuitsVis };
})();
