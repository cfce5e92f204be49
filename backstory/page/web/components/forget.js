// Forget: a dialog that lists what an erasure takes away for good, asks for a typed word, then erases.
import { send } from "../lib/api.js";
import { number } from "../lib/format.js";
import { html, useEffect, useId, useLayoutEffect, useState } from "../lib/html.js";
import { href } from "../lib/route.js";
import { useWords } from "../lib/words.js";
import { SectionName } from "./changes.js";
import { Dialog, focused } from "./dialog.js";
import { FactName } from "./fact_name.js";
import { Busy, Failure } from "./notice.js";
import { Renewed, usePreview } from "./preview.js";
import { words } from "./forget.words.js";

// How many of one kind are listed; the others are counted.
const MOST = 40;
// Longer names are not typed.
const LONGEST_WORD = 64;
// Spaces at an end, several in a row, and signs that are not seen cannot be copied by eye.
const isTypable = (word) =>
  word !== undefined && word.length <= LONGEST_WORD && /^\S+( \S+)*$/u.test(word) && !/[\p{C}\p{Zl}\p{Zp}]/u.test(word);
const TYPING_MS = 300;
const MOST_NUMBERS = 12;

/**
 * Erase content for good. `target` says what may be chosen: `{fact}` (a fact; then also its conversation), `{thread}`,
 * `{matching}` (a text), or nothing for everything. The first of them is chosen at the beginning.
 */
export function ForgetDialog({ scope, target = {}, onClose, onDone }) {
  const t = useWords(words);
  const [done, setDone] = useState(null);
  const finish = (result) => {
    setDone(result);
    onDone?.(result);
  };
  return html`<${Dialog} title=${t("title")} onClose=${onClose} wide>
    ${done
      ? html`<${Done} scope=${scope} result=${done} onClose=${onClose} />`
      : html`<${Forget} scope=${scope} target=${target} onClose=${onClose} onDone=${finish} />`}
  <//>`;
}

function choicesOf({ fact, thread, matching }) {
  const said = thread ?? (fact?.source && !["manual", "import", "tool"].includes(fact.source) ? fact.source : undefined);
  const ways = [];
  if (fact) ways.push({ way: "fact", body: { fact_id: fact.id }, word: fact.id });
  if (fact) ways.push({ way: "evidence", body: { fact_id: fact.id, with_evidence: true }, word: fact.id });
  if (said !== undefined) ways.push({ way: "thread", body: { thread: said }, word: said, name: said });
  ways.push({ way: "matching" }, { way: "everything", body: { everything: true } });
  const first = fact ? "fact" : thread !== undefined ? "thread" : matching !== undefined ? "matching" : "everything";
  return { ways, first };
}

