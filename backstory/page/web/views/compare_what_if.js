// What if: the rules of memory to move about, and today's memory beside what it would be.
import { follow, get, send } from "../lib/api.js";
import { decimal, number } from "../lib/format.js";
import { useFlip } from "../lib/flip.js";
import { html, useCallback, useEffect, useId, useMemo, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { go, href } from "../lib/route.js";
import { VirtualList } from "../lib/virtual.js";
import { useWords } from "../lib/words.js";
import { words as common } from "../components/common.words.js";
import { Dialog } from "../components/dialog.js";
import { FactRow } from "../components/fact.js";
import { Empty, Failure, Loaded } from "../components/notice.js";
import { SectionPair } from "./compare_moments.js";
import { grouped, nearest, rulesOf, stopsOf, textOf, UNCHANGED, WEIGHTS, withoutRule, withRule } from "./compare_rules.js";
import { words } from "./compare.words.js";

// How many facts of a part are shown as cards that move; the rest is a list.
const MOST_CARDS = 60;
const TODAY = 300;

// A slider that is moved by keyboard is let go at each step: only where it rests is asked for.
const PAUSE = 150;

const pause = (signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, PAUSE);
    signal.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });

export function WhatIf(given) {
  const { scope, live } = given;
  const keys = useLoad((signal) => get("/v1/policy/keys", scope, { signal }), [live.count]);
  // Texts and lists of objects are changed elsewhere.
  const triable = (items) => items.filter(({ type }) => type !== "text" && type !== "categories");
  return html`<${Loaded} of=${keys}>${({ items }) => html`<${Trial} ...${given} items=${triable(items)} />`}<//>`;
}

function Trial({ scope, params, live, caller, items }) {
  const t = useWords(words);
  const { chosen, unknown } = useMemo(() => rulesOf(params["what-if"], items), [params["what-if"], items]);
  const asked = textOf(chosen);
  const [progress, setProgress] = useState(null);
  const [stopped, setStopped] = useState(null);
  const [applying, setApplying] = useState(false);
  const [applied, setApplied] = useState(null);
  const set = useCallback(
    (next) => go("compare", { ...scope, a: params.a, b: params.b, "what-if": textOf(next) }, { replace: true }),
    [scope.user, scope.agent, params.a, params.b],
  );
  const today = useLoad(
    (signal) => get("/v1/memory", { ...scope, sort: "confidence", descending: true, limit: TODAY }, { signal }),
    [live.count],
  );
  const outcome = useLoad(
    async (signal) => {
      setProgress(null);
      if (asked === UNCHANGED || asked === stopped) return null;
      const onProgress = (made) => signal.aborted || setProgress(made);
      await pause(signal);
      const body = { policy: chosen };
      const result = await follow("/v1/what-if", { method: "POST", params: scope, body, signal, onProgress });
      return { asked, result };
    },
    [asked, stopped, live.count],
  );
  useEffect(() => {
    setStopped(null);
    if (asked !== UNCHANGED) setApplied(null);
  }, [asked]);
  const mayWrite = caller.right !== "read";
  const changed = Object.keys(chosen).length;
  return html`
    <p class="hint">${t("whatIfHint")}</p>
    ${unknown.map((key) => html`<p class="failure" role="alert" key=${key}>${t("unknownKey", { key: key.slice(0, 80) })}</p>`)}
    ${applied && html`<${Applied} applied=${applied} scope=${scope} />`}
    <div class="what-if">
      <section class="what-if-rules" aria-label=${t("rules")}>
        ${grouped(items).map(
          ([group, inside]) => html`<${RuleGroup} key=${group} group=${group} items=${inside} all=${items} chosen=${chosen} onChange=${set} />`,
        )}
        <div class="row what-if-acts">
          <button type="button" disabled=${changed === 0} onClick=${() => set({})}>${t("resetAll")}</button>
          ${mayWrite
            ? html`<button type="button" class="primary" disabled=${changed === 0} onClick=${() => setApplying(true)}>${t("apply")}</button>`
            : html`<p class="hint">${t("readOnly")}</p>`}
        </div>
      </section>
      <div class="what-if-answer">
        <${Progress} outcome=${outcome} now=${today.data?.count} progress=${progress} asked=${asked} stopped=${stopped} onStop=${() => setStopped(asked)} onAsk=${() => setStopped(null)} />
      </div>
      <section class="what-if-outcome" aria-label=${t("outcome")}>
        <${Loaded} of=${today}>
          ${(memory) => html`<${Board} memory=${memory} outcome=${outcome.data} scope=${scope} />`}
        <//>
      </section>
    </div>
    ${applying &&
    html`<${ApplyDialog}
      scope=${scope}
      items=${items}
      chosen=${chosen}
      onClose=${() => setApplying(false)}
      onDone=${(done) => {
        setApplying(false);
        setApplied(done);
        set({});
      }}
    />`}
  `;
}

