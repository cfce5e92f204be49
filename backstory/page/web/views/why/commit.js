// Why an update was made, what it changed, and what it did not take in.
import { get } from "../../lib/api.js";
import { dateTime } from "../../lib/format.js";
import { html, useState } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { href } from "../../lib/route.js";
import { useWords } from "../../lib/words.js";
import { Capped } from "../../components/capped.js";
import { CauseDetails } from "../../components/cause.js";
import { Changes, changesOf, isEmpty } from "../../components/changes.js";
import { Conversation } from "../../components/conversation.js";
import { KindMark } from "../../components/kind.js";
import { Failure, Loaded } from "../../components/notice.js";
import { Refusal } from "../../components/refusals.js";
import { words } from "../why.words.js";

/** The update with the number `seq`. */
export function WhyCommit({ scope, seq, live, may, open }) {
  const t = useWords(words);
  const commit = useLoad((signal) => get(`/v1/commits/${encodeURIComponent(seq)}`, scope, { signal }), [seq, live.count]);
  const head = useLoad((signal) => get("/v1/head", scope, { signal }), [live.count]);
  if (commit.error?.status === 404) return html`<h1>${t("noCommit", { seq })}</h1>`;
  return html`<${Loaded} of=${commit}>
    ${(found) => html`<${Story} scope=${scope} commit=${found} head=${head.data?.seq} live=${live} may=${may} open=${open} />`}
  <//>`;
}

function Story({ scope, commit, head, live, may, open }) {
  const t = useWords(words);
  const [opened, setOpened] = useState(false);
  const { seq, at, cause, events } = commit;
  const changes = changesOf(events);
  const failed = events.find(({ type }) => type === "UpdateFailed");
  const erased = events.filter(({ type }) => type === "Erased").length;
  const policy = events.find(({ type }) => type === "PolicyChanged" && seq > 1);
  return html`
    <header class="why-top">
      <p class="why-kind">${t("anUpdate")}</p>
      <h1><${KindMark} kind=${cause.kind} /> ${t("updateTitle", { seq })}</h1>
      <p class="lead">${t(`did-${cause.kind}`, { at: dateTime(at), thread: cause.thread ?? "", target: cause.target ?? "" })}</p>
      <div class="row why-actions">
        ${may.write && seq > 1 && cause.kind !== "redaction" && html`<button type="button" class=${["revert", "rollback"].includes(cause.kind) ? "" : "primary"} onClick=${() => open({ undo: seq })}>${t("undo")}</button>`}
        <a class="button" href=${href("timeline", { ...scope, at: seq })}>${t("inTimeline")}</a>
        ${seq > 1 && html`<a class="button" href=${href("why", { ...scope, commit: seq - 1 })}>← ${t("updateN", { seq: seq - 1 })}</a>`}
        ${seq < head && html`<a class="button" href=${href("why", { ...scope, commit: seq + 1 })}>${t("updateN", { seq: seq + 1 })} →</a>`}
      </div>
    </header>
    <section>
      <h2>${t("changed")}</h2>
      ${failed && html`<p class="failure">${t("failedUpdate")} <bdi>${failed.detail}</bdi></p>`}
      ${policy && html`<p>${t("policyChanged")}</p><ul>${policyDifferences(policy).map(([key, before, after]) => html`<li><code>${key}</code>: ${before} → ${after}</li>`)}</ul>`}
      ${isEmpty(changes) && !policy && html`<p class="empty">${t(erased ? "changedErased" : "changedNothing")}</p>`}
      ${erased > 0 && html`<${ErasedBy} scope=${scope} seq=${seq} n=${erased} />`}
      <${Changes} changes=${changes} linkOf=${(fact) => href("why", { ...scope, fact: fact.id })} />
    </section>
    ${events.some(({ type }) => type === "CandidateRejected") && html`<${Refused} scope=${scope} seq=${seq} events=${events} />`}
    ${cause.thread && cause.turns && html`<section class="why-words"><h2>${t("wordsRead")}</h2><${Conversation} scope=${scope} thread=${cause.thread} range=${cause.turns} count=${live.count} /></section>`}
    <details class="card why-details" open>
      <summary>${t("detailsUpdate")}</summary>
      <${CauseDetails} scope=${scope} seq=${seq} at=${at} cause=${cause} />
    </details>
    <details class="card why-details" onToggle=${(event) => setOpened(event.target.open)}>
      <summary>${t("json")}</summary>
      ${opened && html`<pre class="json" tabindex="0">${JSON.stringify(events, null, 2)}</pre>`}
    </details>
  `;
}

/** What was refused. Where the server cannot say what it would take, the events still say by which rule. */
function Refused({ scope, seq, events }) {
  const t = useWords(words);
  const refusals = useLoad(async (signal) => (await get(`/v1/commits/${seq}/refusals`, scope, { signal })).items, [seq]);
  const rejected = events.filter(({ type }) => type === "CandidateRejected");
  const items =
    refusals.data ??
    rejected.map(({ candidate, rule, detail }) => ({
      kind: candidate.kind,
      content: candidate.content ?? candidate.summary ?? candidate.text ?? candidate.reason ?? "",
      fact: candidate.id ?? null,
      rule,
      detail,
    }));
  return html`<section>
    <h2>${t("notTaken")}</h2>
    ${refusals.error && refusals.error.status !== 404 && html`<${Failure} error=${refusals.error} retry=${refusals.reload} />`}
    <${Capped} items=${items} row=${(item) => html`<${Refusal} scope=${scope} item=${item} />`} />
  </section>`;
}

/** Which later update erased content of this one. */
function ErasedBy({ scope, seq, n }) {
  const t = useWords(words);
  const by = useLoad((signal) => erasuresOf(scope, seq, signal), [seq]);
  return html`<p class="erased">
    ${t("erasedHere", { n })} ${by.data?.map((one) => html`<a href=${href("why", { ...scope, commit: one })}>${t("updateN", { seq: one })}</a> `)}
  </p>`;
}

const MOST_PAGES = 20;

async function erasuresOf(scope, seq, signal) {
  const found = new Set();
  let cursor;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const { items, next } = await get("/v1/log", { ...scope, since: seq, limit: 200, cursor }, { signal });
    for (const entry of items) {
      if (entry.events.some((event) => event.type === "Redacted" && event.stream.endsWith("ledger") && event.seq === seq)) found.add(entry.seq);
    }
    if (!next) break;
    cursor = next;
  }
  return [...found];
}

function policyDifferences({ before, after }) {
  const keys = new Set([...Object.keys(before ?? {}), ...Object.keys(after)]);
  return [...keys]
    .map((key) => [key, JSON.stringify(before?.[key]) ?? "–", JSON.stringify(after[key]) ?? "–"])
    .filter(([, was, is]) => was !== is);
}
