// The graph as boxes and lines in words: what a box says in short and in full, and which lines no longer hold.
import { wordsOf } from "../lib/words.js";
import { words as commonWords } from "./common.words.js";
import { words } from "./graph.words.js";

/** Columns of a large graph, from left to right. */
const COLUMNS = { thread: 0, update: 1, gone: 2, erased: 2, fact: 3, section: 3 };

/** The kinds of lines, in the order in which they are explained. */
export const KINDS = [
  "learned-from",
  "added",
  "restored",
  "revised",
  "removed",
  "told-of",
  "erased",
  "wrote",
  "superseded-by",
  "merged-into",
  "undid",
  "returned-to",
  "route",
];

/**
 * Return `{boxes, lines}` of a graph as the server gives it, in the words of a language.
 *
 * A box has `id`, `look`, `head` and `about` (one line each), `content` (cut to `rows` lines), `full` (the whole text),
 * `facts` (short remarks on it), `name` for its accessible name, and `node`. A line has `source`, `target`, `kind`, `label`, `past`, and `flat` where it
 * joins boxes of one column.
 */
export function outline(graph, language) {
  const t = wordsOf(words, language);
  const known = wordsOf(commonWords, language);
  // Causes, categories and sections are content: not each has a word.
  const common = (key) => (Object.hasOwn(commonWords.en, key) ? known(key) : key);
  return graph.routes === undefined ? outlineOfMemory(graph, t, common) : outlineOfFlow(graph, t);
}

function outlineOfMemory(graph, t, common) {
  const learned = new Map();
  for (const edge of graph.edges) {
    if (edge.kind === "learned-from" && !learned.has(edge.target)) learned.set(edge.target, edge.seq);
  }
  const groups = { thread: (node) => learned.get(node.id), update: (node) => node.seq, fact: (node) => node.born, section: (node) => node.last };
  const boxes = graph.nodes.map((node) => {
    const box = BOXES[node.kind](node, t, common);
    return { id: node.id, node, column: COLUMNS[box.look], group: groups[node.kind](node) ?? 0, ...box };
  });
  const nodes = new Map(graph.nodes.map((node) => [node.id, node]));
  const lines = graph.edges
    // A section counts its rewritings: only the last has a line.
    .filter((edge) => edge.kind !== "wrote" || nodes.get(edge.target).last === edge.seq)
    .map((edge, number) => ({
      id: `line${number}`,
      source: edge.source,
      target: edge.target,
      kind: edge.kind,
      seq: edge.seq,
      label: labelOf(edge, t),
      past: !holds(edge, nodes),
      // A conversation stands before the update that learned from it.
      back: nodes.get(edge.target).kind === "thread",
      flat: edge.kind === "undid" || edge.kind === "returned-to",
    }));
  return { boxes, lines };
}

function outlineOfFlow(flow, t) {
  const boxes = new Map();
  const box = (name) => {
    // A name has a letter before it, so that none is that of everybody.
    const id = name === null ? "everybody" : `name:${name}`;
    if (!boxes.has(id)) {
      const head = name ?? t("everybody");
      const look = name === null ? "everybody" : "name";
      const node = { kind: "name", name };
      boxes.set(id, { id, node, column: 0, group: 0, look, head, content: "", rows: 0, about: "", full: "", facts: [], name: head });
    }
    return id;
  };
  const lines = flow.routes.map((route, number) => {
    const cause = route.cause_by ? route.cause_by.slice(route.cause_by.lastIndexOf(".") + 1) || route.cause_by : "";
    return {
      id: `line${number}`,
      source: box(route.sender),
      target: box(route.receiver),
      kind: "route",
      label: cause ? `${route.turns} × ${cause}` : t("turns", { n: route.turns }),
      weight: route.turns,
      past: false,
      back: false,
      flat: false,
    };
  });
  return { boxes: [...boxes.values()], lines };
}

