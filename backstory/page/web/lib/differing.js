// Differing words: two texts in parts, with the words that only one of them has.

// The largest table of two middle parts that are compared word by word; longer ones differ as a whole.
const LARGEST = 1_000_000;

/**
 * Return two texts, each as parts `{text, differs}`.
 *
 * Where hardly a word is common, nothing is marked: all of it would be.
 */
export function marked(before, after) {
  const [one, other] = [wordsIn(before), wordsIn(after)];
  const common = commonOf(one, other);
  if (common.length * 4 < Math.min(one.length, other.length)) return [before, after].map((text) => [{ text, differs: false }]);
  return [partsOf(one, new Set(common.map(([index]) => index))), partsOf(other, new Set(common.map(([, index]) => index)))];
}

/** Return the places of the longest row of words that both have, as pairs. */
function commonOf(one, other) {
  const same = (i, j) => one[i].trim() === other[j].trim();
  const most = Math.min(one.length, other.length);
  let start = 0;
  while (start < most && same(start, start)) start += 1;
  let end = 0;
  while (end < most - start && same(one.length - 1 - end, other.length - 1 - end)) end += 1;
  const [rows, columns] = [one.length - start - end, other.length - start - end];
  const pairs = Array.from({ length: start }, (_, index) => [index, index]);
  if (rows * columns <= LARGEST) {
    // longest[i][j]: how many words are common to what follows word i of the one and word j of the other.
    const longest = Array.from({ length: rows + 1 }, () => new Uint32Array(columns + 1));
    for (let i = rows - 1; i >= 0; i -= 1) {
      for (let j = columns - 1; j >= 0; j -= 1) {
        longest[i][j] = same(start + i, start + j) ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
      }
    }
    for (let [i, j] = [0, 0]; i < rows && j < columns; ) {
      if (same(start + i, start + j)) pairs.push([start + i++, start + j++]);
      else if (longest[i + 1][j] >= longest[i][j + 1]) i += 1;
      else j += 1;
    }
  }
  for (let left = end; left > 0; left -= 1) pairs.push([one.length - left, other.length - left]);
  return pairs;
}

/** Join neighbouring words that are all common, or all differ. */
function partsOf(found, common) {
  const parts = [];
  for (const [index, text] of found.entries()) {
    const differs = !common.has(index);
    if (parts.at(-1)?.differs === differs) parts.at(-1).text += text;
    else parts.push({ text, differs });
  }
  return parts;
}

// Also for scripts that put no spaces between words.
const segmenter = "Segmenter" in Intl ? new Intl.Segmenter(undefined, { granularity: "word" }) : null;

/** Return the words of a text, each with the space that follows it. */
function wordsIn(text) {
  if (!segmenter) return text.split(/(?<=\s)(?=\S)/);
  const found = [];
  for (const { segment } of segmenter.segment(text)) {
    if (found.length && !segment.trim()) found[found.length - 1] += segment;
    else found.push(segment);
  }
  return found;
}
