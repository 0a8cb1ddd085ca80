/** Light or dark: the system's choice until the reader makes one. */
import { kept } from "./kept.js";

/** Lets a button change the scheme, and say which one is on. */
export function bindTheme(button) {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const tell = () => button.setAttribute("aria-pressed", String(isDark()));
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    kept("localStorage", "outrider-theme").set(root.dataset.theme);
    tell();
  });
  system.addEventListener("change", tell);
  tell();
}
