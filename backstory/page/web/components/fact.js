// Facts: one as a row, with how sure it is, how old, and what happened to it.
import { html, memo } from "../lib/html.js";
import { decimal, Time } from "../lib/format.js";
import { useWords } from "../lib/words.js";
import { words } from "./common.words.js";

/** What was evicted looks as what was removed, and is called otherwise. */
export const lookOf = (mark) => (mark === "evicted" ? "removed" : mark);

/** How sure a fact is: a bar, and the number. */
export function Confidence({ value }) {
  const t = useWords(words);
  const shown = decimal(value);
  return html`<span class="confidence" title=${t("confidence", { value: shown })}>
    <meter min="0" max="1" value=${value} aria-label=${t("confidence", { value: shown })}></meter>
    <span aria-hidden="true">${shown}</span>
  </span>`;
}

export function Category({ category }) {
  const t = useWords(words);
  const known = Object.hasOwn(words.en, category);
  return html`<span class=${`category category-${known ? category : "other"}`}>${known ? t(category) : category}</span>`;
}

/**
 * A fact. `mark` is "added", "removed", "evicted" or "revised", `link` the address that its text leads to, `current` whether it is
 * the one that is looked at, `dated` whether its date is shown in place of its age; `children` come behind the text.
 * `dense` makes it one line where there is room, with `open({kind, fact})` to edit and to remove it.
 */
export const FactRow = memo(function FactRow({ fact, mark, link, current = false, dated = false, dense = false, open, children }) {
  const t = useWords(words);
  const text = html`<bdi class="fact-text" title=${dense ? fact.content : undefined}>${fact.content}</bdi>`;
  return html`<article class=${`fact ${dense ? "is-dense" : ""} ${mark ? `is-${lookOf(mark)}` : ""}`} data-fact=${fact.id} aria-current=${current ? "true" : undefined}>
    <p class="fact-line">
      ${mark && html`<span class=${`mark mark-${lookOf(mark)}`}>${t(mark)}</span> `}
      ${link ? html`<a href=${link}>${text} <span class="fact-why">${t("whyLink")}</span></a>` : text}
    </p>
    <p class="fact-about">
      <${Category} category=${fact.category} />
      <${Confidence} value=${fact.confidence} />
      <span class="age" data-age=${dated ? undefined : ageOf(fact)}><${Time} at=${fact.createdAt} relative=${!dated} /></span>
      ${fact.byHand && html`<span class="by-hand" title=${t("byHandHint")}>${t("byHand")}</span>`}
      ${fact.validFrom && html`<span class="period">${t("trueSince", { time: fact.validFrom })}</span>`}
      ${fact.validUntil && html`<span class="period">${t("trueUntil", { time: fact.validUntil })}</span>`}
      ${fact.expiresAt && html`<span class="period">${t("keptUntil", { time: fact.expiresAt })}</span>`}
      ${(fact.tags ?? []).map((tag) => html`<bdi class="tag">${tag}</bdi>`)}
      ${Object.entries(fact.attributes ?? {}).map(([name, value]) => html`<bdi class="tag">${name}=${String(value)}</bdi>`)}
      ${fact.source && fact.source !== "manual" && fact.source !== "import" && html`<bdi class="source">${t("learnedFrom", { thread: fact.source })}</bdi>`}
    </p>
    ${open && html`<p class="fact-actions">
      ${["edit", "remove"].map((kind) => html`<button type="button" class="quiet" aria-label=${t(`${kind}Of`, { fact: fact.content })} onClick=${() => open({ kind, fact })}>${t(kind)}</button>`)}
    </p>`}
    ${children}
  </article>`;
});

/** A fact that changed in place, with what it was before. Everything else given is as for a fact. */
export function RevisedRow({ change: { before, after }, ...given }) {
  const t = useWords(words);
  return html`<${FactRow} fact=${after} mark="revised" ...${given}>
    ${before.content !== after.content && html`<p class="was">${t("before")}: <bdi>${before.content}</bdi></p>`}
    ${before.confidence !== after.confidence && html`<p class="was">${t("before")}: ${t("confidence", { value: decimal(before.confidence) })}</p>`}
  <//>`;
}

/** Return a word for the age of a fact, by which it is coloured. */
function ageOf(fact, now = Date.now()) {
  const days = (now - new Date(fact.confirmedAt ?? fact.createdAt)) / 86_400_000;
  if (days < 7) return "new";
  if (days < 30) return "recent";
  return days < 180 ? "settled" : "old";
}

