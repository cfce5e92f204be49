// Usage: tokens by model and day, as a picture and as a table.
import { get } from "../lib/api.js";
import { number } from "../lib/format.js";
import { html, useMemo } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { go } from "../lib/route.js";
import { useWords } from "../lib/words.js";
import { Empty, Loaded } from "../components/notice.js";
import { colourOf, UsageChart } from "../components/usage_chart.js";
import { words } from "./operations.words.js";
import { Section } from "./operations_section.js";

const PERIODS = ["7", "30", "90", "all"];

export function Usage({ scope, params, live }) {
  const t = useWords(words);
  const period = PERIODS.includes(params.days) ? params.days : "all";
  const found = useLoad(
    (signal) => get("/v1/usage", { ...scope, since: sinceOf(period) }, { signal }),
    [period, live.count],
  );
  return html`<${Section} title=${t("usage")} name="usage" wide=${true}>
    <div class="row periods" role="group" aria-label=${t("period")}>
      ${PERIODS.map(
        (name) => html`<button
          key=${name}
          type="button"
          aria-pressed=${name === period ? "true" : "false"}
          onClick=${() => go("operations", { ...params, days: name === "all" ? undefined : name }, { replace: true })}
        >
          ${t(`days-${name}`)}
        </button>`,
      )}
    </div>
    <${Loaded} of=${found}>${({ days }) => html`<${Spent} days=${days} />`}<//>
  <//>`;
}

/** The beginning of the first day of a period, in UTC; undefined for all days. */
function sinceOf(period) {
  if (period === "all") return undefined;
  const day = new Date(Date.now() - (Number(period) - 1) * 86_400_000);
  return `${day.toISOString().slice(0, 10)}T00:00:00Z`;
}

function Spent({ days }) {
  const t = useWords(words);
  const models = useMemo(() => modelsOf(days), [days]);
  const tokens = days.reduce((sum, day) => sum + day.tokens_in + day.tokens_out, 0);
  const updates = days.reduce((sum, day) => sum + day.updates, 0);
  if (tokens === 0) return html`<${Empty}>${t("usageNone")}<//>`;
  return html`
    <p>${t("usageTotal", { tokens: number(tokens), updates })}</p>
    <ul class="usage-models">
      ${models.map(
        (model, index) => html`<li key=${model}><span class="swatch" aria-hidden="true" style=${{ background: `var(${colourOf(index)})` }}></span> <bdi>${model || t("unknownModel")}</bdi></li>`,
      )}
    </ul>
    <${UsageChart} days=${days} models=${models} label=${t("usageLabel")} />
    <details class="usage-table">
      <summary>${t("asTable")}</summary>
      <div class="table-box" tabindex="0" role="group" aria-label=${t("usage")}>
        <table>
          <thead>
            <tr>
              <th scope="col">${t("day")}</th>
              <th scope="col">${t("model")}</th>
              <th scope="col" class="is-number">${t("updates")}</th>
              <th scope="col" class="is-number">${t("tokensIn")}</th>
              <th scope="col" class="is-number">${t("tokensOut")}</th>
            </tr>
          </thead>
          <tbody>
            ${[...days].reverse().map(
              (day) => html`<tr key=${`${day.day} ${day.model}`}>
                <th scope="row">${day.day}</th>
                <td><bdi>${day.model || t("unknownModel")}</bdi></td>
                <td class="is-number">${number(day.updates)}</td>
                <td class="is-number">${number(day.tokens_in)}</td>
                <td class="is-number">${number(day.tokens_out)}</td>
              </tr>`,
            )}
          </tbody>
        </table>
      </div>
    </details>
  `;
}

/** Return the names of the models, the one that took most tokens first. */
function modelsOf(days) {
  const spent = new Map();
  for (const { model, tokens_in, tokens_out } of days) spent.set(model, (spent.get(model) ?? 0) + tokens_in + tokens_out);
  return [...spent].sort((one, other) => other[1] - one[1]).map(([model]) => model);
}
