/** A service of the cluster: its name, state and model, and a few figures. */
import { mark } from "./authors.js";
import { make, percent, say } from "./dom.js";

/** `draft` is the name of a draft; null: the verifier. */
export class Card {
  constructor(draft) {
    this.#name = make("span", { class: draft ? "token" : "role" });
    if (draft) mark(this.#name, draft);
    this.#state = make("span", { class: "state" });
    this.#model = make("p", { class: "model" });
    this.#problem = make("p", { class: "problem" });
    this.#figures = make("dl", { class: "figures" });
    const parts = [this.#model, this.#problem, this.#figures];
    if (draft) {
      this.#share = mark(make("div", { class: "share", "aria-hidden": "true" }), draft);
      this.#wrote = make("p", { class: "wrote" });
      parts.push(this.#share, this.#wrote);
    }
    this.element = make("li", { class: "card" }, make("h3", {}, this.#name, this.#state), ...parts);
  }

  #name;
  #state;
  #model;
  #problem;
  #figures;
  #share = null;
  #wrote = null;

  update(service, figures, written = null) {
    say(this.#name, service.name === "verify" ? "verifier" : service.name);
    this.#state.dataset.state = service.usable ? "ready" : "away";
    say(this.#state, service.usable ? "ready" : "not usable");
    const backend = service.backend ? ` · ${service.backend}` : "";
    say(this.#model, service.model ? `${service.model}${backend}` : "unknown model");
    say(this.#problem, service.problem ?? "");
    this.#problem.hidden = !service.problem;
    if (!this.#figures.childElementCount) {
      this.#figures.append(...figures.map(([name]) => make("div", {}, make("dt", {}, name), make("dd"))));
    }
    figures.forEach(([, value], index) => say(this.#figures.children[index].lastChild, value));
    if (written !== null) {
      this.#share.style.setProperty("--share", written.toFixed(4));
      say(this.#wrote, `wrote ${percent(written)} of all tokens`);
    }
  }
}
