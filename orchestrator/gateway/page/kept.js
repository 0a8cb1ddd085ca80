/** Words that the browser keeps for the page; where it may keep nothing, as long as the page is open. */

/** `area` is "sessionStorage" or "localStorage". */
export function kept(area, name) {
  let here = "";
  return {
    get() {
      try {
        return window[area].getItem(name) ?? here;
      } catch {
        return here;
      }
    },
    set(text) {
      here = text;
      try {
        if (text) window[area].setItem(name, text);
        else window[area].removeItem(name);
      } catch {
        // It stays here.
      }
    },
  };
}
