// Live: one event stream of commits for the scope that is shown.
import { useEffect, useRef, useState } from "./html.js";
import { get, stream } from "./api.js";
import { createStore } from "./store.js";

const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;
// The server sends something every 15 seconds.
const SILENCE = 40_000;

/** What `useLive` found last, for dialogs that are opened from anywhere. */
export const latest = createStore({ state: "connecting", commit: null, count: 0 });

/**
 * Follow the new commits of a scope. Returns `{state, commit, count}`.
 *
 * `state` is "connecting", "live" or "lost" (it connects again by itself), `commit` the newest commit that arrived
 * since the page opened, and `count` goes up with each one, and when the history was replaced: use it as a dependency
 * of what has to be read again.
 */
export function useLive(scope, enabled = true) {
  const [found, setFound] = useState({ state: "connecting", commit: null, count: 0 });
  const lastId = useRef(null);
  useEffect(() => {
    if (!enabled) return undefined;
    const ending = new AbortController();
    lastId.current = null;
    setFound((before) => ({ state: "connecting", commit: null, count: before.count }));
    void followScope(scope, ending.signal, lastId, setFound);
    return () => ending.abort();
  }, [scope.user, scope.agent, enabled]);
  useEffect(() => latest.set(found), [found]);
  return found;
}

async function followScope(scope, signal, lastId, setFound) {
  let wait = FIRST_WAIT;
  while (!signal.aborted) {
    await visible(signal);
    const hidden = whenHidden(signal);
    try {
      if (lastId.current === null) {
        // The id of the newest commit, as its event would have it: what comes after it is told, also after a break.
        const { seq, hash } = await get("/v1/head", scope, { signal: hidden.signal });
        lastId.current = `${seq}-${hash}`;
      }
      await stream("/v1/events", {
        params: scope,
        lastEventId: lastId.current,
        signal: hidden.signal,
        silence: SILENCE,
        onOpen() {
          wait = FIRST_WAIT;
          setFound((before) => ({ ...before, state: "live" }));
        },
        onEvent({ event, data, id }) {
          if (id) lastId.current = id;
          if (event === "commit") {
            setFound((before) => ({ ...before, commit: JSON.parse(data), count: before.count + 1 }));
          } else if (event === "reset" || event === "removed") {
            setFound((before) => ({ ...before, commit: null, count: before.count + 1 }));
          }
        },
      });
    } catch (error) {
      if (signal.aborted) return;
      if (hidden.signal.aborted) continue;
      // A token that is missing is asked for; the page then starts anew.
      if (error.status === 401) return;
      if (error.status === 400 || error.status === 404) lastId.current = null;
    } finally {
      hidden.end();
    }
    if (signal.aborted) return;
    setFound((before) => ({ ...before, state: "lost" }));
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, wait);
      signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
    });
    wait = Math.min(LONGEST_WAIT, wait * 2);
  }
}

// A browser opens about six connections to a server, for all tabs together: a tab that is not seen gives its own back,
// and goes on where it stopped when it is seen again.

/** Wait until the tab is seen. */
async function visible(signal) {
  while (document.hidden && !signal.aborted) {
    await new Promise((resolve) => {
      document.addEventListener("visibilitychange", resolve, { once: true });
      signal.addEventListener("abort", resolve, { once: true });
    });
  }
}

/** Return a signal that is aborted with `signal`, or when the tab is hidden; `end` stops looking. */
function whenHidden(signal) {
  const hiding = new AbortController();
  const look = () => document.hidden && hiding.abort();
  document.addEventListener("visibilitychange", look);
  return {
    signal: AbortSignal.any([signal, hiding.signal]),
    end: () => document.removeEventListener("visibilitychange", look),
  };
}
