// Scope picker: whose memory is shown, and a way to another one, among as many as there are.
import { get } from "../lib/api.js";
import { html, useEffect, useId, useLayoutEffect, useRef, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { go } from "../lib/route.js";
import { useWords } from "../lib/words.js";
import { Dialog } from "./dialog.js";
import { Busy, Failure } from "./notice.js";
import { words } from "./scope_picker.words.js";

const PAGE = 100;
const ROW = 46;
const OVERSCAN = 4;
const PAUSE = 150;
// The server takes no longer prefix.
const LONGEST_PREFIX = 1000;

const same = (one, other) => (one.user ?? null) === (other.user ?? null) && (one.agent ?? null) === (other.agent ?? null);

/** Whose memory is open, and a button that opens the choice. With one memory to choose from there is no button. */
export function ScopePicker({ scope, view, caller }) {
  const t = useWords(words);
  const [open, setOpen] = useState(false);
  const confined = caller?.users?.length === 1;
  const others = useLoad(
    async (signal) => (confined ? (await get("/v1/scopes", { limit: 2 }, { signal })).items : null),
    [confined],
  );
  const name = html`<${ScopeName} scope=${scope} />`;
  const alone = confined && (others.data ?? []).filter((item) => !same(item, scope)).length === 0;
  if (alone) return html`<span class="scope">${name}</span>`;
  const choose = (chosen) => {
    setOpen(false);
    openScope(chosen, view);
  };
  return html`
    <button type="button" class="scope" aria-haspopup="dialog" title=${t("change")} onClick=${() => setOpen(true)}>
      <span class="hidden">${t("whose")}: </span>${name}<span aria-hidden="true" class="scope-arrow">▾</span>
    </button>
    ${open &&
    html`<${Dialog} title=${t("title")} onClose=${() => setOpen(false)}>
      <${ScopeList} current=${scope} onChoose=${choose} focus=${true} />
    <//>`}
  `;
}

/** Show another memory in the same view. What the address says about facts and commits of this one is left out. */
function openScope({ user, agent }, view) {
  go(view === "why" ? "memory" : view, { user: user ?? undefined, agent: agent ?? undefined });
}

/** The name of a scope: a user, an agent of the user, or the memory that all share. */
export function ScopeName({ scope: { user, agent } }) {
  const t = useWords(words);
  const whose = user === null || user === undefined ? t("shared") : html`<bdi>${user}</bdi>`;
  return html`<span class="scope-name">${whose}${agent && html`<span class="scope-agent"> / <bdi>${agent}</bdi></span>`}</span>`;
}

/** The page's beginning where there are several memories and none is named. */
export function ScopeChoice({ view, onShared }) {
  const t = useWords(words);
  useEffect(() => {
    document.title = "Backstory";
  }, []);
  const choose = (chosen) => {
    if (chosen.user === null && chosen.agent === null) onShared();
    openScope(chosen, view);
  };
  return html`<main class="scope-choice" id="content" tabindex="-1">
    <h1>${t("title")}</h1>
    <p class="hint">${t("choiceHint")}</p>
    <${ScopeList} current=${{}} onChoose=${choose} focus=${true} />
  </main>`;
}

/**
 * Read the memories whose user begins with `prefix`, page after page.
 *
 * Returns `{items, unreadable, total, loading, error, more(), retry()}`; `total` counts the users.
 */
function useScopes(prefix) {
  const empty = { items: [], unreadable: [], total: undefined, next: undefined, error: null, loading: true };
  const [found, setFound] = useState(empty);
  const asking = useRef(null);
  const ask = (cursor, before) => {
    asking.current?.abort();
    const aborting = new AbortController();
    asking.current = aborting;
    setFound((last) => ({ ...last, loading: true, error: null }));
    get("/v1/scopes", { prefix, limit: PAGE, cursor }, { signal: aborting.signal }).then(
      (page) =>
        !aborting.signal.aborted &&
        setFound({
          items: [...before.items, ...page.items],
          unreadable: [...before.unreadable, ...(page.unreadable ?? [])],
          total: page.total ?? before.total,
          next: page.next ?? null,
          error: null,
          loading: false,
        }),
      (error) => !aborting.signal.aborted && setFound((last) => ({ ...last, error, loading: false })),
    );
  };
  useEffect(() => {
    // The list of the prefix before stays until the new one is there.
    const timer = setTimeout(() => ask(undefined, empty), prefix ? PAUSE : 0);
    return () => {
      clearTimeout(timer);
      asking.current?.abort();
    };
  }, [prefix]);
  const more = () => found.next && !found.loading && !found.error && ask(found.next, found);
  const retry = () => (found.next ? ask(found.next, found) : ask(undefined, empty));
  return { ...found, more, retry };
}

/** A search field and a list below it: a combobox whose list is always open. */
function ScopeList({ current, onChoose, focus }) {
  const t = useWords(words);
  const id = useId();
  const input = useRef(null);
  const box = useRef(null);
  const [typed, setTyped] = useState("");
  const [active, setActive] = useState(-1);
  const [view, setView] = useState({ top: 0, height: ROW * 8 });
  const prefix = typed.slice(0, LONGEST_PREFIX);
  const { items, unreadable, total, next, error, loading, more, retry } = useScopes(prefix);
  const count = items.length;
  const chosen = count === 0 ? -1 : Math.min(Math.max(active, 0), count - 1);

  useEffect(() => {
    if (focus) input.current?.focus();
  }, []);
  useEffect(() => {
    setActive(-1);
    if (box.current) box.current.scrollTop = 0;
  }, [prefix]);
  useLayoutEffect(() => {
    const watching = new ResizeObserver(() => measure());
    watching.observe(box.current);
    return () => watching.disconnect();
  }, []);
  // A last scroll may be told after the list is gone.
  const measure = () => box.current && setView({ top: box.current.scrollTop, height: box.current.clientHeight });

  const first = Math.max(0, Math.floor(view.top / ROW) - OVERSCAN);
  const last = Math.min(count - 1, Math.ceil((view.top + view.height) / ROW) + OVERSCAN);
  useEffect(() => {
    if (next && last >= count - 2 * OVERSCAN - 1) more();
  }, [last, count, next, loading]);

  const move = (index) => {
    const to = Math.min(Math.max(index, 0), count - 1);
    setActive(to);
    const { scrollTop, clientHeight } = box.current;
    if (to * ROW < scrollTop) box.current.scrollTop = to * ROW;
    else if ((to + 1) * ROW > scrollTop + clientHeight) box.current.scrollTop = (to + 1) * ROW - clientHeight;
    // The row has to be there before it is named as the active one.
    measure();
  };
  const rows = Math.max(1, Math.floor(view.height / ROW) - 1);
  const keys = {
    ArrowDown: () => move(active < 0 ? 0 : chosen + 1),
    ArrowUp: () => move(chosen - 1),
    PageDown: () => move(chosen + rows),
    PageUp: () => move(chosen - rows),
    Enter: () => count > 0 && !loading && onChoose(items[chosen]),
  };
  const onKeyDown = (event) => {
    if (!(event.key in keys) || event.isComposing) return;
    event.preventDefault();
    keys[event.key]();
  };

  const shown = [];
  for (let index = first; index <= last; index += 1) {
    const item = items[index];
    shown.push(html`<div
      key=${`${item.user}\n${item.agent}`}
      id=${`${id}-${index}`}
      class=${`scope-option ${index === chosen && active >= 0 ? "is-active" : ""} ${item.agent ? "of-agent" : ""}`}
      role="option"
      aria-selected=${same(item, current) ? "true" : "false"}
      aria-setsize=${next ? -1 : count}
      aria-posinset=${index + 1}
      style=${{ transform: `translateY(${index * ROW}px)` }}
      title=${[item.user ?? t("shared"), item.agent].filter(Boolean).join(" / ").slice(0, 400)}
      onMouseDown=${(event) => event.preventDefault()}
      onClick=${() => onChoose(item)}
    >
      <${ScopeName} scope=${item} />
      <span class="scope-count">${t("facts", { n: item.facts })}</span>
    </div>`);
  }
  return html`<div class="scope-list">
    <input
      ref=${input}
      type="search"
      autofocus=${true}
      role="combobox"
      aria-label=${t("search")}
      placeholder=${t("search")}
      aria-expanded="true"
      aria-autocomplete="list"
      aria-controls=${`${id}-list`}
      aria-activedescendant=${active >= 0 && chosen >= first && chosen <= last ? `${id}-${chosen}` : undefined}
      autocomplete="off"
      spellcheck=${false}
      value=${typed}
      onInput=${(event) => setTyped(event.target.value)}
      onKeyDown=${onKeyDown}
    />
    <p class="hint scope-total" role="status">
      ${loading && count === 0 ? t("looking") : !next ? t("total", { n: count }) : total === undefined ? t("first", { n: count }) : t("users", { n: total })}
    </p>
    <div
      class="scope-box"
      id=${`${id}-list`}
      role="listbox"
      aria-label=${t("title")}
      aria-busy=${loading}
      tabindex="-1"
      ref=${box}
      onScroll=${measure}
    >
      <div class="scope-space" role="presentation" style=${{ height: `${count * ROW}px` }}>${shown}</div>
      ${count === 0 && !loading && !error && html`<p class="empty" role="presentation">${prefix ? html`${t("none")} <bdi>${prefix.slice(0, 80)}</bdi>` : t("nobody")}</p>`}
    </div>
    ${loading && count > 0 && next && html`<${Busy} />`}
    ${error && html`<${Failure} error=${error} retry=${retry} />`}
    ${unreadable.length > 0 &&
    html`<section class="scope-unreadable">
      <h3>${t("unreadable", { n: unreadable.length })}</h3>
      <ul>
        ${unreadable.map(
          (item) => html`<li key=${`${item.user}\n${item.agent}`}><${ScopeName} scope=${item} /><p class="hint"><bdi>${item.detail}</bdi></p></li>`,
        )}
      </ul>
    </section>`}
    <p class="hint scope-keys">${t("keys")}</p>
  </div>`;
}