const BOXES = {
  thread: (node, t) => ({
    look: "thread",
    head: node.thread,
    content: "",
    rows: 0,
    about: "",
    full: "",
    facts: [],
    name: t("threadName", { name: node.thread }),
  }),
  update(node, t, common) {
    const title = common(node.cause);
    const rules = Object.entries(node.refused ?? {}).map(([rule, n]) => `${n} ${rule}`);
    return {
      look: "update",
      head: `${node.seq} ${title}`,
      content: node.summary,
      rows: 2,
      about: node.at.slice(0, 10),
      full: node.summary,
      facts: [
        node.title,
        node.at,
        node.by ? t("by", { name: node.by }) : "",
        rules.length ? t("refusedBy", { rules: rules.join(", ") }) : "",
        node.failed ? t("failed", { reason: node.failed }) : "",
      ].filter(Boolean),
      name: t("updateName", { seq: node.seq, title }),
    };
  },
  fact(node, t, common) {
    const erased = node.gone?.reason === "erased";
    const missing = erased ? t("erasedText") : t("unknownText");
    const category = node.category && common(node.category);
    const sure = node.confidence === null || node.confidence === undefined ? "" : node.confidence.toFixed(2);
    const gone = node.gone ? t("goneAt", { reason: goneWord(node.gone.reason, t), seq: node.gone.seq }) : "";
    return {
      look: node.live ? "fact" : erased ? "erased" : "gone",
      head: "",
      content: node.content ?? missing,
      rows: 3,
      about: gone || [category, sure, node.by_hand ? t("byHand") : ""].filter(Boolean).join(" · "),
      full: node.content ?? missing,
      facts: [node.fact, category, sure, node.by_hand ? t("byHand") : "", node.live ? t("live") : gone, node.gone?.note].filter(Boolean),
      name: t("factName", { id: node.fact }),
    };
  },
  section(node, t, common) {
    const title = common(node.section);
    const text = node.summary || (node.erased ? t("erasedText") : t("emptyText"));
    return {
      look: node.summary ? "section" : node.erased ? "erased" : "gone",
      head: title,
      content: text,
      rows: 2,
      about: t("written", { n: node.written }),
      full: text,
      facts: [node.section, t("written", { n: node.written })],
      name: t("sectionName", { name: title }),
    };
  },
};

function goneWord(reason, t) {
  const known = ["model", "consolidated", "hand", "cap", "clear", "threshold", "stale", "duplicate", "import", "erased", "revert", "rollback", "ended", "expired"];
  return known.includes(reason) ? t(`gone-${reason}`) : reason;
}

/** The word of a kind of line; a box can be erased as well, which is another word. */
export const kindWord = (kind, t) => t(kind === "erased" ? "edge-erased" : kind);

function labelOf(edge, t) {
  const word = kindWord(edge.kind, t);
  if (edge.kind === "removed" && edge.detail === "hand") return t("gone-hand");
  if (edge.kind === "removed" && edge.detail) return `${word}: ${goneWord(edge.detail, t)}`;
  return edge.kind === "revised" && edge.detail ? `${word}: ${edge.detail}` : word;
}

/** Whether what took a fact out of memory still holds: it may be back, or gone for another reason. */
function holds(edge, nodes) {
  const kin = edge.kind === "superseded-by" || edge.kind === "merged-into";
  if (!kin && edge.kind !== "removed") return true;
  const node = nodes.get(kin ? edge.source : edge.target);
  return node.kind !== "fact" || node.gone?.seq === edge.seq;
}

/**
 * Return the ids of the boxes and lines on the path of a box.
 *
 * That of a fact is what became of it and what it was made of, the updates that did it, and their conversations; that
 * of an update or a conversation is what was learned there, and what replaced what.
 */
export function pathOf({ boxes, lines }, start) {
  const kinds = new Map(boxes.map((box) => [box.id, box.node.kind]));
  const touching = new Map();
  for (const line of lines) {
    for (const end of new Set([line.source, line.target])) {
      if (!touching.has(end)) touching.set(end, []);
      touching.get(end).push(line);
    }
  }
  const first = kinds.get(start);
  const lit = new Set([start]);
  const waiting = [start];
  while (waiting.length) {
    const id = waiting.pop();
    const kind = kinds.get(id);
    for (const line of touching.get(id) ?? []) {
      const other = line.source === id ? line.target : line.source;
      const kin = line.kind === "superseded-by" || line.kind === "merged-into";
      const follows =
        id === start ||
        kin ||
        (kind === "fact" && first === "fact" && kinds.get(other) === "update") ||
        (kind === "update" && (line.kind === "learned-from" || first === "thread"));
      if (!follows) continue;
      lit.add(line.id);
      if (lit.has(other)) continue;
      lit.add(other);
      const ends = first === "thread" ? ["fact", "section"] : ["thread"];
      if (first !== "name" && !ends.includes(kinds.get(other))) waiting.push(other);
    }
  }
  return lit;
}

/** Return which boxes have a text in them, whatever its case; null where no text is given. */
export function search({ boxes }, text) {
  const wanted = text.trim().toLocaleLowerCase();
  if (wanted === "") return null;
  const said = (box) => [box.head, box.full, box.about, box.name, ...box.facts].join("\n").toLocaleLowerCase();
  return boxes.filter((box) => said(box).includes(wanted)).map((box) => box.id);
}
