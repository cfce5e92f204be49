// Choices that the browser keeps for the next visit. A browser may forbid that: then they last as long as the page.
export function keptChoice(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

/** Keep a choice; null takes it away. */
export function keepChoice(key, value) {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // Nothing is kept, and the choice holds for this page.
  }
}
