// Why a fact is believed, or is not any more.
import { get } from "../../lib/api.js";
import { date, Time } from "../../lib/format.js";
import { html, useEffect, useRef } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { href } from "../../lib/route.js";
import { useWords } from "../../lib/words.js";
import { By, CauseDetails } from "../../components/cause.js";
import { Conversation } from "../../components/conversation.js";
import { Category, Confidence } from "../../components/fact.js";
import { Kind } from "../../components/kind.js";
import { Failure, Loaded } from "../../components/notice.js";
import { Rule, wentBy } from "../../components/refusals.js";
import { words } from "../why.words.js";

const MOST_UPDATES = 200;

/** The fact `id`, live or gone. */
export function WhyFact({ scope, id, live, may, open }) {
  const t = useWords(words);
  const why = useLoad((signal) => get(`/v1/facts/${encodeURIComponent(id)}/why`, scope, { signal }), [id, live.count]);
  const kin = useLoad((signal) => kinOf(scope, id, signal), [id, live.count]);
  if (why.error?.status === 404) return html`<h1>${t("noFact")}</h1><p><bdi>${id}</bdi></p>`;
  return html`<${Loaded} of=${why}>
    ${(found) => html`<${Story} scope=${scope} why=${found} kin=${kin} live=${live} may=${may} open=${open} />`}
  <//>`;
}

function Story({ scope, why, kin, live, may, open }) {
  const t = useWords(words);
  const { fact, removed, added } = why;
  const erased = fact === null;
  // One button for both, so that it keeps the focus when the fact goes or comes back.
  const births = why.history.filter(({ type }) => type === "FactAdded");
  const undo = why.live ? births.at(-1) : removed?.reason === "erased" ? undefined : removed;
  const undoWord = !why.live ? "undoRemoval" : births.length > 1 ? "undoReturn" : "undoAddition";
  const shown = useRef(false);
  useEffect(() => {
    // What had the focus may be gone with what was said, such as the buttons of a fact that was erased.
    if (shown.current && document.activeElement === document.body) document.getElementById("content")?.focus({ preventScroll: true });
    shown.current = true;
  }, [why]);
  return html`
    <header class=${`why-top ${why.live ? "" : "is-gone"}`}>
      <p class="why-kind">${t(why.live ? "aFact" : erased ? "anErased" : "aGone")}</p>
      <h1>${erased ? t("erasedFact") : html`<bdi class="fact-text">${fact.content}</bdi>`}</h1>
      ${fact && html`<p class="fact-about"><${Category} category=${fact.category} /> <${Confidence} value=${fact.confidence} /> <code>${why.id}</code></p>`}
      <${Lead} scope=${scope} why=${why} />
      <div class="row why-actions">
        ${may.write &&
        undo?.seq > 1 &&
        html`<button type="button" class=${undoWord === "undoAddition" ? "primary" : ""} onClick=${() => open({ undo: undo.seq })}>${t(undoWord, { at: date(undo.at) })}</button>`}
        ${may.write && why.live && html`<button type="button" onClick=${() => open({ edit: fact })}>${t("edit")}</button>`}
        ${may.write && why.live && html`<button type="button" onClick=${() => open({ remove: fact })}>${t("remove")}</button>`}
        ${may.erase && !erased && html`<button type="button" class="danger" onClick=${() => open({ forget: { fact } })}>${t("forget")}</button>`}
      </div>
    </header>
    ${!why.live && !erased && html`<${WordsOfRemoval} scope=${scope} why=${why} kin=${kin.data} live=${live} />`}
    ${!erased && html`<${WordsOfFact} scope=${scope} why=${why} live=${live} />`}
    <${Kin} scope=${scope} kin=${kin} live=${why.live} />
    <${History} scope=${scope} why=${why} live=${live} may=${may} open=${open} />
    <details class="card why-details">
      <summary>${t("details")}</summary>
      <${CauseDetails} scope=${scope} seq=${added.seq} at=${added.at} cause=${added.cause} />
    </details>
  `;
}

