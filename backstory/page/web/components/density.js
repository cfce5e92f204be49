// Density strip: how many commits of each kind there were over time, with the moment that is shown.
import { html, memo, useEffect, useMemo, useRef, useState } from "../lib/html.js";
import { dateTime, number } from "../lib/format.js";
import { locale, useLanguage, useWords } from "../lib/words.js";
import { words as common } from "./common.words.js";
import { words } from "./density.words.js";
import { KINDS, KindMark, KIND_PATHS } from "./kind.js";

const HEIGHT = 146;
const MARKS = 18;
const MARK_SIZE = 11;
// Up to this many commits, each one's shape is drawn; beyond, only those of rare kinds.
const FEW = 60;
const RARE = 0.04;
const DRAG = 6;

const known = (kind) => (Object.hasOwn(KIND_PATHS, kind) ? kind : "share");
const seconds = (iso) => new Date(iso).getTime() / 1000;
const iso = (second) => new Date(second * 1000).toISOString();

/** The kinds of commits in a range, each with its shape, colour and count. */
export const Legend = memo(function Legend({ kinds }) {
  const t = useWords(words);
  const c = useWords(common);
  const shown = KINDS.filter((kind) => kinds[kind]);
  return html`<ul class="legend" aria-label=${t("legend")}>
    ${shown.map((kind) => html`<li key=${kind}><${KindMark} kind=${kind} /> ${c(kind)} <b>${number(kinds[kind])}</b></li>`)}
  </ul>`;
});

/**
 * The strip. `density` is the answer of `/v1/timeline`, `at` the time of the moment that is shown.
 *
 * `onJump(time)` is called for a click, and `onZoom(since, until)` for a drag over a range. It takes in each bar that the
 * drag touches, and `until` is null where it reaches the last one.
 */
export const Density = memo(function Density({ density, at, onJump, onZoom }) {
  const t = useWords(words);
  const c = useWords(common);
  const language = useLanguage();
  const box = useRef(null);
  const plot = useRef(null);
  const [width, setWidth] = useState(0);
  const [theme, setTheme] = useState(0);
  const [drawn, setDrawn] = useState(0);
  const [over, setOver] = useState(null);
  const acts = useRef({});
  acts.current = { onJump, onZoom };
  const bars = useMemo(() => (width ? barsOf(density, width) : null), [density, width]);

  useEffect(() => {
    const element = box.current;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const changed = () => setTheme((before) => before + 1);
    dark.addEventListener("change", changed);
    addEventListener("themechange", changed);
    return () => {
      observer.disconnect();
      dark.removeEventListener("change", changed);
      removeEventListener("themechange", changed);
    };
  }, []);

  useEffect(() => {
    if (!bars) return undefined;
    let ended = false;
    void import("../vendor/uplot.js").then(({ default: UPlot }) => {
      if (ended) return;
      plot.current?.destroy();
      plot.current = new UPlot(optionsOf(UPlot, bars, density, width, acts, setOver), bars.data, box.current);
      setDrawn((before) => before + 1);
    });
    return () => {
      ended = true;
    };
  }, [bars, theme, language]);
  useEffect(() => () => plot.current?.destroy(), []);

  const place = drawn && at && plot.current ? placeOf(plot.current, bars, seconds(at)) : null;
  return html`<div class="density">
    <div class="density-plot" role="img" aria-label=${bars ? told(density, bars, t, c) : t("empty")}>
      <div class="density-canvas" ref=${box}></div>
      ${place && html`<div class="density-after" style=${{ left: `${place.left}px`, width: `${place.rest}px`, top: `${place.top}px`, height: `${place.height}px` }}></div>
        <div class="density-now" style=${{ left: `${place.left}px`, top: `${place.top - 4}px`, height: `${place.height + 8}px` }}></div>`}
      ${over && html`<div class="density-over" style=${{ insetInlineStart: `${over.left}px` }} aria-hidden="true">
        <b>${dateTime(iso(over.bar.from))}</b>
        ${over.bar.kinds.map(([kind, n]) => html`<span><${KindMark} kind=${kind} /> ${c(known(kind))} ${number(n)}</span>`)}
      </div>`}
    </div>
    <p class="hint density-hint" aria-hidden="true">${density.commits ? t("hint") : t("empty")}</p>
  </div>`;
});

function told(density, bars, t, c) {
  if (!density.commits) return t("empty");
  const most = bars.all.reduce((a, b) => (b.commits > a.commits ? b : a));
  return t("strip", {
    n: c("commits", { n: density.commits }),
    since: dateTime(density.since),
    until: dateTime(density.until),
    most: c("commits", { n: most.commits }),
    busiest: dateTime(iso(most.from)),
  });
}

/** Put the buckets into bars that are wide enough to be seen, and stack the kinds. */
function barsOf(density, width) {
  const since = seconds(density.since);
  const until = Math.max(seconds(density.until), since + 1);
  const most = density.commits <= FEW ? 60 : 200;
  const n = Math.max(10, Math.min(most, Math.floor(width / 5)));
  const step = (until - since) / n;
  const all = Array.from({ length: n }, (_, index) => ({ from: since + index * step, commits: 0, counts: {}, kinds: [] }));
  for (const bucket of density.buckets) {
    const bar = all[barAt({ all, since, step }, seconds(bucket.at))];
    bar.commits += bucket.commits;
    for (const [kind, count] of Object.entries(bucket.kinds)) bar.counts[kind] = (bar.counts[kind] ?? 0) + count;
  }
  for (const bar of all) bar.kinds = Object.entries(bar.counts).sort((a, b) => b[1] - a[1]);
  // The most frequent kind is at the bottom. The highest stack is drawn first, and the lower ones over it.
  const kinds = Object.entries(density.kinds).sort((a, b) => b[1] - a[1]).map(([kind]) => kind);
  const sums = all.map(() => 0);
  const stacks = kinds.map((kind) => all.map((bar, index) => (sums[index] += bar.counts[kind] ?? 0) || null));
  return {
    all,
    since,
    until,
    step,
    kinds: kinds.toReversed(),
    marks: density.commits <= FEW ? kinds : kinds.filter((kind) => density.kinds[kind] <= RARE * density.commits),
    data: [all.map((bar) => bar.from), ...stacks.toReversed()],
  };
}

