// Components that are loaded when they are first shown, such as dialogs.
import { html } from "../lib/html.js";
import { useLoad } from "../lib/load.js";
import { Failure } from "./notice.js";

/** Show the component `name` of the module that `load()` imports; everything else given is handed to it. */
export function Later({ load, name, ...given }) {
  const { data: module, error, reload } = useLoad(load, []);
  if (error) return html`<${Failure} error=${error} retry=${reload} />`;
  return module ? html`<${module[name]} ...${given} />` : null;
}
