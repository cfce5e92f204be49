// Dialogs: the browser's own, which keeps the focus inside and closes on Escape.
import { html, useEffect, useId, useRef } from "../lib/html.js";
import { useWords } from "../lib/words.js";
import { words } from "./common.words.js";

/**
 * A modal dialog that is open while it is rendered. `onClose` is called when the person closes it.
 *
 * The element with `data-focus` has the focus at first, otherwise the button that closes it.
 */
export function Dialog({ title, onClose, children, wide = false }) {
  const t = useWords(words);
  const element = useRef(null);
  const gone = useRef(false);
  const pressed = useRef(null);
  const first = useRef(null);
  const id = useId();
  const close = () => gone.current || onClose();
  const latest = useRef(close);
  latest.current = close;
  // The second click of a double click is not meant for what has taken the place of the first one's target.
  const meant = (event) => {
    if (event.detail <= 1) first.current = event.target;
    else if (!first.current?.isConnected) event.stopImmediatePropagation();
  };
  useEffect(() => {
    const dialog = element.current;
    const opener = document.activeElement;
    dialog.showModal();
    dialog.querySelector("[data-focus]")?.focus();
    // A link in it leads to another place, which it must not cover.
    const leave = () => latest.current();
    addEventListener("hashchange", leave);
    return () => {
      removeEventListener("hashchange", leave);
      gone.current = true;
      // The rest of the page takes no focus before the dialog is closed.
      dialog.close();
      giveBack(opener);
    };
  }, []);
  return html`<dialog
    ref=${element}
    class=${wide ? "wide" : ""}
    aria-labelledby=${id}
    onClose=${close}
    onCancel=${(event) => event.target === element.current && (event.preventDefault(), close())}
    onClickCapture=${meant}
    onPointerDown=${(event) => (pressed.current = event.target)}
    onClick=${(event) => event.target === element.current && pressed.current === element.current && close()}
  >
    <div class="dialog-body">
      <header class="dialog-head">
        <h2 id=${id}>${title}</h2>
        <button type="button" class="quiet" aria-label=${t("close")} onClick=${close}>✕</button>
      </header>
      ${children}
    </div>
  </dialog>`;
}

/**
 * Give the focus back to what opened a dialog, or to the content where that is gone.
 *
 * It may go later: the button beside a fact that was removed stays until memory has been read again.
 */
function giveBack(opener) {
  const content = document.getElementById("content");
  if (!opener?.isConnected || opener === document.body) return content?.focus({ preventScroll: true });
  opener.focus({ preventScroll: true });
  if (!content?.contains(opener)) return undefined;
  const watch = new MutationObserver(() => {
    if (opener.isConnected && document.activeElement === opener) return;
    watch.disconnect();
    if (document.activeElement === document.body) content.focus({ preventScroll: true });
  });
  return watch.observe(content, { childList: true, subtree: true });
}

/** Takes the focus when it appears: give it as the `ref` of what a person does or reads next. */
export const focused = (element) => element?.focus();
