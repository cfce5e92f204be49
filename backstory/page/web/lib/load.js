// Loading: what a component fetches, with what it showed before kept until the answer is there.
import { useCallback, useEffect, useState } from "./html.js";

// While the server cannot be reached, it is asked again after this many milliseconds.
const AGAIN = 2000;

/** Ask again after a while what failed because the server could not be reached; each failure is an error of its own. */
export function useAgain(error, reload) {
  useEffect(() => {
    if (error?.status !== 0) return undefined;
    const timer = setTimeout(reload, AGAIN);
    return () => clearTimeout(timer);
  }, [error]);
}

/**
 * Call `load(signal)` when one of `deps` changes, and return `{data, error, loading, reload}`.
 *
 * An earlier call that is under way is aborted, so the last one wins. `data` stays until new data is there.
 */
export function useLoad(load, deps) {
  const [state, setState] = useState({ data: undefined, error: null, loading: true });
  const [round, setRound] = useState(0);
  useEffect(() => {
    const aborting = new AbortController();
    setState((before) => ({ ...before, loading: true }));
    load(aborting.signal).then(
      (data) => !aborting.signal.aborted && setState({ data, error: null, loading: false }),
      (error) => !aborting.signal.aborted && setState((before) => ({ ...before, error, loading: false })),
    );
    return () => aborting.abort();
  }, [...deps, round]);
  const reload = useCallback(() => setRound((before) => before + 1), []);
  useAgain(state.error, reload);
  return { ...state, reload };
}
