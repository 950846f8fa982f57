// In short: who reads A, B and the operator, who writes C, and what is right without them. Each number
// is a table's, of the chosen prompt or of all prompts; of two sets that are compared, one column each.
const ArithLensSummary = (() => {
  "use strict";
  const { metricNames, h, number, percent, ordered, named, capital, certain, counted, isMlp } = ArithLensElements;
  const { MAIN, LOOK } = ArithLensGraph;
  const { Knockouts } = ArithLensKnockouts;
  const MOST = 3;

  class Summary extends Knockouts {
    drawShort() {
      const sides = this.each(set => {
        const items = [this.sentence(), ...this.readers(), this.writers(), ...this.without()].filter(Boolean);
        const title = this.choice.compare ? `${capital(set)}, ${this.over}` : `In short, ${this.over}`;
        return items.length ? h("div", {}, h("h2", {}, title), h("dl", {}, items)) : "";
      });
      this.regions.short.dataset.sides = sides.length;
      const open = Boolean(this.choice.short) || this.choice.tab === "short";
      this.regions.short.dataset.open = open;
      this.regions.short.replaceChildren(h("button", { class: "ale-fold", "data-key": "short", "aria-expanded": open,
        onclick: () => this.choose({ short: !open }) }, `${open ? "▾" : "▸"} In short: ${this.rows("kinds").length ? "who reads A and B, " : ""}who writes C, what is right without them`),
      ...sides, h("p", { class: "ale-soft" }, [...new Set([...this.each(() => this.counts()), this.basis()])].join(" ")));
    }
    // What the numbers are means of, and why a knockout need not do what an effect says.
    counts() {
      const { n_pairs: n } = this.set.facts, problems = this.rows("units", { ...MAIN, component: this.byEffect()[0]?.component, unit: "problem" }).length;
      return problems && n > 1 ? `${this.choice.compare ? `${capital(this.choice.set)}: ` : ""}${counted(n, "prompt")} of ${counted(problems, "problem")}.` : "";
    }
    basis() {
      const { n_pairs: n, edge_rows: edges } = this.set.facts, whole = this.result("knock_out", []);
      const mlps = this.rows("effects", MAIN).filter(row => row.head < 0).length, heads = this.rows("effects", MAIN).length - mlps;
      return (edges?.length < n ? `Edges${whole?.n_pairs < n ? " and knockouts" : ""} are measured on one prompt per problem. ` : "")
        + (whole ? `A knockout puts in mean outputs over counterfactual prompts at every token but BOS; random sets are drawn from all ${heads} heads and ${mlps} MLPs. An effect changes one part, at END alone.` : "");
    }
    item(title, ...body) { return h("div", {}, h("dt", {}, title), h("dd", {}, body)); }
    button(name) { return h("button", { class: "ale-link", "data-key": `short ${this.choice.set} ${name}`, onclick: () => this.unfold(name) }, named(name)); }
    list(names, say) { return names.map((name, place) => [place ? ", " : "", this.button(name), ` (${say(name)})`]); }

    // The heads with an effect, the strongest first: over all prompts or on the chosen one.
    byEffect() {
      return [...this.graphEffects(this.choice.set).values()].filter(row => row.head >= 0 && row.mean !== null).sort((a, b) => a.mean - b.mean);
    }
    // The answer in a line: the two parts with the largest effects, and as many heads. Means whose interval holds 0 are no answer.
    lead() {
      const rows = this.onlyMap ? this.rows("effects", this.setting) : [...this.graphEffects(this.choice.set).values()];
      const [best, ...others] = rows.filter(row => row.mean < 0 && certain(row)).sort((a, b) => a.mean - b.mean);
      if (!best) return "";
      const say = row => `${named(row.component)} (${this.onlyMap ? this.effect(row.mean) + this.unit : this.graphEffect(row.mean)})`;
      const second = others[0] && best.head < 0 === others[0].head < 0 ? [others[0]] : [], heads = best.head < 0 ? others.filter(row => row.head >= 0).slice(0, 2) : [];
      return h("b", {}, `C depends most on ${[best, ...second].map(say).join(" and ")}${heads.length ? `; of the heads, on ${heads.map(say).join(" and ")}` : ""}.`);
    }
    // What the first numbers are of, and why other pages have others.
    score() {
      const { n_pairs: n } = this.set.facts, { onlyMap } = this, arithmetic = this.rows("prompts").some(({ reference }) => /\d/.test(reference));
      const metric = onlyMap ? this.choice.metric : this.rows("edges")[0]?.metric ?? MAIN.metric, name = metricNames(this.set.facts)[metric] ?? metric;
      const changed = !arithmetic ? "" : this.keepsOperator ? "; counterfactual: other operands" : "; counterfactual: another word for the operator";
      const others = [...arithmetic && this.keepsOperator ? ["Figure 2 changes the operator"] : [],
        ...onlyMap ? ["the explorer's circuit has C's logit as score"] : ["the map alone and the audit have C's lead as score"]].join("; ");
      return `Effects on ${name}, of one part at END, ${this.choice.prompt !== null && !onlyMap ? "on this prompt" : n === 1 ? "on one prompt" : `mean over ${n ?? "all"} prompts`}${changed}. `
        + `Other pages have other numbers: ${others}.`;
    }
    sentence() {
      const [best] = this.byEffect();
      return best ? this.item("The head it depends on most", this.button(best.component),
        `: with its output taken from the counterfactual, C's logit changes by ${this.graphInterval(best)}`) : null;
    }
    // The strongest heads of a role that the summary names, and every part that it names.
    namedOf(role) {
      const all = this.ofRole(role);
      return this.byEffect().map(row => row.component).filter(name => all.includes(name)).slice(0, MOST);
    }
    summaryParts() { return [...this.namedOf("operand"), ...this.namedOf("operator"), ...this.leads().map(row => row.name)]; }
    // The heads among the strongest that look mainly at A and B, or at the operator; or why none is named.
    readers() {
      const effects = new Map(this.byEffect().map(row => [row.component, row.mean]));
      const share = (name, roles) => {
        const looks = this.looks(name);
        return roles.map(role => `${roles.length > 1 ? `${this.roleName(role)} ` : ""}${percent(looks.get(role) ?? 0, 0)}`).join(", ");
      };
      const of = (title, role, tokens) => {
        const all = this.ofRole(role), names = this.namedOf(role), more = all.length - names.length;
        const kept = role === "operator" && this.keepsOperator ? "not measurable here: both prompts have the same operator" : "";
        const none = `no head is shown to: of the ${this.strongest.length} strongest, none has half of its attention there (BOS aside)`;
        const both = tokens.length > 1 && names.length > 0 && names.every(name => tokens.every(token => this.looks(name).get(token) >= LOOK));
        const looks = names.length ? [kept ? "; attention alone: " : "", this.list(names, name => `${share(name, tokens)}; effect ${this.graphEffect(effects.get(name))}`), more ? ` and ${more} more of the ten strongest heads` : "",
          both && this.changesBoth ? ". A and B mostly change together: only edges tell them apart" : ""] : kept ? "" : none;
        return this.rows("kinds").length ? this.item(title.replace("A and B", both ? "both $&" : "$&"), kept, looks) : null;
      };
      return [of("Looks at A and B (share of attention)", "operand", ["operand a", "operand b"]), of("Looks at the operator", "operator", ["operator"])];
    }
    // Whether the prompts of each pair differ in numbers alone.
    get keepsOperator() {
      return this.rows("prompts").every(({ reference, counterfactual }) => reference.replace(/\d+/g, "") === counterfactual.replace(/\d+/g, ""));
    }
    // Whether more than half of the counterfactuals change both numbers.
    get changesBoth() {
      const numbers = text => text.match(/\d+/g) ?? [], rows = this.rows("prompts");
      return rows.filter(({ reference, counterfactual: other }) => numbers(reference).filter((x, place) => x !== (numbers(other)[place] ?? x)).length > 1).length > rows.length / 2;
    }
    // MLPs whose write has C above the other digits: over all prompts, their intervals do not overlap.
    writers() {
      const lead = new Map(this.leads().map(row => [row.name, row.lead]));
      return lead.size ? this.item("Writes C", this.list([...lead.keys()], name => `+${number(lead.get(name), 1)}`), this.inAnswers ? ": what its write adds to C's logit, above the mean of the other answers" : ": C's logit in its write, above the mean of other digits") : null;
    }
    leads() { return (this.choice.prompt === null || this.inAnswers ? this.meanLeads() : this.promptLeads()).sort((a, b) => b.lead - a.lead).slice(0, 2); }
    meanLeads() {
      const of = token => new Map(this.rows("numbers", { read: "write", token }).filter(row => isMlp(row.component)).map(row => [row.component, row]));
      const answers = of("C"), others = of(this.inAnswers ? "other answers" : "others without A, B, C");
      return [...answers.keys()].filter(name => others.has(name) && answers.get(name).ci_low > others.get(name).ci_high)
        .map(name => ({ name, lead: answers.get(name).mean - others.get(name).mean }));
    }
    promptLeads() {
      const of = this.rows("prompts", { prompt: this.choice.prompt })[0], writes = new Map();
      for (const row of this.rows("digits", { read: "write", prompt: this.choice.prompt }).filter(row => isMlp(row.component))) {
        const marks = this.marks(String(row.digit), of).split(", ");
        const { answer, others } = writes.get(row.component) ?? { answer: null, others: [] };
        writes.set(row.component, marks.includes("C") ? { answer: row.logit, others } : { answer, others: marks[0] ? others : [...others, row.logit] });
      }
      return [...writes].filter(([, { answer, others }]) => answer !== null && answer > Math.max(...others))
        .map(([name, { answer, others }]) => ({ name, lead: answer - others.reduce((sum, x) => sum + x, 0) / others.length }));
    }
    // What is right without the heads of a role, or the MLPs that write C; in a notebook a click measures it. Two
    // sets are compared without the same parts, those of both.
    without() {
      const of = { operand: () => this.ofRole("operand"), operator: () => this.ofRole("operator"), writers: () => ordered(this.leads().map(row => row.name)) };
      return Object.entries(of).map(([role, find]) => {
        const own = find(), { set, compare } = this.choice, others = compare ? this.as(compare, find) : own;
        const both = own.filter(name => others.includes(name)), members = both.length ? both : own, known = this.result("knock_out", members);
        if (!members.length || (!known && !this.backend)) return null;
        const list = role === "writers" || compare, name = list ? members.map(named).join(", ").replace(/, (?!.*, )/, " and ") : `the ${this.groupName(role)} of the top ten`;
        return this.item(`Without ${name}`, known ? [this.outcomeText(members), " "] : "", this.knockButton(members, "", `without ${set} ${role}`, "knock_out"));
      });
    }
  }
  return { Summary };
})();
