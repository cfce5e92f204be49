// Requests to the server: JSON, the token, problems as errors, event streams.
import { createParser } from "../vendor/eventsource-parser.js";
import { createStore } from "./store.js";

// This file is served as page/lib/api.js, also where a proxy serves everything under a prefix.
const ROOT = new URL("../../", import.meta.url);
const TOKEN = "backstory-token";

/** Whether the server asks for a token: null, or the problem it answered with. */
export const refused = createStore(null);

/** The commits that this tab made: `{user, agent, seq}` each. */
export const made = createStore([]);

/** An answer that is not a success. `status` is 0 where the server could not be reached. */
export class Problem extends Error {
  constructor(status, title, detail, body = {}) {
    super(detail || title);
    this.name = "Problem";
    this.status = status;
    this.title = title;
    this.body = body;
  }
}

/** Use a token from now on; false for what no token can be, since a header cannot carry it. */
export function signIn(token) {
  if (!/^[\x21-\x7e]+$/.test(token)) return false;
  sessionStorage.setItem(TOKEN, token);
  refused.set(null);
  return true;
}

export function signOut() {
  sessionStorage.removeItem(TOKEN);
  refused.set(new Problem(401, "Unauthorized", ""));
}

export const isSignedIn = () => sessionStorage.getItem(TOKEN) !== null;

function urlOf(path, params = {}) {
  const url = new URL(path.replace(/^\//, ""), ROOT);
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

async function ask(method, path, { params, body, signal, headers = {} } = {}) {
  const token = sessionStorage.getItem(TOKEN);
  const sent = { ...headers };
  if (token !== null) sent.Authorization = `Bearer ${token}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(urlOf(path, params), {
      method,
      signal,
      headers: sent,
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "unreachable", "");
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  const problem = new Problem(response.status, told.title ?? response.statusText, told.detail ?? "", told);
  if (problem.status === 401) refused.set(problem);
  throw problem;
}

/** Read a resource as JSON. `params` without a value are left out. */
export async function get(path, params, { signal } = {}) {
  return (await ask("GET", path, { params, signal })).json();
}

/** Read a resource as text. */
export async function getText(path, params, { signal } = {}) {
  return (await ask("GET", path, { params, signal })).text();
}

/**
 * Send a change, and return `{data, etag}`.
 *
 * `etag` of a dry run goes into `ifMatch` of the change itself: it is then carried out on that head, or refused (412).
 * A request that is sent again with its `key` counts once.
 */
export async function send(method, path, params, body, { ifMatch, key, signal } = {}) {
  const headers = {};
  if (ifMatch) headers["If-Match"] = ifMatch;
  if (key) headers["Idempotency-Key"] = key;
  const response = await ask(method, path, { params, body, headers, signal });
  const data = await response.json();
  if (!body?.dry_run) note(data, params);
  return { data, etag: response.headers.get("ETag") };
}

/** Note what a change committed; one of an agent's memory may also change its user's. */
function note({ commit, users }, { user, agent }) {
  const found = [];
  if (commit) found.push({ user, agent, seq: commit });
  if (users?.commit) found.push({ user, agent: undefined, seq: users.commit });
  if (found.length) made.set([...made.get(), ...found]);
}

/**
 * Read an event stream until it ends. `onEvent` gets `{event, data, id}`.
 *
 * EventSource cannot send a token, so the stream is read by fetch. A connection that carries nothing for `silence`
 * milliseconds counts as lost: a computer that slept, or a network that changed, may leave one open for ever.
 */
export async function stream(path, { method = "GET", params, body, lastEventId, signal, silence, onOpen, onEvent }) {
  const headers = { Accept: "text/event-stream" };
  if (lastEventId) headers["Last-Event-ID"] = lastEventId;
  const quiet = new AbortController();
  let timer;
  const heard = () => {
    clearTimeout(timer);
    if (silence) timer = setTimeout(() => quiet.abort(), silence);
  };
  heard();
  try {
    await read(await ask(method, path, { params, body, headers, signal: AbortSignal.any([signal, quiet.signal]) }));
  } catch (error) {
    throw quiet.signal.aborted && !signal.aborted ? new Problem(0, "unreachable", "") : error;
  } finally {
    clearTimeout(timer);
  }

  async function read(response) {
    onOpen?.();
    const parser = createParser({ onEvent });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      let part;
      try {
        part = await reader.read();
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Problem(0, "unreachable", "");
      }
      heard();
      if (part.done) return;
      parser.feed(part.value);
    }
  }
}

/** Do a long piece of work with progress: `onProgress` gets `{done, total}`; returns its result. */
export async function follow(path, { method, params, body, signal, onProgress }) {
  let result;
  await stream(path, {
    method,
    params,
    body,
    signal,
    onEvent({ event, data }) {
      const value = JSON.parse(data);
      if (event === "progress") onProgress?.(value);
      else if (event === "result") result = value;
      else if (event === "error") throw new Problem(value.status ?? 500, value.title ?? "error", value.detail, value);
    },
  });
  if (result === undefined) throw new Problem(0, "unreachable", "");
  return result;
}
