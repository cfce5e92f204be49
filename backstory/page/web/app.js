// The page: its frame, the scope that is shown, and the view that the address names.
import { isSignedIn, Problem, refused, signOut, get } from "./lib/api.js";
import { html, render, useEffect, useErrorBoundary, useMemo, useState } from "./lib/html.js";
import { keepChoice, keptChoice } from "./lib/kept.js";
import { useLive } from "./lib/live.js";
import { useLoad } from "./lib/load.js";
import { go, href, scopeOf, useRoute } from "./lib/route.js";
import { useStore } from "./lib/store.js";
import { LANGUAGES, setLanguage, useLanguage, useWords } from "./lib/words.js";
import { Busy, Failure } from "./components/notice.js";
import { ScopeChoice, ScopePicker } from "./components/scope_picker.js";
import { SignIn } from "./components/sign_in.js";
import { words } from "./app.words.js";

// Each view is loaded when it is first shown. The first six are in the menu.
const VIEWS = {
  memory: () => import("./views/memory.js"),
  timeline: () => import("./views/timeline.js"),
  graph: () => import("./views/graph.js"),
  compare: () => import("./views/compare.js"),
  agent: () => import("./views/agent.js"),
  operations: () => import("./views/operations.js"),
  why: () => import("./views/why.js"),
};
const THEME = "backstory-theme";
const MENU = ["memory", "timeline", "graph", "compare", "agent", "operations"];

function App() {
  const problem = useStore(refused);
  useLanguage();
  // A new key starts everything anew once a token is there.
  return problem ? html`<${SignIn} problem=${problem} />` : html`<${Home} />`;
}

/**
 * Finds out who the caller is and whose memory to show.
 *
 * Where the address names nobody, that is the caller's own user or the only memory there is; among several the person
 * chooses. A link to the shared memory names nobody, either: it is shown if there is one.
 */
function Home() {
  const { view, params } = useRoute();
  const [sharedChosen, setSharedChosen] = useState(false);
  const caller = useLoad((signal) => get("/v1/caller", {}, { signal }), []);
  const named = params.user !== undefined || params.agent !== undefined;
  const scopes = useLoad(
    async (signal) => {
      if (named) return null;
      const { items, unreadable = [] } = await get("/v1/scopes", { limit: 2 }, { signal });
      return [...items, ...unreadable];
    },
    [named],
  );
  const known = caller.data && scopes.data ? whose(caller.data, scopes.data) : undefined;
  const elsewhere = !named && known && (known.user !== null || known.agent !== null);
  const asked = !named && known === null && (view === "" || !scopes.data.some(isShared)) && !sharedChosen;
  useEffect(() => {
    if (elsewhere) {
      go(view || "memory", { ...params, user: known.user ?? undefined, agent: known.agent ?? undefined }, { replace: true });
    } else if (view === "" && (named || known !== undefined) && !asked) go("memory", params, { replace: true });
  }, [elsewhere, known?.user, known?.agent, view, named, asked]);
  const error = caller.error ?? scopes.error;
  if (error && !caller.data) {
    return html`
      <header class="top"><strong class="brand">Backstory</strong><${Tools} /></header>
      <main><${Failure} error=${error} retry=${() => (caller.reload(), scopes.reload())} /></main>
    `;
  }
  if (!caller.data || (!named && !scopes.data)) return html`<${Busy} />`;
  if (asked) {
    return html`
      <header class="top"><strong class="brand">Backstory</strong><${Tools} /></header>
      <${ScopeChoice} view=${view || "memory"} onShared=${() => setSharedChosen(true)} />
    `;
  }
  if (view === "" || elsewhere) return html`<${Busy} />`;
  return html`<${Frame} caller=${caller.data} view=${view} params=${params} />`;
}

const isShared = ({ user, agent }) => user === null && agent === null;

