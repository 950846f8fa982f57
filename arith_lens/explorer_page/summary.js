// In short: who reads A, B and the operator, who writes C, and what is right without them. Each number
// is a table's.
const ArithLensSummary = (() => {
  "use strict";
  const { h, number, percent, named, isMlp } = ArithLensElements;
  const { Knockouts } = ArithLensKnockouts;
  const MOST = 3;

  class Summary extends Knockouts {
    drawShort() {
      const items = [this.sentence(), ...this.readers(), this.writers(), ...this.without()].filter(Boolean);
      this.regions.short.replaceChildren(...items.length ? [h("h2", { class: "ale-hidden" }, "In short"), h("dl", {}, items)] : []);
    }
    item(title, ...body) { return h("div", {}, h("dt", {}, title), h("dd", {}, body)); }
    button(name) {
      return h("button", { class: "ale-link", "data-key": `short ${name}`, onclick: () => this.unfold(name) }, named(name));
    }
    list(names, say) { return names.map((name, place) => [place ? ", " : "", this.button(name), say(name)]); }

    sentence() {
      const effects = this.rows("effects", { paths: "via_mlps", metric: "relative_logit" }).filter(row => row.head >= 0 && row.mean !== null);
      const best = [...effects].sort((a, b) => a.mean - b.mean)[0];
      if (!best) return null;
      const rows = this.choice.prompt === null ? this.edges().filter(row => row.sender === best.component || row.receiver === best.component) : [];
      return this.item("Depends most on", this.button(best.component), ` ${this.effectInterval(best)} of C's logit`,
        rows[0] ? `; strongest edge: ${this.edgeText(rows[0])}` : "");
    }
    // The heads among the strongest that look mainly at A and B, or at the operator.
    readers() {
      const share = (name, roles) => {
        const looks = new Map(this.rows("attention", { component: name }).map(row => [row.role, row.mean]));
        return ` ${roles.map(role => `${roles.length > 1 ? `${this.roleName(role)} ` : ""}${percent(looks.get(role) ?? 0, 0)}`).join(", ")}`;
      };
      const of = (title, role, tokens) => {
        const names = this.ofRole(role).slice(0, MOST);
        return names.length ? this.item(title, names.map((name, place) => [place ? "; " : "", this.button(name), share(name, tokens)])) : null;
      };
      return [of("Read A and B", "operand", ["operand a", "operand b"]), of("Read the operator", "operator", ["operator"])];
    }
    // MLPs whose write has C above the other digits: their intervals do not overlap.
    writers() {
      const of = token => new Map(this.rows("numbers", { read: "write", token }).filter(row => isMlp(row.component)).map(row => [row.component, row]));
      const answers = of("C"), others = of("others without A, B, C");
      const lead = name => answers.get(name).mean - others.get(name).mean;
      const names = [...answers.keys()].filter(name => others.has(name) && answers.get(name).ci_low > others.get(name).ci_high)
        .sort((a, b) => lead(b) - lead(a)).slice(0, 2);
      return names.length ? this.item("Write C", this.list(names, name => ` ${number(lead(name), 1)}`), " logits above other digits") : null;
    }
    // What is right without the heads of a role; in a notebook a click measures it.
    without() {
      return ["operand", "operator"].map(role => {
        const names = this.ofRole(role);
        if (!names.length) return null;
        const members = [...names].sort((a, b) => a.localeCompare(b, "en", { numeric: true })), after = this.result("knock_out", members);
        const random = this.controls("knock_out", members), count = names.length === 1 ? "that head" : `${names.length === 2 ? "both" : `all ${names.length}`}`;
        const title = `Without ${role === "operand" ? "readers of A, B" : "readers of the operator"}`;
        const control = random.length ? `; without as many random heads ${percent(random.reduce((sum, row) => sum + row.accuracy, 0) / random.length, 0)}` : "";
        if (!after && !this.backend) return null;
        return this.item(title, after ? `${this.accuracy(after)} right${control} ` : "",
          h("button", { class: "ale-small", "data-key": `without ${role}`, onclick: () => this.replace(names, role) }, `knock out ${count}`));
      });
    }
  }
  return { Summary };
})();
