// Moving: elements that change their place in the page glide there, new ones come in, gone ones leave.
import { useLayoutEffect, useRef } from "./html.js";

const LENGTH = 480;
const EASING = "cubic-bezier(.2,.7,.2,1)";

const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/**
 * Animate what a new `shown` moves. Returns a ref for the box, whose elements with `data-flip` are followed by it.
 *
 * The places before are measured while the new state is rendered, when the page still shows the old one. Nothing moves
 * for the first state, nor for people who asked for less motion.
 */
export function useFlip(shown) {
  const box = useRef(null);
  const last = useRef({ shown, places: null });
  if (last.current.shown !== shown) last.current = { shown, places: box.current && !still() ? placesIn(box.current) : null };
  useLayoutEffect(() => {
    const before = last.current.places;
    last.current.places = null;
    if (before && box.current) animate(box.current, before);
  }, [shown]);
  return box;
}

const elementsIn = (box) => [...box.querySelectorAll("[data-flip]")];

function placesIn(box) {
  const origin = box.getBoundingClientRect();
  return new Map(
    elementsIn(box).map((element) => {
      const { left, top, width, height } = element.getBoundingClientRect();
      return [element.dataset.flip, { element, left: left - origin.left, top: top - origin.top, width, height }];
    }),
  );
}

function animate(box, before) {
  const after = placesIn(box);
  for (const [name, { element, left, top }] of after) {
    const old = before.get(name);
    if (!old) {
      element.animate(
        [{ opacity: 0, transform: "translateX(-48px)" }, { opacity: 1, transform: "none" }],
        { duration: LENGTH, easing: EASING },
      );
    } else if (Math.abs(old.left - left) > 1 || Math.abs(old.top - top) > 1) {
      element.animate(
        [{ transform: `translate(${old.left - left}px, ${old.top - top}px)` }, { transform: "none" }],
        { duration: LENGTH, easing: EASING },
      );
    }
  }
  for (const [name, old] of before) if (!after.has(name)) leave(box, old);
}

/** Show a gone element where it was, until it has faded. */
function leave(box, { element, left, top, width, height }) {
  const ghost = element.cloneNode(true);
  ghost.removeAttribute("data-flip");
  ghost.setAttribute("aria-hidden", "true");
  ghost.inert = true;
  Object.assign(ghost.style, {
    position: "absolute",
    left: `${left}px`,
    top: `${top}px`,
    width: `${width}px`,
    height: `${height}px`,
    margin: "0",
    pointerEvents: "none",
  });
  box.append(ghost);
  const end = () => ghost.remove();
  ghost
    .animate([{ opacity: 1, transform: "none" }, { opacity: 0, transform: "translateX(48px)" }], { duration: LENGTH, easing: EASING })
    .finished.then(end, end);
}
