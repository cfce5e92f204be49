// A file with one graph: the view without a server. Its data stands in the page.
import { html, render } from "./lib/html.js";
import { LANGUAGES, setLanguage, useLanguage, useWords } from "./lib/words.js";
import { words as pageWords } from "./app.words.js";
import { GraphPicture } from "./components/graph.js";
import { GraphSummary } from "./components/graph_summary.js";

const graph = JSON.parse(document.getElementById("graph").textContent);

/** The command that tells more of a node. */
function asks(node) {
  switch (node.kind) {
    case "thread":
      return command("turns", node.thread);
    case "update":
      return command("diff", String(node.seq - 1), String(node.seq));
    case "fact":
      return command("why", node.fact);
    case "section":
      return command("show");
    default:
      return null;
  }
}

/** Spell a command line that a shell takes as it is meant, whatever the names in it are. */
function command(verb, ...names) {
  const scope = ["user", "agent"].filter((name) => graph[name] !== null).map((name) => `--${name}=${graph[name]}`);
  // What begins like an option is a name all the same.
  const separator = names.some((name) => name.startsWith("-")) ? ["--"] : [];
  return ["backstory", ...scope, verb, ...separator, ...names].map(quoted).join(" ");
}

const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);

function Page() {
  const t = useWords(pageWords);
  const chosen = useLanguage();
  const owner = [graph.user, graph.agent].filter((name) => name !== null).join(", ") || t("shared");
  return html`
    <main>
      <div class="graph-head">
        <h1>${t("graph")}: <bdi>${owner}</bdi></h1>
        <label>
          <span class="hidden">${t("language")}</span>
          <select onChange=${(event) => setLanguage(event.target.value)}>
            ${Object.entries(LANGUAGES).map(([tag, name]) => html`<option value=${tag} lang=${tag} selected=${tag === chosen}>${name}</option>`)}
          </select>
        </label>
      </div>
      <${GraphSummary} graph=${graph} />
      <${GraphPicture} graph=${graph} asks=${asks} />
    </main>
  `;
}

render(html`<${Page} />`, document.getElementById("page"));
