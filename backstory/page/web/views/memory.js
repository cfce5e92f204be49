// Memory: what is remembered, now or at an earlier moment: sections and facts, to search, filter and sort.
import { get } from "../lib/api.js";
import { ago, dateTime, number } from "../lib/format.js";
import { html, useCallback, useEffect, useMemo, useRef, useState } from "../lib/html.js";
import { useMoment } from "../lib/moment.js";
import { useKept } from "../lib/place.js";
import { go, href } from "../lib/route.js";
import { VirtualList } from "../lib/virtual.js";
import { useWords } from "../lib/words.js";
import { changesOf, SectionName } from "../components/changes.js";
import { LiveBanner } from "../components/commit.js";
import { MemoryState, NothingYet, useStatus } from "../components/memory_state.js";
import { words as common } from "../components/common.words.js";
import { FactRow } from "../components/fact.js";
import { Later } from "../components/later.js";
import { Busy, Empty, Failure } from "../components/notice.js";
import { SearchHits } from "../components/search_hits.js";
import { words } from "./memory.words.js";

const SORTS = ["born-down", "born", "confidence-down", "confidence", "content", "content-down", "category-up", "category-down"];
// Typing is followed after a pause of this many milliseconds.
const PAUSE = 60;
const LONG = 320;

export function View({ scope, params, live, caller }) {
  const t = useWords(words);
  const [dialog, setDialog] = useState(null);
  const { at, category, tag, q, valid_at: validAt } = params;
  const sort = SORTS.includes(params.sort) ? params.sort : SORTS[0];
  const filter = useMemo(
    () => ({ sort: sort.replace(/-(down|up)$/, ""), descending: sort.endsWith("-down") || undefined, category, tag, contains: params.contains, valid_at: validAt }),
    [sort, category, tag, params.contains, validAt],
  );
  const { moment, fact, onRange, error, reload } = useMoment(scope, at, filter, at === undefined ? live.count : 0);
  const status = useStatus(scope, live.count);
  const marks = useMarks(live, at);
  const change = (changes) => go("memory", { ...params, ...changes }, { replace: true });
  if (!moment) return error ? html`<${Failure} error=${error} retry=${reload} />` : html`<${Busy} />`;
  const mayWrite = caller.right !== "read";
  return html`
    <div class="memory">
      <header class="memory-head">
        <div>
          <h1>${t("title")}</h1>
          <p class="hint">${at === undefined
            ? moment.count || moment.seq > 1
              ? t("about", { n: moment.count, s: number(moment.count), time: ago(moment.at) })
              : ""
            : t("aboutPast", { n: moment.count, s: number(moment.count) })}</p>
        </div>
        <p class="row">
          <a class="button" href=${href("timeline", { ...scope, at })}>${t("slide")}</a>
          ${mayWrite && at === undefined && html`<button type="button" class="primary" onClick=${() => setDialog({ kind: "add" })}>${t("add")}</button>`}
        </p>
      </header>
      ${at === undefined && html`<${MemoryState} scope=${scope} status=${status.data} />`}
      ${at !== undefined && html`<div class="card past-banner" role="status">
        <p><strong>${t("past", { seq: number(moment.seq), time: dateTime(moment.at) })}</strong></p>
        <p class="row">
          <a class="button" href=${href("memory", { ...params, at: undefined })}>${t("now")}</a>
          <a href=${href("timeline", { ...scope, at: moment.seq })}>${t("onTimeline")}</a>
        </p>
      </div>`}
      <${LiveBanner} scope=${scope} live=${live} onUndo=${mayWrite && ((seq) => setDialog({ kind: "undo", seq }))} />
      ${error && html`<${Failure} error=${error} retry=${reload} />`}
      <${Sections} sections=${moment.sections} scope=${scope} />
      <section aria-labelledby="facts-title">
        <h2 id="facts-title">${t("facts")}</h2>
        ${moment.count > 0 || q || validAt ? html`<${Finding} scope=${scope} params=${params} sort=${sort} moment=${moment} change=${change} />` : null}
        ${q
          ? html`<${SearchHits} scope=${scope} query=${q} category=${category} tag=${tag} round=${live.count} newest=${moment.seq} past=${at !== undefined} />`
          : html`<${FactList} moment=${moment} fact=${fact} onRange=${onRange} filter=${filter} scope=${scope} marks=${marks} dated=${at !== undefined} status=${status.data} open=${mayWrite && at === undefined && setDialog} />`}
      </section>
    </div>
    ${dialog?.kind === "undo" && html`<${Later} load=${() => import("../components/undo.js")} name="UndoDialog" scope=${scope} seq=${dialog.seq} onClose=${() => setDialog(null)} />`}
    ${dialog?.kind === "add" && html`<${Later} load=${() => import("../components/fact_form.js")} name="FactForm" scope=${scope} onClose=${() => setDialog(null)} />`}
    ${dialog?.kind === "edit" && html`<${Later} load=${() => import("../components/fact_form.js")} name="FactForm" scope=${scope} fact=${dialog.fact} onClose=${() => setDialog(null)} />`}
    ${dialog?.kind === "remove" && html`<${Later} load=${() => import("../components/fact_form.js")} name="RemoveDialog" scope=${scope} fact=${dialog.fact} onClose=${() => setDialog(null)} />`}
  `;
}

