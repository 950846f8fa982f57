// The tables of one part of the model, as lists of bars: the drawer below its card.
const ArithLensCards = (() => {
  "use strict";
  const { h, number, percent, signed, visible, parts, named, isHead, isMlp, download } = ArithLensElements;
  const INPUTS = { q: "queries", k: "keys", v: "values", mlp: "input" };
  const ALL_OTHERS = "all others";
  // The meaning of each role's colour, as in all figures.
  const HUES = { "operand a": "operand", "operand b": "operand", operator: "operator", A: "operand", B: "operand", C: "answer" };
  const ONLY_MAP = "What a part looks at, reads and writes is on the explorer's page (arith-lens explore).";

  // What is drawn of the chosen part. The page itself is a subclass.
  class Cards {
    exported = {};
    // Why there are no cards at all; null if there are some, or if a click computes them.
    unknown() {
      const { facts, tables } = this.set, start = this.choice.set.split(",")[0];
      const name = [...this.sets.keys()].find(one => one.startsWith(start) && this.sets.get(one).tables.sets);
      if (this.backend || tables.sets || tables.attention || tables.digits || tables.inputs) return null;
      return facts.maps_only && name
        ? h("p", {}, `With this counterfactual only the map was computed. What each part does is measured with the prompts of “${name}”. `,
          h("button", { "data-key": "base", onclick: () => this.choose({ set: name }) }, `Show ${name}`))
        : h("p", { class: "ale-soft" }, ONLY_MAP);
    }
    card(title, table, rows, code, help, ...body) {
      const missing = this.set.facts.missing[table] ?? this.set.facts.missing[`mlp_${table}`];
      return h("section", { class: "ale-card" }, this.heading(title, code.key ?? table, rows, code, 3),
        help ? h("p", { class: "ale-soft" }, help) : "",
        rows.length ? body : h("p", { class: "ale-soft" }, missing
          ?? (this.backend ? "Not computed yet." : ONLY_MAP)));
    }
    // A title, whose table the export bar of its region offers.
    heading(title, key, rows, values, level = 2) {
      const region = level === 3 ? "detail" : title.toLowerCase();
      (this.exported[region] ??= new Map()).set(title, { key, rows, values });
      return h(`h${level}`, {}, title);
    }
    exportBar(region, ...more) {
      const titles = [...this.exported[region].keys()];
      const chosen = titles.includes(this.choice.exported) ? this.choice.exported : titles[0];
      const out = h("pre", { hidden: true, tabindex: 0 });
      const picked = () => this.exported[region].get(titles.length > 1 ? select.value : titles[0]);
      const copy = () => {
        const { key, values } = picked();
        const text = `${this.set.facts.setup ?? ""}\n${(this.code[key] ?? "").replace(/\{(\w+)\}/g,
          (all, name) => name in values ? values[name] : all)}`.trim();
        out.hidden = !out.hidden && out.textContent === text;
        out.textContent = text;
        navigator.clipboard?.writeText(text).catch(() => {});
      };
      const save = () => {
        const { key, rows } = picked(), names = Object.keys(rows[0] ?? {});
        const quote = value => `"${String(value ?? "").replace(/"/g, '""')}"`;
        const csv = [names, ...rows.map(row => names.map(name => row[name]))].map(row => row.map(quote).join(",")).join("\n");
        download(`${key}.csv`, "text/csv", csv);
      };
      const select = h("select", { "data-key": `table ${region}`, "aria-label": "Table",
        onchange: event => { this.choice.exported = event.target.value; out.hidden = true; } },
      titles.map(title => h("option", { value: title, selected: title === chosen }, title)));
      return h("div", { class: "ale-export" }, h("span", {}, "Numbers: "), titles.length > 1 ? select : "",
        h("button", { "data-key": `code ${region}`, onclick: copy }, "Copy as Python"),
        h("button", { "data-key": `csv ${region}`, onclick: save }, "CSV"), more, out);
    }
    quoted(more = {}) {
      const { component, paths, metric } = this.choice, { prompt } = this, { candidates = [] } = this.set.facts;
      const others = metric === "digit_contrast" && candidates.length ? `, candidates=${JSON.stringify(candidates)}` : "";
      const reference = this.rows("prompts", { prompt })[0]?.reference ?? "";
      return { component, candidates: JSON.stringify(candidates), layer: parts(component)[0], paths: JSON.stringify(paths), metric: JSON.stringify(metric) + others,
        rows: JSON.stringify(this.set.facts.rows ?? []), edge_rows: JSON.stringify(this.set.facts.edge_rows ?? []),
        stream_rows: JSON.stringify(this.set.facts.stream_rows ?? []), reference: JSON.stringify(reference), ...more };
    }
    // The ends of a scale that has room for 0, for all values and intervals, and for some more numbers.
    scale(rows, ...more) {
      const values = rows.flatMap(row => [row.value ?? row.mean, row.low ?? row.ci_low, row.high ?? row.ci_high]);
      const known = [0, ...values, ...more].filter(x => x !== null && x !== undefined && !Number.isNaN(x));
      return [Math.min(...known), Math.max(...known)];
    }
    // The scale of effects is the same for all heads, and the same for all MLPs.
    effectScale(rows, setting) {
      const all = this.rows("effects", setting).filter(row => (row.head < 0) === isMlp(this.choice.component));
      return this.scale(rows, ...this.scale(all.map(row => ({ value: row.mean }))));
    }
    // A list of bars. Its scale is written below, since bars of two lists may have two scales.
    bars(rows, { format, ends, axis = true }) {
      const [least, most] = ends ?? this.scale(rows);
      const span = most - least || 1, at = x => 100 * (x - least) / span;
      return h("table", { class: "ale-bars" }, h("tbody", {}, rows.map(row => {
        const [left, right] = [at(Math.min(0, row.value ?? 0)), at(Math.max(0, row.value ?? 0))];
        return h("tr", {}, h("th", { scope: "row" }, row.onclick
          ? h("button", { class: "ale-link", onclick: row.onclick }, row.label) : row.label),
        h("td", { class: "ale-track", "aria-hidden": true }, h("span", {},
          h("i", { class: row.hue ? `ale-${row.hue}` : row.value < 0 ? "ale-less" : "ale-more", style: `left:${left}%;width:${right - left}%` }),
          row.low === null || row.low === undefined ? "" : h("b", { style: `left:${at(row.low)}%;width:${at(row.high) - at(row.low)}%` }))),
        h("td", { class: "ale-number" }, format(row.value)));
      })), !axis || !rows.length ? null : h("tfoot", { "aria-hidden": true }, h("tr", {}, h("td"),
        h("td", {}, h("div", { class: "ale-axis" }, h("span", {}, format(least)), h("span", {}, format(most)))), h("td"))));
    }
    attentionCard() {
      const rows = this.rows("attention", { component: this.choice.component });
      return this.card("Where END looks", "attention", rows, this.quoted(),
        "Share of the attention of the last token (END), over all prompts.",
        this.bars(rows.map(row => ({ label: row.role, value: row.mean, low: row.ci_low, high: row.ci_high, hue: HUES[row.role] ?? "control" })),
          { format: x => percent(x, 0), ends: [0, 1] }));
    }
    patternCard() {
      const { component } = this.choice, { prompt } = this, rows = this.rows("patterns", { component, prompt }), tokens = this.rows("tokens", { prompt });
      const queries = new Set(rows.map(row => row.query)), end = tokens.length - 1;
      const query = queries.has(this.choice.query) ? this.choice.query : end;
      const weight = new Map(rows.filter(row => row.query === query).map(row => [row.key, row.weight]));
      return this.card("On one prompt", "patterns", rows, this.quoted(),
        queries.size > 1 ? "The stronger the colour, the more attention. Click a token to see where it looks." : "The stronger the colour, the more attention from END.",
        h("div", { class: "ale-tokens", role: "group", "aria-label": "Attention on each token" }, tokens.map(token => {
          const share = weight.get(token.position) ?? 0;
          return h("button", { "data-key": `token ${token.position}`, disabled: !queries.has(token.position),
            class: token.position === query ? "ale-chosen" : "",
            style: `--share:${Math.round(85 * share)}%;--hue:var(--${HUES[token.role] ?? "soft"})`,
            "aria-label": `${visible(token.token)}, ${token.role}: ${percent(share, 0)}`,
            onclick: () => this.choose({ query: token.position }) },
          h("span", {}, visible(token.token)), h("small", {}, share >= 0.005 ? percent(share, 0) : "·"),
          h("small", { class: "ale-role" }, token.role || "\u00a0"));
        })));
    }
    // Whether a digit of a prompt is A, B, or C.
    marks(digit, { problem, answer }) {
      const operands = problem.match(/\d+/g) ?? [];
      return [digit === operands[0] && "A", digit === operands[1] && "B", digit === answer.trim() && "C"].filter(Boolean).join(", ");
    }
    // Whether writes are shown as answers: where these and the operands are no digits.
    get inAnswers() { return this.rows("numbers").length > 0 && !this.rows("numbers", { token: "A" }).length; }
    get addedText() { return `What it adds to the logit of the answer, C, and to those of the other answers (direct logit attribution). ${this.few}`; }
    numbersCard(read, title) {
      const { component } = this.choice, roles = this.rows("numbers", { component, read });
      const code = this.inAnswers ? { key: "added" } : isMlp(component) ? { key: "mlp_numbers", read } : {};
      return this.card(title, "numbers", roles, this.quoted(code),
        this.inAnswers ? this.addedText : `Logit lens: the digits' logits if END's stream were this ${read === "mlp_in" ? "input" : "write"} alone, over all prompts. The final norm gives every write the same length, so only the differences within a list count.`,
        this.bars(roles.map(row => ({ label: row.token, value: row.mean, low: row.ci_low, high: row.ci_high, hue: HUES[row.token] ?? "control" })),
          { format: x => number(x, this.inAnswers ? 2 : 1) }));
    }
    jump(name) { return !isHead(name) && !isMlp(name) ? undefined : () => this.choose({ component: name }); }
    inputsCard() {
      const rows = this.rows("inputs", { component: this.choice.component });
      const ends = this.scale(rows, 1), format = x => percent(x, 0);
      const bar = row => ({ label: named(row.sender), value: row.mean, low: row.ci_low, high: row.ci_high,
        onclick: this.jump(row.sender), hue: row.sender === ALL_OTHERS || row.input === "" ? "control" : "share" });
      return this.card("Paths in", "inputs", rows, this.quoted(),
        "Who feeds it: one earlier part at a time gets its counterfactual output, and only this head's queries (or keys, or values) see it. The number is the share of the head's whole change that this makes. Grey: the sum of all other parts, and what no part explains alone. " + this.few,
        h("div", { class: "ale-three" }, ["q", "k", "v"].map(input => h("div", {}, h("h4", {}, INPUTS[input]),
          this.bars(rows.filter(row => row.input === input).map(bar), { format, ends })))),
        this.bars(rows.filter(row => row.input === "").map(row => ({ ...bar(row), label: "not explained by single parts" })), { format, ends }));
    }
    mediationCard() {
      const rows = this.rows("mediation", { component: this.choice.component });
      const first = rows[0] ?? {};
      const bar = (name, label, onclick) => row => ({ label: label ?? `MLP ${row.layer}`, value: row[name],
        low: row[`${name}_low`], high: row[`${name}_high`], onclick: onclick && this.jump(`MLP ${row.layer}`) });
      const lines = rows.length ? [bar("via_mlps", "via MLPs")(first), bar("direct", "direct")(first),
        ...rows.map(bar("mediated", undefined, true))] : [];
      return this.card("Paths out", "mediation", rows, this.quoted(),
        "Its effect on the logit in all and directly, and how much of it is lost when one MLP is frozen. " + this.few,
        this.bars(lines, { format: x => signed(percent(x), x), ends: this.effectScale(lines, { paths: "via_mlps", metric: "relative_logit" }) }));
    }
    neuronsCard() {
      const rows = this.rows("neurons", { component: this.choice.component });
      const best = row => [...Array(10).keys()].sort((a, b) => row[`cosine_${b}`] - row[`cosine_${a}`]);
      const digits = rows.some(row => row.cosine_0 !== undefined);
      const label = row => `${row.neuron}` + (digits
        ? ` (nearest ${best(row).slice(0, 2).join(" and ")}; farthest ${best(row).slice(-2).join(" and ")})` : "");
      return this.card("Its strongest neurons", "neurons", rows, this.quoted(),
        "Direct effect on the logit when the neuron has its activation of the counterfactual (red: the neuron helps C)"
        + (digits ? ", and the digits that its direction is nearest to and farthest from. " : ". ") + this.few,
        this.bars(rows.map(row => ({ label: label(row), value: row.mean,
          low: row.ci_low, high: row.ci_high })), { format: x => signed(percent(x, 2), x) }));
    }
    unitsCard(unit, title) {
      const rows = this.rows("units", { ...this.setting, component: this.choice.component, unit });
      const label = row => this.set.facts.wordings?.[row.name] ?? row.name;
      const list = this.bars(rows.map(row => ({ label: label(row), value: row.mean })),
        { format: x => this.effect(x), ends: this.effectScale(rows, this.setting) });
      return this.card(title, "units", rows, this.quoted(), "", rows.length > 12
        ? h("details", {}, h("summary", {}, `${rows.length}, from ${this.effect(Math.min(...rows.map(row => row.mean)))} to ${this.effect(Math.max(...rows.map(row => row.mean)))}`), list)
        : list);
    }
  }
  return { HUES, INPUTS, Cards };
})();