/** What is being asked, how far it is, and a way to stop it. One line is kept free for it, so that nothing jumps. */
function Progress({ outcome, now, progress, asked, stopped, onStop, onAsk }) {
  const t = useWords(words);
  const { data, error, loading, reload } = outcome;
  if (asked === UNCHANGED) return html`<p class="what-if-state" role="status">${t("untouched")}</p>`;
  if (asked === stopped) {
    return html`<p class="what-if-state" role="status">${t("stopped")} <button type="button" onClick=${onAsk}>${t("ask")}</button></p>`;
  }
  if (loading) {
    const { done, total } = progress ?? {};
    const text = progress ? t("askingOf", { done: number(done), total: number(total) }) : t("asking");
    return html`<div class="what-if-state">
      <progress max=${total || 1} value=${progress ? done : undefined} aria-label=${t("asking")}></progress>
      <span>${text}</span>
      <button type="button" onClick=${onStop}>${t("stop")}</button>
    </div>`;
  }
  if (error) return html`<${Failure} error=${error} retry=${reload} />`;
  if (!data) return null;
  const { facts, removed, added, revised, sections } = data.result;
  const same = !(removed.length || added.length || revised.length || sections.length);
  return html`<p class="what-if-state" role="status">
    ${same ? t("sameOutcome") : t("summary", { facts, now: now ?? facts + removed.length - added.length, goes: removed.length, comes: added.length })}
  </p>`;
}

/**
 * Today's facts beside those that there would be: what only one side has stands in its column, the rest below both.
 *
 * A fact keeps its card when it changes sides, so it can be followed with the eyes.
 */
function Board({ memory, outcome, scope }) {
  const t = useWords(words);
  const result = outcome?.result ?? null;
  const box = useFlip(result);
  const goes = result?.removed ?? [];
  const comes = result?.added ?? [];
  const gone = new Set(goes.map(({ id }) => id));
  const revised = new Map((result?.revised ?? []).map((pair) => [pair.before.id, pair]));
  const both = memory.facts.items.filter(({ id }) => !gone.has(id));
  // What reads differently comes first.
  both.sort((one, other) => revised.has(other.id) - revised.has(one.id));
  const bothCount = memory.count - goes.length;
  const link = (fact) => href("why", { ...scope, fact: fact.id });
  return html`<div class="board" ref=${box}>
    <header class="board-head">
      <h2>${t("today")} <span class="hint">${t("facts", { n: memory.count })}</span></h2>
      <h2>${t("outcome")} <span class="hint">${result ? t("facts", { n: result.facts }) : "–"}</span></h2>
    </header>
    ${result &&
    html`<section class="zone zone-goes">
        <h3>${t("goes")} <span class="zone-count">${number(goes.length)}</span></h3>
        ${goes.length === 0 && html`<${Empty}>${t("goesNone")}<//>`}
        <${Cards} facts=${goes} link=${link} className="would-go" mark=${t("wouldGo")} label=${t("goes")} />
      </section>
      <section class="zone zone-comes">
        <h3>${t("comes")} <span class="zone-count">${number(comes.length)}</span></h3>
        ${comes.length === 0 && html`<${Empty}>${t("comesNone")}<//>`}
        <${Cards} facts=${comes} link=${link} className="would-come" mark=${t("wouldCome")} label=${t("comes")} />
      </section>`}
    <section class="zone zone-both">
      <h3>${t("stays")} <span class="zone-count">${number(bothCount)}</span></h3>
      ${bothCount === 0 && html`<${Empty}>${t("staysNone")}<//>`}
      <div class="cards">
        ${both.slice(0, MOST_CARDS).map((fact) => {
          const pair = revised.get(fact.id);
          return html`<div class=${pair ? "would-change" : ""} data-flip=${fact.id} key=${fact.id}>
            <${FactRow} fact=${pair?.after ?? fact} link=${link(fact)}>
              ${pair && html`<${Difference} pair=${pair} />`}
            <//>
          </div>`;
        })}
      </div>
      ${bothCount > Math.min(both.length, MOST_CARDS) &&
      html`<p><a href=${href("memory", scope)}>${t("showAll", { n: number(memory.count) })}</a></p>`}
    </section>
    ${result?.sections.length > 0 &&
    html`<section class="zone zone-both">
      <h3>${t("sections")} <span class="zone-count">${number(result.sections.length)}</span></h3>
      ${result.sections.map(
        (change) => html`<${SectionPair} key=${change.section} change=${change} scope=${scope} names=${[t("today"), t("outcome")]} />`,
      )}
    </section>`}
  </div>`;
}

function Cards({ facts, link, className, mark, label }) {
  const t = useWords(words);
  const [all, setAll] = useState(false);
  const row = (fact) => html`<${FactRow} fact=${fact} link=${link(fact)}><p class="zone-mark">${mark}</p><//>`;
  if (all && facts.length > MOST_CARDS) {
    return html`<div class=${className}>
      <${VirtualList} count=${facts.length} row=${(index) => row(facts[index])} estimate=${104} label=${label} />
    </div>`;
  }
  return html`
    ${facts.slice(0, MOST_CARDS).map((fact) => html`<div class=${className} data-flip=${fact.id} key=${fact.id}>${row(fact)}</div>`)}
    ${facts.length > MOST_CARDS &&
    html`<button type="button" onClick=${() => setAll(true)}>${t("showAll", { n: number(facts.length) })}</button>`}
  `;
}

