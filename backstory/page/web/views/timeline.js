// Timeline: all updates of a memory over time, and memory as it was at each of them.
import { get } from "../lib/api.js";
import { useAllCommits, useSomeCommits } from "../lib/commits.js";
import { dateTime, number, Time } from "../lib/format.js";
import { html, memo, useCallback, useEffect, useLayoutEffect, useRef, useState } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { useMoment } from "../lib/moment.js";
import { currentRoute, go, href } from "../lib/route.js";
import { VirtualList } from "../lib/virtual.js";
import { useWords } from "../lib/words.js";
import { LiveBanner, Origin, Summary } from "../components/commit.js";
import { words as common } from "../components/common.words.js";
import { Density, Legend } from "../components/density.js";
import { KINDS, Kind, KindMark } from "../components/kind.js";
import { Later } from "../components/later.js";
import { Busy, Empty, Failure } from "../components/notice.js";
import { JumpTo, Narrowed } from "../components/timeline_jump.js";
import { NothingHere } from "../components/memory_state.js";
import { MomentFacts } from "../components/moment_facts.js";
import { words } from "./timeline.words.js";

const SPEEDS = [1, 4, 16];
// Browsers allow a limited number of changes of the address in a time.
const ROUTE_EVERY = 300;

const numberOf = (at) => (/^\d+$/.test(at ?? "") ? Number(at) : null);

