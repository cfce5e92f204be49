// Sign-in: asks for the token that the server needs.
import { isSignedIn, signIn, signOut } from "../lib/api.js";
import { html, useState } from "../lib/html.js";
import { useWords } from "../lib/words.js";
import { words } from "../app.words.js";

export function SignIn() {
  const t = useWords(words);
  const [token, setToken] = useState("");
  const [wrong, setWrong] = useState(false);
  const submit = (event) => {
    event.preventDefault();
    if (token.trim()) setWrong(!signIn(token.trim()));
  };
  return html`<main class="sign-in">
    <h1>Backstory</h1>
    <h2>${t("tokenTitle")}</h2>
    <form onSubmit=${submit}>
      <label>${t("tokenLabel")} <input type="password" autocomplete="off" value=${token} onInput=${(event) => setToken(event.target.value)} /></label>
      <button type="submit" class="primary">${t("signIn")}</button>
    </form>
    ${(wrong || isSignedIn()) && html`<p role="alert" class="failure">${t("tokenWrong")} <button type="button" onClick=${() => (setWrong(false), signOut())}>✕</button></p>`}
    <p class="hint">${t("tokenHint")}</p>
  </main>`;
}