/** In one or two sentences: since when, from what, until when. */
function Lead({ scope, why }) {
  const t = useWords(words);
  const { added, removed, fact } = why;
  const since = date(added.at);
  if (fact === null) {
    return html`<p class="lead">
      ${t("leadErased", { since, until: date(removed.at) })}${removed.actor && html` <bdi>${removed.actor === "http" ? t("byLocal") : t("byActor", { actor: removed.actor })}</bdi>`}
      ${" "}<a href=${href("why", { ...scope, commit: removed.seq })}>${t("updateN", { seq: removed.seq })}</a>
    </p>`;
  }
  const origin = originOf(added.cause);
  const births = why.history.filter(({ type }) => type === "FactAdded");
  const link = (seq) => html`<a href=${href("why", { ...scope, commit: seq })}>${t("updateN", { seq })}</a>`;
  if (!why.live) {
    return html`<div class="lead">
      <p>${t(births.length > 1 ? "leadOnOff" : "leadGone", { since, until: date(removed?.at ?? why.lapsed) })}</p>
      ${removed && html`<p><${Rule} rule=${wentBy(removed.reason)} detail=${removed.detail ?? ""} /> ${removed.valid_until} ${removed.note && html`${t("modelsReason")} <q><bdi>${removed.note}</bdi></q>`} ${link(removed.seq)}</p>`}
      ${why.periods.length > 1 &&
      html`<ul class="periods">
        ${why.periods.map(
          ({ id, valid_from: since, valid_until: until }) => html`<li key=${id}>
            <a href=${href("why", { ...scope, fact: id })}><bdi>${id}</bdi></a> ${since && t("since", { time: since })} ${until && t("until", { time: until })}
          </li>`,
        )}
      </ul>`}
    </div>`;
  }
  const birth = births.at(-1);
  const left = why.history.findLast(({ type, seq }) => type === "FactRemoved" && seq < birth?.seq);
  const restored = births.length > 1 && left !== undefined;
  const back = restored && html`<p>${t("leadBack", { until: date(left.at), at: date(birth.at) })} ${link(birth.seq)}</p>`;
  if (origin !== "learned") {
    return html`<div class="lead"><p>${t(restored && origin === "undo" ? "leadFirst" : `lead-${origin}`, { since })} ${origin !== "undo" && html`(<${By} cause=${added.cause} />)`}</p>${back}</div>`;
  }
  const [nothing, cited, read] = restored
    ? ["leadNothingFirst", "leadCitedFirst", "leadReadFirst"]
    : ["leadNothing", "leadCited", "leadRead"];
  const known = why.cited ? cited : read;
  return html`<div class="lead"><p>${t(why.evidence.length ? known : nothing, { since })}</p>${back}</div>`;
}

const originOf = ({ kind, thread }) => (thread ? "learned" : kind === "import" ? "import" : kind === "manual" ? "manual" : kind === "extraction" ? "learned" : "undo");

/** What was said when the fact was learned. */
function WordsOfFact({ scope, why, live }) {
  const t = useWords(words);
  const origin = originOf(why.added.cause);
  const missing = why.cited ? (why.fact.evidence?.length ?? 0) - why.evidence.length : 0;
  if (!why.evidence.length && origin !== "learned") return null;
  return html`<section class="why-words">
    <h2>${t(why.live ? (why.cited ? "words" : "wordsRead") : why.cited ? "wordsThen" : "wordsReadThen")}</h2>
    ${!why.evidence.length && html`<p class="empty">${t(why.fact.evidence?.length ? "wordsGone" : "wordsNone")}</p>`}
    ${why.evidence.length > 0 && !why.cited && html`<p class="hint">${t("notCited")}</p>`}
    ${byThread(why.evidence).map(
      ([thread, evidence]) => html`<${Conversation} key=${thread} scope=${scope} thread=${thread} evidence=${evidence} cited=${why.cited} count=${live.count} />`,
    )}
    ${why.evidence.length > 0 && missing > 0 && !why.fact.consolidatedFrom?.length && html`<p class="hint">${t("wordsMissing", { n: missing })}</p>`}
  </section>`;
}

