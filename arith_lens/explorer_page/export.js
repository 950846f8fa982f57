// The circuit as files: SVG at the two widths of a paper, and an attribution graph for Neuronpedia.
const ArithLensExport = (() => {
  "use strict";
  const { h, svg, download, named, capital, isHead } = ArithLensElements;
  const { EMBEDDINGS, END, key, layerOf } = ArithLensLayout;
  const { Graph } = ArithLensGraph;
  // Inches of a paper, and units of the picture across them: its smallest text is 6 points at least.
  const WIDTHS = { page: { inches: 6.9, units: 780 }, column: { inches: 3.3, units: 390 } };
  const STYLES = ["fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray", "font-family", "font-size", "font-weight"];
  const TOP = "C", SCHEMA = 1;

  // A colour as other programs read it: they know rgb, and not the mixed colours of a browser.
  const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  function plain(value) {
    if (!/^(oklab|oklch|color)\(/.test(value)) return value;
    canvas.fillStyle = value;
    canvas.fillRect(0, 0, 1, 1);
    return `rgb(${[...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).join(", ")})`;
  }

  class Exports extends Graph {
    drawnEdges() { const rows = this.edges(); return this.shown(rows, this.choice.least ?? this.defaultLeast(rows)); }
    // The picture at a width of a paper, in the colours of the light theme, written into it. Two that are
    // compared stand side by side on a page, below one another in a column, each under its name.
    svgText(width) {
      const { inches, units } = WIDTHS[width], { theme } = this.root.dataset;
      const others = this.choice.compare ? this.shown(this.edges(this.choice.compare), this.choice.least ?? this.defaultLeast(this.edges())) : null;
      const frame = h("div", {}, this.pictures(this.drawnEdges(), others, units, h("p")));
      this.root.append(frame);
      for (const node of frame.querySelectorAll(".ale-chosen")) node.classList.remove("ale-chosen");
      this.root.dataset.theme = "light";
      const pictures = [...frame.querySelectorAll("svg")], gap = 16, head = others ? 22 : 0, stacked = others && width === "column";
      const sizes = pictures.map(picture => picture.viewBox.baseVal), sum = (to, side) => sizes.slice(0, to).reduce((all, one) => all + one[side] + gap, 0);
      const corners = sizes.map((_, place) => stacked ? { x: 0, y: sum(place, "height") + (place + 1) * head } : { x: sum(place, "width"), y: head });
      const titles = !others ? [] : corners.map(({ x, y }, place) => svg("text", { x: x + 2, y: y - 6, "font-family": "Arial, sans-serif",
        style: "font-size: 14px; font-weight: 600; fill: #1f2430" }, this.sides[place]));
      const copies = pictures.map((picture, place) => {
        const copy = picture.cloneNode(true), to = [copy, ...copy.querySelectorAll("*")];
        [picture, ...picture.querySelectorAll("*")].forEach((element, index) => {
          const style = getComputedStyle(element);
          for (const name of STYLES) to[index].style[name] = plain(style[name]);
          for (const name of ["tabindex", "role", "data-key", "data-name", "data-x", "data-y", "class", "aria-label", "aria-pressed"]) to[index].removeAttribute(name);
        });
        copy.setAttribute("width", sizes[place].width);
        copy.setAttribute("height", sizes[place].height);
        copy.setAttribute("x", corners[place].x);
        copy.setAttribute("y", corners[place].y);
        return copy;
      });
      this.root.dataset.theme = theme;
      frame.remove();
      const [w, tall] = ["x", "y"].map(side => Math.max(...corners.map((corner, place) => corner[side] + sizes[place][side === "x" ? "width" : "height"])));
      const whole = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      whole.setAttribute("viewBox", `0 0 ${w} ${tall}`);
      whole.setAttribute("width", `${inches}in`);
      whole.setAttribute("height", `${(inches * tall / w).toFixed(3)}in`);
      whole.append(...titles, ...copies);
      return new XMLSerializer().serializeToString(whole);
    }
    saveSvg(width) { download(`circuit-${width}.svg`, "image/svg+xml", this.svgText(width)); }

    // The graph that is drawn, as Neuronpedia's viewer reads it: one node per part and token. The viewer tells the parts
    // of a layer apart by their `feature`, and it opens no file whose logit has no "(p=" in its name.
    attributionGraph() {
      const rows = this.drawnEdges(), { set, pinned, component } = this.choice, effects = this.graphEffects(set);
      const ends = [...new Map(this.nodesOf(rows).map(node => [key(node.name, node.role), node])).values()];
      const columns = this.inOrder(new Set([...ends.map(node => node.role), END])), top = key(TOP, END);
      const [layers, heads] = ["layer", "head"].map(of => 1 + Math.max(...[...effects.values()].map(row => row[of])));
      const { prompt } = this.choice, whole = { kind: "knock_out", members: "" };
      const { probability } = (prompt === null ? this.rows("sets", whole) : this.rows("answers", { ...whole, prompt }))[0] ?? {};
      const reads = ends.filter(node => node.role === END && rows.some(row => row.receiver === node.name));
      const node = ({ name, role }) => ({
        node_id: key(name, role), feature: isHead(name) ? +name.split(".")[1] : name === EMBEDDINGS ? 0 : heads, layer: name === EMBEDDINGS ? "E" : name === TOP ? String(layers) : String(layerOf(name)),
        ctx_idx: columns.indexOf(role), feature_type: name === EMBEDDINGS ? "embedding" : name === TOP ? "logit" : "cross layer transcoder",
        token_prob: name === TOP ? probability ?? 0 : 0, is_target_logit: name === TOP, run_idx: 0, reverse_ctx_idx: 0, jsNodeId: key(name, role),
        clerp: name === EMBEDDINGS ? this.roleName(role) : name === TOP ? `Output "${TOP}" (p=${probability?.toFixed(3) ?? "unknown"})` : `${capital(named(name))} at ${this.roleName(role)}`,
        influence: role === END && effects.has(name) ? Math.abs(effects.get(name).mean) : null, activation: null,
      });
      return {
        metadata: { slug: "circuit", scan: "circuit", transcoder_list: [], prompt_tokens: columns.map(role => this.tokenName(role, set)),
          prompt: `${set}: ${rows.length} measured edges`, schema_version: SCHEMA },
        qParams: { linkType: "both", pinnedIds: ends.filter(one => pinned.has(one.name)).map(one => key(one.name, one.role)),
          clickedId: ends.some(one => one.name === component && one.role === END) ? key(component, END) : "", supernodes: [], sg_pos: "" },
        nodes: [...ends.map(node), node({ name: TOP, role: END })],
        links: [...rows.map(row => ({ source: key(row.sender, row.role), target: key(row.receiver, END), weight: row.mean })),
          ...reads.filter(one => effects.has(one.name)).map(one => ({ source: key(one.name, END), target: top, weight: effects.get(one.name).mean }))],
      };
    }
    saveGraph() { download("circuit.json", "application/json", JSON.stringify(this.attributionGraph(), null, 1)); }
  }
  return { Exports };
})();
