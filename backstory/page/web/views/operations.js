// Operations: the state of a memory, what waits and what failed, what it cost, and whether it is intact.
import { get, send } from "../lib/api.js";
import { bytes, number, Time } from "../lib/format.js";
import { html, useRef, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { href } from "../lib/route.js";
import { useTick } from "../lib/tick.js";
import { useWords } from "../lib/words.js";
import { Dialog } from "../components/dialog.js";
import { FactRow } from "../components/fact.js";
import { Empty, Failure, Loaded } from "../components/notice.js";
import { words } from "./operations.words.js";
import { Section } from "./operations_section.js";
import { More, Transfer } from "./operations_transfer.js";
import { Usage } from "./operations_usage.js";
import { Verify } from "./operations_verify.js";

const SECONDS = 15;

/** `days` of the address is the period of the tokens. */
export function View({ scope, params, live, caller }) {
  const t = useWords(words);
  const tick = useTick(SECONDS);
  const status = useLoad((signal) => get("/v1/status", scope, { signal }), [live.count, tick]);
  const mayWrite = caller.right !== "read";
  const verify = html`<${Verify} key="verify" scope=${scope} atOnce=${params.verify !== undefined} />`;
  // The checks are there also where the log is damaged, and nothing else can be read.
  if (status.error && !status.data) {
    return html`<h1>${t("title")}</h1>
      <${Failure} error=${status.error} retry=${status.reload} />
      <div class="operations">${verify}</div>`;
  }
  return html`
    <h1>${t("title")}</h1>
    <${Loaded} of=${status}>
      ${(found) => html`
        <div class="operations">
          <${State} status=${found} scope=${scope} />
          <${Parked} parked=${found.parked} scope=${scope} mayWrite=${mayWrite} onChanged=${status.reload} />
          <${Pending} pending=${found.pending} model=${found.model} scope=${scope} mayWrite=${mayWrite} onChanged=${status.reload} />
          ${verify}
          <${Usage} scope=${scope} params=${params} live=${live} />
          <${Purpose} scope=${scope} live=${live} />
          <${Faults} faults=${found.faults} />
          <${Evictions} evicted=${found.evicted} scope=${scope} />
          <${Transfer} scope=${scope} facts=${found.facts} mayWrite=${mayWrite} onChanged=${status.reload} />
          <${More} caller=${caller} />
        </div>
      `}
    <//>
  `;
}

function State({ status, scope }) {
  const t = useWords(words);
  const { seq, hash, facts, max_facts: most, turns, threads } = status;
  return html`<${Section} title=${t("state")} name="state" wide=${true}>
    <dl class="state">
      <div>
        <dt>${t("head")}</dt>
        <dd>${seq === 0 ? t("none") : html`<a href=${href("timeline", { ...scope, at: seq })}>${number(seq)}</a>`}</dd>
      </div>
      <div>
        <dt>${t("facts")}</dt>
        <dd>
          ${most ? t("factsOf", { facts: number(facts), most: number(most) }) : number(facts)}
          ${most > 0 && html` <meter min="0" max=${most} value=${facts} aria-label=${t("facts")}></meter>`}
          ${most > 0 && facts >= most && html`<p class="warning">${t("full")}</p>`}
          ${status.assistant_only > 0 && html`<p class="hint">${t("assistantOnly", { n: status.assistant_only })}</p>`}
        </dd>
      </div>
      <div><dt>${t("turns")}</dt><dd>${t("turnsIn", { turns: number(turns), threads })}</dd></div>
      <div>
        <dt>${t("sizes")}</dt>
        <dd>${t("sizesOf", { ledger: bytes(status.ledger_bytes), transcript: bytes(status.transcript_bytes) })}</dd>
      </div>
      <div><dt>${t("store")}</dt><dd><code>${status.store}</code></dd></div>
      <div><dt>${t("model")}</dt><dd>${status.model ? html`<bdi>${status.model}</bdi>` : html`<span class="warning">${t("noModel")}</span>`}</dd></div>
      ${hash && html`<div class="state-hash"><dt>${t("hash")}</dt><dd><${Hash} hash=${hash} /></dd></div>`}
    </dl>
  <//>`;
}

function Hash({ hash }) {
  const t = useWords(words);
  const code = useRef(null);
  const [said, setSaid] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(hash);
      setSaid(t("copied"));
    } catch {
      // Without https, a browser lets no page write to the clipboard.
      getSelection().selectAllChildren(code.current);
      setSaid(t("copyFailed"));
    }
  };
  return html`<span class="row">
      <code ref=${code}>${hash}</code>
      <button type="button" aria-label=${`${t("copy")}: ${t("hash")}`} onClick=${copy}>${t("copy")}</button>
      <span role="status">${said}</span>
    </span>
    <p class="hint">${t("hashHint")}</p>`;
}

