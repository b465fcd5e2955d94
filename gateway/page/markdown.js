// markdown.js - a model's text as elements of a page. The text is hostile: elements are made one by one and texts put
// into them, nothing is ever parsed as HTML; of addresses only http, https and mailto become links; pictures are not
// loaded. Time is linear in the text for every nesting, and nesting is bounded.

const MOST_DEPTH = 8;
const MOST_LINK = 2000; // characters

export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  element.append(...children);
  return element;
}

// ---- within a line

const MARKS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];
const isWord = (c) => c !== undefined && /[\p{L}\p{N}]/u.test(c);

// The next place of `mark` from `from` on that can close emphasis: no blank before it; "_" not within a word.
function closing(text, mark, from) {
  for (let at = text.indexOf(mark, from); at >= 0; at = text.indexOf(mark, at + 1)) {
    const inside = mark[0] === "_" && isWord(text[at + mark.length]);
    const longer = mark.length === 1 && (text[at + 1] === mark || text[at - 1] === mark);
    if (!inside && !longer && text[at - 1] !== "\\" && !/\s/.test(text[at - 1])) return at;
  }
  return -1;
}

function opens(text, at) {
  for (const [mark, name] of MARKS) {
    if (!text.startsWith(mark, at)) continue;
    const after = text[at + mark.length];
    if (after === undefined || /\s/.test(after) || (mark[0] === "_" && isWord(text[at - 1]))) return null;
    return { mark, name };
  }
  return null;
}

