// Where boxes and lines go: dagre lays out small graphs, columns by time the large ones, for which it takes too long.
import { Graph, layout } from "../vendor/dagre.js";

/** More boxes and lines than this are laid out in columns. */
export const MOST_FOR_DAGRE = 500;

const WIDTHS = { thread: 170, update: 210, fact: 270, section: 270, name: 170 };
const ROW = 17;
const PADDING = 9;
const GAP = 14;
const BETWEEN = { least: 90, most: 240 };
const BEND = 34;
/** The column that facts begin in where each line leads to the right. */
const LAST = 2;
const MARGIN = 24;
/** Points that a curve is measured by, and where on a line its label may stand. */
const PIECES = 12;
const SHARES = [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74];
const LABEL_HEIGHT = 13;

/** Return the width of a box of a kind. */
export const widthOf = (kind) => WIDTHS[kind];

/** Return the height of a box with so many rows of text. */
export const heightOf = (rows) => 2 * PADDING + ROW * Math.max(1, rows);

/** Return where the text of a row stands in its box. */
export const baseline = (row) => PADDING + ROW * row + 12;

/**
 * Return `{places, routes, width, height}`.
 *
 * `places` gives the box of each id as `{x, y, width, height}`, `routes` the `path` of each line and `spots`, the points of it
 * that a label may stand on, the best first.
 * `boxes` have `id`, `column`, `group` (the commit they stand beside), `width` and `height`; `lines` have
 * `wide`, the width of their labels.
 */
export function lay(boxes, lines) {
  const small = boxes.length + lines.length <= MOST_FOR_DAGRE;
  const label = Math.max(0, ...lines.map((line) => line.wide));
  const between = Math.min(BETWEEN.most, Math.max(BETWEEN.least, label + BEND));
  return small ? layeredBy(boxes, lines, between) : columnsOf(boxes, lines, between);
}

function layeredBy(boxes, lines, between) {
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: "LR", nodesep: GAP, edgesep: 8, ranksep: between, marginx: MARGIN, marginy: MARGIN, ranker: rank });
  // Boxes go by number here: dagre joins names with a character that a name may have.
  const numbers = new Map(boxes.map(({ id }, number) => [id, String(number)]));
  const ends = ({ source, target, back }) => [source, target].map((id) => numbers.get(id))[back ? "reverse" : "slice"]();
  for (const { id, width, height, column } of boxes) {
    // dagre counts from one, and two ranks from a box to the next: the label of a line has one of its own.
    graph.setNode(numbers.get(id), { width, height, rank: 1 + 2 * Math.min(column, LAST) });
  }
  for (const line of lines) if (!line.flat) graph.setEdge(...ends(line), {}, line.id);
  // Who sent what to whom has no order of time: there dagre finds the order with few crossings.
  const timed = boxes.some((box) => box.group > 0);
  layout(graph, timed ? { customOrder: (ranked) => orderByTime(ranked, boxes) } : {});
  const places = new Map(
    boxes.map(({ id }) => {
      const { x, y, width, height } = graph.node(numbers.get(id));
      return [id, { x: x - width / 2, y: y - height / 2, width, height }];
    }),
  );
  const routes = new Map();
  for (const line of lines) {
    if (line.flat) routes.set(line.id, aside(places.get(line.source), places.get(line.target)));
    else {
      const [first, second] = line.back ? [line.target, line.source] : [line.source, line.target];
      const { points } = graph.edge(...ends(line), line.id);
      routes.set(line.id, through(bent(points, places.get(first), places.get(second)), line.back));
    }
  }
  const { width, height } = graph.graph();
  return { places, routes, width: finite(width), height: finite(height) };
}

/** Give each box the rank of its column, or that behind what leads to it. */
function rank(graph) {
  const ranks = new Map();
  const rankOf = (id) => {
    if (!ranks.has(id)) {
      const before = graph.inEdges(id).map((edge) => rankOf(edge.v) + graph.edge(edge).minlen);
      ranks.set(id, Math.max(graph.node(id).rank ?? 0, ...before));
    }
    return ranks.get(id);
  };
  for (const id of graph.nodes()) graph.node(id).rank = rankOf(id);
}

