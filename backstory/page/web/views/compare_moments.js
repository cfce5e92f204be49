// Two moments side by side: the facts that only one of them has, and what reads differently.
import { get } from "../lib/api.js";
import { marked } from "../lib/differing.js";
import { Time } from "../lib/format.js";
import { html, useEffect, useId, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { go, href } from "../lib/route.js";
import { VirtualList } from "../lib/virtual.js";
import { useWords } from "../lib/words.js";
import { Marked, SectionName } from "../components/changes.js";
import { Summary } from "../components/commit.js";
import { FactRow } from "../components/fact.js";
import { Kind } from "../components/kind.js";
import { Empty, Failure, Loaded } from "../components/notice.js";
import { words } from "./compare.words.js";

const MOST_ROWS = 100;

/** Without `a` and `b` in the address, the last update is shown: memory before it, and now. */
export function Moments({ scope, params, live }) {
  const t = useWords(words);
  const head = useLoad((signal) => get("/v1/head", scope, { signal }), [live.count]);
  return html`<${Loaded} of=${head}>
    ${({ seq }) => (seq === 0 ? html`<${Empty}>${t("empty")}<//>` : html`<${Pair} scope=${scope} params=${params} live=${live} head=${seq} />`)}
  <//>`;
}

function Pair({ scope, params, live, head }) {
  const t = useWords(words);
  const a = params.a ?? String(Math.max(1, head - 1));
  const b = params.b ?? String(head);
  const found = useLoad((signal) => get("/v1/diff", { ...scope, a, b }, { signal }), [a, b, live.count]);
  const set = (chosen) => go("compare", { ...scope, a: params.a, b: params.b, ...chosen }, { replace: true });
  return html`
    <div class="compare-pickers">
      <${Moment} name=${t("first")} at=${a} scope=${scope} live=${live} head=${head} onChoose=${(at) => set({ a: at })} />
      <button type="button" class="compare-swap" aria-label=${t("swap")} title=${t("swap")} onClick=${() => set({ a: b, b: a })}>
        <span aria-hidden="true">⇄</span> ${t("swapShort")}
      </button>
      <${Moment} name=${t("second")} at=${b} scope=${scope} live=${live} head=${head} onChoose=${(at) => set({ b: at })} />
    </div>
    <${Loaded} of=${found}>${(diff) => html`<${Differences} diff=${diff} scope=${scope} />`}<//>
  `;
}

/** One of the moments: which update it stands at, and three ways to choose another. */
function Moment({ name, at, scope, live, head, onChoose }) {
  const t = useWords(words);
  const id = useId();
  const [asked, setAsked] = useState(at);
  // Names that the slider passes over are not asked for one by one.
  useEffect(() => {
    const timer = setTimeout(() => setAsked(at), 60);
    return () => clearTimeout(timer);
  }, [at]);
  const { data, error, reload } = useLoad(
    (signal) => get("/v1/memory", { ...scope, at: asked, limit: 1 }, { signal }),
    [asked, live.count],
  );
  const stated = /^\d+$/.test(at) ? Number(at) : undefined;
  const seq = stated ?? data?.seq ?? head;
  const current = data !== undefined && (stated === undefined || data.seq === stated);
  return html`<section class="card compare-moment" aria-labelledby=${id}>
    <header class="row">
      <h2 id=${id}>${name}</h2>
      <button type="button" class="quiet" disabled=${seq === head && stated !== undefined} onClick=${() => onChoose(String(head))}>${t("now")}</button>
    </header>
    <input
      type="range"
      min="1"
      max=${head}
      value=${seq}
      aria-label=${t("slider", { side: name })}
      aria-valuetext=${t("update", { seq })}
      onInput=${(event) => onChoose(event.target.value)}
    />
    <div class="row">
      <input
        type="number"
        min="1"
        max=${head}
        value=${seq}
        aria-label=${t("commitNumber", { side: name })}
        onChange=${(event) => {
          const typed = Math.round(Number(event.target.value));
          if (event.target.value !== "" && Number.isFinite(typed)) onChoose(String(Math.min(Math.max(typed, 1), head)));
        }}
      />
      <input
        type="datetime-local"
        step="1"
        value=${data?.at ? localTime(data.at) : ""}
        aria-label=${t("time", { side: name })}
        onChange=${(event) => event.target.value && onChoose(new Date(event.target.value).toISOString())}
      />
    </div>
    ${error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Caption} moment=${data} current=${current} scope=${scope} />`}
  </section>`;
}

function Caption({ moment, current, scope }) {
  const t = useWords(words);
  if (moment === undefined) return html`<p class="hint">${t("loadingMoment")}</p>`;
  return html`<p class="compare-caption" aria-busy=${!current}>
    <strong>${t("facts", { n: moment.count })}</strong>
    ${moment.cause &&
    html` · <a href=${href("timeline", { ...scope, at: moment.seq })}>${t("update", { seq: moment.seq })}</a> · <${Kind} kind=${moment.cause.kind} /> · <${Time} at=${moment.at} />`}
    ${moment.summary && html`<br /><span class="hint"><${Summary} summary=${moment.summary} /></span>`}
  </p>`;
}

/** A time as a field for date and time takes it: the reader's, without a zone. */
function localTime(iso) {
  const time = new Date(iso);
  const two = (value) => String(value).padStart(2, "0");
  const day = `${String(time.getFullYear()).padStart(4, "0")}-${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  return `${day}T${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}

function Differences({ diff, scope }) {
  const t = useWords(words);
  const { removed, added, revised, sections, ended } = diff;
  const same = !(removed.length || added.length || revised.length || sections.length);
  const link = (fact) => href("why", { ...scope, fact: fact.id });
  const list = (facts, label, none) => html`<section class="compare-only">
    <h2>${label}</h2>
    ${facts.length === 0 && html`<${Empty}>${none}<//>`}
    <${FactList} facts=${facts} label=${label} link=${link} ended=${ended} />
  </section>`;
  if (same) return html`<p class="card" role="status">${t("same")}</p>`;
  return html`
    <p class="hidden" role="status">
      ${t("onlyFirst", { n: removed.length })}, ${t("onlySecond", { n: added.length })}, ${t("changed", { n: revised.length })}, ${t("sectionsChanged", { n: sections.length })}
    </p>
    ${(removed.length > 0 || added.length > 0) &&
    html`<div class="compare-columns">
      <div class="only-first">${list(removed, t("onlyFirst", { n: removed.length }), t("noneFirst"))}</div>
      <div class="only-second">${list(added, t("onlySecond", { n: added.length }), t("noneSecond"))}</div>
    </div>`}
    ${revised.length > 0 &&
    html`<section>
      <h2>${t("changed", { n: revised.length })}</h2>
      <${RevisedList} revised=${revised} label=${t("changed", { n: revised.length })} link=${link} />
    </section>`}
    ${sections.length > 0 &&
    html`<section>
      <h2>${t("sectionsChanged", { n: sections.length })}</h2>
      ${sections.map((change) => html`<${SectionPair} key=${change.section} change=${change} scope=${scope} />`)}
    </section>`}
  `;
}

/** Facts as rows; a long list scrolls in its own box. */
export function FactList({ facts, label, link, ended = {} }) {
  const t = useWords(words);
  const row = (fact) =>
    html`<${FactRow} key=${fact.id} fact=${fact} link=${link(fact)}>${fact.id in ended && html`<p class="hint">${t("hasEnded", { until: ended[fact.id] })}</p>`}<//>`;
  if (facts.length <= MOST_ROWS) return facts.map(row);
  return html`<${VirtualList} count=${facts.length} row=${(index) => row(facts[index])} estimate=${84} label=${label} />`;
}

function RevisedList({ revised, label, link }) {
  const row = ({ before, after }) => html`<div class="compare-columns compare-pair" key=${after.id}>
    <div class="only-first"><${FactRow} fact=${before} link=${link(before)} /></div>
    <div class="only-second"><${FactRow} fact=${after} link=${link(after)} /></div>
  </div>`;
  if (revised.length <= MOST_ROWS) return revised.map(row);
  return html`<${VirtualList} count=${revised.length} row=${(index) => row(revised[index])} estimate=${92} label=${label} />`;
}

/** A section's text at both moments, with the words that differ marked. */
export function SectionPair({ change, scope, names }) {
  const t = useWords(words);
  const side = (heading, parts, mark) => html`<div class=${mark}>
    <p class="compare-side">${heading}</p>
    <p class="compare-text">
      ${parts.some(({ text }) => text)
        ? html`<${Marked} parts=${parts} />`
        : html`<i>${t("none")}</i>`}
    </p>
  </div>`;
  const [before, after] = marked(change.before, change.after);
  return html`<article class="card">
    <h3><a href=${href("why", { ...scope, section: change.section })}><${SectionName} section=${change.section} /></a></h3>
    <div class="compare-columns compare-pair">
      ${side(names?.[0] ?? t("atFirst"), before, "only-first")} ${side(names?.[1] ?? t("atSecond"), after, "only-second")}
    </div>
  </article>`;
}
