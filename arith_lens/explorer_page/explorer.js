// The explorer: linked pictures of a model's parts, drawn from tables. The widget of a notebook, the
// page and the report's tab use this file. Every text from data enters as a text node.
const ArithLensExplorer = (() => {
  "use strict";
  const { PATHS, METRICS, KINDS, WORDS, h, number, percent, signed, visible, ordered, named, capital, Table, unpack } =
    ArithLensCards;
  const { Graph } = ArithLensGraph;

  class Explorer extends Graph {
    constructor(element, options, backend) {
      super();
      this.options = options;
      this.backend = backend;
      this.sets = new Map();
      this.asked = new Set();
      this.choice = { basket: new Set(), kind: "knock_out", prompt: 0, query: null, pinned: new Set(), least: null, compare: null };
      this.status = h("div", { class: "ale-status", role: "status", "aria-live": "polite" });
      this.regions = Object.fromEntries(["controls", "graph", "map", "detail", "basket", "own", "jump"].map(
        name => [name, h("section", { class: `ale-${name}` })]));
      const { controls, graph, map, detail, basket, own, jump } = this.regions;
      this.root = h("div", { class: "ale" },
        options.style ? Object.assign(h("style"), { textContent: options.style }) : null,
        h("h1", {}, options.title), this.words(), controls, this.status,
        h("div", { class: "ale-columns" },
          h("div", { class: "ale-side" }, graph, map, basket, backend ? own : null), detail), jump);
      element.replaceChildren(this.root);
      this.theme();
    }
    words() {
      return h("details", { class: "ale-words" }, h("summary", {}, "What the words mean"),
        h("dl", {}, WORDS.flatMap(([word, meaning]) => [h("dt", {}, word), h("dd", {}, meaning)])));
    }
    theme() {
      const dark = matchMedia("(prefers-color-scheme: dark)");
      const set = () => {
        const lab = document.body.dataset.jpThemeLight;
        this.root.dataset.theme = this.options.theme
          || (lab !== undefined ? (lab === "false" ? "dark" : "light") : dark.matches ? "dark" : "light");
      };
      dark.addEventListener("change", set);
      new MutationObserver(set).observe(document.body, { attributeFilter: ["data-jp-theme-light"] });
      set();
    }
    add(data) {
      this.code ??= data.code;
      for (const { name, facts, tables } of data.sets) {
        const set = this.sets.get(name) ?? { facts: { missing: {} }, tables: {} };
        set.facts = { ...set.facts, ...facts,
          missing: { ...set.facts.missing, ...facts.missing } };
        for (const [table, columns] of Object.entries(tables)) {
          const more = new Table(columns);
          if (set.tables[table]) set.tables[table].append(more); else set.tables[table] = more;
        }
        this.sets.set(name, set);
      }
    }
    start(data) {
      this.add(data);
      this.choose({ set: [...this.sets.keys()][0], ...this.addressed() });
    }
    // What the page's address says: a choice can be sent as a link. A notebook has no such address.
    addressed() {
      if (this.backend || this.options.embedded) return {};
      const words = new URLSearchParams(location.hash.slice(1));
      const set = words.get("set"), part = words.get("part"), members = words.get("basket");
      if (!this.sets.has(set)) return {};
      const known = new Set(this.sets.get(set).tables.effects.columns.component);
      const basket = new Set((members ?? "").split(",").filter(name => known.has(name)));
      const least = words.has("least") ? Number(words.get("least")) : null;
      return { set, basket, least: Number.isFinite(least) ? least : null, ...(known.has(part) ? { component: part } : {}) };
    }
    address() {
      if (this.backend || this.options.embedded) return;
      const { set, component, basket, least } = this.choice;
      const words = new URLSearchParams({ set, part: component, ...(basket.size ? { basket: ordered(basket).join(",") } : {}),
        ...(least === null ? {} : { least }) });
      history.replaceState(null, "", `#${words}`);
    }
    get set() { return this.sets.get(this.choice.set); }
    rows(table, where = {}) { return this.set.tables[table]?.rows(where) ?? []; }
    get setting() { return { paths: this.choice.paths, metric: this.choice.metric }; }
    get few() {
      const n = this.set.facts.rows?.length, all = this.set.facts.n_pairs;
      return n === undefined || n >= all ? "" : `Over ${n} of ${all} prompts, so its numbers differ from those of the map.`;
    }
    get kinds() { return Object.fromEntries(this.rows("kinds").map(row => [row.component, row.kind])); }
    get relative() { return this.choice.metric === "relative_logit"; }
    effect(x) { return signed(this.relative ? percent(x) : number(x, 3), x); }

    // What is chosen, and what must be drawn or computed after it.
    choose(change) {
      const set = this.sets.get(change.set ?? this.choice.set);
      if (change.set !== undefined) {
        const first = set.tables.effects.rows()[0];
        const same = this.choice.paths && set.tables.effects.rows(this.setting).length;
        if (!same) Object.assign(this.choice, { paths: first.paths, metric: first.metric });
        Object.assign(this.choice, { prompt: 0, query: null, least: null, compare: null });
      }
      Object.assign(this.choice, change);
      if (change.set !== undefined && !this.backend) this.follow();
      if (this.backend && !this.rows("effects", this.setting).length) {
        this.request({ kind: "map", ...this.setting });
      }
      if (!this.choice.component) {
        const all = set.tables.effects.rows(this.setting);
        const best = all.filter(row => row.head >= 0 && row.mean !== null).sort((a, b) => a.mean - b.mean)[0];
        this.choice.component = (best ?? set.tables.effects.rows()[0]).component;
      }
      this.draw();
      this.compute();
    }
    // A saved page knows the sets of each operation's own heads: the basket follows the prompts.
    follow() {
      const strongest = this.set.facts.strongest ?? [];
      const names = this.choice.role ? this.ofRole(this.choice.role) : [...this.choice.basket];
      this.choice.basket = new Set(names.filter(name => strongest.includes(name)));
    }
    ofRole(role) {
      const { kinds } = this;
      return (this.set.facts.strongest ?? []).filter(name => kinds[name] === role);
    }
    compute() {
      const { component, set } = this.choice;
      const known = this.set.tables.digits?.columns.component.includes(component)
        || this.set.tables.inputs?.columns.component.includes(component);
      if (!this.backend || known || !component || this.asked.has(`${set}|${component}`)) return;
      this.asked.add(`${set}|${component}`);
      this.request({ kind: "component", component });
    }
    async request(message) {
      const task = this.backend.send({ set: this.choice.set, ...message }, done => {
        this.report(`Computing ${message.component ?? message.kind}`, done);
      });
      this.report(`Computing ${message.component ?? message.kind}`, 0);
      try {
        const data = await task;
        this.report("");
        this.add(data);
        const names = data.sets.map(one => one.name);
        if (message.kind === "prompt") this.choose({ set: names[0] }); else this.draw();
        if (message.kind === "map") this.compute();
      } catch (error) {
        const key = `${this.choice.set}|${message.component}`;
        this.asked.delete(key);
        this.report(error.message === "cancelled" ? "Cancelled." : "", undefined,
          error.message === "cancelled" ? "" : error.message);
      }
    }
    report(text, done, error) {
      const busy = done !== undefined && !error;
      this.status.replaceChildren(...[
        text && h("span", {}, text),
        busy && h("progress", { value: done, max: 1, "aria-label": text }),
        busy && h("button", { "data-key": "cancel", onclick: () => this.backend.cancel() }, "Cancel"),
        error && h("p", { class: "ale-error", role: "alert" }, error),
      ].filter(Boolean));
    }
    draw() {
      const focus = this.root.getRootNode().activeElement?.dataset?.key;
      this.exported = {};
      this.drawControls();
      this.drawGraph();
      this.drawMap();
      this.drawDetail();
      this.drawBasket();
      if (this.backend) this.drawOwn();
      this.address();
      if (focus) this.root.querySelector(`[data-key="${CSS.escape(focus)}"]`)?.focus();
    }

    select(label, key, options, value) {
      return h("label", {}, `${label} `, h("select", { "data-key": key, onchange: event =>
        this.choose({ [key]: key === "prompt" ? +event.target.value : event.target.value }) },
      options.map(([name, text]) => h("option", { value: name, selected: String(name) === String(value) }, text))));
    }
    drawControls() {
      const table = this.set.tables.effects.columns;
      const present = column => [...new Set(table[column])];
      const all = (column, names) => (this.backend ? [...new Set([...present(column), ...Object.keys(names)])]
        : present(column)).map(name => [name, names[name] ?? name]);
      const prompts = this.rows("prompts");
      this.regions.controls.replaceChildren(
        this.select("Prompts", "set", [...this.sets.keys()].map(name => [name, name]), this.choice.set),
        this.select("Paths", "paths", all("paths", PATHS), this.choice.paths),
        this.select("Effect on", "metric", all("metric", METRICS), this.choice.metric),
        prompts.length ? this.select("One prompt", "prompt",
          prompts.map(row => [row.prompt, row.reference]), this.choice.prompt) : "",
        this.set.facts.note ? h("p", { class: "ale-soft" }, this.set.facts.note) : "");
    }

    // The map
    drawMap() {
      const rows = this.rows("effects", this.setting), region = this.regions.map;
      if (!rows.length) {
        region.replaceChildren(h("h2", {}, "Map"), h("p", {}, this.backend
          ? "These effects are being computed." : "This page does not have these effects. Choose other paths or another score above."));
        return;
      }
      const heads = 1 + Math.max(...rows.map(row => row.head));
      const layers = 1 + Math.max(...rows.map(row => row.layer));
      const limit = Math.max(...rows.map(row => Math.abs(row.mean ?? 0))) || 1;
      const describe = row => `${capital(named(row.component))}: ${this.effect(row.mean)}`
        + (row.ci_low === null ? "" : ` (${this.effect(row.ci_low)} to ${this.effect(row.ci_high)})`)
        + (row.key ? ", key head" : "");
      const line = h("p", { class: "ale-line" }, "Point at a cell to read it; arrow keys move, Enter chooses, B puts it into the basket.");
      const cells = new Map();
      const cell = row => {
        const share = Math.abs(row.mean ?? 0) / limit, strength = Math.round(100 * Math.sqrt(share) * share ** 0.15);
        const chosen = row.component === this.choice.component;
        const text = heads <= 12 && Math.abs(row.mean ?? 0) >= (this.relative ? 0.005 : limit / 20)
          ? (this.relative ? number(100 * row.mean, 0) : number(row.mean, 1)) : "";
        const button = h("button", {
          role: "gridcell", "data-key": `cell ${row.component}`, tabindex: chosen ? 0 : -1,
          "aria-selected": chosen, "aria-label": describe(row),
          class: [row.key && "ale-key", chosen && "ale-chosen", strength > 60 && "ale-strong",
            this.choice.basket.has(row.component) && "ale-held"].filter(Boolean).join(" "),
          style: `--share:${strength}%;--hue:var(--${row.mean < 0 ? "negative" : "positive"})`,
          onclick: () => this.choose({ component: row.component }),
          onfocus: () => line.replaceChildren(describe(row)),
          onmouseenter: () => line.replaceChildren(describe(row)),
        }, text);
        cells.set(`${row.layer} ${row.head < 0 ? heads : row.head}`, button);
        return button;
      };
      const byPlace = new Map(rows.map(row => [`${row.layer} ${row.head}`, row]));
      const grid = h("div", { role: "grid", class: "ale-grid", "aria-label": "Effect of each head and MLP",
        style: `--columns:${heads + 1}`,
        onkeydown: event => this.move(event, cells) },
      h("div", { role: "row" }, h("span", { role: "columnheader", title: "rows: layers; columns: heads" }, "layer"),
        [...Array(heads).keys()].map(head => h("span", { role: "columnheader" }, heads <= 16 || head % 4 === 0 ? head : "")),
        h("span", { role: "columnheader" }, "MLP")),
      [...Array(layers).keys()].map(layer => h("div", { role: "row" },
        h("span", { role: "rowheader" }, layer),
        [...Array(heads).keys(), -1].map(head => {
          const row = byPlace.get(`${layer} ${head}`);
          return row ? cell(row) : h("span", { role: "gridcell" });
        }))));
      region.replaceChildren(
        this.heading("Map", "effects", rows, { ...this.quoted() }),
        h("p", {}, "One cell per attention head, one per MLP. ", h("b", { class: "ale-negative" }, "Red"),
          ": with this part's output taken from the counterfactual, the score of the right answer C falls",
          this.relative ? " (in percent). " : ". ", h("b", { class: "ale-positive" }, "Blue"),
          ": it rises. Rows are layers, columns heads. Framed: key head. Underlined: in the basket. ", this.example()),
        grid, line, this.ranking(rows), this.exportBar("map"));
    }
    example() {
      const row = this.rows("prompts", { prompt: this.choice.prompt })[0];
      return row ? h("span", { class: "ale-soft" }, `For example “${row.reference}” beside “${row.counterfactual}”.`) : "";
    }
    move(event, cells) {
      const at = [...cells].find(([, button]) => button === event.target)?.[0].split(" ").map(Number);
      if (!at) return;
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      const next = step && cells.get(`${at[0] + step[0]} ${at[1] + step[1]}`);
      if (next) { event.preventDefault(); next.focus(); }
      if (event.key === "b") this.toggle(event.target.dataset.key.slice(5));
    }
    ranking(rows) {
      const { kinds } = this;
      const top = rows.filter(row => row.head >= 0 && row.mean !== null)
        .sort((a, b) => a.mean - b.mean).slice(0, 10);
      return h("details", { open: true }, h("summary", {}, "The ten strongest heads"),
        h("ol", { class: "ale-ranking" }, top.map(row => h("li", {},
          h("button", { class: "ale-link", "data-key": `rank ${row.component}`,
            onclick: () => this.choose({ component: row.component }) }, named(row.component)),
          ` ${this.effect(row.mean)}`, kinds[row.component] ? `, ${kinds[row.component] === "other"
            ? "neither" : `${kinds[row.component]} head`}` : ""))));
    }

    // The basket
    toggle(component) {
      const { basket } = this.choice;
      this.choice.role = null;
      if (!basket.delete(component)) basket.add(component);
      this.draw();
      this.measure();
    }
    measure() {
      const { basket, kind } = this.choice, members = ordered(basket);
      if (!this.backend || this.result(kind)) return;
      this.request({ kind: "selection", selection: kind, members, baseline: !this.result("knock_out", []) });
    }
    result(kind, members = ordered(this.choice.basket)) {
      return this.rows("sets", { kind, members: members.join(",") })[0];
    }
    drawBasket() {
      const { basket, kind, prompt } = this.choice, facts = this.set.facts;
      const members = ordered(basket), region = this.regions.basket;
      if (!this.backend && !this.set.tables.sets) {
        region.replaceChildren(...this.unknown() ? [] : [h("h2", {}, "Basket"), h("p", { class: "ale-soft" },
          facts.missing.knock_out ?? "This page has no knockouts: it was saved with the map alone.")]);
        return;
      }
      const strongest = facts.strongest ?? [], foreign = members.filter(name => !strongest.includes(name));
      const before = this.result("knock_out", []), after = this.result(kind);
      const among = members.some(name => name.startsWith("MLP")) ? "all" : "heads";
      const chips = new Set([...strongest, ...members]);
      const { kinds } = this;
      const fill = (names, role = null) => () => { Object.assign(this.choice, { basket: new Set(names), role }); this.draw(); this.measure(); };
      const groups = ["operand", "operator"].map(role => [role, this.ofRole(role)]).filter(([, names]) => names.length);
      const these = members.length <= 4 ? members.map(named).join(", ") : `these ${members.length}`;
      const both = cell => members.length || kind === "keep_only" ? cell : null;
      const accuracy = row => row ? `${percent(row.accuracy, 0)}${row.ci_low === null ? "" : ` (${percent(row.ci_low, 0)} to ${percent(row.ci_high, 0)})`}` : "–";
      const answer = this.rows("prompts", { prompt })[0] ?? {};
      const random = members.length ? this.controls(kind, members) : [];
      const mean = column => random.reduce((sum, row) => sum + row[column], 0) / random.length;
      const drawn = random.map(row => row.accuracy);
      const control = text => random.length ? h("small", { "data-result": "control" },
        `${kind === "knock_out" ? "without" : "only"} as many at random: ${text}`) : "";
      region.replaceChildren(
        this.heading("Basket", kind, this.rows("sets", { kind, members: members.join(",") }),
          { members: JSON.stringify(members), among }),
        h("fieldset", {}, h("legend", {}, "What happens to these parts?"), Object.entries(KINDS).map(([name, text]) =>
          h("label", {}, h("input", { type: "radio", name: `kind${this.options.id ?? ""}`, "data-key": name, checked: name === kind,
            onchange: () => { this.choice.kind = name; this.draw(); this.measure(); } }), ` ${text}`))),
        h("div", { class: "ale-chips", role: "group", "aria-label": "Parts in the basket" }, [...chips].map(name =>
          h("button", { "aria-pressed": basket.has(name), "data-key": `chip ${name}`, onclick: () => this.toggle(name) }, named(name),
            kinds[name] && kinds[name] !== "other" ? h("small", {}, ` ${kinds[name]}`) : ""))),
        h("div", { class: "ale-chips", role: "group", "aria-label": "Fill the basket" }, h("span", { class: "ale-soft" }, "Take "),
          groups.map(([role, names]) => h("button", { class: "ale-small", "data-key": `take ${role}`, onclick: fill(names, role) }, `${role} heads`)),
          h("button", { class: "ale-small", "data-key": "all", onclick: fill(strongest) }, strongest.length === 10 ? "all ten" : `all ${strongest.length}`),
          h("button", { class: "ale-small", "data-key": "none", onclick: fill([]) }, "none")),
        h("p", { class: "ale-soft" }, kind === "knock_out"
          ? "Their output is replaced by its mean over counterfactual prompts, at every token but BOS. The map changes END alone, one part at a time: a strong effect there need not cost an answer here."
          : `All other ${among === "all" ? "heads and MLPs" : "heads"} are replaced by their means, at END alone${among === "all" ? "" : "; MLPs stay"}. This is not the opposite of knocking out, which acts at every token.`),
        !this.backend && foreign.length ? h("p", { class: "ale-error", role: "alert" },
          `This page knows all sets of the ten strongest heads, but not ${foreign.join(", ")}. In a notebook, al.explore(model, pairs) measures any set.`) : "",
        h("div", { "aria-live": "polite" }, after || before ? h("table", { class: "ale-result" },
          h("thead", {}, h("tr", {}, ["", "whole model", ...(members.length || kind === "keep_only" ? [kind === "knock_out" ? `without ${these}` : members.length ? `only ${these} kept` : "no head kept"] : [])].map(text => h("th", { scope: "col" }, text)))),
          h("tbody", {},
            h("tr", {}, h("th", { scope: "row" }, `right, of ${after?.n_pairs ?? before?.n_pairs} prompts (95% interval)`), h("td", {}, accuracy(before)),
              both(h("td", {}, h("span", { "data-result": "accuracy" }, accuracy(after)),
                control(`${percent(mean("accuracy"), 0)} (${drawn.length} draws: ${percent(Math.min(...drawn), 0)} to ${percent(Math.max(...drawn), 0)})`)))),
            h("tr", {}, h("th", { scope: "row" }, "mean p(C)"), h("td", {}, number(before?.probability ?? null)), both(h("td", {}, number(after?.probability ?? null), control(number(mean("probability")))))),
            h("tr", {}, h("th", { scope: "row" }, `next token after “${(answer.reference ?? "").trim()}”; C is ${visible(answer.answer ?? "")}`),
              h("td", {}, this.next("knock_out", [])), both(h("td", {}, this.next(kind, members)))))) : h("p", {}, this.backend
          ? "Choose parts: they are knocked out in the model at once." : "")),
        this.exportBar("basket"));
    }
    // The results of random sets of as many heads and MLPs, one row per draw.
    controls(kind, members) {
      const n_mlps = members.filter(name => name.startsWith("MLP")).length;
      const rows = this.rows("controls", { kind, n_mlps, n_heads: members.length - n_mlps });
      return [...new Map(rows.map(row => [row.draw, row])).values()];
    }
    next(kind, members) {
      const row = this.rows("answers", { kind, members: members.join(","), prompt: this.choice.prompt })[0];
      if (!row) return "–";
      const tokens = [1, 2, 3].filter(rank => row[`token_${rank}`] !== undefined);
      return h("div", { class: row.correct ? "ale-right" : "ale-wrong" }, this.bars(tokens.map(rank =>
        ({ label: visible(row[`token_${rank}`]), value: row[`probability_${rank}`] })), { format: x => percent(x, 0), ends: [0, 1], axis: false }),
      h("small", {}, `p(C) ${percent(row.probability, 0)}, ${row.correct ? "right" : "wrong"}`));
    }

    drawOwn() {
      if (this.regions.own.childNodes.length) return;
      const field = (name, label, placeholder) => h("label", {}, label,
        h("input", { name, placeholder, required: true, "data-key": `own ${name}`, autocomplete: "off" }));
      this.regions.own.replaceChildren(h("h2", {}, "Your own prompts"), h("form", {
        onsubmit: event => {
          event.preventDefault();
          this.request({ kind: "prompt", ...Object.fromEntries(new FormData(event.target)) });
        } },
      field("reference", "Reference", "3 plus 5 equals to "), field("counterfactual", "Counterfactual", "3 void 5 equals to "),
      field("answer", "Answer", "8"), h("button", { "data-key": "own run" }, "Patch"),
      h("p", { class: "ale-soft" }, "Both have the same number of tokens; the answer is the one token that follows the reference.")));
    }
  }

  async function mount(element, text, options = {}, backend = null) {
    const explorer = new Explorer(element, options, backend);
    try {
      explorer.start(await unpack(text));
    } catch (error) {
      explorer.report("", undefined, `The explorer cannot be drawn: ${error.message}`);
      throw error;
    }
    return explorer;
  }

  // The widget of a notebook: requests go to the kernel, one at a time; a new one cancels the last.
  function render({ model, el }) {
    let last = 0;
    const waiting = new Map();
    const backend = {
      send(message, progress) {
        backend.cancel();
        const id = ++last;
        return new Promise((resolve, reject) => {
          waiting.set(id, { resolve, reject, progress });
          model.send({ ...message, id });
        });
      },
      cancel() { if (waiting.has(last)) model.send({ cancel: last }); },
    };
    const receive = async message => {
      const task = waiting.get(message.id);
      if (!task) return;
      if (message.progress !== undefined) { task.progress(message.progress); return; }
      waiting.delete(message.id);
      if (message.state) task.resolve(await unpack(message.state));
      else task.reject(new Error(message.cancelled ? "cancelled" : message.error));
    };
    model.on("msg:custom", receive);
    const options = model.get("options");
    mount(el, model.get("state"), options, options.live ? backend : null);
    return () => model.off("msg:custom", receive);
  }
  return { mount, render };
})();
export default { render: ArithLensExplorer.render };
