// Export and import of a memory as a file, and links to what the server has besides.
import { get, getText, isSignedIn, send } from "../lib/api.js";
import { html, useRef, useState } from "../lib/html.js";
import { href } from "../lib/route.js";
import { useWords } from "../lib/words.js";
import { Dialog } from "../components/dialog.js";
import { Failure } from "../components/notice.js";
import { words } from "./operations.words.js";
import { Section } from "./operations_section.js";

export function Transfer({ scope, facts, mayWrite, onChanged }) {
  const t = useWords(words);
  const input = useRef(null);
  const [file, setFile] = useState(null);
  const [error, setError] = useState(null);
  const [done, setDone] = useState(null);
  const exported = async () => {
    setError(null);
    try {
      save("memory.json", `${JSON.stringify(await get("/v1/document", scope), null, 2)}\n`);
    } catch (problem) {
      setError(problem);
    }
  };
  const choose = async (event) => {
    const [chosen] = event.target.files;
    // The same file can be chosen again after it was mended.
    event.target.value = "";
    if (!chosen) return;
    setError(null);
    setDone(null);
    try {
      setFile({ name: chosen.name, document: JSON.parse(await chosen.text()) });
    } catch (problem) {
      setError(new Error(t("importNotJson", { detail: problem.message })));
    }
  };
  return html`<${Section} title=${t("transfer")} name="transfer">
    <div class="transfer">
      <button type="button" onClick=${exported}>${t("export")}</button>
      <p class="hint">${t("exportHint")}</p>
      ${mayWrite
        ? html`<button type="button" onClick=${() => input.current.click()}>${t("importChoose")}</button>
            <input ref=${input} hidden type="file" accept=".json,application/json" onChange=${choose} />
            <p class="hint">${t("importHint")}</p>`
        : html`<p class="hint">${t("readOnly")}</p>`}
    </div>
    ${error && html`<${Failure} error=${error} />`}
    <div role="status">${done && html`<${Imported} result=${done} scope=${scope} />`}</div>
    ${file &&
    html`<${ImportDialog}
      file=${file}
      facts=${facts}
      scope=${scope}
      onClose=${() => setFile(null)}
      onDone=${(result) => {
        setFile(null);
        setDone(result);
        onChanged();
      }}
    />`}
  <//>`;
}

/** Give the reader a file. */
function save(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

function ImportDialog({ file, facts, scope, onClose, onDone }) {
  const t = useWords(words);
  const [replace, setReplace] = useState(false);
  const [state, setState] = useState({ busy: false, error: null });
  const items = Array.isArray(file.document) ? file.document : file.document?.facts;
  const take = async () => {
    setState({ busy: true, error: null });
    try {
      onDone((await send("POST", "/v1/import", scope, { document: file.document, replace })).data);
    } catch (error) {
      setState({ busy: false, error });
    }
  };
  const choice = (value, label, hint) => html`<label class="import-choice">
    <input type="radio" name="import" checked=${replace === value} onChange=${() => setReplace(value)} />
    <span><strong>${label}</strong><br /><span class="hint">${hint}</span></span>
  </label>`;
  return html`<${Dialog} title=${t("importTitle", { name: file.name.slice(0, 80) })} onClose=${onClose}>
    ${Array.isArray(items) && html`<p>${t("importHas", { n: items.length })}</p>`}
    <fieldset class="import-choices">
      <legend class="hidden">${t("importChoose")}</legend>
      ${choice(false, t("importMerge"), t("importMergeHint"))} ${choice(true, t("importReplace"), t("importReplaceHint", { n: facts }))}
    </fieldset>
    ${state.error && html`<${Failure} error=${state.error} />`}
    <div class="row">
      <button type="button" class=${replace ? "danger" : "primary"} disabled=${state.busy} onClick=${take}>${t(replace ? "importReplaceDo" : "importDo")}</button>
      <button type="button" onClick=${onClose}>${t("cancel")}</button>
    </div>
  <//>`;
}

function Imported({ result: { facts, commit, refused = [], renamed = [], returned = [] }, scope }) {
  const t = useWords(words);
  return html`<div class="imported">
    <p>${t("imported", { n: facts.length })} ${commit > 0 && html`<a href=${href("timeline", { ...scope, at: commit })}>${t("update", { seq: commit })}</a>`}</p>
    ${refused.length > 0 &&
    html`<p>${t("importRefused", { n: refused.length })}</p>
      <ul>
        ${refused.map(({ place, rule, detail }) => html`<li key=${place}><code>${place}</code> <code>${rule}</code> <bdi>${detail}</bdi></li>`)}
      </ul>`}
    ${renamed.length > 0 &&
    html`<p>${t("importRenamed", { n: renamed.length })}</p>
      <ul>
        ${renamed.map(({ stated, id, detail }) => html`<li key=${id}><bdi>${t("renamedTo", { stated, id, detail })}</bdi></li>`)}
      </ul>`}
    ${returned.length > 0 &&
    html`<p>${t("importReturned", { n: returned.length })}</p>
      <ul>
        ${returned.map(({ id, content, removed }) => html`<li key=${id}><bdi>${content}</bdi> <a href=${href("timeline", { ...scope, at: removed.seq })}>${t("removedIn", { seq: removed.seq })}</a></li>`)}
      </ul>`}
  </div>`;
}

/** What the server has for programs and for those who run it. */
export function More({ caller }) {
  const t = useWords(words);
  const [metrics, setMetrics] = useState(null);
  const [error, setError] = useState(null);
  const read = async () => {
    setError(null);
    try {
      setMetrics(await getText("/metrics"));
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<footer class="server-links">
    <a href="docs">${t("docs")}</a>
    ${caller.users === null &&
    (isSignedIn()
      ? html`<button type="button" class="quiet" onClick=${read}>${t("metrics")}</button>`
      : html`<a href="metrics">${t("metrics")}</a>`)}
    <span>${t("version", { version: caller.version })}</span>
    ${error && html`<${Failure} error=${error} />`}
    ${metrics !== null &&
    html`<${Dialog} title=${t("metrics")} wide=${true} onClose=${() => setMetrics(null)}>
      <pre class="metrics" tabindex="0">${metrics}</pre>
    <//>`}
  </footer>`;
}
