// Memory at a moment: what it held then, what its commit changed, and its facts in pages as they come into view.
import { useCallback, useEffect, useReducer, useRef } from "./html.js";
import { get } from "./api.js";
import { useAgain } from "./load.js";

const PAGE = 100;
// A request that took this long already gives way to a newer one; a quicker one is let finish, so that a slider that
// moves all the time still shows something.
const PATIENCE = 120;

/**
 * Read memory at `at` (a commit's number, a time, or nothing for now) through `/v1/memory`.
 *
 * `filter` holds the other parameters of the request. `round` reads again when it changes. Returns `{moment, fact(index),
 * onRange, error, loading, reload}`. `moment` stays until the next one is there, and is never older than an answer that
 * came before it. `fact` is undefined until its page is there.
 */
export function useMoment(scope, at, filter = {}, round = 0) {
  const [, renderAgain] = useReducer((n) => n + 1, 0);
  const here = useRef(null);
  if (here.current === null) here.current = new Follower(() => renderAgain());
  const follower = here.current;
  const key = JSON.stringify([scope.user, scope.agent, filter]);
  useEffect(() => follower.want({ scope, at, filter, key }), [key, at, round]);
  useEffect(() => () => follower.end(), []);
  const { moment, error } = follower;
  const onRange = useCallback((first, last) => follower.need(first, last), [moment]);
  const reload = useCallback(() => follower.want(follower.last), []);
  useAgain(error, reload);
  return { moment, fact: follower.fact, onRange, error, loading: follower.running !== null, reload };
}

class Follower {
  constructor(changed) {
    this.changed = changed;
    this.moment = null;
    this.error = null;
    this.running = null;
    this.waiting = null;
    this.last = null;
    this.shown = null;
    this.pages = new Map();
    this.old = new Map();
    this.asked = new Map();
    this.fact = this.reader();
  }

  /** Another function once more facts are there, so that what depends on it is rendered again. */
  reader() {
    return (index) => {
      const page = Math.floor(index / PAGE);
      return (this.pages.get(page) ?? this.old.get(page))?.[index % PAGE];
    };
  }

  want(request) {
    this.last = request;
    this.waiting = request;
    if (this.running === null) this.run();
    else if (performance.now() - this.running.since > PATIENCE || this.running.key !== request.key) {
      this.running.aborting.abort();
      this.run();
    }
  }

  run() {
    const request = this.waiting;
    this.waiting = null;
    const running = { aborting: new AbortController(), since: performance.now(), key: request.key };
    this.running = running;
    const params = { ...request.scope, ...request.filter, at: request.at, limit: PAGE };
    get("/v1/memory", params, { signal: running.aborting.signal }).then(
      (moment) => this.running === running && this.arrived(request, moment),
      (error) => {
        if (this.running !== running) return;
        this.error = error;
        this.next();
      },
    );
  }

  arrived(request, moment) {
    this.drop();
    // Until the other pages are there, those of the moment before are shown: most facts are the same.
    this.old = this.shown?.key === request.key ? new Map([...this.old, ...this.pages]) : new Map();
    this.pages = new Map([[0, moment.facts.items]]);
    this.shown = { ...request, at: moment.seq };
    this.moment = moment;
    this.fact = this.reader();
    this.error = null;
    this.next();
  }

  next() {
    this.running = null;
    if (this.waiting !== null) this.run();
    this.changed();
  }

  need(first, last) {
    if (this.moment === null) return;
    const end = Math.min(last, this.moment.facts.total - 1);
    for (let page = Math.floor(first / PAGE); page <= Math.floor(end / PAGE); page += 1) {
      if (!this.pages.has(page) && !this.asked.has(page)) this.fetch(page);
    }
  }

  fetch(page) {
    const { scope, filter, at } = this.shown;
    const aborting = new AbortController();
    this.asked.set(page, aborting);
    const params = { ...scope, ...filter, at, offset: page * PAGE, limit: PAGE };
    get("/v1/memory", params, { signal: aborting.signal }).then(
      (moment) => {
        if (aborting.signal.aborted) return;
        this.asked.delete(page);
        this.pages.set(page, moment.facts.items);
        this.fact = this.reader();
        this.changed();
      },
      (error) => {
        if (aborting.signal.aborted) return;
        this.asked.delete(page);
        this.error = error;
        this.changed();
      },
    );
  }

  drop() {
    for (const aborting of this.asked.values()) aborting.abort();
    this.asked.clear();
  }

  end() {
    this.drop();
    const running = this.running;
    this.running = null;
    running?.aborting.abort();
  }
}
