// The cards of the explorer: what is shown of one head or one MLP, as lists of bars. Every text from
// data enters as a text node.
const ArithLensCards = (() => {
  "use strict";
  const PATHS = { via_mlps: "via MLPs (the paper's)", direct: "direct", total: "total" };
  const METRICS = {
    relative_logit: "logit of C, relative", logit: "logit of C", probability: "probability of C",
    logprob: "log-probability of C", digit_contrast: "C against other digits",
  };
  const KINDS = { knock_out: "Knock these out", keep_only: "Keep only these" };
  const LOOKS = { operand: "looks mainly at A and B: an operand head",
    operator: "looks mainly at the operator: an operator head",
    other: "looks mainly at neither operands nor operator" };

  const WORDS = [
    ["A, B, C", "The two operands, and the right answer. END is the last token of a prompt, after which C follows."],
    ["reference, counterfactual", "A prompt with its calculation, and the same prompt with something else in its place."],
    ["effect", "One part's output at END is taken from the counterfactual. The effect is how much the score of C then changes; “relative” divides it by C's logit."],
    ["via MLPs, direct, total", "What may react to the change: the residual stream and MLPs; the stream alone; everything."],
    ["key head", "A head whose mean relative effect is below −5% and differs from zero by more than chance. MLPs are never framed."],
    ["operand head, operator head", "At least half of END's attention to tokens other than BOS is on A and B together, or on the operator. “Neither” is every other head."],
    ["interval", "Thin lines and brackets are 95% intervals: they say what other problems of the same kind could give."],
    ["as many at random", "The control of a knockout: random sets of as many heads (and MLPs), treated in the same way. A set is special only if it does worse than these."],
    ["mean replacement", "Knocked out means that the output is replaced by its mean over counterfactual prompts. All other parts are computed as usual."],
  ];

  // Elements: h("button", { onclick, class: "x" }, "text", child)
  function h(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name.startsWith("on")) { if (value) element.addEventListener(name.slice(2), value); continue; }
      if (name.startsWith("aria-")) { element.setAttribute(name, String(value)); continue; }
      if (value === undefined || value === false || value === null) continue;
      element.setAttribute(name, value === true ? "" : String(value));
    }
    element.append(...children.flat().filter(child => child !== null && child !== undefined));
    return element;
  }
  const number = (x, digits = 2) => x === null || Number.isNaN(x) ? "–"
    : Number(x).toFixed(digits).replace(/^-(?=[0.]*$)/, "").replace("-", "−");
  const percent = (x, digits = 1) => x === null ? "–" : `${number(100 * x, digits)}%`;
  const signed = (text, x) => x > 0 ? `+${text}` : text;
  const visible = token => token.replace(/[▁Ġ]/g, "␣").replace(/^ | $/g, "␣").replace(/\n/g, "↵") || "∅";
  const parts = name => name.startsWith("MLP") ? [+name.slice(4), 1e6] : name.split(".").map(Number);
  const ordered = names => [...names].sort((a, b) => {
    const [x, y] = [parts(a), parts(b)];
    return x[0] - y[0] || x[1] - y[1];
  });
  const named = name => name.startsWith("MLP") || !name.includes(".") ? name : `head ${name}`;
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
      for (const name of new Set([...Object.keys(this.columns), ...Object.keys(other.columns)])) {
        const mine = this.columns[name] ?? Array(before).fill(null);
        this.columns[name] = mine.concat(other.columns[name] ?? Array(other.length).fill(null));
      }
    }
    rows(where = {}) {
      const conditions = Object.entries(where).map(([name, value]) => [this.columns[name], value]);
      const names = Object.keys(this.columns), found = [];
      for (let i = 0; i < this.length; i++) {
        if (conditions.every(([column, value]) => column[i] === value)) {
          found.push(Object.fromEntries(names.map(name => [name, this.columns[name][i]])));
        }
      }
      return found;
    }
  }
  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  const ALL_OTHERS = "all others";
  const ONLY_MAP = "This page was saved with the map alone. In Python, al.explore(model, pairs).save(path) computes every part; in a notebook, a click does.";

  // What is drawn of the chosen part. The page itself is a subclass.
  class Cards {
    exported = {};
    drawDetail() {
      const { component } = this.choice, region = this.regions.detail;
      if (!component) { region.replaceChildren(); return; }
      const of = this.rows("effects", { ...this.setting, component })[0];
      const kind = this.kinds[component];
      this.drawJump(of);
      const held = this.choice.basket.has(component);
      const isHead = !component.startsWith("MLP");
      region.replaceChildren(
        h("h2", { "aria-live": "polite" }, capital(named(component))),
        h("p", {}, of ? `${this.effect(of.mean)} on the ${METRICS[this.choice.metric] ?? this.choice.metric}`
          + (of.ci_low === null ? "" : ` (95% interval ${this.effect(of.ci_low)} to ${this.effect(of.ci_high)})`)
          + `, ${this.set.facts.n_pairs ?? "–"} prompts. ` : "", of?.key ? "A key head. " : "",
        kind ? `It ${LOOKS[kind]}.` : "", " ",
        h("button", { "data-key": "hold", "aria-pressed": held, onclick: () => this.toggle(component) },
          held ? "In the basket" : "Put into the basket")),
        h("button", { class: "ale-small ale-narrow", onclick: () => this.regions.map.scrollIntoView() }, "Back to the map"),
        this.unknown() ?? "",
        h("div", { class: "ale-cards" }, ...(this.unknown() ? [] : isHead ? [this.attentionCard(), this.patternCard(),
          this.numbersCard("write", "What it writes"), this.inputsCard(), this.mediationCard()]
          : [this.numbersCard("mlp_in", "What it reads"), this.numbersCard("write", "What it writes"),
            this.neuronsCard()]),
        this.rows("units", { unit: "template" }).length ? this.unitsCard("template", "Effect by wording") : "", this.unitsCard("problem", "Effect by problem")));
      region.insertBefore(this.exportBar("detail"), region.querySelector(".ale-cards"));
    }
    // On a narrow screen the cards are far below the map: a bar says what was chosen, and leads there.
    drawJump(of) {
      this.regions.jump.replaceChildren(h("span", {}, h("b", {}, capital(named(this.choice.component))),
        of ? `: ${this.effect(of.mean)}` : ""),
      h("button", { "data-key": "jump", onclick: () => this.regions.detail.scrollIntoView() }, "What it does"));
    }
    // Why there are no cards at all; null if there are some, or if a click computes them.
    unknown() {
      const { facts, tables } = this.set, name = this.choice.set.split(", ")[0];
      if (this.backend || tables.sets || tables.attention || tables.digits || tables.inputs) return null;
      return facts.maps_only && this.sets.has(name) && name !== this.choice.set
        ? h("p", {}, `With this counterfactual only the map was computed. What each part does is measured with the prompts of “${name}”. `,
          h("button", { "data-key": "base", onclick: () => this.choose({ set: name }) }, `Show ${name}`))
        : h("p", { class: "ale-soft" }, ONLY_MAP);
    }
    card(title, table, rows, code, help, ...body) {
      const missing = this.set.facts.missing[table] ?? this.set.facts.missing[`mlp_${table}`]
        ?? (table === "digits" ? this.set.facts.missing.numbers : undefined);
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
    exportBar(region) {
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
        h("a", { href: URL.createObjectURL(new Blob([csv], { type: "text/csv" })), download: `${key}.csv` }).click();
      };
      const select = h("select", { "data-key": `table ${region}`, "aria-label": "Table",
        onchange: event => { this.choice.exported = event.target.value; out.hidden = true; } },
      titles.map(title => h("option", { value: title, selected: title === chosen }, title)));
      return h("div", { class: "ale-export" }, h("span", {}, "Numbers: "), titles.length > 1 ? select : "",
        h("button", { "data-key": `code ${region}`, onclick: copy }, "Copy as Python"),
        h("button", { "data-key": `csv ${region}`, onclick: save }, "CSV"), out);
    }
    quoted(more = {}) {
      const { component, paths, metric, prompt } = this.choice;
      const reference = this.rows("prompts", { prompt })[0]?.reference ?? "";
      return { component, layer: parts(component)[0], paths: JSON.stringify(paths), metric: JSON.stringify(metric),
        rows: JSON.stringify(this.set.facts.rows ?? []), reference: JSON.stringify(reference), ...more };
    }
    // The ends of a scale that has room for 0, for all values and intervals, and for some more numbers.
    scale(rows, ...more) {
      const values = rows.flatMap(row => [row.value ?? row.mean, row.low ?? row.ci_low, row.high ?? row.ci_high]);
      const known = [0, ...values, ...more].filter(x => x !== null && x !== undefined && !Number.isNaN(x));
      return [Math.min(...known), Math.max(...known)];
    }
    // The scale of effects is the same for all heads, and the same for all MLPs.
    effectScale(rows, setting) {
      const isHead = !this.choice.component.startsWith("MLP");
      const all = this.rows("effects", setting).filter(row => (row.head >= 0) === isHead);
      return this.scale(rows, ...this.scale(all.map(row => ({ value: row.mean }))));
    }
    // A list of bars. Its scale is written below, since bars of two lists may have two scales.
    bars(rows, { format, ends, axis = true }) {
      const [least, most] = ends ?? this.scale(rows);
      const span = most - least || 1, at = x => 100 * (x - least) / span;
      return h("table", { class: "ale-bars" }, h("tbody", {}, rows.map(row => {
        const [left, right] = [at(Math.min(0, row.value ?? 0)), at(Math.max(0, row.value ?? 0))];
        return h("tr", {}, h("th", { scope: "row", class: row.class }, row.onclick
          ? h("button", { class: "ale-link", onclick: row.onclick }, row.label) : row.label),
        h("td", { class: "ale-track", "aria-hidden": true }, h("span", {},
          h("i", { class: row.rest ? "ale-rest" : row.value < 0 ? "ale-less" : "ale-more", style: `left:${left}%;width:${right - left}%` }),
          row.low === null || row.low === undefined ? "" : h("b", { style: `left:${at(row.low)}%;width:${at(row.high) - at(row.low)}%` }))),
        h("td", { class: "ale-number" }, format(row.value)));
      })), !axis || !rows.length ? null : h("tfoot", { "aria-hidden": true }, h("tr", {}, h("td"),
        h("td", {}, h("div", { class: "ale-axis" }, h("span", {}, format(least)), h("span", {}, format(most)))), h("td"))));
    }
    attentionCard() {
      const rows = this.rows("attention", { component: this.choice.component });
      return this.card("Where END looks", "attention", rows, this.quoted(),
        "Share of the attention of the last token (END), over all prompts.",
        this.bars(rows.map(row => ({ label: row.role, value: row.mean, low: row.ci_low, high: row.ci_high })),
          { format: x => percent(x, 0), ends: [0, 1] }));
    }
    patternCard() {
      const { component, prompt } = this.choice;
      const rows = this.rows("patterns", { component, prompt });
      const tokens = this.rows("tokens", { prompt });
      const queries = new Set(rows.map(row => row.query)), end = tokens.length - 1;
      const query = queries.has(this.choice.query) ? this.choice.query : end;
      const weight = new Map(rows.filter(row => row.query === query).map(row => [row.key, row.weight]));
      return this.card("On one prompt", "patterns", rows, this.quoted(),
        queries.size > 1 ? "The stronger the blue, the more attention. Click a token to see where it looks." : "The stronger the blue, the more attention from END.",
        h("div", { class: "ale-tokens", role: "group", "aria-label": "Attention on each token" }, tokens.map(token => {
          const share = weight.get(token.position) ?? 0;
          return h("button", { "data-key": `token ${token.position}`, disabled: !queries.has(token.position),
            class: token.position === query ? "ale-chosen" : "", style: `--share:${Math.round(85 * share)}%`,
            "aria-label": `${visible(token.token)}, ${token.role}: ${percent(share, 0)}`,
            onclick: () => this.choose({ query: token.position }) },
          h("span", {}, visible(token.token)), h("small", {}, share >= 0.005 ? percent(share, 0) : "·"),
          h("small", { class: "ale-role" }, token.role || "\u00a0"));
        })));
    }
    numbersCard(read, title) {
      const { component, prompt } = this.choice;
      const roles = this.rows("numbers", { component, read });
      const digits = this.rows("digits", { component, read, prompt });
      const of = this.rows("prompts", { prompt })[0] ?? { answer: "", problem: "" };
      const operands = (of.problem.match(/\d+/g) ?? []);
      const marks = digit => [digit === operands[0] && "A", digit === operands[1] && "B", digit === of.answer.trim() && "C"]
        .filter(Boolean).join(", ");
      const ends = this.scale([...roles, ...digits.map(row => ({ value: row.logit }))]);
      const best = digits.length ? Math.max(...digits.map(row => row.logit)) : 0;
      const code = component.startsWith("MLP") ? { key: "mlp_numbers", read } : {};
      return this.card(title, "numbers", roles, this.quoted(code),
        `Logit lens: the digits' logits if END's stream were this ${read === "mlp_in" ? "input" : "write"} alone, first over all prompts, then for one. The final norm gives every write the same length, so only the differences within a list count.`,
        this.bars(roles.map(row => ({ label: row.token, value: row.mean, low: row.ci_low, high: row.ci_high })),
          { format: x => number(x, 1), ends }),
        digits.length ? h("h4", {}, `On “${of.reference ?? ""}”`) : "",
        this.bars(digits.map(row => ({ label: `${row.digit}${marks(String(row.digit)) && ` = ${marks(String(row.digit))}`}`,
          value: row.logit, class: row.logit === best ? "ale-best" : "" })), { format: x => number(x, 1), ends }));
    }
    jump(name) { return !/^(MLP \d|\d+\.)/.test(name) ? undefined : () => this.choose({ component: name }); }
    inputsCard() {
      const rows = this.rows("inputs", { component: this.choice.component });
      const titles = { q: "queries", k: "keys", v: "values" };
      const ends = this.scale(rows, 1), format = x => percent(x, 0);
      const bar = row => ({ label: named(row.sender), value: row.mean, low: row.ci_low, high: row.ci_high,
        onclick: this.jump(row.sender), rest: row.sender === ALL_OTHERS || row.input === "" });
      return this.card("Paths in", "inputs", rows, this.quoted(),
        "Who feeds it: one earlier part at a time gets its counterfactual output, and only this head's queries (or keys, or values) see it. The number is the share of the head's whole change that this makes. Grey: the sum of all other parts, and what no part explains alone. " + this.few,
        h("div", { class: "ale-three" }, ["q", "k", "v"].map(input => h("div", {}, h("h4", {}, titles[input]),
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
  return { PATHS, METRICS, KINDS, WORDS, h, number, percent, signed, visible, ordered, named, capital, Table, unpack, Cards };
})();
