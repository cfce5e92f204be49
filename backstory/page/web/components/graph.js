// The graph: boxes and lines as SVG, to pan, zoom, search and walk through; what a box says stands in full beside it.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../lib/html.js";
import { keepPlace, keptPlace, useKept } from "../lib/place.js";
import { useLanguage, useWords, wordsOf } from "../lib/words.js";
import Panzoom from "../vendor/panzoom.js";
import { words } from "./graph.words.js";
import { baseline, heightOf, labelsOf, lay, widthOf } from "./graph_layout.js";
import { KINDS, kindWord, outline, pathOf, search } from "./graph_model.js";
import { measuring } from "./graph_text.js";
import { KIND_PATHS } from "./kind.js";

const SMALLEST = 0.05;
const LARGEST = 4;
const READABLE = 0.55;
const STEP = 60;
const EDGE = 24;
/** This share of the picture, or of its frame where that is smaller, stays in view. */
const KEPT = 0.5;
/** Labels are smaller than the texts that are measured. */
const SMALL = 0.85;
const BOLD = 0.9;
const LABEL = 200;
/** Lines beyond this have their labels only while they are lit, and in the details. */
const MOST_LABELS = 250;
/** A pointer that crosses a box on its way elsewhere does not choose it. */
const SETTLED = 90;

/**
 * Show a graph or a message flow, as the server gives it.
 *
 * `opens(node)` returns `{href, label}` of what a box leads to, or null; `asks(node)` the command line that tells more,
 * or null. Where `opens` leads nowhere, a click chooses the box.
 */