/** Order each rank by the commits that its boxes stand beside; a line that passes goes between its ends. */
function orderByTime(graph, boxes) {
  // Boxes of one commit keep the order that they are given in.
  const timeOf = (id) => boxes[id].group + Number(id) / boxes.length;
  const ranks = new Map();
  for (const id of graph.nodes()) {
    const node = graph.node(id);
    const ends = node.edgeObj;
    const time = ends ? (timeOf(ends.v) + timeOf(ends.w)) / 2 : timeOf(id);
    if (!ranks.has(node.rank)) ranks.set(node.rank, []);
    ranks.get(node.rank).push({ node, time });
  }
  for (const rank of ranks.values()) {
    rank.sort((a, b) => a.time - b.time).forEach(({ node }, place) => (node.order = place));
  }
}

/** Have a line leave and reach boxes at their sides, whatever lies between. */
function bent(points, first, second) {
  const forward = first.x < second.x;
  const [out, into] = forward ? [first.x + first.width, second.x] : [first.x, second.x + second.width];
  const bend = forward ? BEND : -BEND;
  const from = { x: out, y: first.y + first.height / 2 };
  const to = { x: into, y: second.y + second.height / 2 };
  return [from, { x: out + bend, y: from.y }, ...points.slice(1, -1), { x: into - bend, y: to.y }, to];
}

// An empty graph has no size.
const finite = (size) => (Number.isFinite(size) ? Math.max(size, 2 * MARGIN) : 2 * MARGIN);

/** Put boxes in their columns, each update beside what it added, in the order of time. */
function columnsOf(boxes, lines, between) {
  const places = new Map();
  const bottoms = [];
  const lefts = [];
  const put = (box, column, top) => {
    const y = Math.max(top, bottoms[column] ?? MARGIN);
    places.set(box.id, { x: lefts[column], y, width: box.width, height: box.height });
    bottoms[column] = y + box.height + GAP;
  };
  const widths = [];
  for (const box of boxes) widths[box.column] = Math.max(widths[box.column] ?? 0, box.width);
  let left = MARGIN;
  for (let column = 0; column < widths.length; column += 1) {
    lefts[column] = left;
    left += (widths[column] ?? 0) + between;
  }
  const groups = new Map();
  for (const box of boxes) {
    const group = box.group;
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(box);
  }
  // A group begins below the one before it, so that time runs downwards in all columns.
  let top = MARGIN;
  for (const group of [...groups.keys()].sort((a, b) => a - b)) {
    for (const box of groups.get(group)) put(box, box.column, top);
    const beside = groups.get(group).filter((box) => box.column > 0);
    top = Math.max(top, ...beside.map((box) => places.get(box.id).y + box.height + GAP));
  }
  const routes = new Map();
  for (const line of lines) {
    const [source, target] = [places.get(line.source), places.get(line.target)];
    routes.set(line.id, line.flat || source.x === target.x ? aside(source, target) : across(source, target));
  }
  return { places, routes, width: left - between + MARGIN, height: Math.max(MARGIN, ...bottoms.filter(Boolean)) + MARGIN };
}

const spelled = (value) => Math.round(value * 10) / 10;
const point = ({ x, y }) => `${spelled(x)} ${spelled(y)}`;

/** A smooth path through points; backwards where the line points at where it starts. */
function through(points, back) {
  const way = back ? [...points].reverse() : points;
  let path = `M${point(way[0])}`;
  let last = way[0];
  const passed = [last];
  for (let n = 1; n < way.length - 1; n += 1) {
    const next = n === way.length - 2 ? way[n + 1] : { x: (way[n].x + way[n + 1].x) / 2, y: (way[n].y + way[n + 1].y) / 2 };
    path += `Q${point(way[n])} ${point(next)}`;
    passed.push(...curve(last, way[n], way[n], next, 2 / 3));
    last = next;
  }
  if (way.length === 2) {
    path += `L${point(way[1])}`;
    passed.push(way[1]);
  }
  return { path, spots: spotsOn(passed) };
}

