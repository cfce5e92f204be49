// Facts of a moment: what its commit changed first, then everything else that was in memory.
import { get } from "../lib/api.js";
import { number } from "../lib/format.js";
import { html, memo, useMemo } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { href } from "../lib/route.js";
import { VirtualList } from "../lib/virtual.js";
import { useWords } from "../lib/words.js";
import { changesOf, SectionChange, SectionName } from "./changes.js";
import { FactRow, RevisedRow } from "./fact.js";
import { words } from "../views/timeline.words.js";

// Rows of facts that are shown among the changes take no height in the list behind, so there may not be many.
const MOST = 100;

/**
 * All of a moment in one list. `factAt(index)` is a fact of the moment, newest first, and `onRange` is told which are in
 * view; `current` is the id of a fact to point out.
 */
export const MomentFacts = memo(function MomentFacts({ moment, factAt, onRange, scope, current }) {
  const t = useWords(words);
  const added = useAdded(scope, moment);
  const rows = useMemo(() => rowsOf(moment, added), [moment, added]);
  const marks = useMemo(
    () => new Map([...moment.changed.added.map((id) => [id, "added"]), ...moment.changed.revised.map(({ after }) => [after.id, "revised"])]),
    [moment],
  );
  const before = rows.length;
  const ranged = useMemo(
    () => (first, last) => last >= before && onRange(Math.max(0, first - before), last - before),
    [onRange, before],
  );
  const about = (fact) => ({ link: href("why", { ...scope, fact: fact.id }), dated: true, current: fact.id === current });
  const sectionLink = (section) => href("why", { ...scope, section });
  const special = {
    heading: (key) => html`<h3 class="list-heading">${t(key)}</h3>`,
    rest: () => html`<h3 class="list-heading">${restInWords(moment, rows, t)}</h3>`,
    note: (n) => html`<p class="hint">${t("moreChanges", { s: number(n) })}</p>`,
    removed: (fact) => html`<${FactRow} fact=${fact} mark=${moment.changed.evicted.includes(fact.id) ? "evicted" : "removed"} ...${about(fact)} />`,
    added: (fact) => html`<${FactRow} fact=${fact} mark="added" ...${about(fact)} />`,
    revised: (change) => html`<${RevisedRow} change=${change} ...${about(change.after)} />`,
    rewritten: (change) => html`<${SectionChange} change=${change} link=${sectionLink(change.section)} />`,
    section: ({ section, summary }) =>
      html`<p class="then-section"><a href=${sectionLink(section)}><${SectionName} section=${section} /></a> <bdi>${summary}</bdi></p>`,
  };
  const row = (index) => {
    if (index < before) return special[rows[index].kind](rows[index].value);
    const fact = factAt(index - before);
    if (!fact) return html`<div class="fact waiting"></div>`;
    return rows.shown.has(fact.id) ? null : html`<${FactRow} fact=${fact} mark=${marks.get(fact.id)} ...${about(fact)} />`;
  };
  return html`<${VirtualList}
    className="moment-list"
    count=${before + moment.facts.total}
    row=${row}
    estimate=${74}
    inset=${8}
    label=${t("memoryThen", { seq: number(moment.seq) })}
    top=${moment.seq}
    onRange=${ranged}
  />`;
});

/** The facts that a commit added. One that an undo brought back is older than others, so it may not be in the window. */
function useAdded(scope, moment) {
  const known = new Map(moment.facts.items.map((fact) => [fact.id, fact]));
  const missing = moment.changed.added.slice(0, MOST).some((id) => !known.has(id));
  const commit = useLoad(
    async (signal) => (missing ? get(`/v1/commits/${moment.seq}`, scope, { signal }) : null),
    [moment.seq, missing],
  );
  return useMemo(() => {
    if (commit.data?.seq === moment.seq) for (const fact of changesOf(commit.data.events).added) known.set(fact.id, fact);
    return moment.changed.added.map((id) => known.get(id)).filter(Boolean);
  }, [moment, commit.data]);
}

function rowsOf({ changed, sections }, added) {
  const rows = [];
  const rewritten = new Set(changed.sections.map(({ section }) => section));
  const all = [
    ...changed.removed.map((value) => ({ kind: "removed", value })),
    ...added.map((value) => ({ kind: "added", value })),
    ...changed.revised.map((value) => ({ kind: "revised", value })),
    ...changed.sections.map((value) => ({ kind: "rewritten", value })),
  ];
  rows.push({ kind: "heading", value: all.length ? "changedHere" : "nothingHere" }, ...all.slice(0, MOST));
  if (all.length > MOST) rows.push({ kind: "note", value: all.length - MOST });
  rows.push({ kind: "rest" });
  for (const section of sections) if (section.summary && !rewritten.has(section.section)) rows.push({ kind: "section", value: section });
  rows.shown = new Set(rows.flatMap(({ kind, value }) => (kind === "added" ? [value.id] : kind === "revised" ? [value.after.id] : [])));
  return rows;
}

function restInWords({ count, changed, facts }, rows, t) {
  if (!count && !rows.some(({ kind }) => kind === "section" || kind === "rewritten")) return t("emptyThen");
  const others = { facts: facts.total - rows.shown.size, sections: rows.filter(({ kind }) => kind === "section").length };
  return t(rows.shown.size || changed.removed.length ? "rest" : "restAll", others);
}