const Thread = ({ scope, thread }) => html`<a href=${href("timeline", { ...scope, thread })}><bdi class="thread">${thread}</bdi></a>`;

/** Do something with failed or waiting updates: what is under way, and what came of it. */
function useWork(onChanged) {
  const [state, setState] = useState({ busy: null, done: null, error: null });
  const run = async (name, work) => {
    setState({ busy: name, done: null, error: null });
    try {
      setState({ busy: null, done: await work(), error: null });
    } catch (error) {
      setState({ busy: null, done: null, error });
    }
    onChanged();
  };
  return [state, run];
}

function Outcome({ state, busy }) {
  return html`
    ${state.error && html`<${Failure} error=${state.error} />`}
    <p role="status" class="outcome">${state.busy !== null ? busy : state.done}</p>
  `;
}

function Parked({ parked, scope, mayWrite, onChanged }) {
  const t = useWords(words);
  const [state, run] = useWork(onChanged);
  const [discarding, setDiscarding] = useState(null);
  const retry = (thread) =>
    run(thread ?? "", async () => {
      const { data } = await send("POST", "/v1/retry", scope, thread === null ? {} : { thread });
      return t("worked", data);
    });
  const discard = (thread) =>
    run(thread, async () => {
      await send("POST", "/v1/discard", scope, { thread });
      return t("discarded");
    });
  const busy = state.busy !== null;
  return html`<${Section} title=${t("parked")} name="parked">
    ${parked.length === 0
      ? html`<${Empty}>${t("parkedNone")}<//>`
      : html`<p class="hint">${t("parkedHint")}</p>
          <ul class="entries">
            ${parked.map(
              (item) => html`<li key=${item.thread} class="parked">
                <p class="entry-head"><${Thread} scope=${scope} thread=${item.thread} /> <span class="hint">${t("turnsShort")}: ${number(item.turns)} · ${t("attempts", { n: item.attempts })}</span></p>
                <p>${Object.hasOwn(words.en, `reason-${item.reason}`) ? t(`reason-${item.reason}`) : t("reason-other", { reason: item.reason })}</p>
                ${item.detail && html`<p class="hint"><bdi>${item.detail}</bdi></p>`}
                ${mayWrite &&
                html`<div class="row">
                  <button type="button" disabled=${busy} aria-label=${t("retryOf", { thread: item.thread })} onClick=${() => retry(item.thread)}>${t("retry")}</button>
                  <button type="button" class="danger" disabled=${busy} aria-label=${t("discardOf", { thread: item.thread })} onClick=${() => setDiscarding(item)}>${t("discard")}</button>
                </div>`}
              </li>`,
            )}
          </ul>
          ${mayWrite && parked.length > 1 && html`<button type="button" disabled=${busy} onClick=${() => retry(null)}>${t("retryAll")}</button>`}`}
    <${Outcome} state=${state} busy=${t("retrying")} />
    ${discarding &&
    html`<${Dialog} title=${t("discardTitle")} onClose=${() => setDiscarding(null)}>
      <p><bdi class="thread">${discarding.thread}</bdi></p>
      <p>${t("discardText", { turns: discarding.turns })}</p>
      <div class="row">
        <button
          type="button"
          class="danger"
          onClick=${() => {
            setDiscarding(null);
            void discard(discarding.thread);
          }}
        >
          ${t("discardDo")}
        </button>
        <button type="button" onClick=${() => setDiscarding(null)}>${t("cancel")}</button>
      </div>
    <//>`}
  <//>`;
}

