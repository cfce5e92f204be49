// State of a memory: what keeps it from learning, each with where to go; and what to do where it is empty.
import { get } from "../lib/api.js";
import { html } from "../lib/html.js";
import { number } from "../lib/format.js";
import { useLoad } from "../lib/load.js";
import { href } from "../lib/route.js";
import { useWords } from "../lib/words.js";
import { words } from "./memory_state.words.js";

/** Return the status of the memory as `useLoad` does; it is asked again after each commit. */
export const useStatus = (scope, round) => useLoad((signal) => get("/v1/status", scope, { signal }), [scope.user, scope.agent, round]);

/** What is out of the ordinary, each a link; nothing where all is well. */
export function MemoryState({ scope, status }) {
  const t = useWords(words);
  if (!status) return null;
  const { facts, max_facts: most, parked, pending, model } = status;
  const operations = href("operations", scope);
  const found = [
    facts >= most && ["full", href("compare", { ...scope, "what-if": `max_facts ${most * 2}` }), { n: number(most) }],
    parked.length > 0 && ["failed", operations, { n: number(parked.length) }],
    pending.length > 0 && ["waiting", operations, { n: number(pending.length) }],
    model === null && ["noModel", operations, {}],
  ].filter(Boolean);
  if (!found.length) return null;
  return html`<ul class="row memory-state" aria-label=${t("state")}>
    ${found.map(([name, link, said]) => html`<li key=${name} class=${`is-${name}`}><a href=${link}>${t(name, said)}</a></li>`)}
  </ul>`;
}

/** What to do where a view has nothing to show, as `NothingYet` says it. */
export function NothingHere({ scope, round }) {
  return html`<${NothingYet} scope=${scope} status=${useStatus(scope, round).data} />`;
}

/** What to do where nothing is remembered: it depends on whether anything was said, and whether a model learns. */
export function NothingYet({ scope, status }) {
  const t = useWords(words);
  if (!status) return null;
  const name = status.turns === 0 ? "unsaid" : status.parked.length || status.model === null ? "unlearned" : "soon";
  const whose = scope.user ? `--user ${scope.user} ` : "";
  const lines = {
    unsaid: [`backstory ${whose}record chat.jsonl`, `backstory ${whose}extract`],
    unlearned: status.parked.length ? [`backstory ${whose}retry`] : ["backstory doctor --model", `backstory ${whose}extract`],
    soon: [`backstory ${whose}extract`],
  };
  return html`<div class="empty nothing-yet">
    <p>${t(name)}</p>
    <pre><bdi>${lines[name].join("\n")}</bdi></pre>
  </div>`;
}
