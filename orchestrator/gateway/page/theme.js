// Before the first paint, so that nothing flashes: the scheme that was chosen, if one was.
const chosen = localStorage.getItem("outrider-theme");
if (chosen === "light" || chosen === "dark") {
  document.documentElement.dataset.theme = chosen;
}
