// The map: the effect of every head and MLP, to click on.
const ArithLensMap = (() => {
  "use strict";
  const { PATHS, UNITS, metricNames, h, number, percent, signed, named, capital, counted, visible } = ArithLensElements;
  const { HUES } = ArithLensCards;
  const { Exports } = ArithLensExport;
  // Why a map has its score.
  const SCORES = {
    relative_logit: "The score is C's logit, as in the paper and in the circuit.",
    digit_contrast: "The score is C's lead, as in the audit: what raises all answers alike does not change it.",
  };

  class EffectMap extends Exports {
    get relative() { return this.choice.metric === "relative_logit"; }
    get unit() { return UNITS[this.choice.metric] ?? ""; }
    effect(x) { return signed(this.relative ? percent(x) : number(x, this.unit ? 2 : 3), x); }
    strength(share) { return Math.round(100 * Math.sqrt(share) * share ** 0.15); }
    // The colours of the heads or of the MLPs, from their largest effect down to 0 and up again.
    colourBar(name, limit) {
      const end = sign => h("span", {}, this.effect(sign * limit) + (sign > 0 ? this.unit : "")), steps = [...Array(25).keys()].map(step => step / 12 - 1);
      return h("p", { class: "ale-scale" }, h("b", {}, name), end(-1), steps.map(at => h("i", { style: `--share:${this.strength(Math.abs(at))}%;--hue:var(--${at < 0 ? "helps" : "hinders"})` })), end(1));
    }
    // One map, or those of the two sides on one scale.
    drawMap() {
      const { setting } = this, region = this.regions.map;
      const sides = this.each(set => ({ set, rows: this.rows("effects", setting) }));
      const limitOf = mlps => Math.max(...sides.flatMap(({ rows }) => rows).filter(row => row.head < 0 === mlps).map(row => Math.abs(row.mean ?? 0)), 0) || 1;
      const limits = { heads: limitOf(false), MLPs: limitOf(true) };
      const touch = matchMedia("(hover: none), (max-width: 600px)").matches, seen = this.onlyMap ? "problems" : "edges";
      const line = h("p", { class: "ale-line" }, touch ? `Tap a cell to see its ${seen}.` : `Point at a cell to read it, click it to see its ${seen}; arrow keys move, Enter chooses${this.onlyMap ? "" : ", B knocks out"}.`);
      const all = sides.flatMap(({ set, rows }) => rows.map(row => sides.length > 1 ? { set, ...row } : row));
      const framed = all.some(row => row.key) ? "Framed: key head. " : "";
      region.replaceChildren(
        this.heading("Map", "effects", all, { ...this.quoted() }), this.onlyMap ? "" : this.mapControls(),
        h("div", { class: "ale-maps" }, sides.map(side => this.as(side.set, () => h("div", {},
          sides.length === 1 ? "" : h("h3", {}, `Over ${this.allPrompts} of “${side.set}”`), ...this.mapOf(side, limits, line, touch))))),
        h("div", { class: "ale-scales" }, Object.entries(limits).map(([name, limit]) => this.colourBar(name, limit))), line,
        this.onlyMap ? this.mapControls() : "",
        h("p", { class: "ale-soft" }, "With a part's output from the counterfactual, C's score falls (", h("b", { class: "ale-helps" }, "red"),
          this.relative ? ", in percent) or rises (" : ") or rises (", h("b", { class: "ale-hinders" }, "blue"), `). ${framed}Heads and MLPs have a scale each. Ring: the chosen part. `, this.onlyMap ? "" : this.choice.kind === "keep_only" ? "Pale: not kept. " : "Crossed corner: knocked out. ",
          SCORES[this.choice.metric] ?? ""),
        this.exportBar("map", this.onlyMap ? this.linkButton() : ""));
    }
    mapOf({ rows }, limits, line, touch) {
      if (!rows.length) return [h("p", {}, this.backend ? "These effects are being computed." : "This page does not have these effects. Choose other paths or another score above.")];
      const heads = 1 + Math.max(...rows.map(row => row.head)), layers = 1 + Math.max(...rows.map(row => row.layer));
      const describe = row => `${capital(named(row.component))}: ${this.effectInterval(row)}${row.key ? ", key head" : ""}`;
      const cells = new Map();
      const cell = row => {
        const limit = row.head < 0 ? limits.MLPs : limits.heads, share = Math.abs(row.mean ?? 0) / limit, strength = this.strength(share);
        const chosen = row.component === this.choice.component, text = describe(row);
        const shown = heads <= 12 && Math.abs(row.mean ?? 0) >= (this.relative ? 0.005 : limit / 20)
          ? (this.relative ? number(100 * row.mean, 0) : number(row.mean, touch && row.head < 0 ? 1 : 2)) : "";
        const button = h("button", {
          role: "gridcell", "data-key": `cell ${row.component}`, "data-name": row.component, tabindex: chosen ? 0 : -1,
          "aria-selected": chosen, "aria-label": text,
          class: [row.head < 0 && "ale-of-mlp", row.key && "ale-key", chosen && "ale-chosen", this.isOut(row.component) && "ale-held"].filter(Boolean).join(" "),
          style: `--share:${strength}%;--hue:var(--${row.mean < 0 ? "helps" : "hinders"})`,
          onclick: () => this.unfold(row.component), onfocus: () => line.replaceChildren(text), onmouseenter: () => line.replaceChildren(text),
        }, shown);
        cells.set(`${row.layer} ${columnOf(row)}`, button);
        return button;
      };
      const columnOf = row => row.head < 0 ? heads : row.head, columns = heads + 1;
      const byPlace = new Map(rows.map(row => [`${row.layer} ${columnOf(row)}`, row]));
      return [h("p", { class: "ale-across", "aria-hidden": true, style: `--columns:${columns}` }, "head"), h("div", { role: "grid", class: "ale-grid", "aria-label": `Effect of each head and MLP, ${this.choice.set}`,
        style: `--columns:${columns}`,
        onkeydown: event => this.move(event, cells) },
      h("div", { role: "row" }, h("span", { role: "columnheader", title: "rows: layers; columns: heads" }, "layer"),
        [...Array(heads).keys()].map(head => h("span", { role: "columnheader" }, heads <= 16 || head % 4 === 0 ? head : "")),
        h("span", { role: "columnheader", class: "ale-of-mlp" }, "MLP", h("small", {}, "own scale"))),
      [...Array(layers).keys()].reverse().map(layer => h("div", { role: "row" },
        h("span", { role: "rowheader" }, layer),
        [...Array(columns).keys()].map(column => {
          const row = byPlace.get(`${layer} ${column}`);
          return row ? cell(row) : h("span", { role: "gridcell" });
        }))))];
    }
    // The residual stream after each layer, at each token of one wording.
    drawStream() {
      const region = this.regions.stream, sides = this.each(set => ({ set, rows: this.rows("stream") })), [{ rows }] = sides;
      const missing = this.set.facts.missing?.stream;
      region.hidden = !rows.length && !this.backend && !missing;
      if (region.hidden) { region.replaceChildren(); return; }
      if (!rows.length) {
        region.replaceChildren(h("h2", {}, "Residual stream"), missing ? h("p", { class: "ale-soft" }, missing)
          : h("button", { "data-key": "stream", onclick: () => this.request({ kind: "stream" }) }, "Measure the stream"));
        return;
      }
      const limit = Math.max(...sides.flatMap(side => side.rows).map(row => Math.abs(row.mean ?? 0)), 1e-9), text = x => signed(percent(x), x);
      region.replaceChildren(this.heading("Residual stream", "stream", rows, this.quoted()),
        h("p", {}, "A row is a layer, a column a token: the whole stream after the layer is taken from the counterfactual there. ", h("b", { class: "ale-helps" }, "Red"),
          ": C's logit falls (in percent), so what the answer needs is in the stream at this token."),
        ...sides.map(({ set, rows: own }) => h("div", {}, sides.length > 1 ? h("h3", {}, capital(set)) : "", this.streamOf(own, limit, text))),
        h("p", { class: "ale-soft" }, `Exact, on all paths; means over ${counted(rows[0].n_pairs, "prompt")} of one wording.`), this.exportBar("residual stream"));
    }
    streamOf(rows, limit, text) {
      const layers = [...new Set(rows.map(row => row.layer))].reverse(), tokens = [...new Map(rows.map(row => [row.position, row])).values()].sort((a, b) => a.position - b.position);
      const at = new Map(rows.map(row => [`${row.layer} ${row.position}`, row])), end = tokens.length - 1;
      const name = token => token.position === end ? "END" : HUES[token.role] === "operand" ? this.roleName(token.role) : visible(token.token);
      return h("div", { role: "table", class: "ale-grid", "aria-label": "Effect of the residual stream by layer and token", style: `--columns:${tokens.length}` },
        h("div", { role: "row" }, h("span", { role: "columnheader" }, "layer"), tokens.map(token => h("span", { role: "columnheader", class: HUES[token.role] ? `ale-ink-${HUES[token.role]}` : "" }, name(token)))),
        layers.map(layer => h("div", { role: "row" }, h("span", { role: "rowheader" }, layer), tokens.map(token => {
          const row = at.get(`${layer} ${token.position}`), mean = row?.mean ?? 0, share = Math.abs(mean) / limit;
          return h("span", { role: "cell", class: "ale-cell", title: `After layer ${layer}, at ${name(token)}: ${text(mean)} (${text(row?.ci_low ?? mean)} to ${text(row?.ci_high ?? mean)})`,
            style: `--share:${this.strength(share)}%;--hue:var(--${mean < 0 ? "helps" : "hinders"})` }, Math.abs(mean) >= 0.005 ? number(100 * mean, 0) : "");
        }))));
    }
    mapControls() {
      const table = this.set.tables.effects.columns;
      const all = (column, names) => [...new Set([...table[column], ...this.backend ? Object.keys(names) : []])].map(name => [name, names[name] ?? name]);
      return h("div", { class: "ale-controls" }, this.select("Paths", "paths", all("paths", PATHS), this.choice.paths),
        this.select("Effect on", "metric", all("metric", metricNames(this.set.facts)), this.choice.metric));
    }
    move(event, cells) {
      const at = [...cells].find(([, button]) => button === event.target)?.[0].split(" ").map(Number);
      if (!at) return;
      const step = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      const next = step && cells.get(`${at[0] + step[0]} ${at[1] + step[1]}`);
      if (step) { event.preventDefault(); event.stopPropagation(); next?.focus(); }
      if (event.key === "b" && !this.onlyMap) this.toggle(event.target.dataset.name);
    }
  }
  return { EffectMap };
})();
