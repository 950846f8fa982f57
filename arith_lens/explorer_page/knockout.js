// Knocked out: what the model answers without some parts, beside as many random ones.
const ArithLensKnockouts = (() => {
  "use strict";
  const { h, number, percent, visible, ordered, named, capital, counted, isMlp } = ArithLensElements;
  const { MAIN } = ArithLensGraph;
  const { EffectMap } = ArithLensMap;
  const KINDS = { knock_out: "they alone are knocked out", keep_only: "they alone are kept, at END" };
  const mean = (rows, column) => rows.reduce((sum, row) => sum + row[column], 0) / rows.length;

  class Knockouts extends EffectMap {
    toggle(component) {
      const { basket } = this.choice;
      this.replace(basket.has(component) ? [...basket].filter(name => name !== component) : [...basket, component]);
    }
    replace(names) { this.choose({ basket: new Set(names) }); }
    result(kind, members = ordered(this.choice.basket)) {
      return this.rows("sets", { kind, members: members.join(",") })[0];
    }
    // The answers when no head is kept: what heads that are kept alone must exceed.
    baseText(members, after) {
      const base = members.some(isMlp) ? null : this.result("keep_only", []);
      return base ? `; ${(after.ci_low ?? after.accuracy) > base.accuracy ? "" : "no better than "}without any head: ${percent(base.accuracy, 0)}` : "";
    }
    get strongest() { return this.set.facts.strongest ?? []; }
    // The heads of a role among the strongest.
    ofRole(role) {
      const { kinds } = this;
      return role === "all" ? this.strongest : ordered(this.strongest.filter(name => kinds[name] === role));
    }
    // One name for each group of heads, wherever it can be knocked out.
    groupName(role) {
      const n = this.ofRole(role).length, kind = role === "all" ? "strongest head" : `${role} head`;
      return n === 1 ? kind : `${n} ${kind}s`;
    }
    knockButton(members, name, key, kind = this.choice.kind) {
      return h("button", { class: "ale-small", "data-key": key, onclick: () => this.choose({ kind, basket: new Set(members) }) }, `${kind === "knock_out" ? "Knock out" : "Keep only"} ${name}`);
    }
    // The results of random sets of as many heads and MLPs, one row per draw.
    controls(kind, members) {
      const n_mlps = members.filter(isMlp).length;
      const rows = this.rows("controls", { kind, n_mlps, n_heads: members.length - n_mlps });
      return [...new Map(rows.map(row => [row.draw, row])).values()];
    }
    accuracy(row) {
      return row ? `${percent(row.accuracy, 0)}${row.ci_low === null ? "" : ` (${percent(row.ci_low, 0)} to ${percent(row.ci_high, 0)})`}` : "–";
    }
    // The share of right answers with its interval, beside random sets of as many parts and their range; before it,
    // what is said to the chosen prompt.
    outcomeText(members, kind = "knock_out") {
      const random = this.controls(kind, members), of = this.result(kind, members), out = kind === "knock_out";
      const [least, most] = this.range(random), alike = out ? of.accuracy >= least : of.accuracy <= most;
      const noun = [members.every(isMlp) ? "" : "heads", members.some(isMlp) ? "MLPs" : ""].filter(Boolean).join(" and ");
      return this.onPrompt(members, kind) + (of.n_pairs === 1 ? of.accuracy ? "right" : "wrong" : `${this.accuracy(of)} right`)
        + (random.length ? `; as many random ${noun}: ${this.controlText(random)}${alike ? `, so not ${out ? "below" : "above"} random` : ""}` : "");
    }
    onPrompt(members, kind) {
      const { prompt } = this.choice, row = this.rows("answers", { kind, members: members.join(","), prompt })[0];
      return prompt === null ? "" : row ? `Here ${row.correct ? "right" : `wrong (“${visible(row.token_1)}”)`}, p(C) ${percent(row.probability, 0)}; over all problems ` : "Over all problems: ";
    }
    // What a share of right answers is the mean of: a page answers one prompt of each problem.
    meanOf({ n_pairs: n }) { return counted(n, n < this.set.facts.n_pairs ? "problem" : "prompt"); }
    range(random) { return [Math.min, Math.max].map(end => end(...random.map(row => row.accuracy))); }
    controlText(random) {
      const average = percent(mean(random, "accuracy"), 0), ends = this.range(random).map(x => percent(x, 0));
      return ends[0] === ends[1] ? `${average} in all ${random.length} draws` : `${average} (${ends.join(" to ")} in ${random.length} draws)`;
    }
    drawBasket() {
      const { basket, kind } = this.choice, { facts, tables } = this.set;
      const members = ordered(basket), region = this.regions.basket;
      if (!this.backend && !tables.sets) {
        region.replaceChildren(...this.unknown() ? [] : [h("h2", {}, "Knocked out"), h("p", { class: "ale-soft" },
          facts.missing.knock_out ?? "This page has no knockouts: arith-lens explore computes them.")]);
        return;
      }
      const among = members.some(isMlp) ? "all" : "heads", out = kind === "knock_out";
      const next = (title, kindOf, of) => h("div", {}, h("h3", {}, title), this.next(kindOf, of));
      const code = { members: JSON.stringify(members), among };
      region.replaceChildren(
        this.heading(this.outTitle, kind, this.rows("sets", { kind, members: members.join(",") }), code),
        ...this.chips(members), this.unmeasured(members, this.result(kind)),
        h("div", { "aria-live": "polite" }, this.each(set => {
          const before = this.result("knock_out", []), of = this.rows("prompts", { prompt: this.prompt })[0];
          return [this.choice.compare ? h("h3", {}, capital(set)) : "", this.outcome(members, before, this.result(kind, members)),
            before && of?.reference ? h("div", { class: "ale-next" },
              h("p", {}, `${this.choice.prompt === null ? "Example: the next" : "Next"} token after “${of.reference.trim()}”, where C is ${visible(of.answer.trim())}:`),
              next("whole model", "knock_out", []), members.length || !out ? next(out ? "without them" : members.length ? "with them alone" : "without any head", kind, members) : "") : ""];
        })),
        h("details", { open: Boolean(this.choice.how), ontoggle: event => { this.choice.how = event.target.open; } },
          h("summary", { "data-key": "how" }, "How, and keeping only these"),
          h("fieldset", {}, h("legend", {}, "The chosen parts:"), Object.entries(KINDS).map(([name, text]) =>
            h("label", {}, h("input", { type: "radio", name: `kind${this.options.id ?? ""}`, "data-key": name, checked: name === kind,
              onchange: () => this.choose({ kind: name }) }), ` ${text}`))),
          h("p", { class: "ale-soft" }, out
            ? "Their output is replaced by its mean over counterfactual prompts, at every token but BOS. The map changes END alone, one part at a time: a strong effect there need not cost an answer here."
            : `All other ${among === "all" ? "heads and MLPs" : "heads"} are replaced by their means, at END alone${among === "all" ? "" : "; MLPs stay"}. This is not the opposite of knocking out, which acts at every token.`),
          this.exportBar(this.outTitle.toLowerCase())));
    }
    get outTitle() { return this.choice.kind === "keep_only" ? "Kept alone" : "Knocked out"; }
    // The strongest heads, by strength, and what else was chosen; and groups of them.
    chips(members) {
      const { basket } = this.choice, { kinds, strongest } = this, effects = new Map(this.rows("effects", MAIN).map(row => [row.component, row.mean]));
      const effect = name => effects.has(name) ? this.graphEffect(effects.get(name)) : "";
      const chip = name => h("button", { "aria-pressed": basket.has(name), "data-key": `chip ${name}`, onclick: () => this.toggle(name) }, named(name), " ", effect(name),
        kinds[name] && kinds[name] !== "other" ? h("small", { class: `ale-ink-${kinds[name]}` }, ` ${kinds[name]}`) : "");
      return [h("div", { class: "ale-chips", role: "group", "aria-label": "Parts to knock out, the strongest first" },
        [...new Set([...strongest, ...members])].map(chip)),
      h("div", { class: "ale-chips", role: "group", "aria-label": "Choose several" }, ["operand", "operator", "all"].filter(role => this.ofRole(role).length).map(role => this.knockButton(this.ofRole(role), `the ${this.groupName(role)}`, role === "all" ? "all" : `take ${role}`)),
        this.choice.kind === "keep_only" ? h("button", { class: "ale-small", "data-key": "none", onclick: () => this.replace([]) }, "Keep no head") : "")];
    }
    unmeasured(members, after) {
      if (this.backend || after || !members.length) return "";
      return h("p", { class: "ale-error", role: "alert" }, "This page knows every set of the ten strongest heads, every two MLPs, and every other part alone, "
        + `but not ${members.map(named).join(", ")}. In a notebook, al.explore(model, pairs) measures any set.`);
    }
    // The share of right answers: whole, without as many random parts, and without these.
    outcome(members, before, after) {
      const { kind } = this.choice, out = kind === "knock_out";
      if (!before && !after) return h("p", { class: "ale-soft" }, this.backend ? "Choose parts: the model answers without them at once." : "");
      const random = members.length ? this.controls(kind, members) : [], [least, most] = this.range(random);
      const line = (key, label, row, hue) => h("tr", {}, h("th", { scope: "row" }, label), this.track(row, hue),
        h("td", { "data-result": key }, row.text), h("td", {}, number(row.probability)));
      const wanted = members.length || !out, these = members.length ? members.length <= 4 ? members.map(named).join(", ") : `these ${members.length}` : "";
      return h("table", { class: "ale-outcome" },
        h("thead", {}, h("tr", {}, h("td"), [`right, mean of ${this.meanOf(after ?? before)}`, "95% interval, or range of draws", "mean p(C)"].map(text => h("th", { scope: "col" }, text)))),
        h("tbody", {},
          before ? line("whole", "whole model", { ...before, text: this.accuracy(before) }, "control") : "",
          random.length ? line("control", `${out ? "without" : "only"} as many at random`, { accuracy: mean(random, "accuracy"), ci_low: least, ci_high: most,
            probability: mean(random, "probability"), text: this.controlText(random) }, "control") : "",
          wanted && after ? line("accuracy", these ? `${out ? "without" : "only"} ${these}` : "without any head", { ...after, text: this.accuracy(after) }, "less") : ""));
    }
    // One line on what is knocked out, below the summary and above the graph: it is always there, so that nothing moves.
    drawOut() {
      const { basket, kind } = this.choice, members = ordered(basket), out = kind === "knock_out", none = !members.length && out, region = this.regions.out;
      if (!this.backend && !this.set.tables.sets) { region.replaceChildren(); return; }
      const lines = this.each(set => {
        const after = this.result(kind, members), before = this.result("knock_out", []);
        const whole = before ? `whole model: ${percent(before.accuracy, 0)}` : "";
        const text = none ? before ? this.outcomeText([]) : "not measured yet" : after ? `${this.outcomeText(members, kind)}${members.length ? out ? "" : this.baseText(members, after) : " (the base)"}; ${whole}`
          : this.backend ? "being measured" : "not measured for these prompts";
        return h("span", {}, this.choice.compare ? h("b", {}, `${set}: `) : "", text, ". ");
      });
      const names = !members.length ? "any head" : members.length <= 6 ? members.map(named).join(", ") : `${members.length} parts`;
      region.replaceChildren(h("p", { role: "status" },
        h("b", {}, none ? "Nothing is knocked out: " : out || !members.length ? `Without ${names}${out ? " at every token" : ""}: ` : `Only ${names} kept at END: `), lines,
        !none ? h("button", { class: "ale-small", "data-key": "put back", onclick: () => this.choose({ kind: "knock_out", basket: new Set() }) }, "Put all back") : ""));
    }
    track({ accuracy, ci_low: low, ci_high: high }, hue) {
      return h("td", { class: "ale-track", "aria-hidden": true }, h("span", {}, h("i", { class: `ale-${hue}`, style: `left:0;width:${100 * accuracy}%` }),
        low === null ? "" : h("b", { style: `left:${100 * low}%;width:${100 * (high - low)}%` })));
    }
    next(kind, members) {
      const row = this.rows("answers", { kind, members: members.join(","), prompt: this.prompt })[0];
      if (!row) return "–";
      const tokens = [1, 2, 3].filter(rank => row[`token_${rank}`] !== undefined), answer = this.rows("prompts", { prompt: this.prompt })[0]?.answer;
      return h("div", { class: row.correct ? "ale-right" : "ale-wrong" }, this.bars(tokens.map(rank =>
        ({ label: visible(row[`token_${rank}`]), value: row[`probability_${rank}`], hue: row[`token_${rank}`] === answer ? "answer" : "control" })),
      { format: x => percent(x, 0), ends: [0, 1], axis: false }),
      h("small", {}, `p(C) ${percent(row.probability, 0)}, ${row.correct ? "right" : "wrong"}`));
    }
  }
  return { Knockouts };
})();
