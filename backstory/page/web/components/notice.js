// Notices: loading, empty, failed.
import { html } from "../lib/html.js";
import { currentRoute, href, scopeOf } from "../lib/route.js";
import { useWords } from "../lib/words.js";
import { words } from "./common.words.js";

const DAMAGED = "CorruptLogError";

/** A line that says that something is under way. */
export function Busy({ children }) {
  const t = useWords(words);
  return html`<p class="busy" role="status">${children ?? t("loading")}</p>`;
}

/** What is shown where there is nothing to show. */
export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

/** What went wrong, in the server's words, and a button to try again; of a damaged log also the way to its checks. */
export function Failure({ error, retry }) {
  const t = useWords(words);
  const text = error.status === 0 ? t("unreachable") : t("failed", { detail: error.message });
  return html`<div class="failure" role="alert">
    <p>${text}</p>
    ${error.body?.error === DAMAGED && html`<p><a href=${href("operations", { ...scopeOf(currentRoute().params), verify: 1 })}>${t("check")}</a></p>`}
    ${retry && html`<button type="button" onClick=${retry}>${t("retry")}</button>`}
  </div>`;
}

/** Show what `useLoad` returned: its data by `children(data)`, or that it loads, or what went wrong. */
export function Loaded({ of: { data, error, loading, reload }, children }) {
  if (error && data === undefined) return html`<${Failure} error=${error} retry=${reload} />`;
  if (data === undefined) return html`<${Busy} />`;
  return html`<div class="loaded" aria-busy=${loading}>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}${children(data)}
  </div>`;
}