/** Return the number of the bar that a time falls into; a time outside falls into the nearest. */
function barAt({ all, since, step }, second) {
  return Math.max(0, Math.min(all.length - 1, Math.floor((second - since) / step + 1e-6)));
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function optionsOf(UPlot, bars, density, width, acts, setOver) {
  const faint = colour("--faint");
  const font = "12px system-ui, sans-serif";
  const line = { stroke: colour("--line"), width: 1 };
  let zoomed = false;
  return {
    width,
    height: HEIGHT,
    padding: [MARKS, 24, 0, 4],
    legend: { show: false },
    scales: { x: { time: true, range: [bars.since, bars.until] }, y: { range: (_, low, high) => [0, Math.max(1, high)] } },
    axes: [
      { stroke: faint, font, grid: { show: false }, ticks: line, size: 52, space: 90, values: (_, splits, axis, space, step) => timesOf(splits, step) },
      { stroke: faint, font, grid: line, ticks: { show: false }, size: 44, splits: (u) => heightsOf(u.scales.y.max), values: (_, splits) => splits.map(number) },
    ],
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false, setScale: false, dist: DRAG } },
    series: [
      {},
      ...bars.kinds.map((kind) => ({
        label: kind,
        fill: colour(`--kind-${known(kind)}`),
        width: 0,
        points: { show: false },
        paths: UPlot.paths.bars({ size: [0.86, 40, 2], align: 1 }),
      })),
    ],
    hooks: {
      init: [
        (u) => {
          u.over.addEventListener("mousedown", () => (zoomed = false));
          u.over.addEventListener("click", () => {
            if (!zoomed && u.cursor.left >= 0) acts.current.onJump(iso(u.posToVal(u.cursor.left, "x")));
          });
          u.over.addEventListener("mouseleave", () => setOver(null));
        },
      ],
      setSelect: [
        (u) => {
          if (u.select.width < DRAG) return;
          zoomed = true;
          const [from, to] = [u.select.left, u.select.left + u.select.width].map((left) => barAt(bars, u.posToVal(left, "x")));
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          const reachesLast = to >= bars.all.findLastIndex(({ commits }) => commits);
          acts.current.onZoom(iso(bars.all[from].from), reachesLast ? null : iso(bars.all[to].from + bars.step));
        },
      ],
      setCursor: [
        (u) => {
          if (u.cursor.left < 0) return setOver(null);
          const bar = bars.all[barAt(bars, u.posToVal(u.cursor.left, "x"))];
          setOver(bar.commits ? { bar, left: Math.min(Math.max(0, u.cursor.left - 60), Math.max(0, width - 220)) } : null);
        },
      ],
      draw: [(u) => drawMarks(u, bars)],
    },
  };
}

/** Draw the shapes of kinds above their bars; where two would overlap, the rarer one stays. */
function drawMarks(u, bars) {
  const ratio = devicePixelRatio;
  const size = MARK_SIZE * ratio;
  const taken = [];
  for (const kind of bars.marks.toReversed()) {
    const path = new Path2D(KIND_PATHS[known(kind)]);
    u.ctx.fillStyle = colour(`--kind-${known(kind)}`);
    for (const bar of bars.all) {
      if (!bar.counts[kind]) continue;
      const x = Math.min(u.valToPos(bar.from + bars.step / 2, "x", true), u.bbox.left + u.bbox.width - size / 2);
      if (taken.some((other) => Math.abs(other - x) < size + ratio)) continue;
      taken.push(x);
      u.ctx.save();
      u.ctx.translate(x - size / 2, u.bbox.top - size - 3 * ratio);
      u.ctx.scale(size / 16, size / 16);
      u.ctx.fill(path, "evenodd");
      u.ctx.restore();
    }
  }
}

/** Name the highest bar's height, and the half of it where that is a whole number. */
const heightsOf = (most) => (most % 2 ? [0, most] : [0, most / 2, most]);

const DAY = 86_400;

function timesOf(splits, step) {
  const style = (options) => new Intl.DateTimeFormat(locale(), options);
  if (step >= 300 * DAY) return splits.map((at) => style({ year: "numeric" }).format(at * 1000));
  if (step >= 28 * DAY) return splits.map((at) => style({ month: "short", year: "numeric" }).format(at * 1000));
  const day = style({ day: "numeric", month: "short" });
  if (step >= DAY) return splits.map((at) => day.format(at * 1000));
  const time = style({ hour: "2-digit", minute: "2-digit", ...(step < 60 ? { second: "2-digit" } : {}) });
  let before = "";
  return splits.map((at) => {
    const here = day.format(at * 1000);
    const text = here === before ? time.format(at * 1000) : `${time.format(at * 1000)}\n${here}`;
    before = here;
    return text;
  });
}

/** Return where the bar of a time ends on the strip, in pixels of the page: what it counts has been reached by then. */
function placeOf(u, bars, second) {
  const ratio = devicePixelRatio;
  const [left, top, width, height] = [u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height].map((value) => value / ratio);
  const x = Math.max(0, Math.min(width, u.valToPos(second < bars.since ? second : bars.all[barAt(bars, second)].from + bars.step, "x")));
  return { left: left + x, rest: width - x, top, height };
}