export function GraphPicture({ graph, opens = () => null, asks = () => null }) {
  const t = useWords(words);
  const language = useLanguage();
  const drawing = useMemo(() => draw(graph, language), [graph, language]);
  const [chosen, setChosen] = useKept("graph box", null);
  const [text, setText] = useState("");
  const [tab, setTab] = useState(null);
  const frame = useRef(null);
  const ground = useRef(null);
  const elements = useRef(new Map());
  const moved = useRef({ x: 0, y: 0, touch: false });
  const pointer = useRef([]);
  const settling = useRef(0);

  const there = (id) => (drawing.byId.has(id) ? id : null);
  const current = there(chosen);
  const reachable = there(tab) ?? drawing.boxes[0]?.id ?? null;
  const found = useMemo(() => search(drawing, text), [drawing, text]);
  const lit = useMemo(
    () => (current !== null ? pathOf(drawing, current) : found === null ? null : new Set(found)),
    [drawing, current, found],
  );
  const view = usePanzoom(frame, ground, drawing);

  const show = (id) => {
    const element = elements.current.get(id);
    if (!element) return;
    setTab(id);
    element.focus({ preventScroll: true });
    view.reveal(drawing.byId.get(id));
  };
  const choose = (id) => {
    clearTimeout(settling.current);
    setChosen(id);
    if (id !== null) setTab(id);
  };
  const open = (box) => {
    const to = opens(box.node);
    if (to) location.hash = to.href;
    else choose(box.id);
  };
  useEffect(() => () => clearTimeout(settling.current), []);

  // One listener for all boxes: there may be a thousand.
  const boxOf = (event) => drawing.byId.get(event.target.closest?.(".node")?.dataset.id);
  const onKeyDown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const box = boxOf(event);
    if (view.key(event.key) || (box ? walk(event.key, box) : view.move(event.key))) event.preventDefault();
  };
  const walk = (key, box) => {
    if (key === "Enter") open(box);
    else if (key === " ") choose(current === box.id ? null : box.id);
    else if (key === "Escape") choose(null);
    else if (Object.hasOwn(STEPS, key)) {
      const next = STEPS[key](drawing, box);
      if (next) show(next);
    } else return false;
    return true;
  };
  const onClick = (event) => {
    const { x, y, touch } = moved.current;
    // The end of a drag is no click.
    if (Math.hypot(event.clientX - x, event.clientY - y) > 5) return;
    const box = boxOf(event);
    if (!box) return choose(null);
    elements.current.get(box.id).focus({ preventScroll: true });
    // A finger cannot point before it taps, so its first tap shows the text.
    if (touch && current !== box.id) choose(box.id);
    else open(box);
  };
  const onPointerOver = (event) => {
    clearTimeout(settling.current);
    // A box that moves below a pointer at rest is not pointed at.
    const [x, y] = pointer.current;
    pointer.current = [event.clientX, event.clientY];
    if (event.clientX === x && event.clientY === y) return;
    const box = boxOf(event);
    if (box && event.pointerType === "mouse" && event.buttons === 0) settling.current = setTimeout(() => choose(box.id), SETTLED);
  };

  return html`<section class="graph">
    <div class="graph-tools">
      <label>
        <span class="hidden">${t("search")}</span>
        <input
          type="search"
          placeholder=${t("search")}
          value=${text}
          onInput=${(event) => (setChosen(null), setText(event.target.value))}
          onKeyDown=${(event) => {
            if (event.key !== "Enter" || !found?.length) return;
            event.preventDefault();
            show(found[0]);
          }}
        />
      </label>
      <output aria-live="polite">${found === null ? "" : t("found", { n: found.length })}</output>
      <span class="graph-zoom">
        <button type="button" aria-label=${t("zoomOut")} title=${t("zoomOut")} onClick=${() => view.key("-")}>−</button>
        <button type="button" aria-label=${t("zoomIn")} title=${t("zoomIn")} onClick=${() => view.key("+")}>+</button>
        <button type="button" onClick=${() => view.key("0")}>${t("whole")}</button>
        <button type="button" onClick=${view.begin}>${t("reset")}</button>
      </span>
    </div>
    <div class="graph-body">
      <div
        class="graph-frame"
        ref=${frame}
        role="application"
        aria-label=${t("picture")}
        aria-describedby="graph-hint"
        tabindex="0"
        onKeyDown=${onKeyDown}
        onPointerDown=${(event) => (moved.current = { x: event.clientX, y: event.clientY, touch: event.pointerType === "touch" })}
        onPointerOver=${onPointerOver}
        onPointerLeave=${() => clearTimeout(settling.current)}
        onClick=${onClick}
        onFocusIn=${(event) => {
          const box = boxOf(event);
          if (!box || !event.target.matches(":focus-visible")) return;
          choose(box.id);
          view.reveal(box);
        }}
      >
        <svg class=${`graph-svg ${lit === null ? "" : "quiet"}`}>
          <defs>
            ${drawing.kinds.map((kind) => html`<${Tip} key=${kind} kind=${kind} />`)}
            <${Tip} kind="past" />
          </defs>
          <g ref=${ground}>
            ${drawing.lines.map(
              (line) => html`<${Line} key=${line.id} line=${line} lit=${lit?.has(line.id) ?? false} />`,
            )}
            ${drawing.boxes.map(
              (box) => html`<${Box}
                key=${box.id}
                box=${box}
                lit=${lit?.has(box.id) ?? false}
                chosen=${current === box.id}
                tab=${reachable === box.id}
                elements=${elements}
              />`,
            )}
          </g>
        </svg>
        ${drawing.boxes.length === 0 && html`<p class="empty graph-nothing">${t("nothing")}</p>`}
      </div>
      <${Details} drawing=${drawing} box=${current === null ? null : drawing.byId.get(current)} opens=${opens} asks=${asks} show=${show} />
    </div>
    <p class="hint" id="graph-hint">${t("pictureHint")}</p>
    <${Legend} drawing=${drawing} />
  </section>`;
}