export function View({ scope, params, live, caller }) {
  const t = useWords(words);
  const [dialog, setDialog] = useState(null);
  const { fact, thread, since, until } = params;
  const narrowed = Boolean(fact || thread);
  const density = useLoad((signal) => get("/v1/timeline", { ...scope, since, until }, { signal }), [since, until, live.count]);
  const whole = useLoad((signal) => get("/v1/timeline", { ...scope, buckets: 1 }, { signal }), [live.count]);
  const range = rangeOf(density.data);
  const all = useAllCommits(scope, range?.first, range?.last, !narrowed);
  const zoomed = Boolean(since || until);
  const before = zoomed && range ? range.last + 1 : undefined;
  const some = useSomeCommits(scope, { fact, thread, since, before }, live.count, narrowed && (!zoomed || Boolean(range)));
  const list = narrowed ? some : all;

  const [at, setAt] = useSlidingAt(params);
  // In a narrowed or zoomed list, its newest update is shown unless one is named.
  const asked = at ?? ((narrowed || zoomed) && list.count ? String(list.seqAt(0)) : undefined);
  const ready = at !== undefined || !narrowed || !list.busy;
  const { moment, fact: factAt, onRange, error, reload } = useMoment(scope, asked, NEWEST_FACTS, ready ? live.count : -1);
  const newest = whole.data?.last?.seq ?? range?.last ?? 0;
  const seq = numberOf(asked) ?? moment?.seq ?? newest;
  const index = list.indexOf(seq);
  const entry = list.entry(index)?.seq === seq ? list.entry(index) : undefined;
  const about = moment?.seq === seq ? moment : entry;

  const show = useCallback(
    (next, options) => setAt(next >= newest && !narrowed && !zoomed ? undefined : String(next), options),
    [newest, narrowed, zoomed, setAt],
  );
  const stepTo = (to) => list.count && show(list.seqAt(Math.max(0, Math.min(list.count - 1, to))));
  const player = usePlayer({ index, painted: moment?.seq === seq, step: () => stepTo(index - 1), restart: () => stepTo(list.count - 1) });
  const link = useCallback((changes) => href("timeline", { ...params, ...changes }), [params]);
  const jump = useCallback((time) => setAt(time, { push: true }), [setAt]);
  // A range that holds the newest update has no end: it also takes in those that are still to come.
  const atEnd = (density.data?.last?.seq ?? 0) >= newest;
  const zoom = useCallback(
    (from, to) => go("timeline", { ...params, since: from, until: to ?? (atEnd ? undefined : params.until), at: undefined }),
    [params, atEnd],
  );
  const toNewest = () => {
    if (zoomed) go("timeline", { ...params, since: undefined, until: undefined, at: undefined });
    else setAt(undefined, { push: true });
  };
  const isNewest = narrowed ? !zoomed && index <= 0 : seq >= newest;

  // Which answer comes first is not known; an empty memory has no moment to show.
  const nothing = !zoomed && !list.count && (density.data?.commits === 0 || (asked === undefined && moment?.seq === 0));
  if (density.error && !density.data) return html`<${Failure} error=${density.error} retry=${density.reload} />`;
  return html`
    <div class="timeline">
      <h1>${t("title")}</h1>
      <p class="hint timeline-lead">${t("lead")}</p>
      <${LiveBanner} scope=${scope} live=${live} onUndo=${caller.right !== "read" && ((undone) => setDialog({ seq: undone }))} />
      ${nothing
        ? html`<${NothingHere} scope=${scope} round=${live.count} />`
        : html`
          <section class="card strip" aria-label=${t("slider")}>
            ${density.data
              ? html`<${Density}
                    density=${density.data}
                    at=${about?.at}
                    onJump=${jump}
                    onZoom=${zoom}
                  />
                  <div class="row strip-about">
                    <${Legend} kinds=${density.data.kinds} />
                    <${Zoom} params=${params} density=${density.data} whole=${whole.data} at=${about?.at} />
                  </div>`
              : html`<div class="density-wait"><${Busy} /></div>`}
            <${Slider} list=${list} all=${newest} index=${index} seq=${seq} about=${about} stepTo=${stepTo} busy=${asked !== undefined && moment?.seq !== seq} />
            <${Controls} list=${list} index=${index} stepTo=${stepTo} player=${player} newest=${toNewest} atNewest=${isNewest} />
            <${JumpTo} scope=${scope} params=${params} newest=${newest} onDate=${(time) => go("timeline", { ...params, since: undefined, until: undefined, at: time })} />
          </section>
          <${Narrowed} scope=${scope} params=${params} />
          ${list.error && html`<${Failure} error=${list.error} />`}
          ${error && html`<${Failure} error=${error} retry=${reload} />`}
          <div class="timeline-panes">
            <section class="moment" aria-labelledby="moment-title">
              ${moment
                ? html`<${Moment}
                      moment=${moment}
                      newest=${newest}
                      scope=${scope}
                      caller=${caller}
                      link=${link}
                      onUndo=${setDialog}
                    />
                    <${MomentFacts} moment=${moment} factAt=${factAt} onRange=${onRange} scope=${scope} current=${fact} />`
                : html`<${Busy} />`}
            </section>
            <section class="commits" aria-labelledby="commits-title">
              <h2 id="commits-title">${t("updates")} <small class="hint">${t("newestFirst")}${list.more ? ` · ${t("olderLoading")}` : ""}</small></h2>
              ${list.count
                ? html`<${CommitList} list=${list} index=${index} seq=${seq} link=${link} newest=${narrowed || zoomed ? null : newest} />`
                : density.data && !list.busy && html`<${Empty}>${t("noneFound")}<//>`}
            </section>
          </div>
        `}
    </div>
    ${dialog && html`<${Later}
      load=${() => import("../components/undo.js")}
      name="UndoDialog"
      scope=${scope}
      ...${dialog}
      onClose=${() => setDialog(null)}
      onDone=${() => setAt(undefined, { push: true })}
    />`}
  `;
}

const NEWEST_FACTS = { sort: "born", descending: true };

/** The numbers of the commits that a density covers: none is left out between the first and the last. */
function rangeOf(density) {
  if (!density?.buckets.length) return null;
  const first = density.buckets[0].seq;
  return { first, last: first + density.commits - 1 };
}

/**
 * The moment that is shown. A slider changes it many times a second; the address follows at its own pace.
 *
 * Returns `[at, setAt(at, {push})]`. With `push` the moment before stays in the browser's history.
 */
