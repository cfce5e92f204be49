// Verification: reads both logs, says how far it is, and what it found in plain words.
import { follow } from "../lib/api.js";
import { number } from "../lib/format.js";
import { html, useEffect, useRef, useState } from "../lib/html.js";
import { useWords } from "../lib/words.js";
import { Failure } from "../components/notice.js";
import { words } from "./operations.words.js";
import { Section } from "./operations_section.js";

const LINES = ["doctor", "repair"];

const whose = ({ user, agent }) => `${user ? `--user ${user} ` : ""}${agent ? `--agent ${agent} ` : ""}`;

const IDLE = { running: false, progress: null, result: null, error: null, stopped: false };

/** The checks of a memory; `atOnce` begins them. */
export function Verify({ scope, atOnce = false }) {
  const t = useWords(words);
  const [state, setState] = useState(IDLE);
  const aborting = useRef(null);
  // Whoever leaves this view does not wait for the answer.
  useEffect(() => () => aborting.current?.abort(), []);
  const begin = async () => {
    const made = new AbortController();
    aborting.current = made;
    setState({ ...IDLE, running: true });
    try {
      const result = await follow("/v1/verify", {
        params: scope,
        signal: made.signal,
        onProgress: (progress) => setState((before) => ({ ...before, progress })),
      });
      setState({ ...IDLE, result });
    } catch (error) {
      setState(made.signal.aborted ? { ...IDLE, stopped: true } : { ...IDLE, error });
    }
  };
  useEffect(() => void (atOnce && begin()), [atOnce]);
  const { running, progress, result, error, stopped } = state;
  return html`<${Section} title=${t("verify")} name="verify">
    <p class="hint">${t("verifyHint")}</p>
    ${running
      ? html`<div class="verifying">
          <progress max=${progress?.total || 1} value=${progress ? progress.done : undefined} aria-label=${t("verifying")}></progress>
          <span>${progress ? t("verifyingOf", { done: number(progress.done), total: number(progress.total) }) : t("verifying")}</span>
          <button type="button" onClick=${() => aborting.current.abort()}>${t("stop")}</button>
        </div>`
      : html`<button type="button" onClick=${begin}>${result ? t("verifyAgain") : t("verifyDo")}</button>`}
    ${error && html`<${Failure} error=${error} retry=${begin} />`}
    <div role="status">
      ${stopped && html`<p>${t("stopped")}</p>`}
      ${result && html`<${Findings} scope=${scope} result=${result} />`}
    </div>
  <//>`;
}

function Findings({ scope, result: { ok, commits, turns, problems, notes = [] } }) {
  const t = useWords(words);
  const name = (kind) => (Object.hasOwn(words.en, `problem-${kind}`) ? t(`problem-${kind}`) : t("problem-other", { kind }));
  return html`
    ${ok ? html`<p class="verdict is-good"><span aria-hidden="true">✓</span> ${t("intact", { commits, turns })}</p>` : html`<p class="verdict is-bad"><span aria-hidden="true">✕</span> ${t("notIntact", { n: problems.length })}</p>`}
    ${problems.length > 0 &&
    html`<ul class="entries">
      ${problems.map(
        ({ kind, stream, line, message }, index) => html`<li key=${index} class=${kind === "torn_tail" ? "" : "parked"}>
          <p><strong>${name(kind)}</strong></p>
          ${line > 0 && html`<p>${t("where", { stream, line: number(line) })}</p>`}
          <p class="hint"><bdi>${message}</bdi></p>
        </li>`,
      )}
    </ul>`}
    ${!ok && html`<p>${t("mend")}</p><pre class="command-lines"><bdi>${LINES.map((line) => `backstory ${whose(scope)}${line}`).join("\n")}</bdi></pre>`}
    ${notes.map((note, index) => html`<p class="hint" key=${index}><bdi>${note}</bdi></p>`)}
  `;
}
