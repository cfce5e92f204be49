// Undo: a dialog that shows what undoing an update would change, then does exactly that.
import { get, send } from "../lib/api.js";
import { dateTime, Time } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { href } from "../lib/route.js";
import { useWords } from "../lib/words.js";
import { Changes, changesOf, isEmpty, SectionName } from "./changes.js";
import { Dialog, focused } from "./dialog.js";
import { FactName } from "./fact_name.js";
import { Kind } from "./kind.js";
import { Busy, Failure } from "./notice.js";
import { Renewed, usePreview } from "./preview.js";
import { words } from "./undo.words.js";

/**
 * Undo the update `seq`, or go back to memory as it was after the update or time `to`.
 *
 * `onDone(result)` is called when it is done; the dialog stays, to show the new update, until `onClose`.
 */
export function UndoDialog({ scope, seq, to, onClose, onDone }) {
  const t = useWords(words);
  // Undoing an undo goes on in the same dialog.
  const [target, setTarget] = useState({ seq, to });
  const { data: named } = useLoad(
    async (signal) => (target.seq === undefined ? null : get(`/v1/commits/${target.seq}`, scope, { signal })),
    [target.seq],
  );
  // Until it is read, the update that was looked at before says nothing of this one.
  const redone = named?.seq === Number(target.seq) && named.cause.kind === "revert" ? named.cause.target : undefined;
  const title = redone === undefined ? titleOf(t, target) : t("redoTitle", { seq: target.seq, target: redone });
  return html`<${Dialog} title=${title} onClose=${onClose} wide>
    <${Undo}
      key=${`${target.seq} ${target.to}`}
      scope=${scope}
      target=${target}
      redone=${redone}
      onClose=${onClose}
      onDone=${onDone}
      onUndo=${(again) => setTarget({ seq: again })}
    />
  <//>`;
}

function titleOf(t, { seq, to }) {
  if (seq !== undefined) return t("undoTitle", { seq });
  return /^\d+$/.test(to) ? t("rollbackTitle", { seq: to }) : t("rollbackTitleAt", { at: dateTime(to) });
}

function Undo({ scope, target, redone, onClose, onDone, onUndo }) {
  const t = useWords(words);
  const [path, body] = target.seq === undefined ? ["/v1/rollback", { to: target.to }] : ["/v1/revert", { seq: target.seq }];
  const [agreedTo, setAgreedTo] = useState(null);
  const [state, setState] = useState({ busy: false, done: null, error: null, changed: false });
  const preview = usePreview(
    (signal) => send("POST", path, scope, { ...body, dry_run: true }, { signal }),
    [target.seq, target.to],
    state.busy || state.done !== null,
  );
  const result = preview.data?.data;
  const conflicts = result ? conflictsOf(result) : [];
  // Agreed to are these conflicts, and no others that come up while the dialog is open.
  const asked = JSON.stringify(conflicts);
  const forced = agreedTo === asked;
  const carryOut = async () => {
    setState({ busy: true, done: null, error: null, changed: false });
    try {
      const sent = conflicts.length ? { ...body, force: true } : body;
      const { data } = await send("POST", path, scope, sent, { ifMatch: preview.data.etag });
      // Without a commit nothing was written: a conflict has come up since the preview.
      const done = data.commit === null && data.users?.commit == null ? null : data;
      setState({ busy: false, done, error: null, changed: done === null });
      if (done === null) preview.reload();
      else onDone?.(data);
    } catch (error) {
      setState({ busy: false, done: null, error: error.status === 412 ? null : error, changed: error.status === 412 });
      preview.reload();
    }
  };
  if (state.done) return html`<${Done} scope=${scope} result=${state.done} onClose=${onClose} onUndo=${onUndo} />`;
  if (!result) return preview.error ? html`<${Failure} error=${preview.error} retry=${preview.reload} />` : html`<${Busy}>${t("looking")}<//>`;
  const empty = isEmpty(changesOf(result.events)) && !result.events.length && !result.users?.events.length;
  const may = !empty && !preview.loading && !state.busy && (conflicts.length === 0 || forced);
  return html`<div class="undo" tabindex="-1" ref=${focused} aria-busy=${preview.loading || state.busy}>
    <${About} scope=${scope} target=${target} />
    <${Renewed} when=${preview.renewed || state.changed} loading=${preview.loading} />
    ${preview.error && html`<${Failure} error=${preview.error} retry=${preview.reload} />`}
    ${empty ? html`<p class="undo-nothing"><b>${t("nothing")}</b> ${result.superseded.length > 0 && t("nothingSince")}</p>` : html`<${Effects} scope=${scope} result=${result} />`}
    ${result.users && html`<section class="undo-users">
      <h3>${t("users")}</h3>
      <${Effects} scope=${scope} result=${result.users} />
      <${Superseded} scope=${scope} notes=${result.users.superseded} />
    </section>`}
    ${conflicts.length > 0 &&
    html`<section class="undo-conflicts">
      <h3>${t("conflicts")}</h3>
      <ul>
        ${conflicts.map((note) => html`<li><${Note} scope=${scope} note=${note} known=${factsOf(result)} conflict /></li>`)}
      </ul>
      <label class="tick">
        <input type="checkbox" checked=${forced} onChange=${(event) => setAgreedTo(event.target.checked ? asked : null)} />
        <span>${t("force")}</span>
      </label>
    </section>`}
    <${Superseded} scope=${scope} notes=${result.superseded} known=${factsOf(result)} />
    ${state.error && html`<${Failure} error=${state.error} />`}
    <footer class="dialog-foot">
      ${!empty && html`<p class="hint">${t("undoable")}</p>`}
      <button type="button" onClick=${onClose}>${empty ? t("close") : t("cancel")}</button>
      ${!empty &&
      html`<button type="button" class="primary" disabled=${!may} onClick=${carryOut}>
        ${state.busy ? t("working") : target.seq === undefined ? t("rollback") : redone === undefined ? t("undo") : t("redo", { target: redone })}
      </button>`}
    </footer>
  </div>`;
}

