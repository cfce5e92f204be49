// By hand: dialogs to add, edit and remove a fact.
import { get, send } from "../lib/api.js";
import { decimal } from "../lib/format.js";
import { html, useId, useRef, useState } from "../lib/html.js";
import { latest } from "../lib/live.js";
import { useLoad } from "../lib/load.js";
import { href } from "../lib/route.js";
import { useStore } from "../lib/store.js";
import { useWords } from "../lib/words.js";
import { words as common } from "./common.words.js";
import { Dialog, focused } from "./dialog.js";
import { FactRow } from "./fact.js";
import { FactName } from "./fact_name.js";
import { Failure } from "./notice.js";
import { Rule } from "./refusals.js";
import { UndoDialog } from "./undo.js";
import { words } from "./fact_form.words.js";

const CATEGORIES = ["preference", "knowledge", "context", "behavior", "goal", "correction"];

/**
 * Add a fact by hand, beginning with the text `content`, or edit `fact`, with a way to remove it.
 *
 * `onDone(change)` is called when it is done; the dialog stays, to show the new update, until `onClose`.
 */
export function FactForm({ scope, fact, content = "", onClose, onDone }) {
  const t = useWords(words);
  const [step, setStep] = useState({ at: fact ? "edit" : "add", change: null });
  const done = (at) => (change) => {
    setStep({ at, change });
    onDone?.(change);
  };
  if (step.at === "undo") return html`<${UndoDialog} scope=${scope} seq=${step.change.commit} onClose=${onClose} onDone=${onDone} />`;
  if (step.at === "remove") {
    return html`<${RemoveDialog} scope=${scope} fact=${fact} onClose=${onClose} onDone=${onDone} />`;
  }
  return html`<${Dialog} title=${t(step.at === "saved" ? (fact ? "edit" : "add") : step.at)} onClose=${onClose}>
    ${step.at === "saved"
      ? html`<${Saved} scope=${scope} change=${step.change} said=${t("saved")} onClose=${onClose} onUndo=${() => setStep({ ...step, at: "undo" })} />`
      : html`<${Form} scope=${scope} fact=${fact} given=${content} onClose=${onClose} onSaved=${done("saved")} onRemove=${() => setStep({ at: "remove", change: null })} />`}
  <//>`;
}

/** Ask whether to remove a fact, then remove it. The log keeps it. */
export function RemoveDialog({ scope, fact, onClose, onDone }) {
  const t = useWords(words);
  const [step, setStep] = useState({ at: "ask", change: null });
  const [ended, setEnded] = useState(false);
  const { busy, error, submit } = useSubmit((key) =>
    send("DELETE", `/v1/facts/${encodeURIComponent(fact.id)}`, { ...scope, ...(ended && { ended }) }, undefined, { key }),
  );
  const remove = async () => {
    const change = await submit(ended ? "ended" : "remove");
    if (!change) return;
    setStep({ at: "removed", change });
    onDone?.(change);
  };
  if (step.at === "undo") return html`<${UndoDialog} scope=${scope} seq=${step.change.commit} onClose=${onClose} onDone=${onDone} />`;
  return html`<${Dialog} title=${t("remove")} onClose=${onClose}>
    ${step.at === "removed"
      ? html`<${Saved} scope=${scope} change=${step.change} said=${t("removed")} mark="removed" onClose=${onClose} onUndo=${() => setStep({ ...step, at: "undo" })} />`
      : html`<${FactRow} fact=${fact} />
          <p>${t("removeMeans")}</p>
          <label class="row"><input type="checkbox" checked=${ended} onChange=${(event) => setEnded(event.target.checked)} /> ${t("wasTrue")}</label>
          <${Refused} scope=${scope} error=${error} />
          <footer class="dialog-foot">
            <button type="button" onClick=${onClose} data-focus>${t("cancel")}</button>
            <button type="button" class="danger" disabled=${busy} onClick=${remove}>${t(busy ? "working" : "removeNow")}</button>
          </footer>`}
  <//>`;
}