/** Return the scope that is meant where none is named; null if there are several. */
function whose(caller, scopes) {
  if (caller.user) return { user: caller.user, agent: null };
  if (scopes.length === 1) return scopes[0];
  return scopes.length === 0 ? { user: null, agent: null } : null;
}

function Frame({ caller, view, params }) {
  const t = useWords(words);
  const scope = useMemo(() => scopeOf(params), [params.user, params.agent]);
  const live = useLive(scope);
  const known = Object.hasOwn(VIEWS, view) ? view : "memory";
  const main = known === "why" ? "memory" : known;
  return html`
    <a class="skip" href="#content" onClick=${(event) => (event.preventDefault(), document.getElementById("content").focus())}>
      ${t("skip")}
    </a>
    <header class="top">
      <a class="brand" href=${href("memory", scope)}>Backstory</a>
      <${ScopePicker} scope=${scope} view=${known} caller=${caller} />
      <nav aria-label=${t("views")}>
        ${MENU.map(
          (name) => html`<a href=${href(name, scope)} aria-current=${name === main ? "page" : undefined}>${t(name)}</a>`,
        )}
      </nav>
      <${Tools}><span class=${`live live-${live.state}`} role="status">${t(`live-${live.state}`)}</span><//>
    </header>
    <main id="content" tabindex="-1">
      <${View} name=${known} key=${`${known} ${scope.user} ${scope.agent}`} scope=${scope} params=${params} live=${live} caller=${caller} />
    </main>
  `;
}

function Tools({ children }) {
  const t = useWords(words);
  return html`<div class="tools">
    ${children}
    <${LanguageChoice} />
    <${ThemeChoice} />
    ${isSignedIn() && html`<button type="button" class="quiet" onClick=${signOut}>${t("signOut")}</button>`}
  </div>`;
}

function unreachable() {
  throw new Problem(0, "unreachable", "");
}

/** Loads the module of a view, then shows it; where it fails, what went wrong, until the address changes or on request. */
function View({ name, ...given }) {
  const t = useWords(words);
  const [broken, mend] = useErrorBoundary();
  const { data: module, error, reload } = useLoad(() => VIEWS[name]().catch(unreachable), [name]);
  useEffect(() => {
    document.title = `${t(name)} · ${given.scope.user ?? t("shared")} · Backstory`;
  }, [name, given.scope.user, t]);
  useEffect(mend, [given.params]);
  if (broken) return html`<${Failure} error=${broken} retry=${mend} />`;
  if (error) return html`<${Failure} error=${error} retry=${reload} />`;
  return module ? html`<${module.View} ...${given} />` : html`<${Busy} />`;
}

function LanguageChoice() {
  const t = useWords(words);
  const chosen = useLanguage();
  return html`<label class="choice">
    <span class="hidden">${t("language")}</span>
    <select value=${chosen} onChange=${(event) => setLanguage(event.target.value)}>
      ${Object.entries(LANGUAGES).map(([tag, name]) => html`<option value=${tag} lang=${tag} selected=${tag === chosen}>${name}</option>`)}
    </select>
  </label>`;
}

function ThemeChoice() {
  const t = useWords(words);
  const [chosen, setChosen] = useState(keptChoice(THEME) ?? "system");
  const choose = (theme) => {
    keepChoice(THEME, theme === "system" ? null : theme);
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    setChosen(theme);
    // Canvases take their colours from the theme when they are drawn.
    dispatchEvent(new Event("themechange"));
  };
  return html`<label class="choice">
    <span class="hidden">${t("theme")}</span>
    <select value=${chosen} onChange=${(event) => choose(event.target.value)}>
      ${["system", "light", "dark"].map((name) => html`<option value=${name} selected=${name === chosen}>${t(name)}</option>`)}
    </select>
  </label>`;
}

// The view's module is fetched while it is found out who asks.
const first = /^#\/(\w+)/.exec(location.hash)?.[1] ?? "memory";
if (Object.hasOwn(VIEWS, first)) void VIEWS[first]().catch(() => undefined);

render(html`<${App} />`, document.getElementById("page"));
