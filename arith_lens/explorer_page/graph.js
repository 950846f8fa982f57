// The circuit: measured edges between parts, and where the heads of END look. Every text from data
// enters as a text node.
const ArithLensGraph = (() => {
  "use strict";
  const { h, svg, percent, named, capital, certain, counted, visible, isHead, isMlp } = ArithLensElements;
  const { HUES, INPUTS } = ArithLensCards;
  const { Card } = ArithLensCard;
  const { EMBEDDINGS, END, SIZE, key, layout } = ArithLensLayout;
  const { Routes } = ArithLensRoute;
  const TOP = "C", SHARE = 0.8, LOOK = 0.15, UNFOLDED = 8, THICK = 9, SINGLE = 700, NARROW = 460, WIDTH = [340, 900], DOUBLE_CLICK = 400;
  const SHORT = { operator: "op", other: "…" };
  const DASHES = { q: "2 4", k: "8 4" };
  const MAIN = { paths: "via_mlps", metric: "relative_logit" };
  const size = row => Math.abs(row.mean ?? 0);
  const edgeKey = row => [row.sender, row.role, row.input, row.receiver].join("|");

  class Graph extends Card {
    rowsOf(set, table, where = {}) { return this.sets.get(set)?.tables[table]?.rows(where) ?? []; }
    // The edges of a set of prompts whose interval excludes 0, the largest first: means, or those of one prompt.
    edges(set = this.choice.set, prompt = this.promptIn(set)) {
      let rows = this.rowsOf(set, "edges").filter((row, _, all) => row.metric === all[0].metric && row.certain);
      if (prompt !== null) {
        const values = new Map(this.rowsOf(set, "prompt_edges", { prompt }).map(row => [edgeKey(row), row.value]));
        if (values.size) rows = rows.map(row => ({ ...row, mean: values.get(edgeKey(row)) ?? 0, ci_low: null, ci_high: null }));
      }
      return [...new Map(rows.map(row => [edgeKey(row), row])).values()].sort((a, b) => size(b) - size(a));
    }
    // The effects of parts in the graph, by their name: means, or those of one prompt.
    graphEffects(set) {
      const rows = this.rowsOf(set, "effects", { ...MAIN, metric: this.rowsOf(set, "edges")[0]?.metric ?? MAIN.metric });
      const prompt = this.promptIn(set);
      const values = prompt === null ? null : new Map(this.rowsOf(set, "prompt_effects", { prompt }).map(row => [row.component, row.value]));
      return new Map(rows.map(row => [row.component, values?.has(row.component)
        ? { ...row, mean: values.get(row.component), ci_low: null, ci_high: null } : row]));
    }
    // Where END looks with a head: the share of each role, or of each token without a role.
    looks(component, set = this.choice.set) {
      const prompt = this.promptIn(set), means = this.rowsOf(set, "attention", { component });
      const rows = prompt !== null || !means.length ? this.rowsOf(set, "patterns", { component, prompt: prompt ?? this.as(set, () => this.prompt) }) : [];
      if (!rows.length) return new Map(means.map(row => [row.role, row.mean]));
      const tokens = this.rowsOf(set, "tokens", { prompt: rows[0].prompt }), end = tokens.length - 1, shares = new Map();
      const weights = new Map(rows.filter(row => row.query === end).map(row => [row.key, row.weight]));  // a notebook may have a row twice
      for (const [key, weight] of weights) {
        const role = this.tokenRole(tokens[key], end);
        shares.set(role, (shares.get(role) ?? 0) + weight);
      }
      return shares;
    }
    tokenRole(token, end) { return token.role || (token.position === end ? END : String(token.position)); }
    // How many of all prompts some rows are, such as those on which edges were measured.
    fewText(rows = this.set.facts.edge_rows ?? this.set.facts.rows) {
      const all = this.set.facts.n_pairs ?? "all", n = rows?.length ?? all;
      return n < all ? `${n} of ${all} prompts, each of another problem` : counted(n, "prompt");
    }
    // The least size with which the edges have 80% of the sizes of all.
    defaultLeast(rows) {
      const all = rows.reduce((sum, row) => sum + size(row), 0);
      let sum = 0;
      for (const row of rows) if ((sum += size(row)) >= SHARE * all) return size(row);
      return 0;
    }
    edgeName(row) {
      const at = row.role === END && row.sender !== EMBEDDINGS ? "" : ` at ${this.roleName(row.role)}`;
      return `${row.sender === EMBEDDINGS ? "Token" : capital(named(row.sender))}${at} → ${INPUTS[row.input] ?? row.input} of ${named(row.receiver)}`;
    }
    edgeText(row) { return `${this.edgeName(row)}: ${this.graphInterval(row)}`; }
    graphInterval(row) {
      return this.graphEffect(row.mean) + (row.ci_low === null || row.ci_low === undefined ? "" : ` (${this.graphEffect(row.ci_low)} to ${this.graphEffect(row.ci_high)})`);
    }
    graphEffect(x, digits = 1) {
      const relative = (this.set.tables.edges?.columns.metric?.[0] ?? MAIN.metric) === MAIN.metric;
      return `${x > 0 ? "+" : ""}${relative ? percent(x, digits) : x.toFixed(2).replace("-", "−")}`;
    }
    // The edges that are drawn: those of the least size, all of pinned parts, and of the unfolded part the strongest
    // others whose effect is not rounded to 0.
    shown(rows, least) {
      const { pinned, unfold } = this.choice, of = row => [row.receiver, row.sender];
      const drawn = row => size(row) >= least || of(row).some(name => pinned.has(name));
      const more = rows.filter(row => !drawn(row) && of(row).includes(unfold) && /[1-9]/.test(this.graphEffect(row.mean))).slice(0, UNFOLDED);
      return rows.filter(row => drawn(row) || more.includes(row));
    }
    drawGraph() {
      const region = this.regions.graph, rows = this.edges(), missing = this.set.facts.missing?.edges;
      region.classList.toggle("ale-empty", !rows.length && !this.backend && !missing && !this.rows("edges").length);
      if (!rows.length) {
        const known = this.rows("edges").length;
        region.replaceChildren(h("h2", {}, "Circuit"), h("p", { class: "ale-soft" },
          missing ?? (known ? "No edge has an interval that excludes 0." : "No edges are measured yet.")),
        this.backend && !missing && !known ? h("button", { "data-key": "edges", onclick: () => this.request({ kind: "edges" }) }, "Measure the edges") : "");
        return;
      }
      const least = this.choice.least ?? this.defaultLeast(rows), shown = this.shown(rows, least), { compare } = this.choice;
      const others = compare ? this.shown(this.edges(compare), least) : null;
      const { component } = this.choice, first = shown.find(row => row.sender === component || row.receiver === component);
      const line = h("p", { class: "ale-line", "aria-hidden": true }, first ? this.edgeText(first) : `${capital(named(component))} has no edge here.`);
      const frame = h("div", { class: "ale-graph-frame" }, this.pictures(shown, others, this.graphWidth(), line));
      region.replaceChildren(this.graphControls(rows, shown, least), this.legend(frame), ...others ? [h("p", {}, "Pale: an edge of both; strong: of one only.")] : [],
        frame, line, this.reading(),
        h("details", {}, h("summary", { "data-key": "in words" }, "The graph in words"), this.inWords(shown)), this.exportBar("circuit", ...this.fileButtons()));
    }
    graphWidth() { return Math.max(WIDTH[0], Math.min(WIDTH[1] * (this.choice.compare ? 1.4 : 1), this.regions.graph.clientWidth || 760)); }
    graphControls(rows, shown, least) {
      const slider = h("input", { type: "range", min: 0, max: rows.length - 1, "data-key": "least",
        value: Math.max(0, rows.length - 1 - rows.findLastIndex(row => size(row) >= least)), "aria-label": "Least effect of an edge",
        "aria-valuetext": `edges of at least ${percent(least)}`,
        onchange: event => this.choose({ least: size(rows[rows.length - 1 - event.target.value]) }) });
      return h("div", { class: "ale-graph-controls" },
        this.heading("Circuit", "edges", shown, this.quoted({ receivers: JSON.stringify([...new Set(rows.map(row => row.receiver))]) })),
        h("label", {}, `Edges that change C's logit by ${this.graphEffect(least).replace(/^[+−]/, "")} or more `, slider, h("span", { class: "ale-count" }, `${shown.length} of ${rows.length}`)));
    }
    fileButtons() {
      const button = (key, text, title, save) => h("button", { "data-key": key, title, onclick: save }, text);
      return [h("span", {}, "Picture: "), button("svg", "SVG, page", "As wide as a page: 6.9 in", () => this.saveSvg("page")),
        button("svg column", "SVG, column", "As wide as a column: 3.3 in", () => this.saveSvg("column")),
        button("neuronpedia", "Neuronpedia JSON", "An attribution graph in the JSON that Neuronpedia's viewer reads", () => this.saveGraph())];
    }
    // One picture, or two with the same places of parts, side by side where there is room.
    pictures(shown, others, width, line) {
      const { set, compare } = this.choice, views = [[set, shown], ...others ? [[compare, others]] : []];
      const beside = others && width >= SINGLE, each = beside ? width / 2 - 8 : width;
      // A part keeps its place, whatever a click or the prompt shows: rows are those of the first picture, or of
      // a slider that shows more.
      const nodes = new Map(), roles = new Set([END]);
      const take = (of, extra) => { for (const node of of) if (!nodes.has(key(node.name, node.role))) nodes.set(key(node.name, node.role), { ...node, extra }); };
      const all = views.map(([name]) => [name, this.edges(name, null)]);
      for (const [name, rows] of all) {
        const least = Math.min(this.defaultLeast(rows), this.choice.least ?? Infinity), first = rows.filter(row => size(row) >= least);
        take([...this.nodesOf(first), ...this.summaryNodes(name)], false);
        for (const role of [...this.rolesOf(name, first, each), ...(each < NARROW ? [] : rows).map(row => row.role)]) roles.add(role);
      }
      for (const [name, rows] of views) for (const role of this.rolesOf(name, rows, each)) roles.add(role);
      const drawn = new Set(views.flatMap(([name, rows]) => [...this.nodesOf(rows), ...this.heldNodes(name)]).map(node => key(node.name, node.role)));
      for (const [, rows] of all) take(this.nodesOf(rows), true);
      for (const [name] of views) take(this.heldNodes(name), true);
      for (const [name, node] of nodes) if (roles.has(node.role)) node.drawn = drawn.has(name); else nodes.delete(name);
      const at = layout([...nodes.values()], this.inOrder(roles), each);
      const common = others ? new Set(shown.map(edgeKey).filter(name => others.some(row => edgeKey(row) === name))) : null;
      const largest = Math.max(...views.flatMap(([, rows]) => rows.map(size)), 1e-9);
      return views.map(([name, rows]) => h("figure", { style: others ? `width:${beside ? "calc(50% - 4px)" : "100%"}` : "" },
        others ? h("figcaption", {}, h("b", {}, name)) : "", this.picture(name, rows, at, { common, largest, line })));
    }
    // Whether a part is knocked out: it is chosen, or it is none of the only ones that are kept.
    isOut(name) {
      const { basket, kind } = this.choice;
      if (kind === "knock_out") return basket.has(name);
      return !basket.has(name) && (isHead(name) || [...basket].some(isMlp));
    }
    // Chosen parts, and those that the summary names, stand in the picture, whether they have edges or not.
    heldNodes(set) {
      const known = this.graphEffects(set);
      return [...this.choice.basket, ...this.as(set, () => this.summaryParts())].filter(name => known.has(name)).map(name => ({ name, role: END }));
    }
    // The parts that the summary of all prompts names: they keep their places when a prompt is chosen.
    summaryNodes(set) {
      return this.when({ prompt: null }, () => this.as(set, () => this.summaryParts()).map(name => ({ name, role: END })));
    }
    nodesOf(rows) {
      return rows.flatMap(row => [{ name: row.sender, role: row.role }, { name: row.receiver, role: END }]);
    }
    // The columns: where senders write, and every role of tokens; without roles or room, where the heads of END look.
    rolesOf(set, rows, width) {
      const known = this.rowsOf(set, "attention").filter(row => row.mean !== null).map(row => row.role);
      if (known.length && width >= NARROW) return new Set([...rows.map(row => row.role), ...known]);
      const heads = new Set(this.nodesOf(rows).filter(node => node.role === END && isHead(node.name)).map(node => node.name));
      const looked = [...heads].flatMap(name => [...this.looks(name, set)].filter(([, share]) => share >= LOOK).map(([role]) => role));
      return new Set([...rows.map(row => row.role), ...looked]);
    }
    // Columns stand in the order of the chosen prompt, or of the first one.
    inOrder(roles) {
      const places = new Map();
      for (const token of this.rows("tokens", { prompt: this.prompt })) {
        const [sum, n] = places.get(token.role) ?? [0, 0];
        places.set(token.role, [sum + token.position, n + 1]);
      }
      const at = role => role === END ? 1e9 : places.has(role) && role ? places.get(role)[0] / places.get(role)[1] : +role || 0;
      return [...roles].sort((a, b) => at(a) - at(b));
    }
    picture(set, rows, at, { common, largest, line = h("p"), bare = false }) {
      const effects = this.graphEffects(set), kinds = new Map(this.rowsOf(set, "kinds").map(row => [row.component, row.kind]));
      const limit = Math.max(...[...effects.values()].map(row => Math.abs(row.mean ?? 0)), 1e-9);
      const nodes = [...new Map([...this.nodesOf(rows), ...this.heldNodes(set)].map(node => [key(node.name, node.role), node])).values()].filter(node => node.name !== EMBEDDINGS);
      const spots = new Map([...at.tokens].map(([role, box]) => [key(EMBEDDINGS, role), { ...box, h: SIZE.token }]));
      for (const { name, role } of nodes) spots.set(key(name, role), this.spot(at.places.get(key(name, role)), effects.get(name), limit));
      const routes = new Routes([...spots.values()], [SIZE.left, at.width - 2, SIZE.top / 2, at.height]);
      // Lines into a part reach it side by side, in the order of their senders.
      const startOf = row => (({ port, x }) => port ?? x)(spots.get(key(row.sender, row.role)));
      const slotOf = row => {
        const into = rows.filter(other => other.receiver === row.receiver).sort((a, b) => startOf(a) - startOf(b));
        return into.length > 1 ? 2 * into.indexOf(row) / (into.length - 1) - 1 : 0;
      };
      const say = text => () => line.replaceChildren(text), { component } = this.choice;
      const near = row => row.sender === component || row.receiver === component, dead = row => this.isOut(row.sender) || this.isOut(row.receiver);
      const rest = nodes.some(node => this.isOut(node.name)) ? 0.85 : 0.5;
      const drawn = [...rows].sort((a, b) => dead(b) - dead(a) || near(a) - near(b) || size(a) - size(b)).map(row => svg("path", {
        d: routes.line(spots.get(key(row.sender, row.role)), spots.get(key(row.receiver, END)), slotOf(row)), fill: "none",
        class: `ale-edge ale-edge-${dead(row) ? "dead" : row.mean < 0 ? "helps" : "hinders"}`, "stroke-dasharray": DASHES[row.input],
        "stroke-width": 0.8 + THICK * size(row) / largest, "data-edge": edgeKey(row),
        "stroke-opacity": dead(row) ? 0.3 : common ? common.has(edgeKey(row)) ? 0.18 : 0.85 : near(row) && !bare ? 0.95 : rest,
        onmouseenter: say(this.edgeText(row)) }, svg("title", {}, this.edgeText(row))));
      const looks = nodes.filter(node => node.role === END && node.name === component && isHead(component) && !this.isOut(component)).flatMap(node => this.lookLines(set, node, spots, routes, say));
      const boxes = nodes.map(node => this.nodeBox(node, spots.get(key(node.name, node.role)), { effect: effects.get(node.name), kind: kinds.get(node.name), limit, rows, set, say }));
      const tokens = [...at.tokens].map(([role, { x, y, w }]) => {
        const text = this.tokenName(role, set), tell = say(this.lookedAt(role, nodes, set));
        return svg("g", { class: `ale-token ale-token-${HUES[role] ?? "control"}`, transform: `translate(${x},${y})`, "data-role": role, onclick: tell, onmouseenter: tell },
          svg("rect", { x: -w / 2, y: -SIZE.token / 2, width: w, height: SIZE.token, rx: 3 }),
          svg("text", { "text-anchor": "middle", y: 4 }, this.fitting(text, w)), svg("title", {}, text));
      });
      const lines = at.layers.map(({ layer, y }) => [svg("line", { class: "ale-layer", x1: SIZE.left, x2: at.width - 8, y1: y, y2: y }),
        svg("text", { class: "ale-layer-name", x: 2, y: y + 4 }, layer)]);
      const stream = svg("line", { class: "ale-stream", x1: at.stream, x2: at.stream, y1: SIZE.top / 2, y2: at.height - SIZE.foot });
      const answer = svg("g", { class: "ale-answer", transform: `translate(${at.stream},${SIZE.top / 2})` },
        svg("rect", { x: -38, y: -12, width: 76, height: 24, rx: 5 }), svg("text", { "text-anchor": "middle", y: 4 }, this.answerName(set)));
      const picture = svg("svg", { class: "ale-graph", viewBox: `0 0 ${at.width} ${at.height}`, role: "group", "data-set": set,
        "aria-label": `The circuit of ${set}: ${nodes.length} parts, ${rows.length} measured edges. Arrow keys move between parts; the graph is in words below.` },
      lines, stream, looks, drawn, boxes, tokens, answer, svg("text", { class: "ale-layer-name", x: 2, y: 14 }, "layer"),
      svg("text", { class: "ale-layer-name", x: at.stream, y: at.height - SIZE.foot + 14, "text-anchor": "middle" }, "MLPs of END"));
      if (!bare) this.listen(picture);
      return picture;
    }
    fitting(text, width) {
      const fits = Math.max(2, Math.floor(width / 6.3));
      return text.length <= fits ? text : fits < 6 ? SHORT[text] ?? text.slice(0, fits) : `${text.slice(0, fits - 1)}…`;
    }
    // From the tokens up to the chosen head: what END looks at with it, as wide as the share.
    lookLines(set, node, spots, routes, say) {
      const b = spots.get(key(node.name, END)), tokenOf = role => spots.get(key(EMBEDDINGS, role));
      return [...this.looks(node.name, set)].filter(([role, share]) => share >= LOOK && tokenOf(role)).map(([role, share]) => {
        const text = `${capital(named(node.name))} looks at ${this.roleName(role)}: ${percent(share, 0)} of END's attention`;
        return svg("path", { d: routes.line(tokenOf(role), b), fill: "none", class: "ale-look", "stroke-width": 0.6 + 3 * share, onmouseenter: say(text) }, svg("title", {}, text));
      });
    }
    // Which heads of the picture look at a token, the most first.
    lookedAt(role, nodes, set) {
      const shares = nodes.filter(node => node.role === END && isHead(node.name)).map(({ name }) => [name, this.looks(name, set).get(role) ?? 0])
        .filter(([, share]) => share >= LOOK).sort((a, b) => b[1] - a[1]);
      return `END looks at ${this.roleName(role)} ${shares.length ? `with ${shares.map(([name, share]) => `${name} (${percent(share, 0)})`).join(", ")}` : "with none of these heads"}.`;
    }
    // Where a part stands: an MLP of END is as wide as its effect.
    spot(box, effect, limit) { return box.onStream ? { ...box, w: box.w + SIZE.wide * Math.min(1, Math.abs(effect?.mean ?? 0) / limit) } : box; }
    nodeBox(node, { x, y, w, h: tall }, { effect, kind, limit, rows, set, say }) {
      const { component, pinned } = this.choice;
      const isEnd = node.role === END, size = Math.min(1, Math.abs(effect?.mean ?? 0) / limit);
      const text = this.nodeText(node, rows, effect, set), out = this.isOut(node.name), open = isEnd && effect && !certain(effect);
      const share = isEnd && effect?.mean && !open && !out ? Math.round(65 * Math.sqrt(size)) : 0;
      const group = svg("g", { class: ["ale-node", node.name === component && "ale-chosen", out && "ale-held", open && "ale-open", pinned.has(node.name) && "ale-pinned"]
          .filter(Boolean).join(" "), transform: `translate(${x},${y})`, tabindex: -1, role: "button", "aria-label": text,
        "aria-pressed": node.name === component, "data-key": `node ${node.name}@${node.role}`, "data-name": node.name, "data-x": x, "data-y": y,
        style: `--hue: var(--${effect?.mean > 0 ? "hinders" : "helps"}); --share: ${share}%`, onmouseenter: say(text), onfocus: say(text) },
      svg("rect", { x: -w / 2, y: -tall / 2, width: w, height: tall, rx: 4 }),
      isEnd && kind && kind !== "other" ? svg("line", { class: `ale-kind-${kind}`, x1: 2 - w / 2, x2: w / 2 - 2, y1: tall / 2, y2: tall / 2 }) : "",
      isEnd && effect ? [svg("text", { class: "ale-name", "text-anchor": "middle", y: -1 }, node.name),
        svg("text", { class: "ale-value", "text-anchor": "middle", y: 11 }, this.graphEffect(effect.mean))]
        : [svg("text", { class: w < 40 ? "ale-value" : "ale-name", "text-anchor": "middle", y: -1 }, w < 40 ? node.name.replace("MLP ", "M") : node.name),
          svg("text", { class: "ale-value", "text-anchor": "middle", y: 11 }, this.fitting(`${w < 40 ? "" : "at "}${SHORT[node.role] ?? this.roleName(node.role)}`, w))],
      out ? svg("path", { class: "ale-strike", d: `M${w / 2 - 5},${-tall / 2 - 5}l10,10m0,-10l-10,10` }) : "", svg("title", {}, text));
      return group;
    }
    nodeText(node, rows, effect, set) {
      const value = effect && node.role === END ? `: ${this.graphInterval(effect)}` : "";
      const looks = isHead(node.name) && node.role === END ? [...this.looks(node.name, set)].filter(([, share]) => share >= LOOK).sort((a, b) => b[1] - a[1])
        .map(([role, share]) => `${this.roleName(role)} ${percent(share, 0)}`) : [];
      const n = rows.filter(row => row.receiver === node.name || row.sender === node.name).length;
      return `${capital(named(node.name))} at ${this.roleName(node.role)}${value}${looks.length ? `; looks at ${looks.join(", ")}` : ""}; ${counted(n, "edge")}`;
    }
    tokenName(role, set) {
      const prompt = this.promptIn(set);
      if (prompt === null || role === END) return this.roleName(role);
      const tokens = this.rowsOf(set, "tokens", { prompt }), end = tokens.length - 1;
      const text = tokens.filter(token => this.tokenRole(token, end) === role).map(token => visible(token.token)).join("").replaceAll("␣", " ").trim();
      return text || this.roleName(role);
    }
    answerName(set) {
      const prompt = this.promptIn(set), row = prompt === null ? null : this.rowsOf(set, "prompts", { prompt })[0];
      return row ? `C = ${visible(row.answer.trim())}` : `logit of ${TOP}`;
    }
    // A click unfolds, Shift and a click pins, two clicks knock out; keys do the same.
    listen(picture) {
      const nodes = () => [...picture.querySelectorAll(".ale-node")];
      const current = nodes().find(node => node.dataset.name === this.choice.component) ?? nodes()[0];
      current?.setAttribute("tabindex", 0);
      picture.addEventListener("click", event => {
        const { last } = this, now = event.timeStamp, { clientX: x, clientY: y } = event;
        const again = last && now - last.now < DOUBLE_CLICK && Math.hypot(x - last.x, y - last.y) < 8;
        const name = again ? last.name : event.target.closest(".ale-node")?.dataset.name;
        this.last = again || !name || event.shiftKey ? null : { name, now, x, y };
        if (!name) return;
        if (again) this.toggle(name); else if (event.shiftKey) this.pin(name); else this.unfold(name);
      });
      picture.addEventListener("keydown", event => {
        const node = event.target.closest(".ale-node"), name = node?.dataset.name;
        if (!name) return;
        if (event.key === "Enter" || event.key === " ") event.shiftKey ? this.pin(name) : this.unfold(name);
        else if (event.key === "p") this.pin(name);
        else if (event.key === "b" || event.key === "Delete") this.toggle(name);
        else if (event.key.startsWith("Arrow")) this.moveNode(nodes(), node, event.key)?.focus();
        else return;
        event.preventDefault();
        event.stopPropagation();
      });
    }
    unfold(name) {
      this.choose({ component: name, sheet: true });
      this.uncover();
    }
    // On a phone the sheet with the card must not cover the part that was chosen.
    uncover() {
      const sheet = this.regions.detail.getBoundingClientRect(), node = this.root.querySelector(".ale-node.ale-chosen")?.getBoundingClientRect();
      if (node?.height && sheet.left <= node.left && node.bottom > sheet.top) scrollBy(0, node.bottom - sheet.top + 20);
    }
    // The nearest part in the direction of an arrow key.
    moveNode(nodes, node, arrow) {
      const [dx, dy] = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[arrow];
      const ahead = nodes.filter(other => other !== node).map(other => {
        const [x, y] = [other.dataset.x - node.dataset.x, other.dataset.y - node.dataset.y];
        return { other, along: x * dx + y * dy, aside: Math.abs(x * dy) + Math.abs(y * dx) };
      }).filter(one => one.along > 1).sort((a, b) => a.along + 2 * a.aside - b.along - 2 * b.aside);
      for (const other of nodes) other.setAttribute("tabindex", other === (ahead[0]?.other ?? node) ? 0 : -1);
      return ahead[0]?.other;
    }
    pin(name) {
      const { pinned } = this.choice;
      if (!pinned.delete(name)) pinned.add(name);
      this.draw();
    }
    // What is drawn in the pictures, and no more.
    legend(frame) {
      const { component, kind } = this.choice, solid = ".ale-edge:not([stroke-dasharray])";
      const marks = [[".ale-edge-helps", "ale-less", "edge that helps C"], [".ale-edge-hinders", "ale-more", "edge that hinders C"],
        [solid, "ale-line-v", "read by values or an MLP"], [`.ale-edge[stroke-dasharray="${DASHES.k}"]`, "ale-line-k", "by keys"],
        [`.ale-edge[stroke-dasharray="${DASHES.q}"]`, "ale-line-q", "by queries"], [".ale-kind-operand", "ale-operand", "head that looks mainly at A and B"],
        [".ale-kind-operator", "ale-operator", "head that looks mainly at the operator"], [".ale-look", "ale-control", `where END looks with ${named(component)}`],
        [".ale-open:not(.ale-held)", "ale-hollow", "95% interval holds 0"], [".ale-held", "ale-gone", kind === "keep_only" ? "not kept" : "knocked out, with grey edges"]];
      return h("div", { class: "ale-legend" }, marks.filter(([selector]) => frame.querySelector(selector))
        .map(([, name, text]) => h("span", { class: "ale-mark" }, h("i", { class: name }), text)));
    }
    reading() {
      return h("div", { class: "ale-reading" },
        h("p", { class: "ale-soft ale-mouse" }, "Click: its edges and card. Shift-click: pin. Double click: knock out."),
        h("details", {}, h("summary", {}, "How it was measured"), h("p", {}, "The sender's output is taken from the counterfactual, one input of one receiver reads it, and the answer changes by this much. "
          + `Edges whose 95% interval holds 0 are left out; ${this.rows("edges")[0].measured} were measured, on ${this.fewText()}. `
          + "By chance alone, one interval in twenty excludes 0. "
          + "A box has the colour of its effect on C, or none if the 95% interval holds 0; an MLP of END is also as wide as its effect. "
          + `Attention is not an effect: a head may look at a token and ignore it (lines to tokens are drawn from ${percent(LOOK, 0)}). A token that is the same in both prompts has no edges.`)));
    }
    inWords(rows) {
      const receivers = [...new Set(rows.map(row => row.receiver))];
      return h("ul", {}, receivers.map(receiver => {
        const into = rows.filter(row => row.receiver === receiver), effects = this.graphEffects(this.choice.set);
        return h("li", {}, `${this.nodeText({ name: receiver, role: END }, into, effects.get(receiver), this.choice.set)}:`,
          h("ul", {}, into.map(row => h("li", {}, this.edgeText(row)))));
      }));
    }
  }
  return { Graph, MAIN, LOOK, edgeKey };
})();
