// Why a section says what it says.
import { get } from "../../lib/api.js";
import { date, Time } from "../../lib/format.js";
import { marked } from "../../lib/differing.js";
import { html } from "../../lib/html.js";
import { useLoad } from "../../lib/load.js";
import { href } from "../../lib/route.js";
import { useWords } from "../../lib/words.js";
import { By } from "../../components/cause.js";
import { Marked, SectionName } from "../../components/changes.js";
import { Conversation } from "../../components/conversation.js";
import { Kind } from "../../components/kind.js";
import { Loaded } from "../../components/notice.js";
import { words } from "../why.words.js";

/** The section by its name, such as user.topOfMind. */
export function WhySection({ scope, section, live, may, open }) {
  const t = useWords(words);
  const why = useLoad((signal) => get(`/v1/sections/${encodeURIComponent(section)}/why`, scope, { signal }), [section, live.count]);
  if (why.error?.status === 404) {
    return html`<header class="why-top">
      <p class="why-kind">${t("aSection")} <b><${SectionName} section=${section} /></b></p>
      <h1 class="why-summary"><i>${t("emptySection")}</i></h1>
      <p class="lead">${t("never")}</p>
    </header>`;
  }
  return html`<${Loaded} of=${why}>
    ${(found) => html`<${Story} scope=${scope} why=${found} live=${live} may=${may} open=${open} />`}
  <//>`;
}

function Story({ scope, why, live, may, open }) {
  const t = useWords(words);
  const { written, evidence, history } = why;
  const own = (item) => may.write && item.seq > 1 && item.cause !== "redaction" && item.type !== "CandidateRejected" && item.type !== "Redacted";
  const changes = history.filter(({ type }) => type === "SummaryUpdated");
  const earlier = new Map(changes.map((change, index) => [change, changes[index - 1]?.detail ?? ""]));
  const threads = [...new Set(evidence.map(({ thread }) => thread))];
  return html`
    <header class="why-top">
      <p class="why-kind">${t("aSection")} <b><${SectionName} section=${why.section} /></b></p>
      <h1 class="why-summary">${why.text ? html`<bdi>${why.text}</bdi>` : html`<i>${t("emptySection")}</i>`}</h1>
      <p class="lead">
        ${written ? t(evidence.length ? "leadSection" : "leadSectionAlone", { since: date(written.at) }) : why.text ? t("leadSectionBack", { since: date(why.updated_at) }) : t("leadSectionEmpty")}
        ${written?.agent && html` <bdi>${t("byAgent", { agent: written.agent })}</bdi>`}
      </p>
      <div class="row why-actions">
        ${written && own(written) && html`<button type="button" class=${changes.at(-1)?.seq === written.seq ? "primary" : ""} onClick=${() => open({ undo: written.seq })}>${t("undoWriting", { at: date(written.at) })}</button>`}
        ${may.erase && why.text && html`<button type="button" class="danger" onClick=${() => open({ forget: { matching: why.text } })}>${t("forget")}</button>`}
      </div>
    </header>
    ${evidence.length > 0 &&
    html`<section class="why-words">
      <h2>${t("wordsRead")}</h2>
      ${threads.map((thread) => html`<${Conversation} key=${thread} scope=${scope} thread=${thread} evidence=${evidence.filter((one) => one.thread === thread)} count=${live.count} />`)}
    </section>`}
    <section class="why-history">
      <h2>${t("sectionHistory")}</h2>
      ${history.length === 0 && html`<p class="empty">${t("never")}</p>`}
      <ol class="events">
        ${[...history].reverse().map(
          (item) => html`<li class="event" data-seq=${item.seq}>
            <p class="event-head">
              <${Kind} kind=${item.cause} />
              <a href=${href("why", { ...scope, commit: item.seq })}>${t("updateN", { seq: item.seq })}</a>
              <span class="hint"><${Time} at=${item.at} /></span>
              ${(item.actor ?? item.model) && html`<span class="hint"><${By} cause=${item} /></span>`}
              ${item.thread && html`<bdi class="source hint">${item.thread}</bdi>`}
            </p>
            <p>${item.type === "CandidateRejected" && html`<span class="mark mark-removed">${t("refused")}</span> `}${item.type === "Redacted" ? t("wasErased") : item.detail ? html`<${Marked} parts=${marked(earlier.get(item) || item.detail, item.detail)[1]} />` : html`<i>${t("emptied")}</i>`}</p>
            ${own(item) && html`<button type="button" onClick=${() => open({ undo: item.seq })}>${t("undo")}</button>`}
          </li>`,
        )}
      </ol>
    </section>
  `;
}
