// Causes: who or what made an update, and from what.
import { number, Time } from "../lib/format.js";
import { html } from "../lib/html.js";
import { href } from "../lib/route.js";
import { useWords } from "../lib/words.js";
import { Kind } from "./kind.js";
import { words } from "./cause.words.js";

const LOCAL = "http";

/** Who asked for an update: a person or program by name, or the model. */
export function By({ cause }) {
  const t = useWords(words);
  if (cause.actor) return html`<${Actor} name=${cause.actor} />`;
  if (cause.model === "recorded") return t("recorded");
  if (cause.model) return html`<bdi>${cause.model}</bdi>`;
  return t("itself");
}

/** The name of who asked; the server calls a caller of this machine, who needs no token, by the way it came. */
export function Actor({ name }) {
  const t = useWords(words);
  return name === LOCAL ? t("local") : html`<bdi>${name}</bdi>`;
}

/** All that is known about how an update was made, as a list of terms. */
export function CauseDetails({ scope, seq, at, cause }) {
  const t = useWords(words);
  const row = (key, value) => value !== undefined && value !== null && html`<dt>${t(key)}</dt><dd>${value}</dd>`;
  return html`<dl class="cause">
    ${row("update", html`<a href=${href("why", { ...scope, commit: seq })}>${number(seq)}</a>`)}
    ${row("kind", html`<${Kind} kind=${cause.kind} />`)} ${row("at", html`<${Time} at=${at} />`)}
    ${row("thread", cause.thread && html`<a href=${href("timeline", { ...scope, thread: cause.thread })}><bdi>${cause.thread}</bdi></a>`)}
    ${row("turns", cause.turns && (cause.turns.first === cause.turns.last ? number(cause.turns.first) : `${number(cause.turns.first)}–${number(cause.turns.last)}`))}
    ${row("by", cause.actor && html`<${Actor} name=${cause.actor} />`)}
    ${row("model", cause.model && (cause.model === "recorded" ? t("recorded") : html`<bdi>${cause.model}</bdi>`))}
    ${row("prompt", cause.prompt && html`<code>${cause.prompt}</code>`)}
    ${row("tokens", (cause.tokensIn ?? cause.tokensOut) === undefined ? undefined : t("tokensOf", { read: number(cause.tokensIn ?? 0), written: number(cause.tokensOut ?? 0) }))}
    ${row("signals", cause.signals?.length ? cause.signals.map((name) => (Object.hasOwn(words.en, `signal-${name}`) ? t(`signal-${name}`) : name)).join(t("comma")) : undefined)}
    ${row("target", cause.target && html`<a href=${href("why", { ...scope, commit: cause.target })}>${t("updateN", { seq: cause.target })}</a>`)}
    ${row("agent", cause.agent && html`<bdi>${cause.agent}</bdi>`)} ${row("origin", cause.origin && html`<bdi>${cause.origin}</bdi>`)}
  </dl>`;
}
