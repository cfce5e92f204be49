// Refusals: what memory did not take in, by which rule, and what it would take.
import { decimal, number, Time } from "../lib/format.js";
import { html } from "../lib/html.js";
import { href } from "../lib/route.js";
import { useWords } from "../lib/words.js";
import { FactName } from "./fact_name.js";
import { words } from "./refusals.words.js";

/** The rule by which a fact left memory: the cap refuses a newcomer, and evicts what was there. */
export const wentBy = (reason) => (reason === "cap" ? "evicted" : reason);

/** A rule in plain words; `detail` is the server's reason, shown as a tooltip, or where the rule is not known. */
export function Rule({ rule, detail }) {
  const t = useWords(words);
  const key = `rule-${rule}`;
  return Object.hasOwn(words.en, key) ? html`<span class="rule-said" title=${`${rule}: ${detail}`}>${t(key)}</span>` : html`<bdi class="rule-said">${rule}: ${detail}</bdi>`;
}

/**
 * One refused candidate, or a removed fact of a "why not".
 *
 * `item` has content, rule, detail, and, where they are known, seq, at, kind, confidence, fact, needs and unless.
 */
export function Refusal({ scope, item }) {
  const t = useWords(words);
  const went = item.fact && item.kind === undefined;
  const about = item.fact && html`<p>${t("about")} <${FactName} scope=${scope} id=${item.fact} /></p>`;
  return html`<article class="refusal">
    <p class="refusal-text">
      ${item.kind && item.kind !== "newFact" && html`<span class="refusal-kind">${t(`kind-${item.kind}`)}</span> `}
      <bdi>${item.content}</bdi>
    </p>
    <p><span class="mark mark-removed">${t(went ? "wentBecause" : "refusedBecause")}</span> <${Rule} rule=${went ? wentBy(item.rule) : item.rule} detail=${item.detail} /></p>
    ${item.detail && html`<p class="hint"><bdi>${item.detail}</bdi></p>`}
    ${about}
    <${Takes} item=${item} />
    ${item.seq &&
    html`<p class="hint">
      <a href=${href("why", { ...scope, commit: item.seq })}>${t("update", { seq: item.seq })}</a>${item.at && html` · <${Time} at=${item.at} />`}
    </p>`}
  </article>`;
}

/** What it would have taken for a candidate to be accepted. */
function Takes({ item: { needs, unless } }) {
  const t = useWords(words);
  if (!needs && !unless) return null;
  return html`<details class="takes">
    <summary>${t("takes")}</summary>
    ${needs ? html`<p>${needsInWords(t, needs)}</p>` : html`<p><bdi>${unless}</bdi></p>`}
  </details>`;
}

function needsInWords(t, { key, value }) {
  const shown = typeof value === "number" ? (Number.isInteger(value) ? number(value) : decimal(value)) : String(value);
  const known = `needs-${key}`;
  return Object.hasOwn(words.en, known) ? t(known, { value: shown }) : t("needs", { key, value: shown });
}