function useSlidingAt(params) {
  const [sliding, setSliding] = useState(null);
  const written = useRef({ at: params.at, timer: null, latest: null });
  const latestParams = useRef(params);
  latestParams.current = params;
  const here = written.current;
  const write = () => {
    here.timer = null;
    // A link or the browser's back button may have just gone elsewhere.
    const now = currentRoute();
    if (href(now.view, now.params) !== href("timeline", latestParams.current)) return;
    here.at = here.latest.at;
    go("timeline", { ...latestParams.current, at: here.latest.at }, { replace: true });
  };
  const setAt = useCallback((at, { push = false } = {}) => {
    clearTimeout(push ? here.timer : undefined);
    if (push) {
      here.timer = null;
      setSliding(null);
      go("timeline", { ...latestParams.current, at });
      return;
    }
    here.latest = { at };
    setSliding({ at });
    here.timer ??= setTimeout(write, ROUTE_EVERY);
  }, []);
  // Together with the rendering: in between, what is due to be written would undo the link that was followed.
  useLayoutEffect(() => {
    if (params.at === here.at && here.timer !== null) return;
    // The address was changed by a link or the browser's buttons, or has caught up.
    clearTimeout(here.timer);
    here.timer = null;
    here.at = params.at;
    setSliding(null);
  }, [params.at]);
  useEffect(() => () => clearTimeout(here.timer), []);
  return [sliding ? sliding.at : params.at, setAt];
}

/** Plays forwards: the next step is taken when the one before is painted and its time is over. */
function usePlayer({ index, painted, step, restart }) {
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(SPEEDS[0]);
  const since = useRef(0);
  const steps = useRef({});
  steps.current = { step, restart };
  useEffect(() => {
    since.current = performance.now();
  }, [index]);
  useEffect(() => {
    if (!playing || !painted) return undefined;
    if (index <= 0) {
      setPlaying(false);
      return undefined;
    }
    const wait = Math.max(0, 1000 / speed - (performance.now() - since.current));
    const timer = setTimeout(() => requestAnimationFrame(() => steps.current.step()), wait);
    return () => clearTimeout(timer);
  }, [playing, painted, index, speed]);
  return {
    playing,
    speed,
    setSpeed,
    stop: () => setPlaying(false),
    toggle() {
      if (!playing && index <= 0) steps.current.restart();
      setPlaying(!playing);
    },
  };
}

function Slider({ list, all, index, seq, about, stepTo, busy }) {
  const t = useWords(words);
  const c = useWords(common);
  const kind = about && "cause" in about ? kindOf(about.cause) : null;
  const told = about
    ? t("value", { seq: number(seq), kind: kind ? c(kind) : "", time: dateTime(about.at) })
    : number(seq);
  return html`<div class="slider">
    <input
      type="range"
      min="0"
      max=${Math.max(0, list.count - 1)}
      step="1"
      value=${list.count - 1 - index}
      disabled=${!list.count}
      aria-label=${t("slider")}
      aria-valuetext=${told}
      onInput=${(event) => stepTo(list.count - 1 - Number(event.target.value))}
    />
    <p class="slider-told" aria-hidden="true" data-seq=${seq} data-busy=${busy}>
      ${kind && html`<${KindMark} kind=${kind} />`} <strong>${told}</strong> <span class="hint">${list.count < all ? t("shown", { n: number(list.count), all }) : t("of", { n: all })}</span>
    </p>
  </div>`;
}

const kindOf = (cause) => (cause ? (KINDS.includes(cause.kind) ? cause.kind : "share") : "genesis");

function Controls({ list, index, stepTo, player, newest, atNewest }) {
  const t = useWords(words);
  const press = (act) => () => {
    player.stop();
    act();
  };
  return html`<div class="row controls">
    <button type="button" onClick=${press(() => stepTo(index + 1))} disabled=${index >= list.count - 1}><span aria-hidden="true">◀</span> ${t("previous")}</button>
    <button type="button" class="primary play" onClick=${player.toggle} disabled=${list.count < 2}>
      <span aria-hidden="true">${player.playing ? "❚❚" : "▶"}</span> ${t(player.playing ? "pause" : "play")}
    </button>
    <button type="button" onClick=${press(() => stepTo(index - 1))} disabled=${index <= 0}>${t("next")} <span aria-hidden="true">▶</span></button>
    <button type="button" onClick=${press(newest)} disabled=${atNewest}>${t("newest")} <span aria-hidden="true">▶▶</span></button>
    <label class="speed"><span class="hidden">${t("speed")}</span>
      <select value=${player.speed} onChange=${(event) => player.setSpeed(Number(event.target.value))}>
        ${SPEEDS.map((n) => html`<option value=${n} selected=${n === player.speed}>${t("perSecond", { n })}</option>`)}
      </select>
    </label>
  </div>`;
}

