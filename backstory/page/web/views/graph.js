// The graph view: threads, updates and facts, or who sent what to whom; narrowed by the address.
import { get } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { href } from "../lib/route.js";
import { useWords } from "../lib/words.js";
import { GraphPicture } from "../components/graph.js";
import { words as pictureWords } from "../components/graph.words.js";
import { GraphSummary } from "../components/graph_summary.js";
import { Loaded } from "../components/notice.js";
import { words } from "./graph.words.js";

const LIMITS = [50, 200, 500, 1000];
const USUAL = "200";

export function View({ scope, params, live }) {
  const t = useWords(words);
  const messages = params.messages !== undefined;
  const { thread, fact, since, limit = USUAL } = params;
  const asked = messages ? { thread, since, limit } : { thread, fact, since, limit };
  const path = messages ? "/v1/messages-graph" : "/v1/graph";
  const loaded = useLoad(
    (signal) => get(path, { ...scope, ...asked }, { signal }),
    [scope.user, scope.agent, path, thread, fact, since, limit, live.count],
  );
  const to = (changes) => href("graph", { ...scope, thread, fact, since, limit: params.limit, ...(messages ? { messages: 1 } : {}), ...changes });
  const opens = useOpens(scope, to);
  return html`
    <div class="graph-head">
      <h1>${t("title")}</h1>
      <nav aria-label=${t("shows")} class="row">
        <a href=${to({ messages: undefined })} aria-current=${messages ? undefined : "page"}>${t("memory")}</a>
        <a href=${to({ messages: 1, fact: undefined, since: undefined })} aria-current=${messages ? "page" : undefined}>${t("messages")}</a>
      </nav>
      <label>
        ${t("limit")}
        <select value=${limit} onChange=${(event) => (location.hash = to({ limit: event.target.value }))}>
          ${[...new Set([...LIMITS.map(String), limit])].map((n) => html`<option value=${n} selected=${n === limit}>${n}</option>`)}
        </select>
        ${messages ? t("routes") : t("updates")}
      </label>
      <form
        class="row"
        onSubmit=${(event) => {
          event.preventDefault();
          location.hash = to({ since: new FormData(event.target).get("since").trim() });
        }}
      >
        <label>${t("since")} <input name="since" size="12" placeholder=${t("sinceHint")} value=${since ?? ""} /></label>
      </form>
      ${thread !== undefined && html`<span><bdi>${t("aboutThread", { name: thread })}</bdi></span>`}
      ${fact !== undefined && html`<span><bdi>${t("aboutFact", { name: fact })}</bdi></span>`}
      ${(thread ?? fact ?? since) !== undefined && html`<a href=${to({ thread: undefined, fact: undefined, since: undefined })}>${t("all")}</a>`}
    </div>
    <${Loaded} of=${loaded}>
      ${(graph) => html`<${GraphSummary} graph=${graph} /><${GraphPicture} key=${to({})} graph=${graph} opens=${opens} />`}
    <//>
  `;
}

/** Where a box leads: a fact to its reasons, an update to its moment, a conversation to itself alone. */
function useOpens(scope, to) {
  const t = useWords(pictureWords);
  return (node) => {
    switch (node.kind) {
      case "fact":
        return { href: href("why", { ...scope, fact: node.fact }), label: t(node.live ? "openFact" : "openGone") };
      case "update":
        return { href: href("timeline", { ...scope, at: node.seq }), label: t("openUpdate") };
      case "thread":
        return { href: to({ thread: node.thread, fact: undefined }), label: t("openThread") };
      case "section":
        return { href: href("why", { ...scope, section: node.section }), label: t("openSection") };
      default:
        return null;
    }
  };
}
