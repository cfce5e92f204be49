// Usage chart: tokens a day as bars, one colour for each model, stacked.
import { html, useEffect, useRef } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { locale, useLanguage } from "../lib/words.js";

const COLOURS = ["extraction", "revert", "manual", "share", "summary", "genesis", "import"];
const HEIGHT = 200;
const DAY = 86_400;

/** The colour of the model that stands at `index`, as a CSS variable. */
export const colourOf = (index) => `--kind-${COLOURS[index % COLOURS.length]}`;

async function load() {
  if (!document.getElementById("uplot-style")) {
    const link = document.createElement("link");
    link.id = "uplot-style";
    link.rel = "stylesheet";
    link.href = new URL("../vendor/uplot.css", import.meta.url).href;
    document.head.append(link);
  }
  return (await import("../vendor/uplot.js")).default;
}

/**
 * The chart. `days` are those of `GET /v1/usage`, `models` the names in the order of their colours.
 *
 * It is a picture for the eyes; `label` says where the numbers are.
 */
export function UsageChart({ days, models, label }) {
  const box = useRef(null);
  const language = useLanguage();
  const { data: uPlot } = useLoad(load, []);
  useEffect(() => {
    if (!uPlot) return undefined;
    // Not `box.current`: a change of size may be told when the view is gone already.
    const place = box.current;
    let chart = null;
    const draw = () => {
      chart?.destroy();
      chart = new uPlot(optionsOf(uPlot, place.clientWidth, models), stackedOf(days, models), place);
    };
    const watching = new ResizeObserver(() => chart?.setSize({ width: place.clientWidth, height: HEIGHT }));
    draw();
    watching.observe(place);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    addEventListener("themechange", draw);
    dark.addEventListener("change", draw);
    return () => {
      watching.disconnect();
      removeEventListener("themechange", draw);
      dark.removeEventListener("change", draw);
      chart.destroy();
    };
  }, [uPlot, days, models, language]);
  return html`<div class="usage-chart" role="img" aria-label=${label} ref=${box}></div>`;
}

/** Return the columns for the chart: times, then for each model its tokens on top of those of the models after it. */
function stackedOf(days, models) {
  const times = [...new Set(days.map(({ day }) => day))].sort();
  const spent = new Map(days.map(({ day, model, tokens_in, tokens_out }) => [`${day} ${model}`, tokens_in + tokens_out]));
  const heights = new Array(times.length).fill(0);
  const columns = [...models].reverse().map((model) =>
    times.map((day, index) => (heights[index] += spent.get(`${day} ${model}`) ?? 0)),
  );
  return [times.map((day) => Date.parse(`${day}T00:00:00Z`) / 1000), ...columns.reverse()];
}

function optionsOf(uPlot, width, models) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const day = new Intl.DateTimeFormat(locale(), { timeZone: "UTC", month: "short", day: "numeric" });
  const short = new Intl.NumberFormat(locale(), { notation: "compact" });
  const axis = {
    stroke: colour("--faint"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { stroke: colour("--line"), width: 1 },
    font: "12px system-ui, sans-serif",
  };
  const bars = uPlot.paths.bars({ size: [0.7, 40, 2], radius: 0.15 });
  return {
    width,
    height: HEIGHT,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
    legend: { show: false },
    cursor: { show: false },
    select: { show: false },
    // Half a day on both sides, so that the outer bars are whole.
    scales: { x: { range: (_, first, last) => [first - DAY, last + DAY] }, y: { range: (_, __, most) => [0, Math.max(1, most * 1.08)] } },
    axes: [
      { ...axis, values: (_, splits) => splits.map((at) => day.format(at * 1000)), incrs: [1, 2, 7, 14, 30, 61, 91, 182, 365].map((n) => n * DAY) },
      { ...axis, size: 56, values: (_, splits) => splits.map((value) => short.format(value)) },
    ],
    series: [{}, ...models.map((name, index) => ({ label: name, paths: bars, points: { show: false }, width: 0, fill: colour(colourOf(index)) }))],
  };
}
