// Commits: a long list of them, newest first, of which only the pages in view are fetched.
import { useCallback, useEffect, useMemo, useReducer, useRef } from "./html.js";
import { get } from "./api.js";
import { useAgain } from "./load.js";
import { usePages } from "./virtual.js";

const PAGE = 100;
const MOST = 1000;

/**
 * The commits numbered `first` to `last`; all numbers in between are there.
 *
 * A list of commits is `{count, seqAt(index), indexOf(seq), entry(index), onRange, error, more}`, by index from the
 * newest. `entry` is undefined until its page is there, `more` whether there are older ones.
 */
export function useAllCommits(scope, first, last, enabled) {
  const count = enabled && last ? last - first + 1 : 0;
  // Pages hold fixed numbers, so that a new commit makes only the newest page be read again.
  const pages = usePages(
    async (offset, limit, signal) => {
      const end = Math.min(offset + limit, last);
      if (!enabled || end <= offset) return [];
      const asked = { ...scope, events: false, limit: end - offset, cursor: end + 1 };
      return (await get("/v1/log", asked, { signal })).items.reverse();
    },
    [scope.user, scope.agent, last, enabled],
    PAGE,
  );
  const onRange = useCallback(
    (newest, oldest) => enabled && last && pages.onRange(Math.max(0, last - oldest - 1), last - newest - 1),
    [last, enabled],
  );
  return useMemo(
    () => ({
      count,
      seqAt: (index) => last - index,
      indexOf: (seq) => Math.max(0, Math.min(count - 1, last - seq)),
      entry: (index) => pages.item(last - index - 1),
      onRange,
      error: pages.error,
      more: false,
    }),
    [count, last, pages.item, onRange, pages.error],
  );
}

/** The commits about a fact or a thread. Older ones are read as the end of the list comes near. */
export function useSomeCommits(scope, { fact, thread, since, before }, round, enabled) {
  const [, renderAgain] = useReducer((n) => n + 1, 0);
  const found = useRef({ items: [], next: null, error: null, asking: null, ready: false });
  const ask = (cursor, kept) => {
    const aborting = new AbortController();
    found.current.asking = aborting;
    const asked = { ...scope, fact, thread, since, events: false, limit: MOST, cursor };
    get("/v1/log", asked, { signal: aborting.signal }).then(
      ({ items, next }) => {
        if (aborting.signal.aborted) return;
        found.current = { items: [...kept, ...items], next, error: null, asking: null, ready: true };
        renderAgain();
      },
      (error) => {
        if (aborting.signal.aborted) return;
        found.current = { ...found.current, items: kept, error, asking: null, ready: true };
        renderAgain();
      },
    );
  };
  const name = JSON.stringify([scope.user, scope.agent, fact, thread, since, before]);
  const shown = useRef(null);
  useEffect(() => {
    if (!enabled) return undefined;
    if (shown.current !== name) found.current = { items: [], next: null, error: null, asking: null, ready: false };
    shown.current = name;
    ask(before, []);
    return () => found.current.asking?.abort();
  }, [name, round, enabled]);
  const { items, next, error, asking, ready } = found.current;
  useAgain(error, () => ask(items.length ? next : before, items));
  const onRange = useCallback((newest, oldest) => {
    const here = found.current;
    if (here.next && !here.asking && oldest > here.items.length - 50) ask(here.next, here.items);
  }, [name, items]);
  const busy = enabled && (!ready || asking !== null);
  const list = {
    count: items.length,
    seqAt: (index) => items[index]?.seq,
    // The newest one that is not after `seq`.
    indexOf: (seq) => {
      const index = items.findIndex((entry) => entry.seq <= seq);
      return index < 0 ? Math.max(0, items.length - 1) : index;
    },
    entry: (index) => items[index],
    onRange,
    error,
    more: next !== null,
    busy,
  };
  return useMemo(() => list, [items, onRange, error, next, busy]);
}