/** Marks for the facts that the newest commit brought or changed, while the page is open. */
function useMarks(live, at) {
  return useMemo(() => {
    if (!live.commit || at !== undefined) return new Map();
    const { added, revised } = changesOf(live.commit.events);
    return new Map([...added.map(({ id }) => [id, "added"]), ...revised.map(({ after }) => [after.id, "revised"])]);
  }, [live.commit, at]);
}

function Sections({ sections, scope }) {
  const t = useWords(words);
  const c = useWords(common);
  const written = sections.filter(({ summary }) => summary);
  const empty = sections.filter(({ summary }) => !summary);
  const names = empty.map(({ section }) => (Object.hasOwn(common.en, section) ? c(section) : section)).join(t("comma"));
  if (!written.length) return html`<p class="hint sections">${t("noSection", { names })}</p>`;
  return html`<section aria-labelledby="sections-title" class="sections">
    <h2 id="sections-title">${t("sections")}</h2>
    <div class="section-grid">
      ${written.map((section) => html`<${Section} key=${section.section} section=${section} scope=${scope} />`)}
    </div>
    ${empty.length > 0 && html`<p class="hint">${t("noSection", { names })}</p>`}
  </section>`;
}

function Section({ section: { section, summary, updated_at: updatedAt }, scope }) {
  const t = useWords(words);
  const [whole, setWhole] = useKept(`section ${section}`, false);
  const long = summary.length > LONG;
  return html`<article class="card section">
    <h3><${SectionName} section=${section} /></h3>
    <p class=${long && !whole ? "section-text short" : "section-text"}><bdi>${summary}</bdi></p>
    <p class="section-about">
      <a href=${href("why", { ...scope, section })}>${t("sectionWhy")}</a>
      ${updatedAt && html`<span class="hint">${t("updated", { time: ago(updatedAt) })}</span>`}
      ${long && html`<button type="button" class="quiet" aria-expanded=${whole} onClick=${() => setWhole(!whole)}>${t(whole ? "showLess" : "showAll")}</button>`}
    </p>
  </article>`;
}

