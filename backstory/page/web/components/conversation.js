// Conversations: the turns around some words, with those that matter marked.
import { get } from "../lib/api.js";
import { Time } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { href } from "../lib/route.js";
import { useWords } from "../lib/words.js";
import { words } from "./conversation.words.js";
import { Given } from "./given.js";
import { Loaded } from "./notice.js";

const AROUND = 7;
const STEP = 20;
const LONGEST_UPDATE = 60;
const NOTHING_MORE = { turns: [], ends: {}, busy: false, error: null };

/**
 * The part of a conversation that something was learned from.
 *
 * `evidence` are turns as `why` gives them; with `cited` they are marked. Without them `range` is the turns
 * `{first, last}` that an update read. More of the conversation comes on request.
 */
export function Conversation({ scope, thread, evidence = [], cited = false, range, count }) {
  const t = useWords(words);
  const around = evidence[0]?.turn;
  const first = useLoad(
    (signal) => (range ? pageOf(scope, thread, range, signal) : pageAround(scope, thread, around, signal)),
    // Evidence that was erased is no longer asked for.
    [thread, range?.first, range?.last, range ? count : evidence.map(({ turn, at }) => `${turn} ${at}`).join()],
  );
  const [more, setMore] = useState(NOTHING_MORE);
  useEffect(() => setMore(NOTHING_MORE), [thread, around, range?.first]);
  const extend = async (where, cursor) => {
    setMore({ ...more, busy: true, error: null });
    try {
      const page = await get("/v1/turns", { ...scope, thread, cursor, limit: STEP });
      setMore({ turns: [...more.turns, ...page.items], ends: { ...more.ends, [where]: page[where] ?? null }, busy: false, error: null });
    } catch (error) {
      setMore({ ...more, busy: false, error });
    }
  };
  return html`<section class="conversation" aria-label=${t("conversation", { thread })}>
    <header class="conversation-head">
      <span>${t("in")} <a href=${href("timeline", { ...scope, thread })}><bdi>${thread}</bdi></a></span>
      <a class="hint" href=${href("graph", { ...scope, thread })}>${t("graph")}</a>
    </header>
    <${Loaded} of=${first}>
      ${(page) => {
        const turns = ordered([...page.items, ...more.turns], range ? [] : evidence);
        const previous = more.ends.previous === undefined ? page.previous : more.ends.previous;
        const next = more.ends.next === undefined ? page.next : more.ends.next;
        const isMarked = (turn) => evidence.some((one) => one.turn === turn.id && one.content === turn.content);
        const inRange = ({ n }) => range !== undefined && n >= range.first && n <= range.last;
        return html`
          ${previous && html`<button type="button" class="quiet more" disabled=${more.busy} onClick=${() => extend("previous", previous)}>↑ ${t("earlier")}</button>`}
          <ol class="turns">
            ${turns.map((turn) => html`<${Turn} key=${`${turn.n ?? ""} ${turn.id}`} scope=${scope} thread=${thread} turn=${turn} marked=${cited && isMarked(turn)} read=${!cited && (isMarked(turn) || inRange(turn))} />`)}
          </ol>
          ${turns.length === 0 && html`<p class="empty">${t("gone")}</p>`}
          ${next && html`<button type="button" class="quiet more" disabled=${more.busy} onClick=${() => extend("next", next)}>↓ ${t("later")}</button>`}
          ${more.error && html`<p class="failure" role="alert">${more.error.message}</p>`}
        `;
      }}
    <//>
  </section>`;
}

/** The turns that an update read, with two before and after. */
function pageOf(scope, thread, { first, last }, signal) {
  const limit = Math.min(LONGEST_UPDATE, last - first + 5);
  return standing({ ...scope, thread, cursor: String(Math.max(0, first - 3)), limit }, signal);
}

const pageAround = (scope, thread, around, signal) => standing({ ...scope, thread, around, limit: AROUND }, signal);

/** Turns that stand. Those that were erased or replaced since are not found. */
async function standing(params, signal) {
  try {
    return await get("/v1/turns", params, { signal });
  } catch (error) {
    if (error.status !== 404) throw error;
    return { items: [], next: null, previous: null };
  }
}

/** The turns in order; evidence that no page holds is put where its time belongs. */
function ordered(turns, evidence) {
  const known = [...new Map(turns.map((turn) => [turn.n, turn])).values()].sort((a, b) => a.n - b.n);
  const extra = evidence
    .filter((one) => !known.some((turn) => turn.id === one.turn && turn.content === one.content))
    .map((one) => ({ ...one, id: one.turn, n: undefined }));
  for (const turn of extra) {
    const next = known.findIndex(({ at }) => at > turn.at);
    known.splice(next < 0 ? known.length : next, 0, turn);
  }
  return known;
}

function Turn({ scope, thread, turn, marked, read }) {
  const t = useWords(words);
  const role = `role-${turn.role}`;
  return html`<li class=${`turn turn-${turn.role} ${marked ? "is-cited" : ""} ${read ? "is-read" : ""}`} data-turn=${turn.id}>
    <p class="turn-head">
      <b>${turn.name ? html`<bdi>${turn.name}</bdi>` : Object.hasOwn(words.en, role) ? t(role) : turn.role}</b>
      <span class="hint"><${Time} at=${turn.at} /></span>
      ${marked && html`<span class="cited-tag">${t("cited")}</span>`}
    </p>
    <p class="turn-text">${marked ? html`<mark><bdi>${turn.content}</bdi></mark>` : html`<bdi>${turn.content}</bdi>`}</p>
    ${turn.metadata?.context?.digest && html`<${Given} scope=${scope} thread=${thread} turn=${turn.id} />`}
  </li>`;
}