function Difference({ pair: { before, after } }) {
  const t = useWords(words);
  return html`<p class="zone-mark">${t("wouldChange")}</p>
    ${before.content !== after.content && html`<p class="was">${t("today")}: <bdi>${before.content}</bdi></p>`}
    ${before.confidence !== after.confidence && html`<p class="was">${decimal(before.confidence)} → ${decimal(after.confidence)}</p>`}`;
}

function RuleGroup({ group, items, all, chosen, onChange }) {
  const t = useWords(words);
  const changed = items.filter(({ key }) => key in chosen).length;
  // The first group is open, and each that a link has changed something in.
  const [open] = useState(group === "capAndThreshold" || changed > 0);
  return html`<details class="card rule-group" open=${open}>
    <summary><h3>${t(`group-${group}`)}</h3> ${changed > 0 && html`<span class="rule-changed">${t("changedRule", { n: number(changed) })}</span>`}</summary>
    ${items.map((item) => html`<${Rule} key=${item.key} item=${item} all=${all} chosen=${chosen} onChange=${onChange} />`)}
    ${items.some(({ key }) => WEIGHTS.includes(key)) && html`<p class="hint">${t("weightsHint")}</p>`}
  </details>`;
}

/** The name of a policy key; a key without words is shown as it is. */
const nameOf = (t, key) => (Object.hasOwn(words.en, key) ? t(key) : key);

const choiceName = (t, value) => (Object.hasOwn(words.en, `value-${value}`) ? t(`value-${value}`) : value);

const categoryName = (c, name) => (Object.hasOwn(common.en, name) ? c(name) : name);

function shownValue(t, c, { type }, value) {
  if (type === "boolean") return t(value ? "on" : "off");
  if (type === "choice") return choiceName(t, value);
  if (type === "list") return value.map((name) => categoryName(c, name)).join(", ") || t("none");
  return number(value);
}

function Rule({ item, all, chosen, onChange }) {
  const t = useWords(words);
  const c = useWords(common);
  const id = useId();
  const { key, type, choices } = item;
  const value = chosen[key] ?? item.value;
  const isChosen = key in chosen;
  const set = (next) => onChange(withRule(chosen, key, next, all));
  return html`<div class=${`rule ${isChosen ? "is-chosen" : ""}`} data-key=${key}>
    <div class="rule-head">
      <span id=${id} class="rule-name" title=${key}>${nameOf(t, key)}</span>
      <span class="hint">${t("inForce", { value: shownValue(t, c, item, item.value) })}</span>
      ${isChosen &&
      html`<button type="button" class="quiet" aria-label=${t("resetKey", { key: nameOf(t, key) })} title=${t("reset")} onClick=${() => onChange(withoutRule(chosen, key))}><span aria-hidden="true">↺</span></button>`}
    </div>
    ${(type === "integer" || type === "number") && html`<${NumberField} item=${item} value=${value} label=${id} onChoose=${set} />`}
    ${type === "boolean" &&
    html`<label class="switch"><input type="checkbox" role="switch" aria-labelledby=${id} checked=${value} onChange=${(event) => set(event.target.checked)} /> ${t(value ? "on" : "off")}</label>`}
    ${type === "choice" &&
    html`<select aria-labelledby=${id} value=${value} onChange=${(event) => set(event.target.value)}>
      ${choices.map((one) => html`<option key=${one} value=${one} selected=${one === value}>${choiceName(t, one)}</option>`)}
    </select>`}
    ${type === "list" &&
    html`<div class="row" role="group" aria-labelledby=${id}>
      ${choices.map(
        (one) => html`<label key=${one}>
          <input
            type="checkbox"
            checked=${value.includes(one)}
            onChange=${(event) => set(choices.filter((other) => (other === one ? event.target.checked : value.includes(other))))}
          />
          ${categoryName(c, one)}
        </label>`,
      )}
    </div>`}
  </div>`;
}

