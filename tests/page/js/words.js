// Words of the page: reads its modules and prints what is not as it must be, as JSON.
//
//     node words.js WEB
//
// WEB is a copy of the page's files with a package.json that makes them modules.
import fs from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import * as espree from "espree";
import { KEYS } from "eslint-visitor-keys";

const WEB = process.argv[2];
// Names and marks that are the same in each language.
const PLAIN = new Set(["Backstory"]);
const SHOWN_ATTRIBUTES = new Set(["aria-label", "aria-description", "aria-roledescription", "title", "placeholder", "alt", "label"]);

globalThis.localStorage = { getItem: () => null, setItem: () => undefined };
globalThis.document = { documentElement: {} };
if (!("navigator" in globalThis)) globalThis.navigator = { language: "en" };

const files = fs
  .readdirSync(WEB, { recursive: true })
  .map((name) => name.split(path.sep).join("/"))
  .filter((name) => name.endsWith(".js") && !name.startsWith("vendor/"))
  .sort();
const parse = (text) => espree.parse(text, { ecmaVersion: "latest", sourceType: "module", loc: true });

/** Call `visit(node, parents)` for each node below one. */
function walk(node, visit, parents = []) {
  if (!node) return;
  visit(node, parents);
  for (const key of KEYS[node.type] ?? []) {
    for (const child of [node[key]].flat()) walk(child, visit, [...parents, node]);
  }
}

/** The values that a word names. */
function valuesOf(word) {
  if (typeof word === "string") return [...word.matchAll(/\{(\w+)\}/g)].map((found) => found[1]);
  const [parameter] = parse(`(${word.toString()})`).body[0].expression.params;
  return parameter ? parameter.properties.map((property) => property.key.name) : [];
}

const problems = [];
const words = {};
for (const name of files.filter((one) => one.endsWith(".words.js"))) {
  const found = (await import(pathToFileURL(path.join(WEB, name)))).words;
  words[name] = found;
  if (Object.keys(found).sort().join() !== "en,zh") {
    problems.push(`${name}: has ${Object.keys(found)}, not en and zh`);
    found.en ??= {};
    found.zh ??= {};
  }
  for (const [language, other] of [["en", "zh"], ["zh", "en"]]) {
    for (const key of Object.keys(found[language])) {
      if (!(key in found[other])) problems.push(`${name}: ${key} has no word in ${other}`);
    }
  }
  for (const [key, word] of Object.entries(found.en)) {
    const [here, there] = [new Set(valuesOf(word)), new Set(valuesOf(found.zh[key] ?? ""))];
    // English needs the number itself for its plural.
    const differs = [...here].filter((value) => !there.has(value) && value !== "n");
    const more = [...there].filter((value) => !here.has(value));
    if (key in found.zh && (differs.length || more.length)) {
      problems.push(`${name}: ${key} names other values in zh: ${[...differs, ...more]}`);
    }
  }
}

const used = Object.fromEntries(Object.keys(words).map((name) => [name, new Set()]));
const prefixes = Object.fromEntries(Object.keys(words).map((name) => [name, new Set()]));
const joints = Object.fromEntries(Object.keys(words).map((name) => [name, new Set()]));
for (const name of files.filter((one) => !one.endsWith(".words.js"))) {
  const tree = parse(fs.readFileSync(path.join(WEB, name), "utf8"));
  const tables = new Map();
  for (const node of tree.body) {
    if (node.type !== "ImportDeclaration" || !node.source.value.endsWith(".words.js")) continue;
    const from = path.posix.join(path.posix.dirname(name), node.source.value);
    for (const one of node.specifiers) if (one.imported?.name === "words") tables.set(one.local.name, from);
  }
  const imported = new Set(tables.values());
  const bound = new Map();
  walk(tree, (node) => {
    if (node.type === "VariableDeclarator" && node.init?.type === "CallExpression") {
      const { callee, arguments: given } = node.init;
      if ((callee.name === "useWords" || callee.name === "wordsOf") && tables.has(given[0]?.name)) {
        bound.set(node.id.name, new Set([...(bound.get(node.id.name) ?? []), tables.get(given[0].name)]));
      }
    }
    for (const table of imported) {
      if (node.type === "Literal" && typeof node.value === "string") used[table].add(node.value);
      if (node.type === "Property" && node.key.type === "Identifier") used[table].add(node.key.name);
      if (node.type === "TemplateLiteral" && node.expressions.length) {
        const [first, second] = node.quasis;
        if (first.value.cooked) prefixes[table].add(first.value.cooked);
        else if (second.value.cooked) joints[table].add(second.value.cooked);
      }
    }
  });
  const at = (node) => `${name}:${node.loc.start.line}`;
  walk(tree, (node, parents) => {
    if (node.type === "CallExpression" && (node.callee.name === "t" || bound.has(node.callee.name))) {
      checkCall(node, bound.get(node.callee.name) ?? imported, at(node));
    }
    if (node.type === "TaggedTemplateExpression" && node.tag.name === "html") checkTemplate(node.quasi, at(node));
  });
}

