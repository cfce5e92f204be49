// Words of the page in English and Chinese. Each file of words has the same keys in both languages.
import { keepChoice, keptChoice } from "./kept.js";
import { createStore, useStore } from "./store.js";

const KEY = "backstory-language";
export const LANGUAGES = { en: "English", zh: "简体中文" };

function initial() {
  const kept = keptChoice(KEY);
  if (kept !== null && Object.hasOwn(LANGUAGES, kept)) return kept;
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

const language = createStore(initial());
document.documentElement.lang = language.get() === "zh" ? "zh-CN" : "en";

export const useLanguage = () => useStore(language);

/** The language's tag, for Intl. */
export const locale = () => (language.get() === "zh" ? "zh-CN" : "en-GB");

export function setLanguage(next) {
  keepChoice(KEY, next);
  document.documentElement.lang = next === "zh" ? "zh-CN" : "en";
  language.set(next);
}

/**
 * Return `t(key, values)` for a table `{en: {...}, zh: {...}}`.
 *
 * A word is a text with `{name}` for values, or a function of the values.
 */
export function wordsOf(table, chosen = language.get()) {
  return (key, values = {}) => {
    const word = table[chosen][key];
    if (word === undefined) {
      console.error(`no word for ${key} in ${chosen}`);
      return key;
    }
    if (typeof word === "function") return word(values);
    return word.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
  };
}

/** As `wordsOf`, and render again when the language changes. */
export const useWords = (table) => wordsOf(table, useLanguage());

/** Return an English count, such as "1 fact" or "3 facts". */
export const counted = (n, one, many = `${one}s`) => `${n.toLocaleString("en-GB")} ${n === 1 ? one : many}`;
