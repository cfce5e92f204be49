// Texts of boxes: measured, broken into rows and cut, so that they stay in their boxes whatever the font.

export const FONT_SIZE = 13;

const segmenter = new Intl.Segmenter(undefined, { granularity: "grapheme" });
// What would turn the text around it, and what has no picture.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const MOST = 300;

let pen = null;
function penOf() {
  pen ??= document.createElement("canvas").getContext("2d");
  pen.font = `${FONT_SIZE}px ${getComputedStyle(document.body).fontFamily}`;
  return pen;
}

/** Return `rowsOf(text, width, most)`, `cut(text, width)` and `wide(text)`, which measure with the font of the page. */
export function measuring() {
  const ink = penOf();
  const known = new Map();
  const wide = (text) => {
    if (!known.has(text)) known.set(text, ink.measureText(text).width);
    return known.get(text);
  };
  const parts = (text) => Array.from(segmenter.segment(text), ({ segment }) => segment);

  /** Return how many of the parts fit. */
  const fitting = (all, width) => {
    let [low, high] = [0, all.length];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (wide(all.slice(0, middle).join("")) <= width) low = middle;
      else high = middle - 1;
    }
    return low;
  };

  /** Return at most so many rows of a text; the last one ends with … where something is missing. */
  const rowsOf = (text, width, most) => {
    const line = text.replace(/\s+/g, " ").replace(UNSEEN, "").trim();
    let rest = line.slice(0, MOST);
    const rows = [];
    while (rest !== "" && rows.length < most) {
      const last = rows.length === most - 1;
      if (wide(rest) <= width && (!last || line.length <= MOST)) {
        rows.push(rest);
        break;
      }
      const all = parts(rest);
      if (last) {
        rows.push(`${all.slice(0, fitting(all, width - wide("…"))).join("").trimEnd()}…`);
        break;
      }
      const whole = all.slice(0, Math.max(1, fitting(all, width))).join("");
      const space = rest[whole.length] === " " ? whole.length : whole.lastIndexOf(" ");
      const end = space > whole.length / 2 ? space : whole.length;
      rows.push(rest.slice(0, end).trimEnd());
      rest = rest.slice(end).trimStart();
    }
    return rows;
  };
  return { rowsOf, cut: (text, width) => rowsOf(text, width, 1)[0] ?? "", wide };
}
