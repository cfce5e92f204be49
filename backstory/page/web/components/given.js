// What an answer was given: the facts that the agent had read when it said something, on request.
import { Time } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { get } from "../lib/api.js";
import { useWords } from "../lib/words.js";
import { FactName } from "./fact_name.js";
import { words } from "./given.words.js";
import { Loaded } from "./notice.js";

export function Given({ scope, thread, turn }) {
  const t = useWords(words);
  const [open, setOpen] = useState(false);
  return html`<div class="given">
    <button type="button" class="quiet" aria-expanded=${open} onClick=${() => setOpen(!open)}>${t(open ? "hide" : "show")}</button>
    ${open && html`<${Facts} scope=${scope} thread=${thread} turn=${turn} />`}
  </div>`;
}

function Facts({ scope, thread, turn }) {
  const t = useWords(words);
  const said = useLoad((signal) => get("/v1/why-said", { ...scope, thread, turn }, { signal }), [thread, turn]);
  return html`<${Loaded} of=${said}>
    ${(found) => html`
      <p class="hint">${t("as-of", { seq: found.seq, count: found.facts.length })}</p>
      <ul class="given-facts">
        ${found.facts.map((fact) => html`<li key=${fact.id}><${FactName} scope=${scope} id=${fact.id} fact=${{ content: fact.content ?? t("erased") }} /></li>`)}
      </ul>
      ${found.turns.length > 0 && html`<p class="hint">${t("said", { count: found.turns.length })}</p>
      <ul class="given-turns">
        ${found.turns.map((one) => html`<li key=${`${one.thread} ${one.turn}`}>
          ${one.content === undefined ? t("erased") : html`<${Time} at=${one.at} /> ${one.name ?? one.role}: ${one.content}`}
          ${one.withdrawn && html` <span class="hint">${t("withdrawn")}</span>`}
        </li>`)}
      </ul>`}
      ${!found.holds && html`<p class="failure" role="alert">${t("differs")}</p>`}
    `}
  <//>`;
}
