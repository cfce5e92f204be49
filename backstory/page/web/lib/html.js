// Rendering: Preact with htm templates. All text is put into the page as text, never as markup.
import htm from "../vendor/htm.js";
import { h } from "../vendor/preact.js";

export { createContext, Fragment, render } from "../vendor/preact.js";
export {
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useId,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "../vendor/preact-hooks.js";

export const html = htm.bind(h);

/** Make a component that renders again only when one of its properties is another one than before. */
export function memo(component) {
  function differs(next) {
    const { props } = this;
    const names = Object.keys(next);
    return names.length !== Object.keys(props).length || names.some((name) => !Object.is(next[name], props[name]));
  }
  return function Memo(props) {
    this.shouldComponentUpdate = differs;
    return h(component, props);
  };
}
