// Previews: what a change would do, computed by a dry run, and again whenever memory changes meanwhile.
import { html, useRef } from "../lib/html.js";
import { latest } from "../lib/live.js";
import { useLoad } from "../lib/load.js";
import { useStore } from "../lib/store.js";
import { useWords } from "../lib/words.js";
import { words } from "./preview.words.js";

/**
 * Run `dryRun(signal)`, which returns `{data, etag}`, now and after each new commit; returns what `useLoad` returns,
 * and `renewed`: whether memory has changed since the first run.
 *
 * While `paused`, as during the change itself, new commits do not count.
 */
export function usePreview(dryRun, deps, paused) {
  const news = useStore(latest);
  const first = useRef(news.count);
  const seen = useRef(news.count);
  if (!paused) seen.current = news.count;
  const loaded = useLoad(dryRun, [...deps, seen.current]);
  return { ...loaded, renewed: seen.current !== first.current };
}

/** Says that memory changed while a dialog was open, to screen readers too. */
export function Renewed({ when, loading }) {
  const t = useWords(words);
  return html`<div aria-live="polite">
    ${when && html`<p class="renewed">${loading ? t("renewing") : t("renewed")}</p>`}
  </div>`;
}
