// The explorer: linked pictures of a model's parts, drawn from tables. The widget of a notebook, the
// page and the report's tab use this file. Every text from data enters as a text node.
const ArithLensExplorer = (() => {
  "use strict";
  const { h, ordered, capital, Table, unpack } = ArithLensElements;
  const { Summary } = ArithLensSummary;
  const MAP_TABLES = ["effects", "held", "units"];
  const TABS = { graph: "Circuit", map: "Map", basket: "Knocked out", short: "In short", own: "Own prompts" };
  const WORDS = [
    ["C, END", "The right answer, and the last token of a prompt, after which C follows."],
    ["reference, counterfactual", "A prompt whose answer is C, and the same prompt with something else in place of what decides C."],
    ["effect", "One part's output at END is taken from the counterfactual. The effect is how much the score of C then changes; “relative” divides it by C's logit."],
    ["via MLPs, direct, total", "What may react to the change: the residual stream and MLPs; the stream alone; everything."],
    ["key head", "A head whose mean relative effect is below −5% and differs from zero by more than chance. MLPs are never framed."],
    ["interval", "Thin lines and brackets are 95% intervals: they say what other problems of the same kind could give."],
    ["as many random heads", "The control of a knockout: ten random sets of as many heads (or MLPs), treated in the same way. A set is special only if it does worse than all of these."],
  ];

  // Of prompts whose operands are known.
  const ARITHMETIC = [["A, B", "The two operands."],
    ["operand head, operator head", "At least half of END's attention to tokens other than BOS is on A and B together, or on the operator."]];

  class Explorer extends Summary {
    constructor(element, options, backend) {
      super();
      this.options = options;
      this.backend = backend;
      this.sets = new Map();
      this.requested = new Set();
      this.choice = { basket: new Set(), kind: "knock_out", prompt: null, query: null, pinned: new Set(), least: null, compare: null,
        unfold: null, tab: "graph", sheet: false };
      this.status = h("div", { class: `ale-status${backend ? " ale-live" : ""}`, role: "status", "aria-live": "polite" });
      this.regions = Object.fromEntries(["controls", "short", "out", "tabs", "graph", "map", "stream", "detail", "basket", "own"].map(
        name => [name, h(name === "detail" ? "aside" : "section", { class: `ale-${name}`, id: `ale-${name}${options.id ?? ""}` })]));
      const { controls, short, out, tabs, graph, map, stream, detail, basket, own } = this.regions;
      this.title = h("h1", {}, options.title);
      this.task = h("p", { class: "ale-soft" });
      this.wordList = h("dl");
      graph.setAttribute("class", "ale-circuit");
      detail.setAttribute("aria-label", "The chosen part");
      this.root = h("div", { class: "ale", onkeydown: event => this.step(event) },
        options.style ? Object.assign(h("style"), { textContent: options.style }) : null,
        h("header", {}, this.title, this.task, this.words()), controls, this.status, tabs, out,
        h("div", { class: "ale-columns" }, h("div", { class: "ale-side" }, graph, stream, basket, backend ? own : null),
          h("div", { class: "ale-beside" }, map, detail)), short);
      element.replaceChildren(this.root);
      this.theme();
      this.watch();
    }
    // Another width of the picture, and the keys of a page whose focus is nowhere.
    watch() {
      let width = this.regions.graph.clientWidth;
      new ResizeObserver(() => {
        const now = this.regions.graph.clientWidth;
        if (this.choice.set && now && Math.abs(now - width) > 8) { width = now; this.draw(); }
      }).observe(this.root);
      if (this.options.page) {
        document.addEventListener("keydown", event => { if (event.target === document.body) this.step(event); });
        addEventListener("hashchange", () => this.choose({ ...this.addressed() }));
      }
    }
    // Left and right step through the prompts, where no part has the focus.
    step(event) {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || event.altKey || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
      event.preventDefault();
      this.stepPrompt(by);
    }
    stepPrompt(by) {
      const n = this.rows("prompts").length, place = (this.choice.prompt ?? -1) + 1 + by;
      const next = (place + n + 1) % (n + 1);
      if (n) this.choose({ prompt: next ? next - 1 : null });
    }
    words() {
      return h("details", { class: "ale-words" }, h("summary", {}, "What the words mean"), this.wordList);
    }
    explainWords() {
      const arithmetic = [...this.sets.values()].some(({ tables }) => tables.kinds?.length);
      const words = arithmetic ? [...ARITHMETIC, ...WORDS] : WORDS;
      this.wordList.replaceChildren(...words.flatMap(([word, meaning]) => [h("dt", {}, word), h("dd", {}, meaning)]));
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
      this.explainWords();
    }
    start(data) {
      this.add(data);
      const addressed = this.addressed();
      if (this.onlyMap) this.choice.tab = "map";
      this.choose({ set: [...this.sets.keys()][0], ...addressed });
    }
    // What the page's address says: a choice can be sent as a link. A notebook and a report have no such address.
    addressed() {
      if (!this.options.page) return {};
      const words = new URLSearchParams(location.hash.slice(1)), set = words.get("set");
      if (!this.sets.has(set)) return {};
      const { tables } = this.sets.get(set), known = new Set(tables.effects.columns.component);
      const names = key => new Set((words.get(key) ?? "").split(",").filter(name => known.has(name)));
      const value = key => words.has(key) && Number.isFinite(Number(words.get(key))) ? Number(words.get(key)) : null;
      const part = words.get("part"), compare = words.get("compare"), prompt = value("prompt");
      const setting = { paths: words.get("paths"), metric: words.get("metric") };
      return { set, basket: names("out"), pinned: names("pin"), least: value("least"),
        kind: words.get("kind") === "keep_only" ? "keep_only" : "knock_out",
        compare: this.sets.has(compare) && compare !== set ? compare : null,
        prompt: tables.prompts?.columns.prompt.includes(prompt) ? prompt : null,
        ...known.has(part) ? { component: part } : {}, ...known.has(words.get("unfold")) ? { unfold: words.get("unfold") } : { unfold: null },
        ...tables.effects.rows(setting).length ? setting : {} };
    }
    address() {
      if (!this.options.page) return;
      const { set, component, unfold, basket, pinned, least, kind, compare, prompt, paths, metric } = this.choice;
      const first = this.set.tables.effects.rows()[0];
      const words = { set, part: component, unfold, out: ordered(basket).join(","), pin: ordered(pinned).join(","), least, compare, prompt,
        kind: kind === "knock_out" ? null : kind, paths: paths === first.paths ? null : paths, metric: metric === first.metric ? null : metric };
      const written = Object.entries(words).filter(([, value]) => value !== null && value !== undefined && value !== "");
      history.replaceState(null, "", `#${new URLSearchParams(written)}`);
    }
    get set() { return this.sets.get(this.choice.set); }
    // Whether effects are all there is, and all there will be: then the page is the map and a card.
    get onlyMap() {
      return !this.backend && [...this.sets.values()].every(({ tables }) => Object.keys(tables).every(name => MAP_TABLES.includes(name)));
    }
    rows(table, where = {}) { return this.set.tables[table]?.rows(where) ?? []; }
    get setting() { return { paths: this.choice.paths, metric: this.choice.metric }; }
    get few() { return `Means over ${this.fewText(this.set.facts.rows)}.`; }
    // The sets of prompts that are shown: one, or two that are compared.
    get sides() { return [this.choice.set, this.choice.compare].filter(Boolean); }
    // The chosen prompt in a set: the other side of a comparison has it under a number of its own, or not at all.
    promptIn(set) {
      const { prompt } = this.choice;
      if (prompt === null || set === this.choice.set) return prompt;
      const { reference } = this.rows("prompts", { prompt })[0] ?? {};
      return this.rowsOf(set, "prompts", { reference })[0]?.prompt ?? null;
    }
    // What is drawn of a set, when that set and its prompt are chosen.
    as(set, draw) {
      const { choice } = this;
      return this.when({ set, compare: set === choice.compare ? choice.set : choice.compare, prompt: this.promptIn(set) }, draw);
    }
    when(change, draw) {
      const { choice } = this;
      this.choice = { ...choice, ...change };
      try { return draw(); } finally { this.choice = choice; }
    }
    // What is drawn of each side.
    each(draw) { return this.sides.map(set => this.as(set, () => draw(set))); }
    get allPrompts() { const { n_pairs: n } = this.set.facts; return n === 1 ? "the one prompt" : `all ${n ?? ""} prompts`; }
    // The prompts that the numbers are of.
    get over() {
      const { prompt } = this.choice, row = prompt === null ? null : this.rows("prompts", { prompt })[0];
      return row ? `on “${row.reference.trim()}”` : `mean over ${this.allPrompts}`;
    }
    // The prompt of the pictures that show one: the chosen one, or one of all sides whose A, B and C differ.
    get prompt() {
      const others = this.sides.slice(1).map(set => new Set(this.rowsOf(set, "prompts").map(row => row.reference)));
      const plain = ({ problem, answer }) => new Set([...problem.match(/\d+/g) ?? [], answer.trim()]).size > 2;
      const known = this.choice.prompt === null ? this.rows("prompts").filter(row => others.every(of => of.has(row.reference))) : [];
      return this.choice.prompt ?? (known.find(plain) ?? known[0] ?? this.rows("prompts").find(plain))?.prompt ?? 0;
    }
    get kinds() { return Object.fromEntries(this.rows("kinds").map(row => [row.component, row.kind])); }
    // What is chosen, and what must be drawn or computed after it.
    choose(change) {
      const set = this.sets.get(change.set ?? this.choice.set);
      if (change.set !== undefined) {
        const first = set.tables.effects.rows()[0];
        const same = this.choice.paths && set.tables.effects.rows(this.setting).length;
        if (!same) Object.assign(this.choice, { paths: first.paths, metric: first.metric });
        Object.assign(this.choice, { prompt: null, query: null, least: null, compare: set.facts.beside ?? null, unfold: null });
      }
      if (change.component !== undefined && change.unfold === undefined) this.choice.unfold = change.component;
      Object.assign(this.choice, change);
      if (!this.choice.component) {
        const all = set.tables.effects.rows(this.setting);
        const best = all.filter(row => row.head >= 0 && row.mean !== null).sort((a, b) => a.mean - b.mean)[0];
        this.choice.component = (best ?? set.tables.effects.rows()[0]).component;
      }
      this.draw();
      this.compute();
    }
    // In a notebook: what the pictures of each side lack is computed, one after the other.
    compute() {
      if (!this.backend) return;
      const keys = this.each(() => this.lacking()).flat().map(one => JSON.stringify(one));
      const next = keys.includes(this.running) ? null : keys.find(key => !this.requested.has(key));
      if (!next) return;
      this.requested.add(next);
      this.request(JSON.parse(next));
    }
    lacking() {
      const { component, set, basket, kind } = this.choice, members = ordered(basket), { tables } = this.set;
      const receivers = new Set(tables.edges?.columns.receiver ?? []);
      const known = ["digits", "inputs"].some(table => tables[table]?.columns.component.includes(component));
      return [this.rows("effects", this.setting).length ? null : { kind: "map", set, ...this.setting },
        !members.length || this.result(kind) ? null : { kind: "selection", set, selection: kind, members },
        known ? null : { kind: "component", set, component, edges: receivers.size > 0 && !receivers.has(component) }].filter(Boolean);
    }
    async request(message) {
      const key = this.running = JSON.stringify(message), text = `Computing ${message.component ?? message.kind}`;
      const task = this.backend.send({ set: this.choice.set, ...message }, done => { if (this.running === key) this.report(text, done); });
      this.report(text, 0);
      const ended = (...report) => { if (this.running === key) { this.running = null; this.report(...report); } };
      try {
        const data = await task;
        ended("");
        this.add(data);
        if (message.kind === "prompt") { this.choose({ set: data.sets[0].name }); return; }
        this.draw();
        this.compute();
      } catch (error) {
        const cancelled = error.message === "cancelled";
        if (cancelled) this.requested.delete(key);
        ended(cancelled ? "Cancelled." : "", undefined, cancelled ? "" : error.message);
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
      const active = this.root.getRootNode().activeElement, key = active?.dataset?.key, inside = this.root.contains(active);
      const alike = () => key ? [...this.root.querySelectorAll(`[data-key="${CSS.escape(key)}"]`)] : [], place = alike().indexOf(active);
      this.exported = {};
      Object.assign(this.root.dataset, { tab: this.choice.tab, kind: this.choice.kind });
      this.root.dataset.compare = Boolean(this.choice.compare);
      const { regions, onlyMap } = this;
      for (const name of ["short", "out", "tabs", "graph", "stream", "basket"]) if (onlyMap) regions[name].remove();
      this.root.classList.toggle("ale-only-map", onlyMap);
      this.drawTitle();
      this.drawControls();
      if (!onlyMap) {
        this.drawShort();
        this.drawOut();
        this.drawTabs();
        this.drawGraph();
      }
      this.drawMap();
      if (!onlyMap) this.drawStream();
      this.drawDetail();
      if (!onlyMap) this.drawBasket();
      if (this.backend) this.drawOwn();
      this.address();
      // The focus stays on what it was on; if that is gone, it goes to the card.
      if (inside) (alike()[place] ?? alike()[0] ?? this.regions.detail.querySelector("h2"))?.focus({ preventScroll: true });
    }
    // The model and the task, in the page's heading and in the title of its window.
    drawTitle() {
      const title = this.onlyMap && this.sets.size === 1 ? this.options.title : [this.options.title, this.sides.join(" beside ")].join(", ");
      this.title.replaceChildren(title);
      this.task.replaceChildren(...this.choice.compare ? [] : [h("div", { class: "ale-lead" }, this.lead()), h("div", {}, this.score())], ...this.each(set => {
        const row = this.rows("prompts", { prompt: this.prompt })[0], example = this.choice.prompt === null ? "Example: after" : "After";
        return row ? h("div", {}, `${this.choice.compare ? `${capital(set)}: after` : example} “${row.reference.trim()}”, the right answer C is ${row.answer.trim()}. The counterfactual is “${row.counterfactual.trim()}”.`) : "";
      }));
      if (this.options.page) document.title = title;
    }

    select(label, key, options, value) {
      const read = text => key !== "prompt" ? text || null : text === "" ? null : +text;
      if (options.length < 2) return h("span", {}, `${label}: ${options[0][1]}`);  // nothing to choose
      return h("label", {}, `${label} `, h("select", { "data-key": key, onchange: event => this.choose({ [key]: read(event.target.value) }) },
        options.map(([name, text]) => h("option", { value: name, selected: String(name) === String(value ?? "") }, text))));
    }
    drawControls() {
      const prompts = this.rows("prompts"), { set, compare, prompt } = this.choice, { n_pairs: n, note } = this.set.facts;
      const names = [...this.sets.keys()].filter(name => name !== set && this.edges(name).length);
      const step = (by, text, label) => h("button", { class: "ale-small", "data-key": `step ${by}`, "aria-label": label, onclick: () => this.stepPrompt(by) }, text);
      this.regions.controls.replaceChildren(
        this.sets.size === 1 ? "" : this.select("Task", "set", [...this.sets.keys()].map(name => [name, name]), set),
        names.length && this.edges().length ? this.select("Compare with", "compare", [["", "nothing"], ...names.map(name => [name, name])], compare) : "",
        prompts.length ? h("span", { class: "ale-step" }, this.select("Prompt", "prompt",
          [["", n === undefined ? "all" : `all ${n}`], ...prompts.map(row => [row.prompt, row.reference.trim()])], prompt),
        step(-1, "‹", "Previous prompt"), step(1, "›", "Next prompt")) : "",
        this.onlyMap ? "" : this.linkButton(),
        note ? h("p", { class: "ale-soft" }, note) : "");
    }
    linkButton() {
      return this.options.page ? h("button", { "data-key": "link", title: "A link to what is chosen now", onclick: event => this.copyLink(event.target) }, "Copy link") : "";
    }
    async copyLink(button) {
      try {
        await navigator.clipboard.writeText(location.href);
        button.textContent = "Copied";
      } catch { this.report("", undefined, `The link is in the address bar: ${location.href}`); }
    }
    // On a narrow screen one picture at a time, above the sheet with the card.
    drawTabs() {
      const tabs = Object.entries(TABS).filter(([name]) => name !== "own" || this.backend);
      const { tab } = this.choice, go = by => {
        const names = tabs.map(([name]) => name), next = names[(names.indexOf(this.choice.tab) + by + names.length) % names.length];
        this.choose({ tab: next, sheet: false });
        this.root.querySelector(`[data-key="tab ${next}"]`).focus();
      };
      this.regions.tabs.replaceChildren(h("div", { role: "tablist", "aria-label": "Pictures", onkeydown: event => {
        const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (by) { event.preventDefault(); event.stopPropagation(); go(by); }
      } }, tabs.map(([name, text]) => h("button", { role: "tab", "data-key": `tab ${name}`, "aria-selected": name === tab, tabindex: name === tab ? 0 : -1,
        "aria-controls": this.regions[name].id, onclick: () => this.choose({ tab: name, sheet: false }) }, name === "basket" ? this.outTitle : text))));
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
