// chat.js - the conversation: what is asked with which parameters, and the answer while it comes.
import { ask, events } from "./ask.js";
import { Markdown, make } from "./markdown.js";

const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "max_tokens", "seed"];
const ENDS = { length: "the limit of tokens is reached", tool_calls: "a tool is called" };
const PARAMETERS = "lockstep-parameters";

const get = (id) => document.getElementById(id);
const messages = get("messages");
const prompt = get("prompt");
const parameters = get("parameters");
let conversation = []; // {role, content, element}
let running = null;    // AbortController of the answer that comes

// ---- parameters

const field = (name) => parameters.elements.namedItem(name);

function readVariables() {
  const text = field("chat_template_kwargs").value.trim();
  field("chat_template_kwargs").setCustomValidity("");
  if (text === "") return undefined;
  try {
    const value = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value;
  } catch {
    // said below
  }
  field("chat_template_kwargs").setCustomValidity("This is no JSON object.");
  return undefined;
}

// Fields that are left empty are not sent, so the server's defaults hold.
function readParameters() {
  const body = {};
  for (const name of NUMBERS) if (field(name).value !== "") body[name] = Number(field(name).value);
  const stop = field("stop").value.split("\n").filter((line) => line !== "");
  const variables = readVariables();
  if (stop.length > 0) body.stop = stop;
  if (variables !== undefined) body.chat_template_kwargs = variables;
  return body;
}

function openParameters(open) {
  parameters.hidden = !open;
  get("parameters-open").setAttribute("aria-expanded", String(open));
}

function keepParameters() {
  readVariables();
  const values = [...parameters.elements].filter((e) => e.name && e.value !== "").map((e) => [e.name, e.value]);
  localStorage.setItem(PARAMETERS, JSON.stringify(Object.fromEntries(values)));
}

function recallParameters() {
  try {
    for (const [name, value] of Object.entries(JSON.parse(localStorage.getItem(PARAMETERS) ?? "{}")))
      if (field(name) !== null) field(name).value = String(value);
  } catch {
    localStorage.removeItem(PARAMETERS);
  }
}

// ---- messages

function button(text, action) {
  const made = make("button", { type: "button", class: "small" }, text);
  made.addEventListener("click", () => action(made));
  return made;
}

function addMessage(role, content) {
  const message = { role, content };
  const body = make("div", { class: "body" });
  const foot = make("div", { class: "foot faint" });
  message.element = make("article", { class: `message ${role}`, "aria-label": role }, body, foot);
  Object.assign(message, { body, foot });
  conversation.push(message);
  get("welcome").hidden = true;
  messages.append(message.element);
  return message;
}

const isAtEnd = () => messages.scrollHeight - messages.scrollTop - messages.clientHeight < 80;
const toEnd = () => { messages.scrollTop = messages.scrollHeight; };

function copyButton(message) {
  return button("Copy", (made) => navigator.clipboard?.writeText(message.content).then(() => { made.textContent = "Copied"; }));
}

function forget(message) {
  message.element.remove();
  conversation = conversation.filter((other) => other !== message);
}

// ---- an answer

class Answer {
  constructor(message) {
    this.message = message;
    this.markdown = new Markdown(message.body);
    this.asked = performance.now();
    this.first = null;
    this.frame = null;
    this.usage = null;
    this.end = "";
  }

  take(event) {
    if (event.error) throw new Error(event.error.message ?? "the gateway says that something failed");
    if (event.usage) this.usage = event.usage;
    const choice = event.choices?.[0];
    if (choice?.finish_reason) this.end = choice.finish_reason;
    const text = choice?.delta?.content ?? "";
    if (text === "") return;
    this.first ??= performance.now();
    this.message.content += text;
    this.frame ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    const follow = isAtEnd();
    this.frame = null;
    this.markdown.show(this.message.content);
    if (follow) toEnd();
  }

