// What a graph shows, counted, and what is left out of it.
import { html } from "../lib/html.js";
import { useWords } from "../lib/words.js";
import { words } from "./graph.words.js";

export function GraphSummary({ graph }) {
  const t = useWords(words);
  if (graph.routes !== undefined) {
    return html`<p>${t("flowSummary", { turns: graph.turns, routes: graph.routes.length })}</p>
      ${graph.left_out > 0 && html`<p class="graph-left-out" role="note">${t("routesLeftOut", { n: graph.left_out })}</p>`}`;
  }
  const count = (kind) => graph.nodes.filter((node) => node.kind === kind).length;
  const live = graph.nodes.filter((node) => node.kind === "fact" && node.live).length;
  const told = { threads: count("thread"), updates: count("update"), live, gone: count("fact") - live, seq: graph.seq };
  return html`<p>${t("summary", told)}</p>
    ${graph.left_out.updates > 0 && html`<p class="graph-left-out" role="note">${t("leftOut", graph.left_out)}</p>`}`;
}