function Forget({ scope, target, onClose, onDone }) {
  const t = useWords(words);
  const name = useId();
  const { ways, first } = choicesOf(target);
  const [way, setWay] = useState(first);
  const [text, setText] = useState(target.matching ?? "");
  const settled = useSettled(text.trim());
  const [typed, setTyped] = useState("");
  const [state, setState] = useState({ busy: false, error: null, changed: false });
  const chosen = ways.find((one) => one.way === way);
  const body = way === "matching" ? (settled ? { matching: settled } : null) : chosen.body;
  const asked = JSON.stringify(body);
  const preview = usePreview(
    async (signal) => (body === null ? null : { ...(await listed(scope, body, signal)), asked }),
    [asked],
    state.busy,
  );
  const choose = (next) => {
    setWay(next);
    setTyped("");
    setState({ busy: false, error: null, changed: false });
  };
  // The answer to an earlier question must not be confirmed.
  const shown = preview.data?.asked === asked ? preview.data : null;
  // What was typed stands for the list that was seen. It goes together with it, before anyone types on.
  const list = shown === null ? null : JSON.stringify(shown.data.redacted);
  useLayoutEffect(() => setTyped(""), [list]);
  const wordAsked = isTypable(chosen.word) ? chosen.word : t("word");
  const nothing = shown !== null && shown.data.redacted.length === 0;
  const may = shown !== null && !nothing && !preview.loading && !state.busy && typed.trim() === wordAsked;
  const erase = async (event) => {
    event.preventDefault();
    if (!may) return;
    setState({ busy: true, error: null, changed: false });
    try {
      const { data } = await send("POST", "/v1/forget", scope, body, { ifMatch: shown.etag });
      onDone(data);
    } catch (error) {
      setState({ busy: false, error: error.status === 412 ? null : error, changed: error.status === 412 });
      if (error.status === 412) preview.reload();
    }
  };
  return html`<form class="forget" onSubmit=${erase}>
    <fieldset class="ways">
      <legend>${t("what")}</legend>
      ${ways.map(
        (one) => html`<label class="tick">
          <input type="radio" name=${name} value=${one.way} checked=${way === one.way} onChange=${() => choose(one.way)} data-focus=${one.way === first ? "" : undefined} />
          <span>${t(`way-${one.way}`)} ${one.name !== undefined && html`<bdi class="named">${one.name}</bdi>`}</span>
        </label>`,
      )}
    </fieldset>
    ${way === "fact" && target.fact?.content && html`<blockquote><bdi>${target.fact.content}</bdi></blockquote>`}
    ${way === "matching" &&
    html`<label class="field">
      <span>${t("text")}</span>
      <input type="text" dir="auto" value=${text} onInput=${(event) => setText(event.target.value)} />
    </label>`}
    <${Renewed} when=${preview.renewed || state.changed} loading=${preview.loading} />
    ${preview.error && html`<${Failure} error=${preview.error} retry=${preview.reload} />`}
    ${body !== null && !shown && !preview.error && html`<${Busy}>${t("looking")}<//>`}
    ${shown && html`<${Listing} scope=${scope} result=${shown.data} />`}
    ${shown &&
    !nothing &&
    html`<div class="forget-confirm">
      <p class="failure"><b>${t("forever")}</b></p>
      <label class="field">
        <span>${t("type")} <code><bdi>${wordAsked}</bdi></code></span>
        <input type="text" autocomplete="off" autocapitalize="off" spellcheck=${false} dir="auto" value=${typed} onInput=${(event) => setTyped(event.target.value)} />
      </label>
    </div>`}
    ${state.error && html`<${Failure} error=${state.error} />`}
    <footer class="dialog-foot">
      <button type="button" onClick=${onClose}>${t("cancel")}</button>
      <button type="submit" class="danger" disabled=${!may}>${t(state.busy ? "working" : "erase")}</button>
    </footer>
  </form>`;
}

/** What goes, in words, and what stays although it was learned from the same words. */
function Listing({ scope, result }) {
  const t = useWords(words);
  const groups = groupBy(result.redacted);
  if (!result.redacted.length) return html`<p class="forget-nothing">${t("nothing")}</p>`;
  return html`<div class="forget-listing" aria-live="polite">
    <h3>${t("goes")}</h3>
    <ul class="forget-groups">
      ${["fact", "section", "shared", "turn", "candidate", "proposal", "failure", "expired"]
        .filter((what) => groups[what])
        .map((what) => html`<li><${Group} scope=${scope} what=${what} items=${groups[what]} /></li>`)}
    </ul>
    ${result.also.length > 0 &&
    html`<h3>${t("also")}</h3>
      <p class="hint">${t("alsoHint")}</p>
      <ul class="forget-also">
        ${result.also.slice(0, MOST).map(
          ({ kind, id, content }) => html`<li>
            ${kind === "section"
              ? html`<b><${SectionName} section=${id} /></b>: <a href=${href("why", { ...scope, section: id })}><bdi>${content}</bdi></a>`
              : html`<${FactName} scope=${scope} id=${id} fact=${{ content }} />`}
          </li>`,
        )}
      </ul>
      <${More} of=${result.also.length} />`}
  </div>`;
}

function Group({ scope, what, items }) {
  const t = useWords(words);
  const named = new Map();
  for (const { fact, section, seq, stream } of items) {
    const key = `${stream} ${fact ?? section ?? ""}`;
    if (!named.has(key)) named.set(key, { fact, section, stream, seqs: new Set() });
    named.get(key).seqs.add(seq);
  }
  const count = what === "fact" || what === "section" ? named.size : items.length;
  return html`<details open=${count <= 5}>
    <summary>${t(`gone-${what}`, { n: count })}</summary>
    <ul>
      ${[...named.values()].slice(0, MOST).map(
        ({ fact, section, stream, seqs }) => html`<li>
          ${fact ? html`<${FactName} scope=${scope} id=${fact} /> ` : section ? html`<b><${SectionName} section=${section} /></b> ` : ""}
          <span class="hint">${placesOf(t, scope, stream, [...seqs])}</span>
        </li>`,
      )}
    </ul>
    <${More} of=${named.size} />
  </details>`;
}

/** Where it stands: updates or entries of the transcript, and the agent if it is another one's memory. */
function placesOf(t, scope, stream, seqs) {
  const listed = seqs.slice(0, MOST_NUMBERS).map(number).join(", ") + (seqs.length > MOST_NUMBERS ? " …" : "");
  const agent = stream.match(/(?:^|\/)agents\/([^/]+)\/[^/]+$/)?.[1] ?? "";
  const place = t(stream.endsWith("transcript") ? "inTranscript" : "inLedger", { n: seqs.length, listed });
  return agent === (scope.agent ?? "") ? place : `${place} ${agent ? t("ofAgent", { agent }) : t("ofUser")}`;
}

function More({ of }) {
  const t = useWords(words);
  return of > MOST ? html`<p class="hint">${t("more", { n: of - MOST })}</p>` : null;
}

function Done({ scope, result, onClose }) {
  const t = useWords(words);
  return html`<div class="forget-done">
    <p role="status" class="done-line" tabindex="-1" ref=${focused}>
      <b>${t("done", { n: result.redacted.length })}</b>
      ${result.commit !== null && html` <a href=${href("timeline", { ...scope, at: result.commit })}>${t("newUpdate", { seq: result.commit })}</a>`}
    </p>
    <footer class="dialog-foot"><button type="button" class="primary" onClick=${onClose}>${t("close")}</button></footer>
  </div>`;
}

function groupBy(items) {
  const groups = {};
  for (const item of items) (groups[item.what] ??= []).push(item);
  return groups;
}

/** What would go; nothing where there is no such content. */
async function listed(scope, body, signal) {
  try {
    return await send("POST", "/v1/forget", scope, { ...body, dry_run: true }, { signal });
  } catch (error) {
    if (error.status !== 404) throw error;
    return { data: { redacted: [], also: [], commit: null }, etag: null };
  }
}

/** The value once it has not changed for a moment. */
function useSettled(value) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), TYPING_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}
