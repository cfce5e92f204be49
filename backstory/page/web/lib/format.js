// Times and numbers in the reader's language. Times are shown in the reader's time zone.
import { html } from "./html.js";
import { locale } from "./words.js";

// Making a formatter takes long, so each is made once for a language.
function formatterOf(kind, options) {
  const made = {};
  return () => (made[locale()] ??= new kind(locale(), options));
}

const PLAIN = formatterOf(Intl.NumberFormat, {});
const TWO_DIGITS = formatterOf(Intl.NumberFormat, { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const ONE_DIGIT = formatterOf(Intl.NumberFormat, { maximumFractionDigits: 1 });
const NO_DIGIT = formatterOf(Intl.NumberFormat, { maximumFractionDigits: 0 });
const PERCENT = formatterOf(Intl.NumberFormat, { style: "percent" });
const DATE_TIME = formatterOf(Intl.DateTimeFormat, { dateStyle: "medium", timeStyle: "short" });
const DATE = formatterOf(Intl.DateTimeFormat, { dateStyle: "medium" });
const RELATIVE = formatterOf(Intl.RelativeTimeFormat, { numeric: "auto" });
const LIST = formatterOf(Intl.ListFormat, { type: "conjunction" });

export const number = (value) => PLAIN().format(value);

export const decimal = (value) => TWO_DIGITS().format(value);

export const percent = (value) => PERCENT().format(value);

export const dateTime = (iso) => DATE_TIME().format(new Date(iso));

export const date = (iso) => DATE().format(new Date(iso));

/** Join texts, such as "a, b and c". */
export const listed = (texts) => LIST().format(texts);

const UNITS = [
  ["year", 31_557_600],
  ["month", 2_629_800],
  ["week", 604_800],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];

/** Return how long before `now` a time is, such as "3 days ago". */
export function ago(iso, now = Date.now()) {
  const seconds = (new Date(iso) - now) / 1000;
  const format = RELATIVE();
  for (const [unit, length] of UNITS) {
    if (Math.abs(seconds) >= length) return format.format(Math.round(seconds / length), unit);
  }
  return format.format(Math.round(seconds), "second");
}

export const bytes = (value) => {
  const units = ["B", "kB", "MB", "GB"];
  const power = value < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log10(value) / 3));
  const scaled = value / 1000 ** power;
  return `${(scaled < 10 && power > 0 ? ONE_DIGIT : NO_DIGIT)().format(scaled)} ${units[power]}`;
};

/** A time, with the exact one in UTC as its tooltip. */
export function Time({ at, relative = false }) {
  return html`<time datetime=${at} title=${at}>${relative ? ago(at) : dateTime(at)}</time>`;
}
