// The circuit of the explorer: measured edges between parts, layers upwards, tokens across. Every text
// from data enters as a text node.
const ArithLensGraph = (() => {
  "use strict";
  const { h, percent, ordered, named, capital, visible, Cards } = ArithLensCards;
  const EMBEDDINGS = "embeddings", END = "END", TOP = "C";
  const INPUTS = { q: "queries", k: "keys", v: "values", mlp: "input" };
  const DASHES = { q: "2 4", k: "8 4" };
  const SHARE = 0.8;
  const SIZE = { row: 40, left: 44, node: 50, column: 100, stream: 92, top: 46, foot: 46, thick: 9 };

  function svg(tag, properties = {}, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== undefined && value !== null && value !== false) element.setAttribute(name, String(value));
    }
    element.append(...children.flat().filter(child => child !== null && child !== undefined && child !== ""));
    return element;
  }
  const size = row => Math.abs(row.mean ?? 0);
  const layerOf = name => name === EMBEDDINGS ? -1 : +(name.startsWith("MLP") ? name.slice(4) : name.split(".")[0]);
  const short = name => name === EMBEDDINGS ? "token" : name;
  const key = (name, role) => `${name}@${role}`;

  class Graph extends Cards {
    // The edges of the chosen prompts whose interval excludes 0, the largest first.
    edges(set = this.choice.set) {
      const rows = this.sets.get(set)?.tables.edges?.rows() ?? [];
      return rows.filter(row => row.metric === rows[0].metric && row.certain).sort((a, b) => size(b) - size(a));
    }
    // The least size with which the edges have 80% of the sizes of all.
    defaultLeast(rows) {
      const all = rows.reduce((sum, row) => sum + size(row), 0);
      let sum = 0;
      for (const row of rows) {
        sum += size(row);
        if (sum >= SHARE * all) return size(row);
      }
      return 0;
    }
    edgeName(row) {
      const at = row.role === END && row.sender !== EMBEDDINGS ? "" : ` at ${row.role}`;
      const sender = row.sender === EMBEDDINGS ? "the token" : named(row.sender);
      return `${capital(sender)}${at} → ${INPUTS[row.input] ?? row.input} of ${named(row.receiver)}`;
    }
    edgeText(row) {
      const interval = row.ci_low === null ? "" : ` (${this.graphEffect(row.ci_low)} to ${this.graphEffect(row.ci_high)})`;
      return `${this.edgeName(row)}: ${this.graphEffect(row.mean)}${interval}`;
    }
    graphEffect(x) {
      const relative = this.edges()[0]?.metric === "relative_logit";
      return relative ? this.signedPercent(x) : `${x > 0 ? "+" : ""}${x.toFixed(2).replace("-", "−")}`;
    }
    signedPercent(x) { return x > 0 ? `+${percent(x)}` : percent(x); }

    drawGraph() {
      const region = this.regions.graph, rows = this.edges();
      const missing = this.set.facts.missing?.edges;
      if (!rows.length) {
        region.replaceChildren(...this.backend || missing || this.rows("edges").length ? [h("h2", {}, "Circuit"), h("p", { class: "ale-soft" },
          missing ?? (this.rows("edges").length ? "No edge has an interval that excludes 0." : "No edges are measured yet.")),
        this.backend && !missing && !this.rows("edges").length ? h("button", { "data-key": "edges", onclick: () => this.request({ kind: "edges" }) }, "Measure the edges") : ""] : []);
        return;
      }
      const least = this.choice.least ?? this.defaultLeast(rows);
      const pinned = this.choice.pinned;
      const shown = rows.filter(row => size(row) >= least || pinned.has(row.receiver) || pinned.has(row.sender));
      const others = this.choice.compare ? new Set(this.edges(this.choice.compare)
        .filter(row => size(row) >= least).map(row => this.edgeName(row))) : null;
      const line = h("p", { class: "ale-line", "aria-live": "polite" }, this.edgeText(rows[0]));
      const names = [...this.sets.keys()].filter(name => name !== this.choice.set && this.edges(name).length);
      const slider = h("input", { type: "range", min: 0, max: rows.length - 1, "data-key": "least",
        value: Math.max(0, rows.length - 1 - rows.findLastIndex(row => size(row) >= least)), "aria-label": "Least effect of an edge",
        onchange: event => this.choose({ least: size(rows[rows.length - 1 - event.target.value]) }) });
      region.replaceChildren(
        this.heading("Circuit", "edges", shown, this.quoted({ receivers: JSON.stringify([...new Set(rows.map(row => row.receiver))]) })),
        h("p", {}, this.graphSentence(rows)),
        h("div", { class: "ale-graph-controls" },
          h("label", {}, `Edges of at least ${this.graphEffect(least).replace(/^[+−]/, "")} (${shown.length} of ${rows.length}) `, slider),
          names.length ? h("label", {}, "Compare with ", h("select", { "data-key": "compare",
            onchange: event => this.choose({ compare: event.target.value || null }) },
          ["", ...names].map(name => h("option", { value: name, selected: name === (this.choice.compare ?? "") }, name || "nothing")))) : "",
          h("button", { class: "ale-small", "data-key": "svg", onclick: () => this.saveGraph() }, "SVG")),
        this.picture(shown, others, line), line,
        h("p", { class: "ale-soft" }, "Edges whose interval holds 0 are left out. Each coloured line was measured: the sender's output is taken from the counterfactual, one input of the receiver reads it, "
          + "and the answer changes by this much. Grey lines: the effect of a part on C. ", h("b", { class: "ale-negative" }, "Red"), " helps the answer, ",
        h("b", { class: "ale-positive" }, "blue"), " hinders it. Solid: by values, or into an MLP; dashed: by keys; dotted: by queries. "
          + "Click a part to read it, P pins its edges, B or a double click puts it into the basket. ",
        others ? "Pale: also in the other prompts. " : "", this.few),
        h("details", {}, h("summary", {}, "The edges as a list"), h("ol", {}, shown.map(row => h("li", {}, this.edgeText(row))))),
        this.exportBar("circuit"));
    }
    graphSentence(rows) {
      const effects = this.rows("effects", { paths: "via_mlps", metric: rows[0].metric }).filter(row => row.head >= 0);
      const strongest = effects.sort((a, b) => a.mean - b.mean)[0];
      const into = strongest && rows.find(row => row.receiver === strongest.component);
      const first = strongest ? `The answer depends most on ${named(strongest.component)} (${this.graphEffect(strongest.mean)}). ` : "";
      const second = into ? `Its strongest input: ${this.edgeText(into)}. ` : "";
      return `${first}${second}${rows[0].measured} edges were measured.`;
    }
    roles(rows) {
      const places = new Map();
      for (const token of this.rows("tokens")) {
        const [sum, n] = places.get(token.role) ?? [0, 0];
        places.set(token.role, [sum + token.position, n + 1]);
      }
      const at = role => role === END ? 1e9 : places.has(role) ? places.get(role)[0] / places.get(role)[1] : +role || 0;
      return [...new Set([...rows.map(row => row.role), END])].sort((a, b) => at(a) - at(b));
    }
    // Where each node stands: its column is a role, its row a layer. Heads of one layer stand side by
    // side; END's MLPs stand to their right, on END's stream, below C.
    layout(rows) {
      const cells = new Map();
      const put = (name, role) => {
        const isMlp = name.startsWith("MLP"), level = 2 * layerOf(name) + (isMlp ? 1 : 0);
        const cell = `${role} ${level}`, onStream = role === END && isMlp;
        if (!onStream) cells.set(cell, (cells.get(cell) ?? new Set()).add(key(name, role)));
        return { name, role, level, cell, onStream };
      };
      const nodes = new Map();
      for (const row of rows) {
        nodes.set(key(row.sender, row.role), put(row.sender, row.role));
        nodes.set(key(row.receiver, END), put(row.receiver, END));
      }
      const levels = [...new Set([...nodes.values()].map(node => node.level))].sort((a, b) => a - b);
      const roles = this.roles(rows);
      const widest = role => Math.max(1, ...[...cells].filter(([cell]) => cell.slice(0, cell.lastIndexOf(" ")) === role).map(([, all]) => all.size));
      let x = SIZE.left;
      const columns = new Map();
      for (const role of roles) {
        const width = Math.max(SIZE.column, widest(role) * SIZE.node);
        columns.set(role, { left: x, width });
        x += width;
      }
      const stream = x + SIZE.stream / 2;
      const height = SIZE.top + SIZE.row * levels.length + SIZE.foot;
      for (const node of nodes.values()) {
        const members = ordered([...cells.get(node.cell) ?? []].map(one => one.slice(0, one.lastIndexOf("@"))));
        const { left, width } = columns.get(node.role);
        node.x = node.onStream ? stream : left + width * (members.indexOf(node.name) + 0.5) / members.length;
        node.y = height - SIZE.foot - SIZE.row * (levels.indexOf(node.level) + 0.5);
      }
      return { nodes, columns, stream, width: x + SIZE.stream, height };
    }
    picture(rows, others, line) {
      const { nodes, columns, stream, width, height } = this.layout(rows);
      const largest = Math.max(...this.edges().map(size)) || 1;
      const effects = new Map(this.rows("effects", { paths: "via_mlps", metric: rows[0]?.metric }).map(row => [row.component, row]));
      const limit = Math.max(...[...effects.values()].map(row => Math.abs(row.mean ?? 0))) || 1;
      const { component, pinned, basket } = this.choice;
      const say = text => () => line.replaceChildren(text);
      const lines = rows.map(row => {
        const [a, b] = [nodes.get(key(row.sender, row.role)), nodes.get(key(row.receiver, END))];
        const bend = Math.max(18, Math.abs(a.y - b.y) / 2), side = a.onStream && b.onStream ? 26 + Math.abs(a.y - b.y) / 4 : 0;
        const near = row.sender === component || row.receiver === component;
        const common = others?.has(this.edgeName(row));
        return svg("path", { d: `M${a.x},${a.y - 9} C${a.x + side},${a.y - 9 - bend} ${b.x + side},${b.y + 9 + bend} ${b.x},${b.y + 9}`,
          class: `ale-edge ${row.mean < 0 ? "ale-edge-helps" : "ale-edge-hinders"}`, fill: "none",
          "stroke-width": 0.8 + SIZE.thick * size(row) / largest, "stroke-dasharray": DASHES[row.input],
          "stroke-opacity": common ? 0.15 : near ? 0.95 : 0.4, "data-edge": this.edgeName(row),
          onmouseenter: say(this.edgeText(row)) }, svg("title", {}, this.edgeText(row)));
      });
      const boxes = [...nodes.values()].map(node => {
        const effect = node.role === END ? effects.get(node.name) : null, label = short(node.name);
        const wide = node.name === EMBEDDINGS ? 44 : node.name.startsWith("MLP") ? 56 : 38;
        const text = `${capital(node.name === EMBEDDINGS ? "token" : named(node.name))} at ${node.role}`
          + (effect ? `: ${this.graphEffect(effect.mean)}${effect.ci_low === null ? "" : ` (${this.graphEffect(effect.ci_low)} to ${this.graphEffect(effect.ci_high)})`}` : "");
        const share = effect ? Math.round(75 * Math.sqrt(Math.abs(effect.mean) / limit)) : 0;
        const choose = () => { if (node.name !== EMBEDDINGS) this.choose({ component: node.name }); };
        return svg("g", { class: ["ale-node", node.name === component && "ale-chosen", basket.has(node.name) && "ale-held",
            pinned.has(node.name) && "ale-pinned"].filter(Boolean).join(" "), transform: `translate(${node.x},${node.y})`, tabindex: 0,
          role: "button", "aria-label": text, "data-key": `node ${node.name}@${node.role}`, onclick: choose,
          onmouseenter: say(text), onfocus: say(text), ondblclick: () => node.name !== EMBEDDINGS && this.toggle(node.name),
          onkeydown: event => {
            if (event.key === "Enter") choose();
            else if (event.key === "p") this.pin(node.name);
            else if (event.key === "b" && node.name !== EMBEDDINGS) this.toggle(node.name);
          } },
        svg("rect", { x: -wide / 2, y: -10, width: wide, height: 20, rx: 4,
          style: `fill: color-mix(in oklab, var(--${effect && effect.mean > 0 ? "positive" : "negative"}) ${share}%, var(--back))` }),
        svg("text", { "text-anchor": "middle", y: 4 }, label), svg("title", {}, text));
      });
      const marks = [...columns].map(([role, { left, width: wide }]) =>
        svg("text", { class: "ale-role-name", x: left + wide / 2, y: height - 14, "text-anchor": "middle" }, this.roleName(role)));
      const levels = [...new Map([...nodes.values()].filter(node => node.level >= 0).map(node => [Math.floor(node.level / 2), node.y]))];
      const layers = levels.map(([layer, y]) => svg("text", { class: "ale-role-name", x: 4, y: y + 4 }, layer));
      const answer = svg("g", { class: "ale-node ale-answer", transform: `translate(${stream},${SIZE.top / 2})` },
        svg("rect", { x: -26, y: -11, width: 52, height: 22, rx: 11 }), svg("text", { "text-anchor": "middle", y: 4 }, TOP));
      const ways = [...nodes.values()].filter(node => node.role === END && effects.has(node.name)).map(node => svg("path", {
        class: "ale-way", fill: "none", d: `M${node.x},${node.y - 10} C${node.x},${node.y - 60} ${stream},${SIZE.top + 60} ${stream},${SIZE.top / 2 + 11}`,
        "stroke-width": 0.6 + SIZE.thick * Math.abs(effects.get(node.name).mean) / limit }));
      return svg("svg", { class: "ale-graph", viewBox: `0 0 ${width} ${height}`, width, height, role: "group",
        "aria-label": "The circuit: parts and measured edges" }, ways, lines, boxes, answer, marks,
      svg("text", { class: "ale-role-name", x: 4, y: 14 }, "layer"), layers);
    }
    roleName(role) {
      const token = role !== "" && Number.isInteger(+role) ? this.rows("tokens", { prompt: this.choice.prompt, position: +role })[0] : null;
      return token ? visible(token.token) : role;
    }
    pin(name) {
      const { pinned } = this.choice;
      if (!pinned.delete(name)) pinned.add(name);
      this.draw();
    }
    // The picture as a file, with the colours of the screen written into it.
    saveGraph() {
      const picture = this.regions.graph.querySelector("svg"), copy = picture.cloneNode(true);
      const from = [picture, ...picture.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
      from.forEach((element, index) => {
        const style = getComputedStyle(element);
        for (const name of ["fill", "stroke", "font-family", "font-size", "font-weight"]) to[index].style[name] = style[name];
        for (const name of ["tabindex", "role", "data-key", "class"]) to[index].removeAttribute(name);
      });
      const text = new XMLSerializer().serializeToString(copy);
      h("a", { href: URL.createObjectURL(new Blob([text], { type: "image/svg+xml" })), download: "circuit.svg" }).click();
    }
  }
  return { Graph };
})();