/** Which update is meant, as far as it is known. */
function About({ scope, target }) {
  const t = useWords(words);
  const seq = target.seq ?? (/^\d+$/.test(target.to) ? target.to : undefined);
  const { data } = useLoad(
    async (signal) => (seq === undefined ? null : get(`/v1/commits/${seq}`, scope, { signal })),
    [seq],
  );
  if (!data) return html`<p class="hint"> </p>`;
  return html`<p class="undo-about">
    <${Kind} kind=${data.cause.kind} /> <${Time} at=${data.at} />
    ${data.cause.thread && html` · <bdi class="source">${t("from", { thread: data.cause.thread })}</bdi>`}
  </p>`;
}

/** What would change, under headings that say what it means. */
function Effects({ scope, result, done = false }) {
  const t = useWords(words);
  const changes = changesOf(result.events);
  const none = { added: [], removed: [], revised: [], sections: [] };
  const linkOf = (fact) => href("why", { ...scope, fact: fact.id });
  const group = (name) =>
    changes[name].length > 0 &&
    html`<section>
      <h3>${t(`${done ? "done" : "effect"}-${name}`)}</h3>
      <${Changes} changes=${{ ...none, [name]: changes[name] }} linkOf=${linkOf} />
    </section>`;
  const policies = result.events.filter(({ type }) => type === "PolicyChanged").length;
  return html`<div class="undo-effects">
    ${["added", "removed", "revised", "sections"].map(group)} ${policies > 0 && html`<p>${t(done ? "done-policy" : "effect-policy")}</p>`}
  </div>`;
}

function Superseded({ scope, notes, known }) {
  const t = useWords(words);
  if (!notes.length) return null;
  return html`<section class="undo-superseded">
    <h3>${t("superseded")}</h3>
    <ul>
      ${notes.map((note) => html`<li><${Note} scope=${scope} note=${note} known=${known} /></li>`)}
    </ul>
  </section>`;
}

/** Why something stays as it is, or stands in the way. */
function Note({ scope, note, known = new Map(), conflict = false }) {
  const t = useWords(words);
  const key = `${conflict ? "conflict" : "stays"}-${note.kind}`;
  const holder = note.kind === "duplicate" ? note.detail.match(/^(fact_\S+) says/)?.[1] : undefined;
  return html`${note.section && html`<b><${SectionName} section=${note.section} /></b>: `}
    ${note.fact && html`<${FactName} scope=${scope} id=${note.fact} fact=${known.get(note.fact)} />: `}
    ${Object.hasOwn(words.en, key) ? t(key) : note.detail}
    ${holder && html` <${FactName} scope=${scope} id=${holder} fact=${known.get(holder)} />`}`;
}

function Done({ scope, result, onClose, onUndo }) {
  const t = useWords(words);
  const seq = result.commit;
  return html`<div class="undo-done">
    <p role="status" class="done-line" tabindex="-1" ref=${focused}>
      <b>${t("done")}</b>
      ${seq != null && html` <a href=${href("timeline", { ...scope, at: seq })}>${t("newUpdate", { seq })}</a>`}
    </p>
    <${Effects} scope=${scope} result=${result} done />
    ${result.users && html`<section class="undo-users"><h3>${t("users")}</h3><${Effects} scope=${scope} result=${result.users} done /></section>`}
    <footer class="dialog-foot">
      ${seq != null && html`<button type="button" onClick=${() => onUndo(seq)}>${t("undoUndo")}</button>`}
      <button type="button" class="primary" onClick=${onClose}>${t("close")}</button>
    </footer>
  </div>`;
}

const conflictsOf = (result) => [...result.conflicts, ...(result.users?.conflicts ?? [])];

/** The facts that the events hold, by id. */
function factsOf(result) {
  const { added, removed, revised } = changesOf([...result.events, ...(result.users?.events ?? [])]);
  return new Map([...added, ...removed, ...revised.map(({ before }) => before)].map((fact) => [fact.id, fact]));
}