/** What was said when the fact went: the words behind its successor, or those that the update read. */
function WordsOfRemoval({ scope, why, kin, live }) {
  const t = useWords(words);
  const { removed } = why;
  const successor = kin?.successors[0]?.fact;
  const cause = useLoad(
    async (signal) => (removed ? (await get(`/v1/commits/${removed.seq}`, scope, { signal })).cause : null),
    [removed?.seq],
  );
  const next = useLoad(
    async (signal) => (successor ? get(`/v1/facts/${encodeURIComponent(successor)}/why`, scope, { signal }) : null),
    [successor],
  );
  if (!cause.data?.thread || (kin === undefined && !next.data)) return null;
  const evidence = next.data?.cited && next.data.added.seq === removed.seq ? next.data.evidence : [];
  if (!evidence.length && !cause.data.turns) return null;
  return html`<section class="why-words">
    <h2>${t(evidence.length ? "wordsOfRemoval" : "wordsOfRemovalRead")}</h2>
    ${evidence.length
      ? byThread(evidence).map(([thread, said]) => html`<${Conversation} key=${thread} scope=${scope} thread=${thread} evidence=${said} cited count=${live.count} />`)
      : html`<${Conversation} scope=${scope} thread=${cause.data.thread} range=${cause.data.turns} count=${live.count} />`}
  </section>`;
}

function byThread(evidence) {
  const found = new Map();
  for (const one of evidence) found.set(one.thread, [...(found.get(one.thread) ?? []), one]);
  return [...found];
}

/** What it replaced, and what replaced it. */
function Kin({ scope, kin, live }) {
  const t = useWords(words);
  if (kin.error && !kin.data) return html`<${Failure} error=${kin.error} retry=${kin.reload} />`;
  const group = (key, nodes) =>
    nodes?.length > 0 &&
    html`<section class="why-kin">
      <h2>${t(key)}</h2>
      ${nodes.map((node) => html`<${KinRow} key=${node.fact} scope=${scope} node=${node} />`)}
    </section>`;
  return html`${group("replaced", kin.data?.replaced)} ${group(live ? "hadBeenReplacedBy" : "replacedBy", kin.data?.successors)} ${group("mergedFrom", kin.data?.merged)}
  ${group(live ? "hadBeenMergedInto" : "mergedInto", kin.data?.mergedInto)}`;
}

function KinRow({ scope, node }) {
  const t = useWords(words);
  const link = href("why", { ...scope, fact: node.fact });
  if (node.content === null || node.content === undefined) return html`<p><a href=${link}><bdi>${node.fact}</bdi></a> <span class="hint">${t("contentUnknown")}</span></p>`;
  return html`<p class=${`kin ${node.live ? "" : "kin-gone"}`}><a href=${link}><bdi class="fact-text">${node.content}</bdi></a> <span class="hint">${t(node.live ? "inMemory" : "notInMemory")}</span></p>`;
}

async function kinOf(scope, id, signal) {
  const { nodes, edges } = await get("/v1/graph", { ...scope, fact: id }, { signal });
  const facts = new Map(nodes.filter(({ kind }) => kind === "fact").map((node) => [node.id, node]));
  const me = `fact:${id}`;
  const ends = (kind, from, to) => [...new Set(edges.filter((edge) => edge.kind === kind && edge[from] === me).map((edge) => edge[to]))].map((end) => facts.get(end)).filter(Boolean);
  return {
    replaced: ends("superseded-by", "target", "source"),
    successors: ends("superseded-by", "source", "target"),
    merged: ends("merged-into", "target", "source"),
    mergedInto: ends("merged-into", "source", "target"),
  };
}

