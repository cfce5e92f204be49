// Places: where the reader was in each entry of the browser's history, so that Back finds it again.
import { useState } from "./html.js";

// A view loads what it shows, so a place is there only some time after the address.
const PATIENCE = 3000;

const kept = new Map();
let made = 0;
let heir = null;
let current = entryOf();
let before = false;
let restoring = 0;

history.scrollRestoration = "manual";

/** Return the name of the entry that is shown, which the browser keeps with it. */
function entryOf() {
  if (history.state?.entry) return history.state.entry;
  made += 1;
  const entry = `${performance.timeOrigin} ${made}`;
  history.replaceState({ ...history.state, entry }, "");
  return entry;
}

/** Return the entry of the history that is shown. */
export const entry = () => current;

/** Whether the reader came back to an entry that was shown before. */
export const cameBack = () => before;

/** Take the entry of the history that is shown now; called when the address has changed. */
export function enter() {
  current = entryOf();
  if (heir !== null) kept.set(current, new Map(kept.get(heir)));
  heir = null;
  before = kept.has(current);
  if (!before) kept.set(current, new Map());
  restore(keptPlace("scroll"));
}

/** Have the next entry begin at the place of an earlier one, for a link that leads back to it. */
export function resume(earlier) {
  heir = kept.has(earlier) ? earlier : null;
}

/** Return what was kept under a name in the entry that is shown. */
export const keptPlace = (name) => kept.get(current)?.get(name);

export function keepPlace(name, value) {
  if (!kept.has(current)) kept.set(current, new Map());
  kept.get(current).set(name, value);
}

/** A state as `useState` gives it, which is there again when the reader comes back. */
export function useKept(name, initial) {
  const [value, setValue] = useState(() => keptPlace(name) ?? initial);
  const set = (next) => {
    keepPlace(name, next);
    setValue(next);
  };
  return [value, set];
}

/** Scroll to a height as soon as the page is as long as that. */
function restore(height) {
  cancelAnimationFrame(restoring);
  restoring = 0;
  if (!height) return;
  const until = performance.now() + PATIENCE;
  const look = () => {
    const longest = document.documentElement.scrollHeight - innerHeight;
    if (longest < height && performance.now() < until) {
      restoring = requestAnimationFrame(look);
      return;
    }
    restoring = 0;
    scrollTo(0, height);
  };
  restoring = requestAnimationFrame(look);
}

// While a place is waited for, the page is shorter than it was: that is no place of the reader's.
addEventListener("scroll", () => restoring === 0 && keepPlace("scroll", scrollY), { passive: true });
for (const moved of ["wheel", "touchmove", "keydown"]) addEventListener(moved, () => restore(0), { passive: true });
