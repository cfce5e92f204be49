// Kinds of commits: each has a shape and a colour, so that neither alone carries the meaning.
import { html } from "../lib/html.js";
import { useWords } from "../lib/words.js";
import { words } from "./common.words.js";

/** Paths in a box of 16 by 16, by kind. */
export const KIND_PATHS = {
  genesis: "M8 1l2 5h5l-4 3.5L12.5 15 8 11.5 3.5 15 5 9.5 1 6h5z",
  extraction: "M8 2a6 6 0 1 0 0 12A6 6 0 1 0 8 2z",
  manual: "M3 3h10v10H3z",
  import: "M8 14L2 4h12z",
  revert: "M2 8l6-6v4h6v4H8v4z",
  rollback: "M1 8l6-6v12zM8 8l6-6v12z",
  clear: "M8 2a6 6 0 1 0 0 12A6 6 0 1 0 8 2zm0 3a3 3 0 1 1 0 6 3 3 0 0 1 0-6z",
  policy: "M8 1l6 3.5v7L8 15l-6-3.5v-7z",
  redaction: "M4 2l4 4 4-4 2 2-4 4 4 4-2 2-4-4-4 4-2-2 4-4-4-4z",
  summary: "M2 3h12v3H2zM2 8h12v2H2zM2 12h8v2H2z",
  share: "M8 1l7 7-7 7-7-7z",
  expiry: "M3 1h10v2L9 8l4 5v2H3v-2l4-5-4-5z",
};

export const KINDS = Object.keys(KIND_PATHS);

/** The mark of a kind. It is decoration: name the kind beside it, or give `named`. */
export function KindMark({ kind, named = false }) {
  const t = useWords(words);
  const known = Object.hasOwn(KIND_PATHS, kind) ? kind : "share";
  return html`<svg class=${`kind kind-${known}`} viewBox="0 0 16 16" ...${named ? { role: "img", "aria-label": t(known) } : { "aria-hidden": "true" }}>
    <path d=${KIND_PATHS[known]} />
  </svg>`;
}

/** The mark and the name of a kind. */
export function Kind({ kind }) {
  const t = useWords(words);
  return html`<span class="kind-name"><${KindMark} kind=${kind} /> ${t(Object.hasOwn(KIND_PATHS, kind) ? kind : "share")}</span>`;
}
