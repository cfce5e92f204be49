// Compare: two moments side by side, or today's memory beside what it would be under other rules.
import { html } from "../lib/html.js";
import { href } from "../lib/route.js";
import { useWords } from "../lib/words.js";
import { UNCHANGED } from "./compare_rules.js";
import { Moments } from "./compare_moments.js";
import { WhatIf } from "./compare_what_if.js";
import { words } from "./compare.words.js";

/** `a` and `b` of the address are moments; `what-if` has the chosen rules, and decides which of the two is shown. */
export function View({ scope, params, live, caller }) {
  const t = useWords(words);
  const { a, b } = params;
  const trying = params["what-if"] !== undefined;
  const tab = (chosen, to, name) => html`<a href=${to} aria-current=${chosen ? "page" : undefined}>${name}</a>`;
  return html`
    <h1>${t("title")}</h1>
    <nav class="compare-ways" aria-label=${t("ways")}>
      ${tab(!trying, href("compare", { ...scope, a, b }), t("moments"))}
      ${tab(trying, href("compare", { ...scope, a, b, "what-if": params["what-if"] ?? UNCHANGED }), t("whatIf"))}
    </nav>
    ${trying
      ? html`<${WhatIf} scope=${scope} params=${params} live=${live} caller=${caller} />`
      : html`<${Moments} scope=${scope} params=${params} live=${live} />`}
  `;
}