/** Everything that happened to the fact, oldest first, each with its way back. */
function History({ scope, why, live, may, open }) {
  const t = useWords(words);
  const log = useLoad(
    async (signal) => new Map((await get("/v1/log", { ...scope, fact: why.id, limit: MOST_UPDATES }, { signal })).items.map((entry) => [entry.seq, entry])),
    [why.id, live.count],
  );
  // An erasure is told once, however many places of the log it emptied.
  const history = why.history.filter((item, index) => item.type !== "Redacted" || why.history[index - 1]?.seq !== item.seq);
  const canUndo = ({ seq, type, cause }) => may.write && seq > 1 && cause !== "redaction" && ["FactAdded", "FactRemoved", "FactRevised"].includes(type);
  const reverts = [...(log.data?.values() ?? [])].filter(({ cause }) => cause.kind === "revert").sort((a, b) => a.seq - b.seq);
  // An undo that was undone itself no longer holds.
  const undoneBy = (seq) => reverts.findLast((entry) => entry.cause.target === seq && undoneBy(entry.seq) === undefined)?.seq;
  return html`<section class="why-history">
    <h2>${t("history")}</h2>
    <ol class="events">
      ${history.map((item) => {
        const entry = log.data?.get(item.seq);
        return html`<li class="event" data-seq=${item.seq}>
          <p class="event-head">
            <${Kind} kind=${item.cause} />
            <a href=${href("why", { ...scope, commit: item.seq })}>${t("updateN", { seq: item.seq })}</a>
            <span class="hint"><${Time} at=${item.at} /></span>
            ${entry && html`<span class="hint"><${By} cause=${entry.cause} /></span>`}
            ${entry?.cause.thread && html`<bdi class="source hint">${entry.cause.thread}</bdi>`}
          </p>
          <${Happened} scope=${scope} item=${item} event=${eventOf(entry, item, why.id)} />
          ${undoneBy(item.seq)
            ? html`<p class="hint">${t("undoneBy")} <a href=${href("why", { ...scope, commit: undoneBy(item.seq) })}>${t("updateN", { seq: undoneBy(item.seq) })}</a></p>`
            : canUndo(item) && html`<button type="button" onClick=${() => open({ undo: item.seq })}>${t("undo")}</button>`}
        </li>`;
      })}
    </ol>
  </section>`;
}

/** The event that an item of the history is about. */
function eventOf(entry, item, id) {
  const about = ({ fact, after, candidate }) => (fact?.id ?? after?.id ?? (typeof fact === "string" ? fact : undefined) ?? candidate?.id) === id;
  return entry?.events.find((event) => event.type === item.type && (about(event) || event.candidate?.sources?.includes(id)));
}

function Happened({ scope, item, event }) {
  const t = useWords(words);
  const text = (fact) => html`<q><bdi>${fact.content}</bdi></q>`;
  if (item.type === "FactAdded") {
    return html`<p>${t(["revert", "rollback"].includes(item.cause) ? "cameBack" : "wasAdded")} ${event ? text(event.fact) : ""} ${event && html`<${Confidence} value=${event.fact.confidence} />`}</p>`;
  }
  if (item.type === "FactRemoved") {
    if (!event) return html`<p>${t("wasRemoved")} <bdi>${item.detail}</bdi></p>`;
    return html`<p>
      ${t("wasRemoved")} <${Rule} rule=${wentBy(event.reason)} detail=${event.detail ?? event.reason} /> ${event.note && html`${t("modelsReason")} <q><bdi>${event.note}</bdi></q>`}
      ${event.reason === "consolidated" && event.detail && html`<a href=${href("why", { ...scope, fact: event.detail })}><bdi>${event.detail}</bdi></a>`}
    </p>`;
  }
  if (item.type === "FactRevised" && event) {
    const { before, after, change, proposed } = event;
    return html`<div>
      <p>${t(`was-${["confirmed", "edited", "extended", "restored", "ending", "tagged"].includes(change) ? change : "edited"}`)} ${proposed?.reason && html`<q><bdi>${proposed.reason}</bdi></q>`}</p>
      ${before.content !== after.content && html`<p class="was">${t("from")} ${text(before)} ${t("to")} ${text(after)}</p>`}
      ${before.confidence !== after.confidence && html`<p class="was"><${Confidence} value=${before.confidence} /> → <${Confidence} value=${after.confidence} /></p>`}
      ${tagsOf(before) !== tagsOf(after) && html`<p class="was">${t("tags")}: <bdi>${tagsOf(before) || "–"}</bdi> → <bdi>${tagsOf(after) || "–"}</bdi></p>`}
      ${before.category !== after.category && html`<p class="was"><${Category} category=${before.category} /> → <${Category} category=${after.category} /></p>`}
    </div>`;
  }
  if (item.type === "CandidateRejected" && event) {
    return html`<p>${t(`refused-${event.candidate.kind}`)} <${Rule} rule=${event.rule} detail=${event.detail} /></p>`;
  }
  if (item.type === "Redacted") return html`<p>${t("wasErased")}</p>`;
  return html`<p><bdi>${item.detail}</bdi></p>`;
}

const tagsOf = ({ tags = [], attributes = {} }) =>
  [...tags, ...Object.entries(attributes).map(([name, value]) => `${name}=${value}`)].join(", ");