/** Measure, cut and lay out a graph. */
function draw(graph, language) {
  const t = wordsOf(words, language);
  const { boxes: told, lines } = outline(graph, language);
  const { rowsOf, cut, wide } = measuring();
  const boxes = told.map((box) => {
    const width = widthOf(box.node.kind);
    const room = width - 26;
    const content = box.rows ? rowsOf(box.content, room, box.rows) : [];
    // What is bold is wider than it is measured.
    const heads = box.head ? rowsOf(box.head, (room - (box.look === "update" ? 18 : 0)) * BOLD, box.look === "thread" ? 2 : 1) : [];
    const rows = [
      ...heads.map((row) => ["head", row]),
      ...content.map((row) => ["content", row]),
      ...(box.about ? [["about", cut(box.about, room)]] : []),
    ];
    const look = box.look === "everybody" ? "name" : box.look;
    // As what is seen, so that saying that aloud reaches the box; a space ends each row, for they are read together.
    const spoken = `${t(look)}: ${rows.map(([, row]) => row).join(" ")}`;
    return { ...box, rows, spoken, width, height: heightOf(rows.length) };
  });
  const said = lines.map((line) => ({ ...line, name: cut(line.label, LABEL) }));
  const { places, routes, width, height } = lay(boxes, said.map((line) => ({ ...line, wide: wide(line.name) })));
  const placed = boxes.map((box) => ({ ...box, ...places.get(box.id) }));
  const drawn = said.map((line) => ({ ...line, ...routes.get(line.id), wide: SMALL * wide(line.name) }));
  const labels = drawn.length <= MOST_LABELS ? labelsOf(placed, drawn) : new Map();
  const ways = drawn.map((line) => ({ ...line, at: labels.get(line.id) ?? line.spots[0], labelled: labels.has(line.id) }));
  const kinds = KINDS.filter((kind) => lines.some((line) => line.kind === kind));
  return { boxes: placed, lines: ways, byId: new Map(placed.map((box) => [box.id, box])), kinds, width, height };
}

const middle = ({ y, height }) => y + height / 2;

/** The nearest of some boxes to a height. */
function nearest(boxes, from) {
  return boxes.sort((a, b) => Math.abs(middle(a) - middle(from)) - Math.abs(middle(b) - middle(from)))[0]?.id;
}

/** The boxes that lines of a box lead to. */
function joined({ lines, byId }, box) {
  const ends = lines.filter((line) => line.source === box.id || line.target === box.id);
  return [...new Set(ends.map((line) => (line.source === box.id ? line.target : line.source)))].map((id) => byId.get(id));
}

/** What each arrow key leads to: along a line to the left or right, else up and down in the column. */
const STEPS = {
  ArrowRight: (drawing, box) => nearest(joined(drawing, box).filter((other) => other.x > box.x), box),
  ArrowLeft: (drawing, box) => nearest(joined(drawing, box).filter((other) => other.x < box.x), box),
  ArrowDown: (drawing, box) => nearest(columnOf(drawing, box).filter((other) => middle(other) > middle(box)), box),
  ArrowUp: (drawing, box) => nearest(columnOf(drawing, box).filter((other) => middle(other) < middle(box)), box),
};

const columnOf = ({ boxes }, box) => boxes.filter((other) => other.x < box.x + box.width && box.x < other.x + other.width);

