// Changes: what comes into memory and what goes, as a list of facts and sections.
import { html } from "../lib/html.js";
import { marked } from "../lib/differing.js";
import { useWords } from "../lib/words.js";
import { Capped } from "./capped.js";
import { words } from "./common.words.js";
import { FactRow, RevisedRow } from "./fact.js";

/** Return `{added, removed, evicted, revised, sections}` from the events of a commit or of a preview; `evicted` are ids. */
export function changesOf(events) {
  const found = { added: [], removed: [], evicted: new Set(), revised: [], sections: [] };
  for (const event of events) {
    if (event.type === "FactAdded") found.added.push(event.fact);
    else if (event.type === "FactRemoved") {
      found.removed.push(event.fact);
      if (event.reason === "cap") found.evicted.add(event.fact.id);
    } else if (event.type === "FactRevised") found.revised.push({ before: event.before, after: event.after });
    else if (event.type === "SummaryUpdated") {
      found.sections.push({
        section: event.section,
        before: event.before?.summary ?? "",
        after: event.after?.summary ?? "",
      });
    }
  }
  return found;
}

export const isEmpty = ({ added, removed, revised, sections }) =>
  !(added.length || removed.length || revised.length || sections.length);

/** The name of a section of the document, in the reader's language. */
export function SectionName({ section }) {
  const t = useWords(words);
  return html`${Object.hasOwn(words.en, section) ? t(section) : html`<bdi>${section}</bdi>`}`;
}

/** A text of which the words that differ from another one are marked. */
export const Marked = ({ parts }) => html`<bdi>${parts.map(({ text, differs }) => (differs ? html`<mark>${text}</mark>` : text))}</bdi>`;

/** A section's text before and after, with the words that differ marked. `link` is the address that explains it. */
export function SectionChange({ change, link }) {
  const t = useWords(words);
  const [was, is] = marked(change.before, change.after);
  const text = (value, parts) => (value ? html`<${Marked} parts=${parts} />` : html`<i>${t("empty")}</i>`);
  return html`<div class="section-change">
    <h4>${link ? html`<a href=${link}><${SectionName} section=${change.section} /> <span class="fact-why">${t("whyLink")}</span></a>` : html`<${SectionName} section=${change.section} />`}</h4>
    <p class="is-removed"><span class="mark mark-removed">${t("before")}</span> ${text(change.before, was)}</p>
    <p class="is-added"><span class="mark mark-added">${t("after")}</span> ${text(change.after, is)}</p>
  </div>`;
}

/** All changes. `linkOf(fact)` gives the address of a fact. */
export function Changes({ changes, linkOf = () => undefined }) {
  return html`<div class="changes">
    <${Capped} items=${changes.removed} row=${(fact) => html`<${FactRow} key=${fact.id} fact=${fact} mark=${changes.evicted?.has(fact.id) ? "evicted" : "removed"} link=${linkOf(fact)} />`} />
    <${Capped} items=${changes.added} row=${(fact) => html`<${FactRow} key=${fact.id} fact=${fact} mark="added" link=${linkOf(fact)} />`} />
    <${Capped} items=${changes.revised} row=${(change) => html`<${RevisedRow} key=${change.after.id} change=${change} link=${linkOf(change.after)} />`} />
    ${changes.sections.map((change) => html`<${SectionChange} key=${change.section} change=${change} />`)}
  </div>`;
}
