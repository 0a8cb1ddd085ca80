/** One answer while it is written: its tokens as text, who wrote them, and what came of the passes.
 *
 * Knows the endpoint's chunks; knows no network. A token is
 * { text, draft, name, logprob, top: [{ name, logprob }], pass, place, of }.
 */
import { mark } from "./authors.js";
import { make, number, percent } from "./dom.js";

const FENCE = /^ {0,3}(```|~~~)/;
const MOST_COLUMNS = 160;
const ENDS = { length: "cut at its longest length" };

/** The tokens behind each piece of text on the page. */
export const tokensOf = new WeakMap();

export class Answer {
  constructor() {
    this.text = "";
    this.passes = [];
    this.usage = null;
    this.finish = null;
    this.seconds = 0;
    /** Tokens a second behind the first pass: what comes before it is the prompt's time. */
    this.pace = null;
    this.#began = performance.now();
    this.body = make("div", {
      class: "text",
      role: "group",
      "aria-label": "Answer. Arrow keys go from token to token.",
    });
    this.skyline = make("div", { class: "skyline", "aria-hidden": "true" });
    this.summary = make("p", { class: "summary" });
    this.actions = make("p", { class: "actions" });
    const foot = make("footer", {}, this.skyline, this.summary, this.actions);
    this.element = make("div", { class: "answer writing" }, this.body, foot);
    this.body.addEventListener("keydown", (event) => this.#walk(event));
    this.body.addEventListener("focusin", (event) => this.#stand(event.target));
    this.#newLine();
  }

  #began;
  #first = null;
  #ending = null;
  #line = null;
  #lineText = "";
  #isCode = false;
  #pieces = [];
  #here = null;
  #waiting = [];

  /** The number of tokens so far. */
  get count() {
    return this.passes.reduce((sum, pass) => sum + pass.length, 0);
  }

  /** What the endpoint sent next. */
  take(chunk) {
    if (chunk.usage) this.usage = chunk.usage;
    const choice = chunk.choices[0];
    if (!choice) return;
    if (choice.finish_reason) this.finish = choice.finish_reason;
    const authors = choice.token_authors ?? [];
    if (!authors.length) return;
    const probabilities = choice.logprobs?.content ?? [];
    const tokens = authors.map((author, index) => ({
      text: author.text,
      draft: author.draft,
      name: probabilities[index]?.token ?? author.text,
      logprob: probabilities[index]?.logprob ?? null,
      top: (probabilities[index]?.top_logprobs ?? []).map(({ token, logprob }) => ({
        name: token,
        logprob,
      })),
      pass: this.passes.length,
      place: index,
      of: authors.length,
    }));
    this.#first ??= performance.now();
    this.passes.push(tokens);
    tokens.forEach((token) => this.#write(token));
    this.#draw(tokens);
    this.tell();
  }

  /** Nothing more comes; `how` it ended where the endpoint did not say. */
  end(how) {
    this.#ending = this.finish === "stop" ? null : (ENDS[this.finish] ?? how);
    this.element.classList.remove("writing");
    this.seconds = this.#elapsed();
    const later = this.count - (this.passes[0]?.length ?? 0);
    if (later) this.pace = (later * 1000) / (performance.now() - this.#first);
    if (this.#waiting.length) {
      // Tokens without text: what ends the answer, or half of a character where it was stopped.
      const piece = this.#append(this.#waiting.map(({ name }) => name).join(""), this.#waiting);
      piece.classList.add("silent");
      this.#waiting = [];
    }
    this.tell();
  }

  /** Says in a line how it went. */
  tell() {
    const tokens = this.count;
    if (!tokens) return;
    const drafted = this.passes.flat().filter(({ draft }) => draft).length;
    const seconds = this.seconds || this.#elapsed();
    const parts = [
      `${number(tokens)} ${tokens === 1 ? "token" : "tokens"}`,
      `${number(this.passes.length)} ${this.passes.length === 1 ? "pass" : "passes"}`,
      `${number(tokens / this.passes.length, 1)} a pass`,
      `${percent(drafted / tokens)} drafted`,
      `${number(seconds, 1)} s`,
      `${number(tokens / seconds, 1)} tokens/s`,
    ];
    if (this.#ending) parts.push(this.#ending);
    this.summary.replaceChildren(...parts.map((part) => make("span", {}, part)));
  }

  /** One sentence for those who do not see it. */
  get report() {
    const words = [...this.summary.children].map((part) => part.textContent).join(", ");
    const how = this.#ending ? "ends early" : "is complete";
    return words ? `The answer ${how}: ${words}.` : "The answer is empty.";
  }

  #elapsed() {
    return (performance.now() - this.#began) / 1000;
  }

  #write(token) {
    this.#waiting.push(token);
    if (!token.text) return;
    const tokens = this.#waiting;
    this.#waiting = [];
    this.text += token.text;
    for (const part of token.text.split(/(?<=\n)/)) {
      this.#append(part, tokens);
      if (part.endsWith("\n")) this.#newLine();
    }
  }

  #append(text, tokens) {
    const piece = mark(make("span", { class: "token", tabindex: -1 }, text), tokens.at(-1).draft);
    if (tokens[0].place === 0) piece.classList.add("first");
    if (text === "\n") piece.classList.add("newline");
    tokensOf.set(piece, tokens);
    this.#line.append(piece);
    this.#lineText += text;
    if (FENCE.test(this.#lineText)) this.#line.className = "line fence";
    this.#pieces.push(piece);
    if (!this.#here) this.#move(piece);
    return piece;
  }

  #newLine() {
    if (FENCE.test(this.#lineText)) this.#isCode = !this.#isCode;
    this.#lineText = "";
    this.#line = make("div", { class: this.#isCode ? "line code" : "line" });
    this.body.append(this.#line);
  }

  /** A column for the pass: a square for each token, the target's own on top. */
  #draw(tokens) {
    const squares = tokens.map(({ draft }) => mark(make("i"), draft));
    this.skyline.append(make("div", {}, ...squares));
    if (this.skyline.childElementCount > MOST_COLUMNS) this.skyline.firstChild.remove();
  }

  #walk(event) {
    const at = this.#pieces.indexOf(this.#here);
    const pass = (index) => tokensOf.get(this.#pieces[index])[0].pass;
    let to = at;
    if (event.key === "ArrowRight") to = at + 1;
    else if (event.key === "ArrowLeft") to = at - 1;
    else if (event.key === "Home") to = 0;
    else if (event.key === "End") to = this.#pieces.length - 1;
    else if (event.key === "ArrowDown") {
      while (to < this.#pieces.length && pass(to) === pass(at)) to += 1;
    } else if (event.key === "ArrowUp") {
      while (to > 0 && pass(to) === pass(at)) to -= 1;
      while (to > 0 && pass(to - 1) === pass(to)) to -= 1;
    } else return;
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const piece = this.#pieces[Math.max(0, Math.min(to, this.#pieces.length - 1))];
    this.#move(piece);
    piece.focus();
  }

  /** One of the tokens is a stop of the Tab key, the others are reached from it. */
  #move(piece) {
    if (this.#here) {
      this.#here.tabIndex = -1;
      this.#here.removeAttribute("role");
    }
    this.#here = piece;
    piece.tabIndex = 0;
    // Only what has a role is read out where it is focused.
    piece.setAttribute("role", "button");
  }

  #stand(piece) {
    if (tokensOf.has(piece)) this.#move(piece);
  }
}