/** Check that a word that is called for by its name is there, and gets its values. */
function checkCall(node, tables, where) {
  const [key, given] = node.arguments;
  if (key?.type !== "Literal" || !tables.size) return;
  const found = [...tables].filter((table) => key.value in words[table].en);
  if (!found.length) problems.push(`${where}: there is no word for ${key.value} in ${[...tables]}`);
  if (!found.length || (given && given.type !== "ObjectExpression")) return;
  const properties = given?.properties ?? [];
  if (properties.some((property) => property.type === "SpreadElement")) return;
  const names = new Set(properties.map((property) => property.key.name ?? property.key.value));
  const wanted = new Set(found.flatMap((table) => valuesOf(words[table].en[key.value])));
  for (const value of wanted) if (!names.has(value)) problems.push(`${where}: ${key.value} needs the value ${value}`);
  for (const value of names) {
    const inChinese = found.some((table) => valuesOf(words[table].zh[key.value] ?? "").includes(value));
    if (!wanted.has(value) && !inChinese) problems.push(`${where}: ${key.value} does not name the value ${value}`);
  }
}

/** Check that a template shows no text but words and data. */
function checkTemplate(quasi, where) {
  // Expressions become \0, numbered by their order; then markup is told from text.
  const text = quasi.quasis.map((part) => part.value.cooked).join("\0").replace(/<!--.*?-->/gs, "");
  let inside = false;
  let quote = "";
  let shown = "";
  let markup = "";
  let index = 0;
  const inText = [];
  for (const letter of text) {
    if (letter === "\0") {
      if (!inside) inText.push(quasi.expressions[index]);
      index += 1;
    }
    if (!inside && letter === "<") inside = true;
    else if (inside && quote) quote = letter === quote ? "" : quote;
    else if (inside && (letter === '"' || letter === "'")) quote = letter;
    else if (inside && letter === ">") {
      inside = false;
      markup += " ";
      shown += "\n";
      continue;
    }
    if (inside) markup += letter;
    else shown += letter;
  }
  for (const line of shown.split(/[\n\0]/)) {
    const plain = line.trim();
    if (/\p{L}/u.test(plain) && !PLAIN.has(plain)) problems.push(`${where}: "${plain}" stands in a template`);
  }
  for (const [, attribute, value] of markup.matchAll(/([\w-]+)=["']([^"'\0]*\p{L}[^"']*)["']/gu)) {
    if (SHOWN_ATTRIBUTES.has(attribute)) problems.push(`${where}: ${attribute}="${value}" stands in a template`);
  }
  for (const expression of inText) checkShown(expression, where);
}

/** Check an expression whose value is shown as text. */
function checkShown(node, where) {
  if (!node) return;
  if (node.type === "ConditionalExpression") [node.consequent, node.alternate].forEach((one) => checkShown(one, where));
  else if (node.type === "LogicalExpression") [node.left, node.right].forEach((one) => checkShown(one, where));
  else if (node.type === "Literal" && typeof node.value === "string" && /\p{L}/u.test(node.value) && !PLAIN.has(node.value)) {
    problems.push(`${where}: "${node.value}" stands in a template`);
  } else if (node.type === "TemplateLiteral" && node.quasis.some((part) => /\p{L}/u.test(part.value.cooked))) {
    problems.push(`${where}: "${node.quasis.map((part) => part.value.cooked).join("…")}" stands in a template`);
  }
}

const unused = [];
for (const [name, table] of Object.entries(words)) {
  for (const key of Object.keys(table.en)) {
    // `rule-${rule}`, or `${done ? "done" : "effect"}-${what}`.
    const composed =
      [...prefixes[name]].some((prefix) => key.startsWith(prefix)) ||
      [...joints[name]].some((joint) => key.includes(joint) && used[name].has(key.split(joint)[0]));
    if (!used[name].has(key) && !composed) unused.push({ file: name, key });
  }
}
const keys = Object.fromEntries(Object.entries(words).map(([name, table]) => [name, Object.keys(table.en)]));
process.stdout.write(JSON.stringify({ problems, unused, keys }));
