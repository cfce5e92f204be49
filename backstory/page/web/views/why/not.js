// Why not: looks for what is missing from memory, by its text.
import { get } from "../../lib/api.js";
import { html, useId, useLayoutEffect, useState } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { href } from "../../lib/route.js";
import { useWords } from "../../lib/words.js";
import { FactRow } from "../../components/fact.js";
import { Busy, Failure } from "../../components/notice.js";
import { Refusal } from "../../components/refusals.js";
import { words } from "../why.words.js";

const FIRST = 10;

/** A search box for what is not in memory. `search(text)` puts the text into the address; `alone` makes it the page. */
export function WhyNot({ scope, may, open, text = "", alone, search }) {
  const t = useWords(words);
  const field = useId();
  const [typed, setTyped] = useState(text);
  useLayoutEffect(() => setTyped(text), [text]);
  const found = useLoad(
    async (signal) => (text ? get("/v1/why-not", { ...scope, text }, { signal }) : null),
    [text],
  );
  const submit = (event) => {
    event.preventDefault();
    search(typed.trim() || undefined);
  };
  return html`<section class=${`card why-not ${alone ? "" : "why-not-below"}`}>
    ${alone ? html`<h1>${t("whyNot")}</h1>` : html`<h2>${t("whyNot")}</h2>`}
    <p class="hint">${t("whyNotHint")}</p>
    <form class="row" role="search" onSubmit=${submit}>
      <label class="hidden" for=${field}>${t("whyNotText")}</label>
      <input id=${field} type="search" dir="auto" maxlength="10000" placeholder=${t("whyNotText")} value=${typed} onInput=${(event) => setTyped(event.target.value)} />
      <button type="submit">${t("whyNotAsk")}</button>
    </form>
    <div aria-live="polite">
      ${text && found.loading && !found.data && html`<${Busy} />`} ${found.error && html`<${Failure} error=${found.error} retry=${found.reload} />`}
      ${found.data && html`<${Answer} scope=${scope} answer=${found.data} text=${text} />`}
    </div>
    ${found.data && may.write && html`<p class="why-add">${t("whyNotAdd")} <button type="button" onClick=${() => open({ add: text })}>${t("addByHand")}</button></p>`}
  </section>`;
}

function Answer({ scope, answer: { refusals, remembered }, text }) {
  const t = useWords(words);
  const [all, setAll] = useState(false);
  if (!refusals.length && !remembered.length) return html`<p class="empty">${t("whyNotNothing")} <q><bdi>${text}</bdi></q></p>`;
  const most = all ? Infinity : FIRST;
  return html`
    ${refusals.length > 0 && html`<h3>${t("whyNotRefused")}</h3>`}
    ${refusals.slice(0, most).map((item) => html`<${Refusal} key=${`${item.seq} ${item.content}`} scope=${scope} item=${item} />`)}
    ${remembered.length > 0 && html`<h3>${t("whyNotRemembered")}</h3>`}
    ${remembered.slice(0, most).map((fact) => html`<${FactRow} key=${fact.id} fact=${fact} link=${href("why", { ...scope, fact: fact.id })} />`)}
    ${!all && (refusals.length > FIRST || remembered.length > FIRST) && html`<button type="button" onClick=${() => setAll(true)}>${t("showAll")}</button>`}
  `;
}