/** Points on a cubic curve; with `pull` below 1 its controls are drawn that far from its ends, as a quadratic one has them. */
function curve(from, first, second, to, pull = 1) {
  const mixed = (a, b) => ({ x: a.x + (b.x - a.x) * pull, y: a.y + (b.y - a.y) * pull });
  const [one, two] = [mixed(from, first), mixed(to, second)];
  return Array.from({ length: PIECES }, (_, n) => {
    const t = (n + 1) / PIECES;
    const u = 1 - t;
    const at = (axis) => u ** 3 * from[axis] + 3 * u * u * t * one[axis] + 3 * u * t * t * two[axis] + t ** 3 * to[axis];
    return { x: at("x"), y: at("y") };
  });
}

/** The points of a line at its middle and then to both sides of it. */
function spotsOn(passed) {
  const lengths = passed.map((at, n) => (n === 0 ? 0 : Math.hypot(at.x - passed[n - 1].x, at.y - passed[n - 1].y)));
  const whole = lengths.reduce((sum, length) => sum + length, 0);
  return SHARES.map((share) => {
    let left = whole * share;
    for (let n = 1; n < passed.length; n += 1) {
      if (left <= lengths[n] && lengths[n] > 0) {
        const part = left / lengths[n];
        return { x: passed[n - 1].x + (passed[n].x - passed[n - 1].x) * part, y: passed[n - 1].y + (passed[n].y - passed[n - 1].y) * part };
      }
      left -= lengths[n];
    }
    return passed.at(-1);
  });
}

/** Return where the label of each line stands, by id: on its line, on no box and no other label where there is room. */
export function labelsOf(boxes, lines) {
  const taken = boxes.map(({ x, y, width, height }) => ({ left: x, right: x + width, top: y, bottom: y + height }));
  const found = new Map();
  // Its colour says as much, and most lines are of these kinds: they take what room is left.
  const spare = ({ kind }) => kind === "added" || kind === "wrote";
  for (const line of [...lines].sort((a, b) => spare(a) - spare(b))) {
    const around = ({ x, y }) => ({ left: x - line.wide / 2, right: x + line.wide / 2, top: y - LABEL_HEIGHT / 2, bottom: y + LABEL_HEIGHT / 2 });
    const free = line.spots.find((spot) => {
      const own = around(spot);
      return taken.every((other) => own.right < other.left || other.right < own.left || own.bottom < other.top || other.bottom < own.top);
    });
    if (free) taken.push(around(free));
    if (free || !spare(line)) found.set(line.id, free ?? line.spots[0]);
  }
  return found;
}

/** A curve between two boxes of different columns. */
function across(source, target) {
  const right = target.x > source.x;
  const from = { x: right ? source.x + source.width : source.x, y: source.y + source.height / 2 };
  const to = { x: right ? target.x : target.x + target.width, y: target.y + target.height / 2 };
  const bend = (to.x - from.x) / 2;
  const path = `M${point(from)}C${spelled(from.x + bend)} ${spelled(from.y)} ${spelled(to.x - bend)} ${spelled(to.y)} ${point(to)}`;
  return { path, spots: spotsOn([from, ...curve(from, { x: from.x + bend, y: from.y }, { x: to.x - bend, y: to.y }, to)]) };
}

/** A curve beside two boxes of one column. */
function aside(source, target) {
  const from = { x: source.x, y: source.y + source.height / 2 };
  const to = { x: target.x, y: target.y + target.height / 2 - (source === target ? 8 : 0) };
  const out = Math.min(from.x, to.x) - Math.min(70, 20 + Math.abs(from.y - to.y) / 8);
  const path = `M${point(from)}C${spelled(out)} ${spelled(from.y)} ${spelled(out)} ${spelled(to.y)} ${point(to)}`;
  return { path, spots: spotsOn([from, ...curve(from, { x: out, y: from.y }, { x: out, y: to.y }, to)]) };
}
