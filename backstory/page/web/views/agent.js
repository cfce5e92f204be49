// What the agent gets: the block of memory for a question, why each fact is in it, and what just missed.
import { get } from "../lib/api.js";
import { number } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { go, href } from "../lib/route.js";
import { useWords } from "../lib/words.js";
import { Empty, Loaded } from "../components/notice.js";
import { words } from "./agent.words.js";

const HITS = 20;
const MOST = 500;

export function View({ scope, params, live }) {
  const t = useWords(words);
  const { q } = params;
  const block = useLoad((signal) => get("/v1/context", { ...scope, for: q }, { signal }), [q, live.count]);
  const facts = useLoad((signal) => get("/v1/facts", { ...scope, limit: MOST }, { signal }), [live.count]);
  const hits = useLoad(
    async (signal) => (q ? (await get("/v1/search", { ...scope, query: q, top_k: HITS }, { signal })).hits : []),
    [q, live.count],
  );
  return html`<div class="agent">
    <h1>${t("title")}</h1>
    <p class="hint">${t("lead")}</p>
    <${Question} key=${q} asked=${q} onAsk=${(text) => go("agent", { ...params, q: text || undefined })} />
    <${Loaded} of=${block}>
      ${(found) => html`
        <p role="status">${t("size", { tokens: number(found.tokens), most: number(found.max_tokens), n: number(found.facts.length), left: number(found.left_out) })}</p>
        ${found.text ? html`<${Part} title=${t("standing")} text=${found.standing} /> <${Part} title=${t("found")} text=${found.found} />` : html`<${Empty}>${t("nothing")}<//>`}
        <${Loaded} of=${hits}>
          ${(fitting) => html`<${Reasons} scope=${scope} block=${found} facts=${facts.data?.items ?? []} hits=${fitting} />`}
        <//>
      `}
    <//>
  </div>`;
}

function Question({ asked, onAsk }) {
  const t = useWords(words);
  const [text, setText] = useState(asked ?? "");
  useEffect(() => setText(asked ?? ""), [asked]);
  return html`<form class="row" onSubmit=${(event) => (event.preventDefault(), onAsk(text.trim()))}>
    <label class="field">${t("question")} <input type="search" value=${text} onInput=${(event) => setText(event.target.value)} /></label>
    <button type="submit" class="primary">${t("show")}</button>
  </form>`;
}

function Part({ title, text }) {
  if (!text) return null;
  return html`<section class="card" aria-label=${title}>
    <h2>${title}</h2>
    <pre class="block-text"><bdi>${text}</bdi></pre>
  </section>`;
}

/** Each fact of the block with the reason why it is there, and the facts that fit the question and are not in it. */
function Reasons({ scope, block, facts, hits }) {
  const t = useWords(words);
  const known = new Map([...facts, ...hits].map((fact) => [fact.id, fact]));
  const place = new Map(hits.map(({ id }, index) => [id, index + 1]));
  const missed = hits.filter(({ id }) => !block.facts.includes(id));
  return html`
    ${block.facts.length > 0 && html`<section aria-labelledby="in-title">
      <h2 id="in-title">${t("in")}</h2>
      <ol class="block-facts">
        ${block.facts.map((id) => html`<li key=${id}><${Line} scope=${scope} id=${id} fact=${known.get(id)} /> <span class="hint">${why(t, id, known.get(id), place)}</span></li>`)}
      </ol>
    </section>`}
    ${missed.length > 0 && html`<section aria-labelledby="missed-title">
      <h2 id="missed-title">${t("missed")}</h2>
      <ol class="block-missed">
        ${missed.map((fact) => html`<li key=${fact.id}><${Line} scope=${scope} id=${fact.id} fact=${fact} /> <span class="hint">${t("place", { n: number(place.get(fact.id)) })}</span></li>`)}
      </ol>
    </section>`}
  `;
}

const USERS = "user:";

function Line({ scope, id, fact }) {
  const of = id.startsWith(USERS) ? { user: scope.user } : scope;
  const own = id.startsWith(USERS) ? id.slice(USERS.length) : id;
  return html`<a href=${href("why", { ...of, fact: own })}><bdi>${fact?.content ?? own}</bdi></a>`;
}

function why(t, id, fact, place) {
  if (place.has(id)) return t("fits", { n: number(place.get(id)) });
  if (id.startsWith(USERS)) return t("ofUser");
  return fact ? t("ranks", { category: fact.category, confidence: Math.round(fact.confidence * 100) }) : "";
}
