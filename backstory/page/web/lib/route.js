// Routes: the part of the address behind #. It never reaches a server, so the names in it stay out of its logs.
import { enter, entry } from "./place.js";
import { createStore, useStore } from "./store.js";

function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  return { view: path || "", params: Object.fromEntries(new URLSearchParams(query)) };
}

const route = createStore(read());
let before = null;
addEventListener("hashchange", () => {
  before = { ...route.get(), entry: entry() };
  enter();
  route.set(read());
});

/** Return `{view, params}` of the address, and render again when it changes. */
export const useRoute = () => useStore(route);

/** Return `{view, params}` of the address as it is now; components may not have been told of a change yet. */
export const currentRoute = read;

/** Return `{view, params, entry}` of the address before this one; null where this is the first. */
export const cameFrom = () => before;

/** Return the scope of a route, as the parameters `user` and `agent` of requests. */
export const scopeOf = ({ user, agent }) => ({ user, agent });

/** Return the address of a view. Parameters without a value are left out. */
export function href(view, params = {}) {
  const stated = Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(stated).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

/** Go to a view. `replace` does not add to the browser's history, as a slider must not. */
export function go(view, params, { replace = false } = {}) {
  const to = href(view, params);
  if (to === location.hash) return;
  if (replace) {
    history.replaceState(history.state, "", to);
    route.set(read());
  } else {
    location.hash = to;
  }
}