function Pending({ pending, model, scope, mayWrite, onChanged }) {
  const t = useWords(words);
  const [state, run] = useWork(onChanged);
  const extract = () =>
    run("", async () => t("worked", (await send("POST", "/v1/extract", scope, {})).data));
  const due = ({ due_in: seconds, waiting_for: what }) => {
    if (what === "model") return t("waits-model");
    if (seconds === null) return t("waits-none");
    const when = seconds === 0 ? t("dueNow") : t("dueIn", { seconds });
    return what ? `${when} · ${t(`waits-${what}`)}` : when;
  };
  return html`<${Section} title=${t("pending")} name="pending">
    ${pending.length === 0
      ? html`<${Empty}>${t("pendingNone")}<//>`
      : html`<ul class="entries">
          ${pending.map(
            (item) => html`<li key=${item.thread}>
              <p class="entry-head"><${Thread} scope=${scope} thread=${item.thread} /> <span class="hint">${t("turnsShort")}: ${number(item.turns)}</span></p>
              <p class="hint">${due(item)}</p>
            </li>`,
          )}
        </ul>`}
    ${mayWrite && model && pending.length > 0 && html`<button type="button" disabled=${state.busy !== null} onClick=${extract}>${t("extract")}</button>`}
    <${Outcome} state=${state} busy=${t("retrying")} />
  <//>`;
}

/** What the memory is for, in the operator's words, and the line that changes it. */
function Purpose({ scope, live }) {
  const t = useWords(words);
  const found = useLoad((signal) => get("/v1/policy", scope, { signal }), [live.count]);
  const whose = [scope.user && `--user ${scope.user}`, scope.agent && `--agent ${scope.agent}`].filter(Boolean);
  const line = ["backstory", ...whose, 'policy --set instructions="…" --set categories=travel,diet'].join(" ");
  return html`<${Section} title=${t("purpose")} name="purpose">
    <${Loaded} of=${found}>
      ${({ policy: { instructions, categories } }) => html`
        ${instructions ? html`<blockquote><bdi>${instructions}</bdi></blockquote>` : html`<${Empty}>${t("purposeNone")}<//>`}
        ${categories.length > 0 &&
        html`<h3>${t("ownCategories")}</h3>
          <ul>${categories.map(({ name, description }) => html`<li key=${name}><bdi><b>${name}</b>${description && ` – ${description}`}</bdi></li>`)}</ul>`}
        <p class="hint">${t("purposeSet")}</p>
        <p><code>${line}</code></p>
      `}
    <//>
  <//>`;
}

function Faults({ faults }) {
  const t = useWords(words);
  if (faults.length === 0) return html`<${Section} title=${t("faults")} name="faults"><${Empty}>${t("faultsNone")}<//><//>`;
  return html`<${Section} title=${t("faults")} name="faults">
    <ul class="entries">
      ${faults.map(
        ({ doing, kind, count, last, detail }) => html`<li key=${`${doing} ${kind}`} class="parked">
          <p class="entry-head"><strong>${Object.hasOwn(words.en, `doing-${doing}`) ? t(`doing-${doing}`) : doing}</strong> <span class="hint">${number(count)} × · ${t("last")}: <${Time} at=${last} relative=${true} /></span></p>
          <p><code>${kind}</code></p>
          ${detail && html`<p class="hint"><bdi>${detail}</bdi></p>`}
        </li>`,
      )}
    </ul>
  <//>`;
}

function Evictions({ evicted, scope }) {
  const t = useWords(words);
  return html`<${Section} title=${t("evictions")} name="evictions">
    ${evicted.length === 0 && html`<${Empty}>${t("evictionsNone")}<//>`}
    <ul class="entries">
      ${evicted.map((eviction) => html`<${Eviction} key=${eviction.seq} eviction=${eviction} scope=${scope} />`)}
    </ul>
  <//>`;
}

/** A commit that pushed facts out; which they were is read when somebody wants to know. */
function Eviction({ eviction: { seq, at, facts }, scope }) {
  const t = useWords(words);
  const [open, setOpen] = useState(false);
  const commit = useLoad(async (signal) => (open ? get(`/v1/commits/${seq}`, scope, { signal }) : null), [open, seq]);
  const removed = (commit.data?.events ?? []).filter(({ type, fact }) => type === "FactRemoved" && facts.includes(fact.id));
  return html`<li>
    <p class="entry-head">
      <span>${t("evicted", { n: facts.length })} <a href=${href("timeline", { ...scope, at: seq })}>${t("update", { seq: number(seq) })}</a></span>
      <span class="hint"><${Time} at=${at} relative=${true} /></span>
    </p>
    <details onToggle=${(event) => setOpen(event.target.open)}>
      <summary>${t("which")}</summary>
      ${open && html`<${Loaded} of=${commit}>${() => removed.map(({ fact }) => html`<${FactRow} key=${fact.id} fact=${fact} mark="evicted" link=${href("why", { ...scope, fact: fact.id })} />`)}<//>`}
    </details>
  </li>`;
}
