/** What is shown of a token that is pointed at or focused: who wrote it, how likely it was, and what
 * else was likely. The probabilities are the target's, before temperature and other settings.
 */
import { tokensOf } from "./answer.js";
import { mark } from "./authors.js";
import { byId, make, number, percent } from "./dom.js";

const GAP = 8;

export class Inspector {
  constructor(area) {
    this.element = byId("inspector");
    this.#area = area;
    // Not pointerover: text that grows under a pointer at rest asks for nothing.
    area.addEventListener("pointermove", ({ target }) => this.#point(target));
    area.addEventListener("pointerleave", () => this.#point(null));
    area.addEventListener("focusin", ({ target }) => this.#focus(target));
    area.addEventListener("focusout", () => this.#focus(null));
    area.addEventListener("scroll", () => this.#place(), { passive: true });
    addEventListener("resize", () => this.#place());
    addEventListener("keydown", ({ key }) => {
      if (key === "Escape") this.hide();
    });
  }

  #area;
  #focused = null;
  #shown = null;

  hide() {
    this.#shown?.removeAttribute("aria-describedby");
    this.#shown?.classList.remove("shown");
    this.#shown = null;
    this.element.hidden = true;
  }

  #point(target) {
    const piece = tokensOf.has(target) ? target : this.#focused;
    if (piece) this.#show(piece);
    else this.hide();
  }

  #focus(target) {
    this.#focused = tokensOf.has(target) ? target : null;
    this.#point(null);
  }

  #show(piece) {
    if (piece === this.#shown) return;
    this.hide();
    this.#shown = piece;
    piece.classList.add("shown");
    piece.setAttribute("aria-describedby", this.element.id);
    const tokens = tokensOf.get(piece);
    const last = tokens.length - 1;
    this.element.replaceChildren(
      ...tokens.map((token, index) => card(token, index === last)),
      hint(tokens.length),
    );
    this.element.hidden = false;
    this.#place();
  }

  /** Below the token, or above where there is no room; a narrow page has a place of its own. */
  #place() {
    if (!this.#shown) return;
    const rects = this.#shown.getClientRects();
    const at = rects[0];
    const area = this.#area.getBoundingClientRect();
    if (!at || at.bottom < area.top || at.top > area.bottom) return this.hide();
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const below = at.bottom + GAP;
    const fits = below + height < innerHeight - GAP;
    const left = Math.max(GAP, Math.min(at.left - 16, area.right - width - GAP));
    const top = fits ? below : Math.max(GAP, at.top - GAP - height);
    this.element.style.setProperty("--left", `${left}px`);
    this.element.style.setProperty("--top", `${top}px`);
  }
}

/** Of several tokens that make one piece of text, all but the last are told in short. */
function card(token, isWhole) {
  const author = token.draft
    ? [mark(make("b", { class: "token" }, token.draft), token.draft), " drafted it, the target accepted"]
    : ["the target wrote it"];
  const place = `pass ${number(token.pass + 1)} · token ${token.place + 1} of ${token.of}`;
  return make(
    "section",
    {},
    make(
      "header",
      {},
      make("code", { class: "name" }, visible(token.name)),
      token.logprob === null ? null : make("strong", {}, percent(Math.exp(token.logprob))),
    ),
    make("p", { class: "author" }, ...author),
    isWhole ? ranking(token) : null,
    isWhole ? make("p", { class: "place" }, place) : null,
  );
}

/** The likeliest tokens, and the one that was taken where it is not among them. */
function ranking(token) {
  if (token.logprob === null) return null;
  const rows = [...token.top];
  const taken = (row) => row.name === token.name && row.logprob === token.logprob;
  if (!rows.some(taken)) rows.push({ name: token.name, logprob: token.logprob });
  return make(
    "ol",
    { class: "ranking" },
    ...rows.map((row) => {
      const share = Math.exp(row.logprob);
      const line = make(
        "li",
        taken(row) ? { class: "taken", "aria-label": `taken: ${visible(row.name)} ${percent(share)}` } : {},
        make("code", {}, visible(row.name)),
        make("span", {}, percent(share)),
      );
      line.style.setProperty("--share", share.toFixed(4));
      return line;
    }),
  );
}

function hint(count) {
  const text = count > 1 ? `${count} tokens make this text · ` : "";
  return make("p", { class: "hint" }, `${text}← → tokens · ↑ ↓ passes`);
}

/** A token so that its blanks can be seen. */
function visible(name) {
  return name.replaceAll(" ", "␣").replaceAll("\n", "↵").replaceAll("\t", "⇥") || "∅";
}
