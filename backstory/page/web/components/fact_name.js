// A fact by its id: its text, fetched where only the id is known, as a link to why it is believed.
import { get } from "../lib/api.js";
import { html } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { href } from "../lib/route.js";

/** The text of a fact, live or gone, as a link. `fact` is given where it is known already. */
export function FactName({ scope, id, fact }) {
  const { data } = useLoad(
    async (signal) => fact ?? (await get(`/v1/facts/${encodeURIComponent(id)}/why`, scope, { signal })).fact,
    [id, fact],
  );
  return html`<a class="fact-name" href=${href("why", { ...scope, fact: id })}><bdi>${data?.content ?? id}</bdi></a>`;
}
