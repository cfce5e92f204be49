// The rules of what-if: the policy keys in groups, their values in the address, and the stops of their sliders.

/** What the address says where no rule is changed. */
export const UNCHANGED = "none";

/** The keys in the order in which they are shown; a key that is in none of the groups goes under "other". */
export const GROUPS = {
  capAndThreshold: ["max_facts", "fact_confidence_threshold"],
  duplicates: ["gate_enabled", "dedup_key", "said_again_share", "evidence", "free_categories"],
  eviction: [
    "fact_eviction_policy",
    "eviction_confidence_weight",
    "eviction_confirmation_weight",
    "eviction_access_weight",
    "eviction_confirmation_half_life_days",
    "eviction_access_half_life_days",
    "eviction_correction_reserved_fraction",
    "eviction_correction_reserved_max",
  ],
  staleness: [
    "staleness_review_enabled",
    "staleness_age_days",
    "staleness_min_candidates",
    "staleness_max_removals_per_cycle",
    "staleness_protected_categories",
    "staleness_max_lifetime_multiplier",
    "staleness_max_extension_days",
  ],
  consolidation: [
    "consolidation_enabled",
    "consolidation_min_facts",
    "consolidation_max_groups_per_cycle",
    "consolidation_max_sources",
  ],
};

/** The three weights add up to 1. */
export const WEIGHTS = ["eviction_confidence_weight", "eviction_confirmation_weight", "eviction_access_weight"];

/** Return `[[group, items]]`, with every key in one group. */
export function grouped(items) {
  const byKey = new Map(items.map((item) => [item.key, item]));
  const found = Object.entries(GROUPS).map(([group, keys]) => [
    group,
    keys.filter((key) => byKey.has(key)).map((key) => byKey.get(key)),
  ]);
  const placed = new Set(Object.values(GROUPS).flat());
  found.push(["other", items.filter((item) => !placed.has(item.key))]);
  return found.filter(([, inside]) => inside.length > 0);
}

/**
 * Return the rules that an address names: `{chosen, unknown}`.
 *
 * The text alternates keys and values, as in `max_facts 20 dedup_key exact`; the items of a list are joined by hyphens.
 */
export function rulesOf(text, items) {
  const byKey = new Map(items.map((item) => [item.key, item]));
  const parts = text === UNCHANGED ? [] : text.split(" ").filter(Boolean);
  const chosen = {};
  const unknown = [];
  for (let at = 0; at < parts.length; at += 2) {
    const item = byKey.get(parts[at]);
    const value = item && read(parts[at + 1] ?? "", item);
    if (value === undefined) unknown.push(parts[at]);
    else if (!equal(value, item.value)) chosen[item.key] = value;
  }
  return { chosen, unknown };
}

function read(text, { type, choices }) {
  if (type === "boolean") return text === "true" ? true : text === "false" ? false : undefined;
  if (type === "choice") return choices.includes(text) ? text : undefined;
  if (type === "list") {
    const named = text === UNCHANGED ? [] : text.split("-");
    return named.every((name) => choices.includes(name)) ? named : undefined;
  }
  const value = Number(text);
  return text !== "" && Number.isFinite(value) ? value : undefined;
}

/** Return the text of chosen rules for the address. */
export function textOf(chosen) {
  const parts = Object.entries(chosen).map(
    ([key, value]) => `${key} ${Array.isArray(value) ? value.join("-") || UNCHANGED : value}`,
  );
  return parts.join(" ") || UNCHANGED;
}

export const equal = (one, other) =>
  Array.isArray(one) && Array.isArray(other)
    ? one.length === other.length && one.every((item) => other.includes(item))
    : one === other;

/** Return the chosen rules with another one; a value that is in force already is no choice. */
export function withRule(chosen, key, value, items) {
  const wanted = { ...chosen, [key]: value };
  if (WEIGHTS.includes(key)) Object.assign(wanted, balanced(key, value, { ...inForce(items), ...chosen }));
  const now = inForce(items);
  return Object.fromEntries(Object.entries(wanted).filter(([name, chosenValue]) => !equal(chosenValue, now[name])));
}

/** Return the chosen rules without one; of the weights, all go. */
export function withoutRule(chosen, key) {
  const gone = WEIGHTS.includes(key) ? WEIGHTS : [key];
  return Object.fromEntries(Object.entries(chosen).filter(([name]) => !gone.includes(name)));
}

const inForce = (items) => Object.fromEntries(items.map(({ key, value }) => [key, value]));

/** Return the three weights, with the other two in their old proportion and a sum of 1. */
function balanced(key, value, before) {
  const [first, second] = WEIGHTS.filter((name) => name !== key);
  const rest = 1 - value;
  const both = before[first] + before[second];
  const share = both > 0 ? before[first] / both : 0.5;
  const rounded = Math.round(rest * share * 100) / 100;
  return { [key]: value, [first]: rounded, [second]: Math.max(0, Math.round((rest - rounded) * 1e6) / 1e6) };
}

const STEPS = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8];
const MOST_LINEAR = 120;

/**
 * Return the values that a slider stops at.
 *
 * A short range has all its values. A long one has stops that grow with the value, since 5 or 6 facts differ more than
 * 5,000 and 5,001.
 */
export function stopsOf({ type, minimum, maximum, value, default: usual }) {
  if (type === "number" && maximum - minimum <= 1) {
    return sorted([...Array.from({ length: 101 }, (_, n) => Math.round((minimum + n / 100) * 100) / 100), value]);
  }
  if (maximum - minimum <= MOST_LINEAR) {
    return sorted([...Array.from({ length: Math.floor(maximum - minimum) + 1 }, (_, n) => minimum + n), value]);
  }
  const found = [minimum, maximum, value, usual];
  for (let small = 1; small <= 10; small += 1) found.push(small);
  for (let power = 10; power <= maximum; power *= 10) found.push(...STEPS.map((step) => Math.round(step * power)));
  return sorted(found.filter((stop) => stop >= minimum && stop <= maximum));
}

const sorted = (values) => [...new Set(values)].sort((one, other) => one - other);

/** Return the index of the stop that is nearest to a value. */
export function nearest(stops, value) {
  let best = 0;
  stops.forEach((stop, index) => {
    if (Math.abs(stop - value) < Math.abs(stops[best] - value)) best = index;
  });
  return best;
}
