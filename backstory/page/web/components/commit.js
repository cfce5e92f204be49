// Commits in words: what one did, who or what made it, and the banner of one that has just arrived.
import { html, useEffect, useState } from "../lib/html.js";
import { made } from "../lib/api.js";
import { number, Time } from "../lib/format.js";
import { href } from "../lib/route.js";
import { useStore } from "../lib/store.js";
import { useWords } from "../lib/words.js";
import { changesOf } from "./changes.js";
import { lookOf } from "./fact.js";
import { words as common } from "./common.words.js";
import { Kind } from "./kind.js";
import { words } from "./commit.words.js";

// How the log's one-line summary counts what changed, and the word for each count.
const COUNTS = [
  [/^\+(\d+) facts?$/, "plus"],
  [/^-(\d+) facts?$/, "minus"],
  [/^(\d+) evicted$/, "evicted"],
  [/^(\d+) out of date$/, "outdated"],
  [/^(\d+) merged into (\d+)$/, "merged"],
  [/^(\d+) confirmed$/, "confirmed"],
  [/^(\d+) extended$/, "extended"],
  [/^(\d+) facts? revised$/, "revised"],
  [/^(\d+) sections?$/, "sections"],
  [/^the empty memory$/, "emptyMemory"],
  [/^nothing changed$/, "nothing"],
];

function phrase(part, t) {
  for (const [pattern, key] of COUNTS) {
    const found = pattern.exec(part);
    if (found) return t(key, { n: Number(found[1]), s: number(Number(found[1] ?? 0)), m: number(Number(found[2] ?? 0)) });
  }
  return part;
}

/** The one-line summary of a commit, in the reader's language where it is one of the usual counts. */
export function Summary({ summary }) {
  const t = useWords(words);
  return html`<bdi class="commit-summary">${summary.split(", ").map((part) => phrase(part, t)).join(t("comma"))}</bdi>`;
}

/** Who or what made a commit: its thread, model, actor, and what it undoes. `threadLink` makes the thread a link. */
export function Origin({ cause, threadLink, tokens = false }) {
  const t = useWords(words);
  const c = useWords(common);
  const thread = cause.thread && html`<bdi>${c("learnedFrom", { thread: cause.thread })}</bdi>`;
  return html`<span class="origin">
    ${thread && (threadLink ? html`<a href=${threadLink}>${thread}</a>` : thread)}
    ${cause.kind === "revert" && cause.target && html`<span>${t("undoes", { seq: number(cause.target) })}</span>`}
    ${cause.kind === "rollback" && cause.target && html`<span>${t("backTo", { seq: number(cause.target) })}</span>`}
    ${cause.model && html`<bdi>${t("model", { name: cause.model })}</bdi>`}
    ${cause.actor && html`<bdi>${cause.actor === "http" ? t("local") : t("actor", { name: cause.actor })}</bdi>`}
    ${tokens && cause.tokensIn !== undefined && html`<span>${t("tokens", { in: number(cause.tokensIn), out: number(cause.tokensOut ?? 0) })}</span>`}
  </span>`;
}

const SHOWN = 3;
// How many of the newest commits are kept: one of this tab may arrive before the answer that tells so.
const KEPT = 8;

/**
 * What others have just changed in memory, for a view that follows `live`. It is announced, and stays until it is dismissed.
 *
 * `onUndo(seq)` opens the undo of a commit; without it there is no such button.
 */
export function LiveBanner({ scope, live, onUndo }) {
  const t = useWords(words);
  const [seen, setSeen] = useState({ commits: [], first: null, count: live.count });
  const here = (name) => scope[name] ?? "";
  const own = useStore(made).filter(({ user, agent }) => (user ?? "") === here("user") && (agent ?? "") === here("agent"));
  useEffect(() => {
    if (live.count === seen.count) return;
    const { commit, count } = live;
    const commits = commit ? [...seen.commits, commit].slice(-KEPT) : [];
    setSeen({ commits, first: commit ? (seen.first ?? commit.seq) : null, count });
  }, [live.count]);
  const commit = seen.commits.findLast(({ seq }) => !own.some((one) => one.seq === seq));
  const several = commit && commit.seq - seen.first + 1 - own.filter(({ seq }) => seq >= seen.first && seq < commit.seq).length;
  return html`<div class="live-banner" role="status">
    ${commit && html`<div class="card">
      <p class="live-head">
        <strong>${t("justNow")}</strong>
        <span><${Kind} kind=${commit.cause.kind} /> · ${t("number", { seq: number(commit.seq) })} · <${Time} at=${commit.at} relative=${true} /></span>
        ${several > 1 && html`<span class="hint">${t("several", { n: several, s: number(several) })}</span>`}
      </p>
      <${Happened} scope=${scope} commit=${commit} />
      <p class="row">
        <a class="button" href=${href("timeline", { ...scope, at: commit.seq })}>${t("seeUpdate")}</a>
        ${onUndo && commit.seq > 1 && html`<button type="button" onClick=${() => onUndo(commit.seq)}>${t("undo")}</button>`}
        <button type="button" class="quiet" onClick=${() => setSeen({ commits: [], first: null, count: live.count })}>${t("dismiss")}</button>
      </p>
    </div>`}
  </div>`;
}

function Happened({ scope, commit }) {
  const t = useWords(words);
  const c = useWords(common);
  const { added, removed, evicted, revised, sections } = changesOf(commit.events);
  const all = [
    ...removed.map((fact) => [evicted.has(fact.id) ? "evicted" : "removed", fact]),
    ...added.map((fact) => ["added", fact]),
    ...revised.map(({ after }) => ["revised", after]),
  ];
  return html`
    <p><${Summary} summary=${commit.summary} /></p>
    <ul class="happened">
      ${all.slice(0, SHOWN).map(
        ([mark, fact]) => html`<li class=${`is-${lookOf(mark)}`}>
          <span class=${`mark mark-${lookOf(mark)}`}>${c(mark)}</span> <bdi class="fact-text">${fact.content}</bdi>${" "}
          <a href=${href("why", { ...scope, fact: fact.id })} aria-label=${`${t("why")} ${fact.content}`}>${t("why")}</a>
        </li>`,
      )}
      ${sections.filter(({ section }) => Object.hasOwn(common.en, section)).map(
        ({ section, after }) => html`<li class="is-revised">
          ${t("newText", { section: c(section) })}: <bdi>${after || c("empty")}</bdi>${" "}
          <a href=${href("why", { ...scope, section })}>${t("why")}</a>
        </li>`,
      )}
    </ul>
    ${all.length > SHOWN && html`<p class="hint">${t("more", { s: number(all.length - SHOWN) })}</p>`}
  `;
}