/** A slider and a field. Both say the value while it moves; it counts when the slider is let go. */
function NumberField({ item, value, label, onChoose }) {
  const t = useWords(words);
  const { key, type, minimum, maximum } = item;
  const [moving, setMoving] = useState(null);
  const [wrong, setWrong] = useState(false);
  const stops = useMemo(() => stopsOf(item), [item]);
  useEffect(() => {
    setMoving(null);
    setWrong(false);
  }, [value]);
  const shown = moving ?? value;
  const choose = (next) => {
    setMoving(null);
    if (next !== value) onChoose(next);
  };
  const typed = (text) => {
    const next = type === "integer" ? Math.round(Number(text)) : Number(text);
    const fits = text.trim() !== "" && Number.isFinite(next) && next >= minimum && next <= maximum;
    setWrong(!fits);
    if (fits) choose(next);
  };
  return html`<div class="rule-number">
      <input
        type="range"
        min="0"
        max=${stops.length - 1}
        step="1"
        value=${nearest(stops, shown)}
        aria-labelledby=${label}
        aria-valuetext=${number(shown)}
        onInput=${(event) => setMoving(stops[event.target.value])}
        onChange=${(event) => choose(stops[event.target.value])}
      />
      <input
        type="number"
        min=${minimum}
        max=${maximum}
        step=${type === "integer" ? 1 : "any"}
        value=${shown}
        aria-labelledby=${label}
        aria-invalid=${wrong}
        onChange=${(event) => typed(event.target.value)}
      />
    </div>
    ${wrong && html`<p class="rule-wrong" role="alert">${t("outOfRange", { key: nameOf(t, key), minimum: number(minimum), maximum: number(maximum) })}</p>`}`;
}

function ApplyDialog({ scope, items, chosen, onClose, onDone }) {
  const t = useWords(words);
  const c = useWords(common);
  const [state, setState] = useState({ busy: false, error: null });
  const apply = async () => {
    setState({ busy: true, error: null });
    try {
      const { data } = await send("PATCH", "/v1/policy", scope, chosen);
      onDone({ commit: data.commit });
    } catch (error) {
      setState({ busy: false, error });
    }
  };
  return html`<${Dialog} title=${t("applyTitle")} onClose=${onClose}>
    <p>${t("applyHint")}</p>
    <table class="rules-table">
      <thead><tr><th scope="col">${t("rule")}</th><th scope="col">${t("before")}</th><th scope="col">${t("after")}</th></tr></thead>
      <tbody>
        ${items
          .filter(({ key }) => key in chosen)
          .map(
            (item) => html`<tr key=${item.key}>
              <th scope="row">${nameOf(t, item.key)}</th>
              <td>${shownValue(t, c, item, item.value)}</td>
              <td><strong>${shownValue(t, c, item, chosen[item.key])}</strong></td>
            </tr>`,
          )}
      </tbody>
    </table>
    ${state.error && html`<${Failure} error=${state.error} />`}
    <div class="row">
      <button type="button" class="primary" disabled=${state.busy} onClick=${apply}>${t("applyDo")}</button>
      <button type="button" onClick=${onClose}>${t("cancel")}</button>
    </div>
  <//>`;
}

/** What came of putting the rules in force. */
function Applied({ applied: { commit }, scope }) {
  const t = useWords(words);
  const entry = useLoad(
    async (signal) => (commit === null ? null : get(`/v1/commits/${commit}`, scope, { signal })),
    [commit],
  );
  if (commit === null || commit === undefined) return html`<p class="card" role="status">${t("appliedNothing")}</p>`;
  const gone = entry.data?.events?.filter(({ type }) => type === "FactRemoved").length ?? 0;
  return html`<p class="card applied" role="status">
    ${t("applied")} ${gone > 0 && t("appliedGone", { n: gone })}${" "}
    <a href=${href("timeline", { ...scope, at: commit })}>${t("appliedAt", { seq: commit })}</a>
  </p>`;
}
