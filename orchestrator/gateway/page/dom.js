/** Elements. Text stays text: nothing here, and nothing that uses it, reads markup. */

/** An element with attributes, listeners (`onclick`, ...) and children; what is null is left out. */
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** The element of an id. */
export const byId = (id) => document.getElementById(id);

/** Sets the text of an element where it has changed, so that a selection survives. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A number as people read it, with so many digits behind the point. */
export const number = (value, digits = 0) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

/** A share as a percentage; tiny ones are not called nothing, and great ones not all. */
export function percent(share) {
  if (share > 0 && share < 0.0005) return "<0.1%";
  if (share > 0.9995 && share < 1) return ">99.9%";
  const isNearAnEnd = share > 0 && share < 0.0995 || share > 0.9905 && share < 1;
  return `${(share * 100).toFixed(isNearAnEnd ? 1 : 0)}%`;
}

/** Milliseconds, short. */
export const milliseconds = (ms) => `${number(ms, ms < 9.95 ? 1 : 0)} ms`;
