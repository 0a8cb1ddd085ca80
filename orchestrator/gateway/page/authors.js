/** Who writes: a colour and a kind of line for each draft, the same everywhere on the page.
 *
 * Six colours are as many as can be told apart; from the seventh draft on the line differs, which
 * also tells them apart for those who see colours otherwise.
 */
import { make } from "./dom.js";

const COLOURS = 6;
const LINES = ["solid", "dashed", "double", "dotted", "wavy"];

const places = new Map();
let legend = null;

/** The place of a draft, given when it is first seen. */
function placeOf(draft) {
  if (!places.has(draft)) {
    places.set(draft, places.size);
    legend?.append(entry(draft));
  }
  return places.get(draft);
}

/** Marks an element as written by a draft; null: by the target. */
export function mark(element, draft) {
  element.dataset.author = draft ?? "";
  if (!draft) {
    element.classList.add("by-target");
    return element;
  }
  const place = placeOf(draft);
  element.classList.add("by-draft", `colour-${place % COLOURS}`);
  element.classList.add(LINES[(place + Math.floor(place / COLOURS)) % LINES.length]);
  return element;
}

/** Gives drafts their places in this order, and shows them in `list`. */
export function show(list, drafts) {
  if (legend !== list) {
    legend = list;
    legend.append(entry(null), ...[...places.keys()].map(entry));
  }
  drafts.forEach(placeOf);
}

function entry(draft) {
  return make("li", {}, mark(make("span", { class: "token" }, draft ?? "target"), draft));
}