function Form({ scope, fact, given, onClose, onSaved, onRemove }) {
  const t = useWords(words);
  const named = useWords(common);
  const hint = useId();
  const slider = useId();
  const [start, setStart] = useState(fact);
  const [content, setContent] = useState(fact?.content ?? given);
  const [category, setCategory] = useState(fact?.category ?? "context");
  const [own, setOwn] = useState(false);
  const [confidence, setConfidence] = useState(fact?.confidence ?? 0.9);
  const [times, setTimes] = useState(timesOf(fact));
  const [tags, setTags] = useState(tagsOf(fact));
  const choose = (name) => {
    setOwn(name === "");
    setCategory(name);
  };
  const changed = {
    ...(content.trim() !== start?.content && { content: content.trim() }),
    ...(category !== start?.category && { category }),
    ...(confidence !== start?.confidence && { confidence }),
    ...(listed(tags).join() !== listed(tagsOf(start)).join() && { tags: listed(tags) }),
    ...Object.fromEntries(Object.entries(times).filter(([name, time]) => time !== timesOf(start)[name])),
  };
  const { busy, error, submit } = useSubmit((key) =>
    start
      ? send("PATCH", `/v1/facts/${encodeURIComponent(start.id)}`, scope, changed, { key })
      : send("POST", "/v1/facts", scope, { ...changed, content: content.trim(), category, confidence }, { key }),
  );
  const takeOver = (now) => {
    setStart(now);
    setContent(now.content);
    choose(now.category);
    setConfidence(now.confidence);
    setTimes(timesOf(now));
    setTags(tagsOf(now));
  };
  const save = async (event) => {
    event.preventDefault();
    const change = await submit(JSON.stringify([content, category, confidence, times, tags]));
    if (change) onSaved(change);
  };
  const same = start !== undefined && Object.keys(changed).length === 0;
  return html`<form class="fact-form" onSubmit=${save}>
    ${start && html`<${ChangedMeanwhile} scope=${scope} fact=${start} takeOver=${takeOver} />`}
    <label class="field">
      <span>${t("content")}</span>
      <textarea rows="3" dir="auto" required value=${content} aria-describedby=${hint} data-focus onInput=${(event) => setContent(event.target.value)}></textarea>
    </label>
    <p class="hint" id=${hint}>${t(start ? "editHint" : "addHint")}</p>
    <label class="field">
      <span>${t("category")}</span>
      <select value=${own ? "" : category} onChange=${(event) => choose(event.target.value)}>
        ${[...new Set([...CATEGORIES, start?.category ?? "context"])].map(
          (name) => html`<option value=${name} selected=${!own && name === category}>${Object.hasOwn(common.en, name) ? named(name) : name}</option>`,
        )}
        <option value="" selected=${own}>${t("ownCategory")}</option>
      </select>
    </label>
    ${own && html`<label class="field"><span>${t("categoryName")}</span>
      <input type="text" dir="auto" required maxlength="512" value=${category} onInput=${(event) => setCategory(event.target.value)} />
    </label>`}
    <div class="field">
      <span><label for=${slider}>${t("confidence")}</label> <output for=${slider}>${decimal(confidence)}</output></span>
      <input id=${slider} type="range" min="0" max="1" step="0.01" value=${confidence} onInput=${(event) => setConfidence(Number(event.target.value))} />
      <span class="ends hint" aria-hidden="true"><span>${t("unsure")}</span><span>${t("certain")}</span></span>
    </div>
    ${Object.entries(times).map(
      ([name, time]) => html`<label class="field" key=${name}>
        <span>${t(name)}</span>
        <input type="text" placeholder="2026-03" value=${time} onInput=${(event) => setTimes({ ...times, [name]: event.target.value.trim() })} />
      </label>`,
    )}
    <label class="field">
      <span>${t("tags")}</span>
      <input type="text" dir="auto" value=${tags} onInput=${(event) => setTags(event.target.value)} />
    </label>
    <${Refused} scope=${scope} error=${error} />
    <footer class="dialog-foot">
      ${start && html`<button type="button" class="danger" onClick=${onRemove}>${t("removeThis")}</button>`}
      <span class="spring"></span>
      <button type="button" onClick=${onClose}>${t("cancel")}</button>
      <button type="submit" class="primary" disabled=${busy || same || !content.trim() || !category.trim()}>${t(busy ? "working" : "save")}</button>
    </footer>
  </form>`;
}

