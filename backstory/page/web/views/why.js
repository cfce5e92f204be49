// Why: where a fact, a section or an update comes from, down to the words that were said, and the ways to undo it.
import { html, useEffect, useState } from "../lib/html.js";
import { cameBack, resume } from "../lib/place.js";
import { cameFrom, go, href } from "../lib/route.js";
import { useWords } from "../lib/words.js";
import { FactForm, RemoveDialog } from "../components/fact_form.js";
import { ForgetDialog } from "../components/forget.js";
import { UndoDialog } from "../components/undo.js";
import { WhyCommit } from "./why/commit.js";
import { WhyFact } from "./why/fact.js";
import { WhyNot } from "./why/not.js";
import { WhySection } from "./why/section.js";
import { words } from "./why.words.js";

export function View({ scope, params, live, caller }) {
  const t = useWords(words);
  const [dialog, setDialog] = useState(null);
  const [origin] = useState(() => originOf(scope));
  const { fact, section, commit, text } = params;
  const shown = fact ?? section ?? commit;
  // Another fact is another page: the reader begins at its top.
  useEffect(() => (cameBack() ? undefined : scrollTo(0, 0)), [fact, section, commit]);
  const may = { write: caller.right !== "read", erase: caller.right === "erase" };
  const given = { scope, live, may, open: setDialog };
  const close = () => setDialog(null);
  return html`<div class="why">
    <p class="why-back"><a href=${href(origin.view, origin.params)} onClick=${() => resume(origin.entry)}>← ${t(origin.view === "graph" ? "backToGraph" : "back")}</a></p>
    ${fact && html`<${WhyFact} key=${fact} id=${fact} ...${given} />`}
    ${!fact && section && html`<${WhySection} key=${section} section=${section} ...${given} />`}
    ${!fact && !section && commit && html`<${WhyCommit} key=${commit} seq=${commit} ...${given} />`}
    <${WhyNot} scope=${scope} may=${may} open=${setDialog} text=${text} alone=${shown === undefined} search=${(next) => go("why", { ...scope, fact, section, commit, text: next }, { replace: true })} />
    ${dialog?.undo !== undefined && html`<${UndoDialog} scope=${scope} seq=${dialog.undo} onClose=${close} />`}
    ${dialog?.edit && html`<${FactForm} scope=${scope} fact=${dialog.edit} onClose=${close} />`}
    ${dialog?.add !== undefined && html`<${FactForm} scope=${scope} content=${dialog.add} onClose=${close} />`}
    ${dialog?.remove && html`<${RemoveDialog} scope=${scope} fact=${dialog.remove} onClose=${close} />`}
    ${dialog?.forget && html`<${ForgetDialog} scope=${scope} target=${dialog.forget} onClose=${close} />`}
  </div>`;
}

const same = (one, other) => (one ?? "") === (other ?? "");

/** Return where the reader came from, if that is the graph or memory of the same scope; else memory. */
function originOf(scope) {
  const from = cameFrom();
  const known = from && (from.view === "graph" || from.view === "memory") && same(from.params.user, scope.user) && same(from.params.agent, scope.agent);
  return known ? from : { view: "memory", params: scope };
}