/** Zooming by buttons: into a quarter of the range around the moment that is shown, and out again. */
function Zoom({ params, density, whole, at }) {
  const t = useWords(words);
  const zoom = (factor) => {
    const [since, until] = [new Date(density.since).getTime(), new Date(density.until).getTime()];
    const [first, last] = [new Date(whole.since).getTime(), new Date(whole.until).getTime()];
    const middle = Math.min(until, Math.max(since, at ? new Date(at).getTime() : until));
    const width = Math.max(2000, (until - since) * factor);
    // A range goes no further than the history: what reaches its ends has no limit.
    const high = Math.min(last, Math.max(middle, first + width / 2) + width / 2);
    const low = high - width;
    const limit = (value, beyond) => (beyond ? undefined : new Date(value).toISOString());
    go("timeline", { ...params, since: limit(low, low < first + 1000), until: limit(high, high >= last) });
  };
  const zoomed = params.since || params.until;
  return html`<div class="row zoom">
    <button type="button" class="quiet" onClick=${() => zoom(0.25)} disabled=${!whole || density.commits < 2}><span aria-hidden="true">+</span> ${t("zoomIn")}</button>
    ${zoomed && html`<button type="button" class="quiet" onClick=${() => zoom(4)} disabled=${!whole}><span aria-hidden="true">−</span> ${t("zoomOut")}</button>
      <a class="button" href=${href("timeline", { ...params, since: undefined, until: undefined })}>${t("showAll")}</a>`}
  </div>`;
}

const Moment = memo(function Moment({ moment, newest, scope, caller, link, onUndo }) {
  const t = useWords(words);
  const c = useWords(common);
  const isNow = moment.seq >= newest;
  const { seq, cause } = moment;
  return html`<header class="card moment-head">
    <h2 id="moment-title">${t(isNow ? "memoryNow" : "memoryThen", { seq: number(seq) })}</h2>
    ${cause && html`<p class="moment-about">
      <${Kind} kind=${cause.kind} /> <${Time} at=${moment.at} />
      <${Origin} cause=${cause} tokens=${true} threadLink=${cause.thread && link({ thread: cause.thread, fact: undefined, at: seq })} />
    </p>
    <p><${Summary} summary=${moment.summary} /></p>`}
    ${!isNow && html`<p class="hint past">
      ${t("pastMoment", { n: c("commits", { n: newest - seq }) })} <a href=${link({ at: undefined, since: undefined, until: undefined, fact: undefined, thread: undefined })}>${t("backToNow")}</a>
    </p>`}
    <p class="row">
      ${caller.right !== "read" && seq > 1 && html`<button type="button" onClick=${() => onUndo({ seq })}>${t("undo")}</button>`}
      ${caller.right !== "read" && !isNow && html`<button type="button" onClick=${() => onUndo({ to: seq })}>${t("goBack")}</button>`}
      ${!isNow && html`<a class="button" href=${href("compare", { ...scope, a: seq, b: newest })}>${t("compare")}</a>`}
    </p>
  </header>`;
});

const CommitList = memo(function CommitList({ list, index, seq, link, newest }) {
  const t = useWords(words);
  const row = (at) => {
    const number_ = list.seqAt(at);
    const entry = list.entry(at);
    return html`<${CommitRow} seq=${number_} entry=${entry} current=${number_ === seq} link=${link({ at: number_ === newest ? undefined : number_ })} />`;
  };
  return html`<${VirtualList} className="commit-list" count=${list.count} row=${row} estimate=${56} label=${t("updates")} onRange=${list.onRange} scrollTo=${index} />`;
});

const CommitRow = memo(function CommitRow({ seq, entry, current, link }) {
  return html`<a class="commit" href=${link} aria-current=${current ? "true" : undefined} data-seq=${seq}>
    ${entry
      ? html`
        <span class="commit-line"><${Kind} kind=${entry.cause.kind} /> <${Summary} summary=${entry.summary} /></span>
        <span class="commit-about"><b>${number(seq)}</b> <${Time} at=${entry.at} /> <${Origin} cause=${entry.cause} /></span>`
      : html`<span class="commit-line waiting"> </span><span class="commit-about"><b>${number(seq)}</b></span>`}
  </a>`;
});