/** When a fact holds, by the names under which a change is sent; empty where it does not say. */
const timesOf = (fact) => ({
  valid_from: fact?.validFrom ?? "",
  valid_until: fact?.validUntil ?? "",
  expires_at: fact?.expiresAt ?? "",
});

/** Tags as they are typed, and the list that they spell: no tag holds a comma. */
const tagsOf = (fact) => (fact?.tags ?? []).join(", ");
const listed = (tags) => tags.split(",").map((tag) => tag.trim()).filter(Boolean);

/** Says that the fact was changed or removed while it is edited here. */
function ChangedMeanwhile({ scope, fact, takeOver }) {
  const t = useWords(words);
  const { count } = useStore(latest);
  const now = useLoad(
    async (signal) => (await get(`/v1/facts/${encodeURIComponent(fact.id)}/why`, scope, { signal })),
    [fact.id, count],
  );
  if (!now.data) return null;
  const { live, fact: current } = now.data;
  const differs = live && (["content", "category", "confidence", "validFrom", "validUntil", "expiresAt"].some((name) => current[name] !== fact[name]) || tagsOf(current) !== tagsOf(fact));
  return html`<div aria-live="polite">
    ${!live && html`<p class="renewed">${t("goneMeanwhile")}</p>`}
    ${differs &&
    html`<div class="renewed">
      <p>${t("changedMeanwhile")} <bdi>${current.content}</bdi></p>
      <button type="button" onClick=${() => takeOver(current)}>${t("takeOver")}</button>
    </div>`}
  </div>`;
}

/** Why a change was refused, in place, with a link to the fact that is in the way. */
function Refused({ scope, error }) {
  const t = useWords(words);
  if (!error) return null;
  const { rule, fact_id: holder, seq } = error.body ?? {};
  if (!rule) return html`<${Failure} error=${error} />`;
  return html`<div class="failure" role="alert">
    <p><${Rule} rule=${rule} detail=${error.message} /></p>
    ${holder && html`<p>${t("inTheWay")} <${FactName} scope=${scope} id=${holder} /></p>`}
    ${rule === "cap" && html`<p><a href=${href("memory", { ...scope, sort: "confidence" })}>${t("toMemory")}</a></p>`}
    ${seq && html`<p class="hint">${t("recorded", { seq })}</p>`}
  </div>`;
}

function Saved({ scope, change, said, mark = "added", onClose, onUndo }) {
  const t = useWords(words);
  return html`<div>
    <p role="status" class="done-line" tabindex="-1" ref=${focused}>
      <b>${said}</b> <a href=${href("timeline", { ...scope, at: change.commit })}>${t("newUpdate", { seq: change.commit })}</a>
    </p>
    <${FactRow} fact=${change.fact} mark=${mark} link=${href("why", { ...scope, fact: change.fact.id })} />
    ${change.evicted?.length > 0 &&
    html`<h3>${t("evicted")}</h3>
      ${change.evicted.map((fact) => html`<${FactRow} fact=${fact} mark="evicted" link=${href("why", { ...scope, fact: fact.id })} />`)}`}
    <footer class="dialog-foot">
      <button type="button" onClick=${onUndo}>${t("undo")}</button>
      <button type="button" class="primary" onClick=${onClose}>${t("close")}</button>
    </footer>
  </div>`;
}

/**
 * Send a change once: `submit(of)` calls `request(key)` unless one is under way, and returns its result or null.
 *
 * The key stays as long as the server has not answered for the same `of`, so that a repeated request counts once.
 */
function useSubmit(request) {
  const [state, setState] = useState({ busy: false, error: null });
  const sent = useRef({ of: null, key: null, busy: false });
  const submit = async (of) => {
    if (sent.current.busy) return null;
    const key = sent.current.of === of ? sent.current.key : newKey();
    sent.current = { of, key, busy: true };
    setState({ busy: true, error: null });
    try {
      const { data } = await request(key);
      setState({ busy: false, error: null });
      sent.current = { of: null, key: null, busy: false };
      return data;
    } catch (error) {
      sent.current = error.status === 0 ? { of, key, busy: false } : { of: null, key: null, busy: false };
      setState({ busy: false, error });
      return null;
    }
  };
  return { ...state, submit };
}

/** A random name for a request. crypto.randomUUID is missing where the page is served without TLS. */
const newKey = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
