// A section of the view of operations.
import { html } from "../lib/html.js";

export function Section({ title, name, children, wide = false }) {
  return html`<section class=${`card operations-card ${wide ? "is-wide" : ""}`} aria-labelledby=${`operations-${name}`}>
    <h2 id=${`operations-${name}`}>${title}</h2>
    ${children}
  </section>`;
}