  // "40 tokens, 81 tokens/s, the first after 0.12 s"
  figures() {
    const seconds = (performance.now() - (this.first ?? this.asked)) / 1000;
    const n = this.usage?.completion_tokens;
    const parts = [];
    if (n !== undefined) parts.push(n === 1 ? "1 token" : `${n} tokens`);
    if (n > 1 && seconds > 0) parts.push(`${((n - 1) / seconds).toFixed(1)} tokens/s`);
    if (this.first !== null) parts.push(`the first after ${((this.first - this.asked) / 1000).toFixed(2)} s`);
    if (this.end in ENDS) parts.push(ENDS[this.end]);
    return parts.join(", ");
  }

  finish(error) {
    const stopped = error?.name === "AbortError";
    const text = stopped ? [this.figures(), "stopped"].filter((part) => part !== "").join(", ") : this.figures();
    if (this.frame !== null) cancelAnimationFrame(this.frame);
    this.draw();
    this.message.element.classList.remove("busy");
    if (error && !stopped) this.message.foot.before(make("p", { class: "fault" }, error.message));
    this.message.foot.append(make("span", {}, text), copyButton(this.message), button("Try again", () => again(this.message)));
    if (isAtEnd()) toEnd();
  }
}

function showRunning(controller) {
  running = controller;
  get("stop").hidden = controller === null;
  get("send").hidden = controller !== null;
}

async function answer() {
  const model = get("model").value;
  const body = { ...(model === "" ? {} : { model }), ...readParameters(), stream: true,
    stream_options: { include_usage: true } };
  const system = field("system").value;
  body.messages = [...(system.trim() === "" ? [] : [{ role: "system", content: system }]),
    ...conversation.map(({ role, content }) => ({ role, content }))];
  const message = addMessage("assistant", "");
  const coming = new Answer(message);
  message.element.classList.add("busy");
  showRunning(new AbortController());
  toEnd();
  let error = null;
  try {
    const response = await ask("v1/chat/completions", { body, signal: running.signal });
    for await (const event of events(response)) coming.take(event);
  } catch (caught) {
    error = caught;
  }
  coming.finish(error);
  showRunning(null);
}

// The last answer anew.
function again(message) {
  if (running !== null) return;
  while (conversation.at(-1) !== message) forget(conversation.at(-1));
  forget(message);
  answer();
}

function send(event) {
  event.preventDefault();
  const text = prompt.value;
  if (running !== null || text.trim() === "") return;
  readVariables();
  if (!parameters.checkValidity()) {
    openParameters(true);
    parameters.reportValidity();
    return;
  }
  // An answer that failed before its first word is no part of the conversation.
  for (const empty of conversation.filter(({ role, content }) => role === "assistant" && content === "")) forget(empty);
  const message = addMessage("user", text);
  message.body.textContent = text;
  prompt.value = "";
  fit();
  answer();
}

// ---- the page's part

function fit() {
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight + 2}px`;
}

function fresh() {
  running?.abort();
  conversation = [];
  messages.querySelectorAll(".message").forEach((element) => element.remove());
  get("welcome").hidden = false;
  prompt.focus();
}

const isTouched = matchMedia("(pointer: coarse)");

function onKey(event) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || isTouched.matches) return;
  event.preventDefault();
  get("composer").requestSubmit();
}

export function open() {
  recallParameters();
  get("composer").addEventListener("submit", send);
  get("stop").addEventListener("click", () => running?.abort());
  get("fresh").addEventListener("click", fresh);
  get("parameters-open").addEventListener("click", () => openParameters(parameters.hidden));
  get("parameters-close").addEventListener("click", () => openParameters(false));
  parameters.addEventListener("submit", (event) => event.preventDefault());
  parameters.addEventListener("input", keepParameters);
  parameters.addEventListener("reset", () => setTimeout(keepParameters));
  prompt.addEventListener("input", fit);
  prompt.addEventListener("keydown", onKey);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") running?.abort(); });
}