/** Pan and zoom the ground in its frame; begins anew with another drawing's size. */
function usePanzoom(frame, ground, drawing) {
  const held = useRef(null);
  const left = useRef(keptPlace("graph"));
  const size = () => frame.current.getBoundingClientRect();
  const wholeAt = () => {
    const { width, height } = size();
    const scale = Math.min(1, width / drawing.width, height / drawing.height);
    return { scale, x: (width / scale - drawing.width) / 2, y: (height / scale - drawing.height) / 2 };
  };
  const beginAt = () => {
    const whole = wholeAt();
    if (whole.scale >= READABLE) return whole;
    // It does not fit readably: as wide as it fits, from the top.
    const scale = Math.min(1, Math.max(READABLE, size().width / drawing.width));
    const centred = (room, length) => Math.max(0, (room / scale - length) / 2);
    return { scale, x: centred(size().width, drawing.width), y: centred(size().height, drawing.height) };
  };
  const go = ({ scale, x, y }) => {
    held.current.zoom(scale, { animate: false });
    held.current.pan(x, y);
  };
  const by = (x, y) => held.current.pan(x, y, { relative: true });
  const zoom = (factor) => {
    const { left, top, width, height } = size();
    held.current.zoomToPoint(held.current.getScale() * factor, { clientX: left + width / 2, clientY: top + height / 2 });
  };
  useLayoutEffect(() => {
    // New updates change the size of the picture, and leave it where the person has moved it.
    const { scale, x, y } = left.current ?? beginAt();
    const panzoom = Panzoom(ground.current, {
      canvas: true,
      cursor: "grab",
      overflow: "clip",
      // A long history fits as a whole, too.
      minScale: Math.min(SMALLEST, wholeAt().scale / 2),
      maxScale: LARGEST,
      startScale: scale,
      startX: x,
      startY: y,
      handleStartEvent: () => {},
    });
    held.current = panzoom;
    // Panzoom itself pans a moment later, and the picture may be replaced again until then.
    panzoom.pan(x, y);
    const element = frame.current;
    // Without Ctrl, the wheel scrolls the page.
    const turned = (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      panzoom.zoomToPoint(panzoom.getScale() * Math.exp(-event.deltaY / 300), event);
    };
    const within = (offset, length, room, now) => {
      const seen = KEPT * Math.min(length, room / now);
      return Math.min(room / now - seen, Math.max(seen - length, offset));
    };
    const kept = () => {
      keepPlace("graph", { scale: panzoom.getScale(), ...panzoom.getPan() });
      const now = panzoom.getScale();
      const { x: atX, y: atY } = panzoom.getPan();
      const { width, height } = size();
      panzoom.pan(within(atX, drawing.width, width, now), within(atY, drawing.height, height, now));
    };
    const picture = ground.current;
    picture.addEventListener("panzoomchange", kept);
    element.addEventListener("wheel", turned, { passive: false });
    return () => {
      element.removeEventListener("wheel", turned);
      picture.removeEventListener("panzoomchange", kept);
      left.current = { scale: panzoom.getScale(), ...panzoom.getPan() };
      panzoom.destroy();
      panzoom.resetStyle();
    };
  }, [drawing.width, drawing.height]);
  const KEYS = { "+": () => zoom(1.3), "=": () => zoom(1.3), "-": () => zoom(1 / 1.3), 0: () => go(wholeAt()) };
  const MOVES = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  return {
    begin: () => go(beginAt()),
    key: (key) => Object.hasOwn(KEYS, key) && (KEYS[key](), true),
    move(key) {
      if (!Object.hasOwn(MOVES, key)) return false;
      const far = STEP / held.current.getScale();
      by(MOVES[key][0] * far, MOVES[key][1] * far);
      return true;
    },
    /** Pan as little as brings a box into view. */
    reveal(box) {
      const scale = held.current.getScale();
      const { x, y } = held.current.getPan();
      const { width, height } = size();
      const shift = (start, length, offset, room) => {
        const seen = (start + offset) * scale;
        if (seen < EDGE) return (EDGE - seen) / scale;
        return Math.min(0, Math.max((room - EDGE - seen - length * scale) / scale, (EDGE - seen) / scale));
      };
      const across = shift(box.x, box.width, x, width);
      const down = shift(box.y, box.height, y, height);
      if (across || down) by(across, down);
    },
  };
}

/** The head of an arrow. */
function Tip({ kind }) {
  return html`<marker id=${`tip-${kind}`} viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">
    <path class=${`tip tip-${kind}`} d="M0 0 8 4 0 8z" />
  </marker>`;
}

