// Runs before the first paint, so that the page does not flash in the other theme.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("backstory-theme");
  } catch {
    // The browser forbids it: the system's theme it is.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
