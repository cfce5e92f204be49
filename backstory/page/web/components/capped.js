// Capped lists: the first rows, and more of them on request. A commit may hold thousands.
import { html, useState } from "../lib/html.js";
import { number } from "../lib/format.js";
import { useWords } from "../lib/words.js";
import { words } from "./common.words.js";

const STEP = 100;

/** Show `row(item)` for the first of `items`, and a button for the next ones. */
export function Capped({ items, row }) {
  const t = useWords(words);
  const [most, setMost] = useState(STEP);
  const left = items.length - most;
  return html`${items.slice(0, most).map(row)}
  ${left > 0 &&
  html`<p>
    <button type="button" onClick=${() => setMost(most + STEP)}>
      ${t("showMore", { n: number(Math.min(STEP, left)), left: number(left) })}
    </button>
  </p>`}`;
}
