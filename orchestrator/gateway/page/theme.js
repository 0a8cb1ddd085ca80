// Before the first paint, so that nothing flashes: the scheme that was chosen, if one was.
try {
  const chosen = localStorage.getItem("outrider-theme");
  if (chosen === "light" || chosen === "dark") {
    document.documentElement.dataset.theme = chosen;
  }
} catch {
  // A browser that keeps nothing has kept no choice.
}
