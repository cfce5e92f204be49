// Long lists: only the rows in view are in the page, and only their part of the list is fetched.
import {
  elementScroll,
  observeElementOffset,
  observeElementRect,
  Virtualizer,
} from "../vendor/virtual-core/index.js";
import { useAgain } from "./load.js";
import { keepPlace, keptPlace } from "./place.js";
import { html, useCallback, useEffect, useLayoutEffect, useReducer, useRef, useState } from "./html.js";

/**
 * A list of `count` rows that scrolls in its own box, which is no taller than its rows.
 *
 * `row(index)` returns the content of a row; `estimate` is its usual height in pixels, and rows are measured as they
 * appear. `onRange(first, last)` tells which rows are in view. `scrollTo` is an index to bring into view; a new `top`
 * goes back to the first row. `inset` is the space above the first row. Back finds the list where it was.
 */
export function VirtualList({ count, row, estimate = 64, label, onRange, scrollTo, top, inset = 0, className = "" }) {
  const box = useRef(null);
  const [, renderAgain] = useReducer((n) => n + 1, 0);
  const place = `list ${label}`;
  const onChange = (list, scrolling) => {
    if (scrolling) keepPlace(place, list.scrollOffset);
    renderAgain();
  };
  const [virtualizer] = useState(
    () => new Virtualizer({ ...optionsOf({ count, estimate, inset, box }), initialOffset: keptPlace(place) ?? 0, onChange }),
  );
  virtualizer.setOptions({ ...virtualizer.options, ...optionsOf({ count, estimate, inset, box }), onChange });
  useLayoutEffect(() => virtualizer._didMount(), [virtualizer]);
  useLayoutEffect(() => virtualizer._willUpdate());
  const shown = useRef(top);
  useLayoutEffect(() => {
    if (shown.current !== top && virtualizer.scrollOffset > 0) virtualizer.scrollToOffset(0);
    shown.current = top;
  }, [top]);
  useEffect(() => {
    if (!(scrollTo >= 0 && scrollTo < count)) return;
    const { startIndex = 0, endIndex = -1 } = virtualizer.range ?? {};
    const inView = scrollTo > startIndex && scrollTo < endIndex;
    if (!inView) virtualizer.scrollToIndex(scrollTo, { align: "center" });
  }, [scrollTo, count]);
  const rows = virtualizer.getVirtualItems();
  const first = rows.length ? rows[0].index : 0;
  const last = rows.length ? rows[rows.length - 1].index : 0;
  useEffect(() => {
    if (rows.length) onRange?.(first, last);
  }, [first, last, rows.length > 0, onRange]);
  const height = virtualizer.getTotalSize();
  // The box has a border of one pixel.
  return html`<div class=${`virtual ${className}`} ref=${box} tabindex="0" role="group" aria-label=${label} style=${{ height: `${height + 2}px` }}>
    <div class="virtual-space" role="list" style=${{ height: `${height}px` }}>
      ${rows.map(
        (item) => html`<div
          key=${item.key}
          class="virtual-row"
          role="listitem"
          aria-setsize=${count}
          aria-posinset=${item.index + 1}
          data-index=${item.index}
          ref=${virtualizer.measureElement}
          style=${{ transform: `translateY(${item.start}px)` }}
        >
          ${row(item.index)}
        </div>`,
      )}
    </div>
  </div>`;
}

const optionsOf = ({ count, estimate, inset, box }) => ({
  count,
  paddingStart: inset,
  estimateSize: () => estimate,
  getScrollElement: () => box.current,
  observeElementRect,
  observeElementOffset,
  scrollToFn: elementScroll,
  overscan: 6,
});

/**
 * Fetch a long list in pages as they come into view.
 *
 * `fetchPage(offset, limit, signal)` returns the items of a page. Returns `{item(index), onRange, error, reload}`;
 * `item` is undefined until its page is there. A change of `deps` begins anew; old items are shown until new ones
 * arrive.
 */
export function usePages(fetchPage, deps, size = 100) {
  const pages = useRef({ found: new Map(), asked: new Map(), old: new Map(), range: null });
  const [error, setError] = useState(null);
  const [round, setRound] = useState(0);
  const [version, renderAgain] = useReducer((n) => n + 1, 0);
  const latest = useRef(fetchPage);
  latest.current = fetchPage;
  // The same function throughout: a list calls it again when it changes, and a page that failed is not asked for twice.
  const load = useCallback((first, last) => {
    const here = pages.current;
    here.range = [first, last];
    for (let page = Math.floor(first / size); page <= Math.floor(last / size); page += 1) {
      if (here.found.has(page) || here.asked.has(page)) continue;
      const aborting = new AbortController();
      here.asked.set(page, aborting);
      latest.current(page * size, size, aborting.signal).then(
        (items) => {
          if (aborting.signal.aborted) return;
          here.asked.delete(page);
          here.found.set(page, items);
          setError(null);
          renderAgain();
        },
        (problem) => {
          if (aborting.signal.aborted) return;
          here.asked.delete(page);
          setError(problem);
        },
      );
    }
    // What is far out of view when it arrives is of no use: a drag of the scroll bar passes many pages.
    for (const [page, aborting] of here.asked) {
      if (page < Math.floor(first / size) - 2 || page > Math.floor(last / size) + 2) {
        here.asked.delete(page);
        aborting.abort();
      }
    }
  }, []);
  useEffect(() => {
    const before = pages.current;
    pages.current = {
      found: new Map(),
      asked: new Map(),
      old: before.found.size ? before.found : before.old,
      range: before.range,
    };
    if (before.range) load(...before.range);
    return () => {
      for (const aborting of pages.current.asked.values()) aborting.abort();
    };
  }, [...deps, round]);
  // Another function once more items are there, so that what depends on it is rendered again.
  const item = useCallback((index) => {
    const page = Math.floor(index / size);
    return (pages.current.found.get(page) ?? pages.current.old.get(page))?.[index % size];
  }, [version]);
  const reload = useCallback(() => setRound((before) => before + 1), []);
  useAgain(error, reload);
  return { item, onRange: load, error, reload };
}