function address(text) {
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

const link = (href, ...children) => make("a", { href, target: "_blank", rel: "noopener noreferrer" }, ...children);

// Appends the elements of a text to `to`. `next`: where marks come next, as far as they were looked for.
class Line {
  constructor(text, to, depth) {
    Object.assign(this, { text, to, depth, at: 0, plain: "", next: new Map() });
  }

  flush() {
    if (this.plain !== "") this.to.append(this.plain);
    this.plain = "";
  }

  put(element, end) {
    this.flush();
    this.to.append(element);
    this.at = end;
    return true;
  }

  // The first place from `from` on, or -1; nothing is searched through twice.
  find(what, from, search = (start) => this.text.indexOf(what, start)) {
    const known = this.next.get(what);
    if (known === undefined || (known >= 0 && known < from)) this.next.set(what, search(from));
    return this.next.get(what);
  }

  code() {
    const ticks = /^`+/.exec(this.text.slice(this.at, this.at + 16))?.[0];
    if (ticks === undefined) return false;
    const from = this.at + ticks.length;
    const end = this.find(ticks, from);
    if (end < 0) return false;
    const inner = this.text.slice(from, end).replaceAll("\n", " ");
    return this.put(make("code", {}, inner.trim() === "" ? inner : inner.trim()), end + ticks.length);
  }

  emphasis() {
    const found = opens(this.text, this.at);
    if (found === null || this.depth >= MOST_DEPTH) return false;
    const from = this.at + found.mark.length;
    const end = this.find(found.mark, from + 1, (start) => closing(this.text, found.mark, start));
    if (end < 0) return false;
    return this.put(inline(this.text.slice(from, end), make(found.name), this.depth + 1), end + found.mark.length);
  }

  // [text](address), and a picture's ![text](address), as a link.
  named() {
    const start = this.text[this.at] === "!" ? this.at + 1 : this.at;
    if (this.text[start] !== "[") return false;
    const middle = this.find("](", start);
    const end = middle < 0 ? -1 : this.find(")", middle);
    const href = end < 0 || end - start > MOST_LINK ? null : address(this.text.slice(middle + 2, end).trim().split(/\s/)[0]);
    if (href === null) return false;
    const name = this.text.slice(start + 1, middle);
    return this.put(inline(name === "" ? href : name, link(href), MOST_DEPTH), end + 1);
  }

  bare() {
    if (this.depth >= MOST_DEPTH || isWord(this.text[this.at - 1])) return false;
    const found = /^https?:\/\/[^\s<>"'`)\]]*[^\s<>"'`)\].,;:!?*_]/.exec(this.text.slice(this.at, this.at + MOST_LINK));
    const href = found === null ? null : address(found[0]);
    return href !== null && this.put(link(href, found[0]), this.at + found[0].length);
  }

  one() {
    const c = this.text[this.at];
    if (c === "\\" && /[!-/:-@[-`{-~]/.test(this.text[this.at + 1] ?? "")) {
      this.plain += this.text[this.at + 1];
      this.at += 2;
    } else if (c === "\n") {
      this.put(make("br"), this.at + 1);
    } else if (!(c === "`" && this.code()) && !("*_~".includes(c) && this.emphasis()) &&
        !("[!".includes(c) && this.named()) && !(c === "h" && this.bare())) {
      // A run of one mark that opens nothing stands for itself as a whole.
      const run = "*_~`".includes(c) ? /^(.)\1*/.exec(this.text.slice(this.at, this.at + 64))[0] : c;
      this.plain += run;
      this.at += run.length;
    }
  }
}

function inline(text, to, depth) {
  const line = new Line(text, to, depth);
  while (line.at < text.length) line.one();
  line.flush();
  return to;
}

// ---- blocks

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)/;
const ITEM = /^( {0,12})([-*+]|\d{1,9}[.)])(?: +|$)/;
const HEADING = /^(#{1,6}) +(\S.*)$/;
const RULE = /^ {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$/;
const isBlank = (line) => line.trim() === "";
const isTable = (lines, i) => lines[i].includes("|") && i + 1 < lines.length && lines[i + 1].includes("-") &&
  /^[ :|-]+$/.test(lines[i + 1]) && cells(lines[i]).length === cells(lines[i + 1]).length;
const beginsBlock = (line) => FENCE.test(line) || ITEM.test(line) || HEADING.test(line) || RULE.test(line) ||
  line.startsWith(">") || line.startsWith("<think>");

function endOfFence(lines, i) {
  const mark = FENCE.exec(lines[i])[1];
  for (let k = i + 1; k < lines.length; k++)
    if (lines[k].trim().startsWith(mark) && lines[k].trim().split(mark[0]).join("") === "") return k + 1;
  return lines.length;
}

const isNumber = (item) => /\d/.test(item[2]);

// Lines of a list that begins at i: its items, what is indented below them, and blank lines between.
function endOfList(lines, i) {
  const first = ITEM.exec(lines[i]);
  let end = i + 1;
  for (let k = i + 1; k < lines.length; k++) {
    const item = ITEM.exec(lines[k]);
    if (item !== null && item[1].length <= first[1].length && isNumber(item) !== isNumber(first)) break;
    const belongs = item !== null || /^ {2,}\S/.test(lines[k]);
    if (!belongs && (isBlank(lines[k - 1]) || beginsBlock(lines[k])) && !isBlank(lines[k])) break;
    if (!isBlank(lines[k])) end = k + 1;
  }
  return end;
}

const endWhile = (lines, i, holds) => {
  let end = i + 1;
  while (end < lines.length && holds(lines[end], end)) end++;
  return end;
};

function endOfBlock(lines, i) {
  const line = lines[i];
  if (FENCE.test(line)) return endOfFence(lines, i);
  if (HEADING.test(line) || RULE.test(line)) return i + 1;
  if (line.startsWith("<think>")) {
    const end = lines.findIndex((other, k) => k >= i && other.includes("</think>"));
    return end < 0 ? lines.length : end + 1;
  }
  if (line.startsWith(">")) return endWhile(lines, i, (other) => other.startsWith(">"));
  if (ITEM.test(line)) return endOfList(lines, i);
  if (isTable(lines, i)) return endWhile(lines, i, (other) => other.includes("|"));
  return endWhile(lines, i, (other, k) => !isBlank(other) && !beginsBlock(other) && !isTable(lines, k));
}

// The text cut into its topmost blocks: a list of lists of lines.
function blocks(lines) {
  const found = [];
  for (let i = 0; i < lines.length;) {
    if (isBlank(lines[i])) {
      i++;
      continue;
    }
    const end = endOfBlock(lines, i);
    found.push(lines.slice(i, end));
    i = end;
  }
  return found;
}

const all = (lines, to, depth) => {
  for (const block of blocks(lines)) to.append(element(block, depth));
  return to;
};

function fence(lines) {
  const language = FENCE.exec(lines[0])[2];
  const closed = lines.length > 1 && endOfFence(lines.slice(0, -1), 0) === lines.length - 1 &&
    /^\s*(`{3,}|~{3,})\s*$/.test(lines.at(-1));
  const text = lines.slice(1, closed ? -1 : undefined).join("\n");
  const copy = make("button", { type: "button", class: "small" }, "Copy");
  copy.addEventListener("click", () => navigator.clipboard?.writeText(text).then(() => { copy.textContent = "Copied"; }));
  return make("div", { class: "code" },
    make("div", { class: "bar" }, make("span", {}, language), make("span", { class: "stretch" }), copy),
    make("pre", {}, make("code", {}, text)));
}

function list(lines, depth) {
  const first = ITEM.exec(lines[0]);
  const ordered = isNumber(first);
  const start = ordered ? { start: String(parseInt(first[2], 10)) } : {};
  const to = make(ordered ? "ol" : "ul", start);
  let item = [];
  const put = () => {
    const body = all(item, make("li"), depth + 1);
    const only = body.children.length > 0 && body.firstElementChild.localName === "p" ? body.firstElementChild : null;
    if (only !== null) only.replaceWith(...only.childNodes);
    to.append(body);
  };
  for (const line of lines) {
    const found = ITEM.exec(line);
    if (found !== null && found[1].length < first[0].length) {
      if (item.length > 0) put();
      item = [line.slice(found[0].length)];
    } else {
      item.push(line.replace(new RegExp(`^ {0,${first[0].length}}`), ""));
    }
  }
  put();
  return to;
}

const cells = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").map((cell) => cell.trim());

function table(lines) {
  const sides = cells(lines[1]).map((cell) =>
    cell.endsWith(":") ? (cell.startsWith(":") ? "centre" : "number") : "");
  const row = (line, name) => make("tr", {}, ...cells(line).slice(0, sides.length).map((cell, i) =>
    inline(cell, make(name, sides[i] === "" ? {} : { class: sides[i] }), 0)));
  return make("div", { class: "table" }, make("table", {},
    make("thead", {}, row(lines[0], "th")), make("tbody", {}, ...lines.slice(2).map((line) => row(line, "td")))));
}

// What a model thinks aloud, folded away once it is over.
function thoughts(lines, depth) {
  const text = lines.join("\n");
  const end = text.indexOf("</think>");
  const inner = text.slice("<think>".length, end < 0 ? undefined : end);
  const details = all(inner.split("\n"), make("details", {}, make("summary", {}, "Thoughts")), depth + 1);
  details.open = end < 0;
  const rest = end < 0 ? "" : text.slice(end + "</think>".length);
  return rest.trim() === "" ? details : make("div", {}, details, inline(rest, make("p"), 0));
}

function element(lines, depth) {
  const line = lines[0];
  const heading = HEADING.exec(line);
  if (FENCE.test(line)) return fence(lines);
  if (RULE.test(line)) return make("hr");
  if (heading !== null) return inline(heading[2].trim(), make(`h${Math.min(4, heading[1].length + 1)}`), 0);
  if (depth < MOST_DEPTH && line.startsWith("<think>")) return thoughts(lines, depth);
  if (depth < MOST_DEPTH && line.startsWith(">"))
    return all(lines.map((other) => other.replace(/^> ?/, "")), make("blockquote"), depth + 1);
  if (depth < MOST_DEPTH && ITEM.test(line)) return list(lines, depth);
  if (isTable(lines, 0)) return table(lines);
  return inline(lines.map((other) => other.trimStart()).join("\n"), make("p"), 0);
}

// Shows a text that grows. Blocks that have not changed keep their elements, and what is selected or open in them.
export class Markdown {
  constructor(to) {
    this.to = to;
    this.shown = [];
  }

  show(text) {
    const wanted = blocks(text.split(/\r?\n/));
    wanted.forEach((lines, i) => {
      const source = lines.join("\n");
      if (this.shown[i] === source) return;
      const made = element(lines, 0);
      if (i < this.to.children.length) this.to.children[i].replaceWith(made);
      else this.to.append(made);
      this.shown[i] = source;
    });
    while (this.to.children.length > wanted.length) this.to.lastElementChild.remove();
    this.shown.length = wanted.length;
  }
}
