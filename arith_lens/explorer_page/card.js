// The card of the chosen part: its effect with a dot per problem, what it reads, writes and is fed by.
// All tables of the part are in a drawer below.
const ArithLensCard = (() => {
  "use strict";
  const { metricNames, h, svg, number, percent, signed, visible, named, capital, certain, isMlp, circuitsVis } = ArithLensElements;
  const { HUES, INPUTS, Cards } = ArithLensCards;
  const KIND = { operand: "operand head", operator: "operator head", other: "head" };
  const LEAST_SHARE = 0.05, MOST_PATTERNS = 64;
  const STRIP = { width: 400, height: 46, edge: 8 };

  class Card extends Cards {
    drawDetail() {
      const { component } = this.choice, region = this.regions.detail;
      if (!component) { region.replaceChildren(); return; }
      const of = this.rows("effects", { ...this.setting, component })[0];
      const unknown = this.unknown(), open = Boolean(this.choice.sheet);
      const toggle = h("button", { class: "ale-small ale-narrow", "data-key": "sheet", "aria-expanded": open,
        onclick: () => this.choose({ sheet: !open }) }, open ? "Close" : "Read");
      const kind = isMlp(component) ? "" : KIND[this.kinds[component]] ?? "";
      region.dataset.open = open;
      region.replaceChildren(
        h("div", { class: "ale-card-head" },
          h("h2", { tabindex: -1, "aria-live": "polite" }, capital(named(component))),
          kind ? h("span", { class: `ale-chip ale-ink-${this.kinds[component]}` }, kind) : "", of?.key ? h("span", { class: "ale-chip" }, "key") : "",
          h("span", { class: "ale-narrow ale-peek" }, of ? this.effect(this.single(component) ?? of.mean) : ""), toggle),
        h("div", { class: "ale-card-body" },
          this.actions(component), ...this.each(() => this.effectRow(component)), this.onlyMap ? this.ranking() : "", unknown ?? "",
          ...unknown ? [] : (isMlp(component) ? [() => this.valuesRow("mlp_in", "Reads"), () => this.valuesRow("write", "Writes"), () => this.neuronsRow()]
            : [() => this.looksRow(), () => this.valuesRow("write", "Writes"), () => this.fedRow(), () => this.onwardRow()]).flatMap(draw => this.each(draw)),
          unknown ? "" : this.drawer(component)));
    }
    // Beside a map alone: the strongest parts, the heads on a scale of their own.
    ranking() {
      const rows = this.rows("effects", this.setting).filter(row => row.mean !== null).sort((a, b) => Math.abs(b.mean) - Math.abs(a.mean));
      const bar = row => ({ label: row.component, value: row.mean, low: row.ci_low, high: row.ci_high, onclick: this.jump(row.component) });
      return [["Heads", row => row.head >= 0, 8], ["MLPs", row => row.head < 0, 5]].map(([title, is, n]) => [title, rows.filter(is).slice(0, n)])
        .map(([title, of]) => of.length ? this.row(title, h("p", { class: "ale-soft" }, `The ${of.length} strongest of ${rows.filter(row => row.head < 0 === of[0].head < 0).length}, with 95% intervals`),
          this.bars(of.map(bar), { format: x => this.effect(x) })) : "");
    }
    actions(component) {
      const out = this.choice.basket.has(component), pinned = this.choice.pinned.has(component);
      return h("div", { class: "ale-chips" }, !this.backend && !this.set.tables.sets ? "" :
        h("button", { "data-key": "hold", "aria-pressed": out, onclick: () => this.toggle(component) }, (this.choice.kind === "keep_only" ? ["Keep", "Kept"] : ["Knock out", "Knocked out"])[+out]),
        this.onlyMap ? "" : h("button", { "data-key": "pin", "aria-pressed": pinned, title: "Draw all its edges, whatever else is chosen",
          onclick: () => this.pin(component) }, pinned ? "Pinned" : "Pin its edges"));
    }
    // A row of the card; of two sets that are compared, one below the other.
    row(title, ...body) {
      return h("div", { class: "ale-row" }, h("h3", {}, title, this.choice.compare ? h("small", {}, ` ${this.choice.set}`) : ""), h("div", {}, body));
    }
    effectRow(component) {
      const of = this.rows("effects", { ...this.setting, component })[0];
      if (!of) return "";
      const single = this.single(component);
      const where = ` on ${metricNames(this.set.facts)[this.choice.metric] ?? this.choice.metric}`.replace(/^ on (?!C)/, "$&the ");
      const held = this.rows("held", { ...this.setting, component })[0];
      const split = held && held.mean !== null && isMlp(component);
      return this.row("Effect",
        h("p", {}, h("b", {}, single === null ? this.effectInterval(of) : this.effect(single)),
          single === null ? where : `${where}, on this prompt; over all ${this.effectInterval(of)}`),
        this.strip(component, of),
        split ? h("details", {}, h("summary", {}, "Without the final norm's share"), h("p", {}, h("b", {}, this.effectInterval(held)),
          " with the norm's scale held, over all prompts. The part also makes the stream longer or shorter, and the final norm divides every logit by that length.")) : "");
    }
    effectInterval(row) {
      return this.effect(row.mean) + this.unit + (row.ci_low === null || row.ci_low === undefined ? "" : ` (${this.effect(row.ci_low)} to ${this.effect(row.ci_high)})`);
    }
    // The effect on the chosen prompt; null: all prompts are chosen, or it is not known.
    single(component) {
      const { prompt } = this.choice;
      const measured = prompt !== null && this.choice.paths === "via_mlps" && this.choice.metric === "relative_logit";
      return measured ? this.rows("prompt_effects", { component, prompt })[0]?.value ?? null : null;
    }
    // One dot per problem, the mean with its interval, and 0.
    strip(component, of) {
      const dots = this.rows("units", { ...this.setting, component, unit: "problem" }).filter(row => row.mean !== null);
      if (dots.length < 2) return "";
      const single = this.single(component), points = [...dots, { mean: single }], [least, most] = this.scale(points), { width, height, edge } = STRIP;
      const [left, right] = this.scale([...points, of]), at = x => edge + (width - 2 * edge) * (x - left) / (right - left || 1);
      const chosen = this.choice.prompt === null ? null : this.rows("prompts", { prompt: this.choice.prompt })[0]?.problem;
      const ring = single === null ? chosen : null, ends = [...dots].sort((a, b) => a.mean - b.mean);
      const end = row => `${this.effect(row.mean)} (${row.name.replaceAll(" ", "\u00a0")})`;
      const text = `${dots.length} problems, from ${end(ends[0])} to ${end(ends.at(-1))}`;
      return h("figure", { class: "ale-strip" }, svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": text },
        svg("line", { class: "ale-zero", x1: at(0), x2: at(0), y1: 2, y2: 34 }),
        dots.map((row, place) => svg("circle", { cx: at(row.mean), cy: 11 + place * 7 % 17, r: row.name === ring ? 5 : 3,
          class: `${row.mean < 0 ? "ale-fill-helps" : "ale-fill-hinders"} ${row.name === ring ? "ale-chosen-dot" : ""}` },
        svg("title", {}, `${row.name}: ${this.effect(row.mean)}`))),
        single === null ? "" : svg("circle", { cx: at(single), cy: 18, r: 6, class: "ale-chosen-dot", fill: "none" }, svg("title", {}, `This prompt: ${this.effect(single)}`)),
        of.ci_low === null ? "" : svg("line", { class: "ale-mean", x1: at(of.ci_low), x2: at(of.ci_high), y1: 33, y2: 33 }),
        svg("circle", { class: "ale-mean", cx: at(of.mean), cy: 33, r: 3 }),
        svg("text", { x: at(least), y: 45 }, this.effect(least)), svg("text", { x: at(most), y: 45, "text-anchor": "end" }, this.effect(most)),
        svg("text", { x: at(0), y: 45, "text-anchor": "middle" }, at(0) - at(least) > 70 && at(most) - at(0) > 70 ? "0" : "")),
      h("figcaption", {}, `One dot per problem. Below: mean and 95% interval. ${single !== null ? "Ring: this prompt. " : chosen ? "Ring: its problem's mean. " : ""}${capital(text.slice(text.indexOf("from")))}.`));
    }
    // Where END looks: the shares of all prompts or of the chosen one, the largest first.
    looksRow() {
      const { component, prompt } = this.choice, shares = [...this.looks(component)].filter(([, share]) => share !== null);
      const means = prompt === null && this.rows("attention", { component }).length;
      if (!shares.length) return this.row("Looks at", h("p", { class: "ale-soft" }, this.missingText("attention")));
      const large = shares.filter(([, share]) => share >= 0.05).sort((a, b) => b[1] - a[1]);
      const rest = 1 - large.reduce((sum, [, share]) => sum + share, 0);
      const pieces = [...large, ...rest > 0.005 ? [["the rest", rest]] : []];
      return this.row("Looks at",
        h("div", { class: "ale-stack", "aria-hidden": true }, pieces.map(([role, share]) =>
          h("i", { class: `ale-${HUES[role] ?? "control"}`, style: `width:${100 * share}%` }))),
        h("p", {}, pieces.map(([role, share], place) => [place ? ", " : "", h("span", { class: `ale-ink-${HUES[role] ?? "control"}` }, this.roleName(role)), ` ${percent(share, 0)}`])),
        h("p", { class: "ale-soft" }, `Attention of END${means ? ", mean over all prompts" : ` on “${this.rows("prompts", { prompt: this.prompt })[0]?.reference.trim()}”`}. `,
          this.options.patterns && this.patterns().has(component) ? h("button", { class: "ale-link", "data-key": "patterns", onclick: () => this.openPatterns() }, "Every token’s attention") : ""));
    }
    // The whole patterns of one prompt, query by key: those of the chosen head first.
    patterns() {
      const { prompt } = this, { component } = this.choice, n = this.rows("tokens", { prompt }).length, heads = new Map();
      for (const row of this.rows("patterns", { prompt })) {
        if (!heads.has(row.component)) heads.set(row.component, Array.from({ length: n }, () => Array(n).fill(0)));
        heads.get(row.component)[row.query][row.key] = row.weight;
      }
      const known = [...heads].filter(([, weights]) => weights.every(row => row.some(weight => weight)));
      return new Map(known.sort(([one], [other]) => (other === component) - (one === component)).slice(0, MOST_PATTERNS));
    }
    // As CircuitsVis draws them, over the page. No letter of a token may begin a tag or an entity there.
    async openPatterns() {
      const { prompt } = this, patterns = this.patterns(), safe = token => visible(token).replace(/[<&]/g, "$&\u2060");
      const rows = this.rows("tokens", { prompt }), names = { "operand a": "A = ", "operand b": "B = " };
      const named = (row, place) => `${place === rows.length - 1 ? "END " : names[row.role] ?? ""}${safe(row.token)}`;
      const box = h("div", { id: "ale-patterns", class: "ale-paper" }, "Loading …");
      const dialog = h("dialog", { "aria-label": "Attention patterns", onclose: () => dialog.remove() },
        h("button", { class: "ale-small", autofocus: true, onclick: () => dialog.close() }, "Close"),
        h("p", {}, "A row (destination) is the token that looks, a column (source) the token looked at; the last row is END, ",
          h("b", { class: "ale-ink-operand" }, "A and B"), ` are the operands. ${this.root.dataset.theme === "dark" ? "Lighter" : "Darker"}: more, on “${this.rows("prompts", { prompt })[0]?.reference.trim()}”. Drawn by CircuitsVis.`), box);
      const describe = () => box.querySelectorAll("canvas:not([aria-label])").forEach(one => one.setAttribute("aria-label", "Attention pattern"));
      new MutationObserver(describe).observe(box, { childList: true, subtree: true });
      this.root.append(dialog);
      dialog.showModal();
      try {
        const library = await circuitsVis();
        library.render(box.id, library.AttentionHeads, { attention: [...patterns.values()], attentionHeadNames: [...patterns.keys()],
          tokens: rows.map(named), ...this.options.patterns });
      } catch { box.textContent = "circuitsvis.js, which lies beside this page, is missing: copy both."; }
    }
    // What is read or written as logits: of A, B, C and other digits, and of ten digits on one prompt.
    valuesRow(read, title) {
      const { component } = this.choice, { prompt } = this;
      const roles = this.rows("numbers", { component, read }).filter(row => row.token !== "others without C"), digits = this.rows("digits", { component, read, prompt });
      const { inAnswers } = this, places = inAnswers ? 2 : 1, others = inAnswers ? "other answers" : "other digits";
      if (inAnswers && read !== "write") return "";
      if (!roles.length && !digits.length) return this.row(title, h("p", { class: "ale-soft" }, this.missingText("numbers")));
      const of = this.rows("prompts", { prompt })[0] ?? { answer: "", problem: "", reference: "" };
      const largest = values => values.reduce((best, one) => one.value > best.value ? one : best);
      // Framed: only what is above all others, interval and all.
      const cells = (values, text) => {
        const best = largest(values), clear = values.every(one => one === best || best.low > one.high), low = Math.min(...values.map(one => one.value)), high = best.value;
        return h("div", { class: "ale-cells", role: "img", "aria-label": `${text}: ${values.map(one => `${one.name} ${number(one.value, places)}`).join(", ")}` },
          values.map(one => h("span", { class: clear && one === best ? "ale-best" : "", style: `--share:${Math.round(60 * (one.value - low) / (high - low || 1))}%`,
            title: `${one.name}: ${number(one.value, places)}` }, h("b", {}, one.name), h("small", {}, number(one.value, places)))));
      };
      const means = roles.map(row => ({ name: row.token.replace(/^others without A, B, C$/, "other digits"), value: row.mean, low: row.ci_low, high: row.ci_high }));
      const marked = digits.map(row => ({ digit: row.digit, mark: this.marks(String(row.digit), of), value: row.logit }));
      const typical = !means.length || !marked.length || (largest(marked).mark || others).split(", ").includes(largest(means).name);
      return this.row(title,
        means.length ? [cells(means, "Over all prompts"), h("p", { class: "ale-soft" }, inAnswers ? this.addedText : `Logits of the digits in this ${read === "mlp_in" ? "input" : "write"} alone (logit lens), over all prompts.`)] : "",
        marked.length ? h("details", { open: this.choice.prompt !== null }, h("summary", {}, `On “${of.reference.trim()}”${typical ? "" : " (not typical)"}`),
          cells(marked.map(({ digit, mark, value }) => ({ name: `${digit}${mark && `=${mark.replaceAll(", ", "=")}`}`, value })), `On ${of.reference}`)) : "");
    }
    // The strongest sender of each input, and the share that no single sender explains.
    fedRow() {
      const rows = this.rows("inputs", { component: this.choice.component });
      if (!rows.length) return this.row("Fed by", h("p", { class: "ale-soft" }, this.missingText("inputs")));
      const best = input => rows.filter(row => row.input === input && this.jump(row.sender) && Math.abs(row.mean) >= LEAST_SHARE).sort((a, b) => Math.abs(b.mean) - Math.abs(a.mean))[0];
      const left = rows.find(row => row.input === "");
      const interval = row => row.ci_low === null ? "" : ` (${percent(row.ci_low, 0)} to ${percent(row.ci_high, 0)})`;
      return this.row("Fed by", h("details", {}, h("summary", {}, "The strongest earlier part for each input"),
        h("p", {}, Object.keys(INPUTS).map(input => [input, best(input)]).filter(([, row]) => row).map(([input, row], place) =>
          [place ? "; " : "", `${INPUTS[input]}: `, h("button", { class: "ale-link", onclick: this.jump(row.sender) }, named(row.sender)), ` ${percent(row.mean, 0)}`])),
        left && certain(left) ? h("p", {}, h("b", {}, `not explained by single parts: ${percent(left.mean, 0)}`), interval(left)) : "",
        h("p", { class: "ale-soft" }, `Shares of the whole change of this head when one earlier part at a time changes, from ${percent(LEAST_SHARE, 0)}; they need not sum to 100%. ${this.few}`
          + (left && !certain(left) ? " What no single part explains is not known: the interval of this rest holds 0." : ""))));
    }
    onwardRow() {
      const rows = this.rows("mediation", { component: this.choice.component });
      if (!rows.length) return "";
      const sign = Math.sign(rows[0].via_mlps), ways = [["directly", rows[0].direct], ...rows.map(row => [`MLP ${row.layer}`, row.mediated])];
      const order = ways.filter(([, effect]) => sign * effect > 0).sort((a, b) => sign * (b[1] - a[1])).slice(0, 3);
      return this.row("Passes on", h("p", {}, order.map(([way], place) => [["most ", ", then ", ", then "][place], isMlp(way) ? ["through ", h("button", { class: "ale-link", onclick: this.jump(way) }, way)] : way])));
    }
    neuronsRow() {
      const rows = this.rows("neurons", { component: this.choice.component }).slice(0, 3);
      return rows.length ? this.row("Neurons", h("p", {}, "Strongest directly: ", rows.map(row => `${row.neuron} (${signed(percent(row.mean, 1), row.mean)})`).join(", "))) : "";
    }
    missingText(table) {
      return this.set.facts.missing?.[table] ?? (this.backend ? "Being computed." : this.set.facts.maps_only ? "Not computed with this counterfactual." : "These prompts have none.");
    }
    drawer(component) {
      const cards = isMlp(component) ? [this.inAnswers ? "" : this.numbersCard("mlp_in", "What it reads"), this.numbersCard("write", "What it writes"), this.neuronsCard()]
        : [this.rows("attention", { component }).length || !this.rows("patterns", { component }).length ? this.attentionCard() : "", this.patternCard(), this.numbersCard("write", "What it writes"), this.inputsCard(), this.mediationCard()];
      const body = h("div", { class: "ale-cards" }, cards,
        this.rows("units", { unit: "template" }).length ? this.unitsCard("template", "Effect by wording") : "", this.unitsCard("problem", "Effect by problem"));
      return h("details", { class: "ale-drawer", open: Boolean(this.choice.drawer), ontoggle: event => { this.choice.drawer = event.target.open; } },
        h("summary", { "data-key": "drawer" }, `All numbers of ${named(component)}`), this.exportBar("detail"), body);
    }
    // The name of a column or of a token's role, as a reader says it.
    roleName(role) {
      const token = /^\d+$/.test(role) ? this.rows("tokens", { prompt: this.prompt, position: +role })[0] : null;
      return token ? visible(token.token) : { "operand a": "A", "operand b": "B" }[role] ?? role;
    }
  }
  return { Card };
})();
