// Jumps on the timeline: to a date, to the updates about a fact, to those of a conversation.
import { get } from "../lib/api.js";
import { html, useId, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { go, href } from "../lib/route.js";
import { useWords } from "../lib/words.js";
import { Busy, Failure } from "./notice.js";
import { SHORT_HISTORY } from "./search_hits.js";
import { words } from "../views/timeline.words.js";

const HITS = 8;

/** The three ways to jump. `onDate(time)` is called for a date; the others narrow the list by the address. */
export function JumpTo({ scope, params, newest, onDate }) {
  const t = useWords(words);
  const [opened, setOpened] = useState(false);
  return html`<details class="jump" onToggle=${(event) => setOpened(event.target.open)}>
    <summary>${t("goTo")}</summary>
    ${opened && html`<div class="jump-ways">
      <${ToDate} onDate=${onDate} />
      <${ToFact} scope=${scope} params=${params} newest=${newest} />
      <${ToThread} scope=${scope} params=${params} />
    </div>`}
  </details>`;
}

function ToDate({ onDate }) {
  const t = useWords(words);
  const [value, setValue] = useState("");
  const submit = (event) => {
    event.preventDefault();
    const time = new Date(value);
    if (!Number.isNaN(time.getTime())) onDate(time.toISOString());
  };
  return html`<form class="jump-way" onSubmit=${submit}>
    <label>${t("toDate")} <input type="datetime-local" value=${value} required onInput=${(event) => setValue(event.target.value)} /></label>
    <button type="submit">${t("go")}</button>
  </form>`;
}

/** Finds facts by words, also those that are no longer in memory, or takes an id. */
function ToFact({ scope, params, newest }) {
  const t = useWords(words);
  const [value, setValue] = useState("");
  const [asked, setAsked] = useState(null);
  const found = useLoad(async (signal) => (asked ? findFacts(asked, scope, signal) : null), [asked]);
  const submit = (event) => {
    event.preventDefault();
    const text = value.trim();
    if (/^fact_\S+$/.test(text)) go("timeline", narrowed(params, { fact: text }));
    else setAsked({ query: text, gone: newest <= SHORT_HISTORY });
  };
  return html`<form class="jump-way" onSubmit=${submit}>
    <label>${t("toFact")} <input type="search" value=${value} required onInput=${(event) => setValue(event.target.value)} /></label>
    <button type="submit">${t("find")}</button>
    ${found.error && html`<${Failure} error=${found.error} retry=${found.reload} />`}
    ${asked && found.loading && html`<${Busy} />`}
    ${found.data && html`<ul class="jump-hits" role="status">
      ${found.data.map(
        (hit) => html`<li><a href=${href("timeline", narrowed(params, { fact: hit.id }))}><bdi>${hit.content}</bdi></a>
          ${hit.gone && html` <small class="hint">${t("gone")}</small>`}</li>`,
      )}
      ${!found.data.length && html`<li class="hint">${t("noFact")}</li>`}
    </ul>`}
    ${found.data && !asked.gone && html`<button type="button" onClick=${() => setAsked({ ...asked, gone: true })}>${t("lookGone")}</button>`}
  </form>`;
}

const narrowed = (params, changes) => ({ ...params, at: undefined, fact: undefined, thread: undefined, ...changes });

/** Find facts in memory, and with `gone` also those that have left it, for which all of the history is read. */
async function findFacts({ query, gone }, scope, signal) {
  const [live, left] = await Promise.all([
    get("/v1/search", { ...scope, query, top_k: HITS }, { signal }),
    gone ? get("/v1/why-not", { ...scope, text: query }, { signal }) : { refusals: [] },
  ]);
  const found = new Map(live.hits.map(({ id, content }) => [id, { id, content, gone: false }]));
  for (const { fact, content } of left.refusals) if (fact && !found.has(fact)) found.set(fact, { id: fact, content, gone: true });
  return [...found.values()].slice(0, 2 * HITS);
}

function ToThread({ scope, params }) {
  const t = useWords(words);
  const [value, setValue] = useState("");
  const id = useId();
  const threads = useLoad(async (signal) => (await get("/v1/threads", { ...scope, limit: 1000 }, { signal })).items, []);
  const submit = (event) => {
    event.preventDefault();
    if (value.trim()) go("timeline", narrowed(params, { thread: value.trim() }));
  };
  return html`<form class="jump-way" onSubmit=${submit}>
    <label>${t("toThread")} <input list=${id} value=${value} required autocomplete="off" onInput=${(event) => setValue(event.target.value)} /></label>
    <datalist id=${id}>${threads.data?.map(({ thread }) => html`<option value=${thread}></option>`)}</datalist>
    <button type="submit">${t("go")}</button>
  </form>`;
}

/** Says that the list is narrowed to a fact or a thread, with the way back. */
export function Narrowed({ scope, params }) {
  const t = useWords(words);
  const { fact, thread } = params;
  const why = useLoad(async (signal) => (fact ? get(`/v1/facts/${encodeURIComponent(fact)}/why`, scope, { signal }) : null), [fact]);
  if (!fact && !thread) return null;
  return html`<div class="card narrowed" role="status">
    ${fact && html`<p>${t("onlyFact")} <b><bdi>${why.data?.fact.content ?? fact}</bdi></b></p>`}
    ${thread && html`<p>${t("onlyThread")} <b><bdi>${thread}</bdi></b></p>`}
    <p class="row">
      <a class="button" href=${href("timeline", { ...params, fact: undefined, thread: undefined })}>${t("showEverything")}</a>
      ${fact && html`<a href=${href("why", { ...scope, fact })}>${t("whyFact")}</a>`}
      ${thread && html`<a href=${href("graph", { ...scope, thread })}>${t("seeThread")}</a>`}
    </p>
  </div>`;
}