function Line({ line, lit }) {
  return useMemo(
    () => html`<g class=${`line line-${line.kind} ${line.past ? "past" : ""} ${lit ? "lit" : ""}`}>
      <path d=${line.path} marker-end=${`url(#tip-${line.past ? "past" : line.kind})`} stroke-width=${line.weight ? Math.min(6, 1.2 + Math.log2(line.weight)) : undefined}>
        <title>${line.label}</title>
      </path>
      ${(lit || line.labelled) && html`<text class="label" text-anchor="middle" x=${line.at.x.toFixed(1)} y=${(line.at.y + 4).toFixed(1)}>${line.name}</text>`}
    </g>`,
    [line, lit],
  );
}

const CORNERS = { thread: 20, update: 4, fact: 10, gone: 10, erased: 10, section: 0, name: 20, everybody: 4 };

function Box({ box, lit, chosen, tab, elements }) {
  return useMemo(() => {
    const { look, width, height } = box;
    const kind = look === "update" && (Object.hasOwn(KIND_PATHS, box.node.cause) ? box.node.cause : "share");
    return html`<g
      class=${`node node-${look} ${lit ? "lit" : ""} ${chosen ? "chosen" : ""}`}
      data-id=${box.id}
      transform=${`translate(${box.x.toFixed(1)} ${box.y.toFixed(1)})`}
      role="button"
      tabindex=${tab ? "0" : "-1"}
      aria-label=${box.spoken}
      ref=${(element) => (element ? elements.current.set(box.id, element) : elements.current.delete(box.id))}
    >
      <rect class="box" width=${width} height=${height} rx=${Math.min(CORNERS[look], height / 2)} />
      ${look === "section" && html`<path class="fold" d=${`M${width - 12} 0v12h12`} />`}
      ${(look === "fact" || look === "gone" || look === "erased") && html`<rect class="stripe" x="4" y="6" width="4" height=${height - 12} rx="2" />`}
      ${kind && html`<path class=${`kind kind-${kind}`} transform="translate(12 8)" d=${KIND_PATHS[kind]} />`}
      ${box.rows.map(
        ([part, row], n) => html`<text class=${`row-${part}`} x=${kind && n === 0 ? 32 : 14} y=${baseline(n)}>${`${row} `}</text>`,
      )}
    </g>`;
  }, [box, lit, chosen, tab]);
}

/** What a box says in full, where it leads, and the lines it has. */
function Details({ drawing, box, opens, asks, show }) {
  const t = useWords(words);
  if (!box) return html`<aside class="graph-details" aria-label=${t("details")} tabindex="0"><p class="hint">${t("pick")}</p></aside>`;
  const to = opens(box.node);
  const command = asks(box.node);
  const lines = drawing.lines.filter((line) => line.source === box.id || line.target === box.id);
  const brief = (id) => {
    const { head, content, name } = drawing.byId.get(id);
    return (head || content || name).slice(0, 90);
  };
  return html`<aside class="graph-details" aria-label=${t("details")} tabindex="0">
    <h2><bdi>${box.name}</bdi></h2>
    ${box.full && html`<p class="graph-full"><bdi>${box.full}</bdi></p>`}
    ${box.facts.length > 0 && html`<ul class="graph-about">${box.facts.map((fact) => html`<li><bdi>${fact}</bdi></li>`)}</ul>`}
    ${to && html`<p><a class="graph-open" href=${to.href}>${to.label}</a></p>`}
    ${command && html`<p>${t("ask")}: <code dir="ltr">${command}</code></p>`}
    ${lines.length > 0 &&
    html`<h3>${t("lines")}</h3>
      <ul class="graph-lines">
        ${lines.slice(0, 100).map((line) => {
          const other = line.source === box.id ? line.target : line.source;
          return html`<li class=${line.past ? "past" : ""}>
            ${line.source === box.id ? "→" : "←"} ${line.label}${line.past ? ` (${t("past")})` : ""}:${" "}
            <button type="button" class="quiet" onClick=${() => show(other)}><bdi>${brief(other)}</bdi></button>
          </li>`;
        })}
      </ul>`}
  </aside>`;
}

function Legend({ drawing }) {
  const t = useWords(words);
  const looks = [...new Set(drawing.boxes.map((box) => box.look))];
  if (looks.length === 0) return null;
  return html`<details class="graph-legend" open>
    <summary>${t("legend")}</summary>
    <ul>
      ${looks.map(
        (look) => html`<li>
          <svg class="graph-sample" viewBox="0 0 34 18" aria-hidden="true">
            <g class=${`node node-${look}`}><rect class="box" x="1" y="1" width="32" height="16" rx=${Math.min(8, CORNERS[look])} /></g>
          </svg>
          ${t(look)}
        </li>`,
      )}
      ${drawing.kinds.map(
        (kind) => html`<li>
          <svg class="graph-sample" viewBox="0 0 34 18" aria-hidden="true">
            <g class=${`line line-${kind}`}><path d="M2 9h26" marker-end=${`url(#tip-${kind})`} /></g>
          </svg>
          ${kindWord(kind, t)}
        </li>`,
      )}
      ${drawing.lines.some((line) => line.past) &&
      html`<li>
        <svg class="graph-sample" viewBox="0 0 34 18" aria-hidden="true">
          <g class="line past"><path d="M2 9h26" marker-end="url(#tip-past)" /></g>
        </svg>
        ${t("past")}
      </li>`}
    </ul>
  </details>`;
}