/** A text field that hands on what was typed after a pause, and follows the address otherwise. */
function Typed({ value, label, type = "search", onValue, onFocus }) {
  const [typed, setTyped] = useState(value ?? "");
  const timer = useRef(null);
  const told = useRef(value ?? "");
  useEffect(() => {
    if ((value ?? "") !== told.current) setTyped(value ?? "");
    told.current = value ?? "";
  }, [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const input = (event) => {
    const text = event.target.value;
    setTyped(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      told.current = text.trim();
      onValue(text.trim() || undefined);
    }, PAUSE);
  };
  return html`<label class="field">${label} <input type=${type} value=${typed} onInput=${input} onFocus=${onFocus} /></label>`;
}

function Finding({ scope, params, sort, moment, change }) {
  const t = useWords(words);
  const c = useWords(common);
  const { q, category, tag, contains, valid_at: validAt } = params;
  const warm = useRef(false);
  // The server reads what it searches when it is first asked: better while the query is typed than after it.
  const warmUp = () => {
    if (!warm.current) get("/v1/search", { ...scope, query: "a", top_k: 1 }).catch(() => (warm.current = false));
    warm.current = true;
  };
  const filtered = !q && (category || tag || contains);
  return html`<div class="finding" role="search" aria-label=${t("find")}>
    <${Typed} label=${t("search")} value=${q} onFocus=${warmUp} onValue=${(text) => change({ q: text })} />
    <label class="field">${t("category")}
      <select value=${category ?? ""} onChange=${(event) => change({ category: event.target.value || undefined })}>
        <option value="" selected=${!category}>${t("every", { n: number(moment.count) })}</option>
        ${Object.entries(moment.categories).map(
          ([name, n]) => html`<option value=${name} selected=${name === category}>${Object.hasOwn(common.en, name) ? c(name) : name} (${number(n)})</option>`,
        )}
        ${category && !Object.hasOwn(moment.categories, category) && html`<option value=${category} selected>${Object.hasOwn(common.en, category) ? c(category) : category} (0)</option>`}
      </select>
    </label>
    ${(tag || Object.keys(moment.tags).length > 0) && html`<label class="field">${t("tag")}
      <select value=${tag ?? ""} onChange=${(event) => change({ tag: event.target.value || undefined })}>
        <option value="" selected=${!tag}>${t("every", { n: number(moment.count) })}</option>
        ${Object.entries({ ...(tag && { [tag]: 0 }), ...moment.tags }).map(
          ([name, n]) => html`<option value=${name} selected=${name === tag}>${name} (${number(n)})</option>`,
        )}
      </select>
    </label>`}
    ${!q && html`<label class="field">${t("trueAt")}
      <input type="date" value=${validAt ?? ""} title=${t("trueAtHint")} onChange=${(event) => change({ valid_at: event.target.value || undefined })} />
    </label>`}
    ${!q && html`<label class="field">${t("sort")}
      <select value=${sort} onChange=${(event) => change({ sort: event.target.value })}>
        ${SORTS.map((name) => html`<option value=${name} selected=${name === sort}>${t(name)}</option>`)}
      </select>
    </label>`}
    <p class="matching" role="status">
      ${filtered && html`<span>${t("matching", { n: moment.facts.total, s: number(moment.facts.total), of: number(moment.count) })}</span>
        <button type="button" onClick=${() => change({ contains: undefined, category: undefined, tag: undefined })}>${t("clear")}</button>`}
    </p>
  </div>`;
}

function FactList({ moment, fact, onRange, filter, scope, marks, dated, status, open }) {
  const t = useWords(words);
  const row = useCallback(
    (index) => {
      const found = fact(index);
      if (!found) return html`<div class="fact is-dense waiting"></div>`;
      return html`<${FactRow} fact=${found} mark=${marks.get(found.id)} link=${href("why", { ...scope, fact: found.id })} dated=${dated} open=${open} dense=${true} />`;
    },
    [fact, marks, dated, open],
  );
  if (!moment.count && !filter.valid_at) return dated ? html`<${Empty}>${t("emptyThen")}<//>` : html`<${NothingYet} scope=${scope} status=${status} />`;
  if (!moment.facts.total) return html`<${Empty}>${t("noMatch")}<//>`;
  return html`<${VirtualList}
    className="fact-list"
    count=${moment.facts.total}
    row=${row}
    estimate=${36}
    label=${t("facts")}
    onRange=${onRange}
    top=${JSON.stringify(filter)}
  />`;
}
