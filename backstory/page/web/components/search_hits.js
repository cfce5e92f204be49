// Search hits: what is like a query, the best first, and why each hit stands where it stands.
import { get } from "../lib/api.js";
import { html, useState } from "../lib/html.js";
import { listed, number, percent } from "../lib/format.js";
import { useLoad } from "../lib/load.js";
import { href } from "../lib/route.js";
import { useWords } from "../lib/words.js";
import { FactRow } from "./fact.js";
import { Busy, Failure } from "./notice.js";
import { words } from "../views/memory.words.js";

const HITS = 20;
const SIMILAR = 0.3;
const MOST_GONE = 5;
// Up to this many commits, what is gone is looked up at once.
export const SHORT_HISTORY = 2000;

/** What is like `query`. `newest` is the number of the newest commit, and `past` whether an earlier moment is shown. */
export function SearchHits({ scope, query, category, tag, round, newest, past }) {
  const t = useWords(words);
  const { data, error, loading, reload } = useLoad(
    (signal) => get("/v1/search", { ...scope, query, category, tag, top_k: HITS, explain: true }, { signal }),
    [query, category, tag, round],
  );
  if (!data) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Busy} />`;
  return html`<div class="hits" aria-busy=${loading}>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${past && html`<p class="hint">${t("searchPast")}</p>`}
    <p class="hint" role="status">${data.hits.length ? t("best", { n: data.hits.length, s: number(data.hits.length), of: data.total }) : t("noHit")}</p>
    ${data.trouble && html`<p class="hint">${t("trouble", { detail: data.trouble })}</p>`}
    ${!data.trouble && data.model && data.embedded < data.total && html`<p class="hint">${t("unembedded", { s: number(data.total - data.embedded), of: number(data.total) })}</p>`}
    <ol class="hit-list">
      ${data.hits.map(
        (hit, index) => html`<li key=${hit.id}>
          <${FactRow} fact=${hit} link=${href("why", { ...scope, fact: hit.id })}>
            <p class="hit-why"><b>${t("place", { n: index + 1 })}.</b> <bdi>${reasonOf(hit, t)}</bdi></p>
          <//>
        </li>`,
      )}
    </ol>
    <${Gone} key=${query} scope=${scope} query=${query} atOnce=${newest <= SHORT_HISTORY} />
  </div>`;
}

/** Removed facts and refused candidates that are like a query. Finding them reads all of the history. */
function Gone({ scope, query, atOnce }) {
  const t = useWords(words);
  const [asked, setAsked] = useState(atOnce);
  const { data, error, loading, reload } = useLoad(
    async (signal) => (asked ? (await get("/v1/why-not", { ...scope, text: query }, { signal })).refusals : null),
    [asked],
  );
  if (!asked) return html`<p><button type="button" onClick=${() => setAsked(true)}>${t("lookGone")}</button></p>`;
  if (error) return html`<${Failure} error=${error} retry=${reload} />`;
  if (!data) return atOnce ? null : html`<${Busy}>${loading ? t("lookingGone") : ""}<//>`;
  const gone = data.filter(({ score }) => score >= SIMILAR).slice(0, MOST_GONE);
  if (!gone.length) return atOnce ? null : html`<p class="hint" role="status">${t("noneGone")}</p>`;
  return html`<section class="gone" aria-labelledby="gone-title">
    <h3 id="gone-title">${t("gone")}</h3>
    <ul>
      ${gone.map(
        ({ fact, content, seq }) => html`<li>
          <bdi class="fact-text">${content}</bdi>${" "}
          <a href=${href("timeline", { ...scope, at: seq })}>${t(fact ? "goneSeen" : "refusedSeen", { seq: number(seq) })}</a>
          ${fact && html` · <a href=${href("why", { ...scope, fact })}>${t("whyGone")}</a>`}
        </li>`,
      )}
    </ul>
  </section>`;
}

/** Why a hit has its place, in plain words. */
function reasonOf({ why, byMeaning }, t) {
  if (!why) return "";
  const words_ = [];
  for (const { word, where } of (why.words ?? []).filter((part) => part.score > 0)) {
    const key = where === "own words" ? null : where;
    const text = key && ["nearby", "speaker", "day"].includes(key) ? t(key, { word: quoted(word) }) : quoted(word);
    if (!words_.includes(text)) words_.push(text);
  }
  const rank = number(why.meaningRank ?? 0);
  const alike = percent(Math.max(0, why.similarity ?? 0));
  if (byMeaning) return t("onlyMeaning", { rank, percent: alike });
  const list = listed(words_);
  const parts = [t("byWords", { words: t("word", { n: words_.length, list }), rank: number(why.wordsRank) })];
  if (why.meaningRank) parts.push(t("byMeaning", { rank, percent: alike }), t("both"));
  return parts.join(" ");
}

const quoted = (word) => `“${word}”`;
