// live.js - what the backends and the gateway are doing, from /metrics once a second, while somebody looks.
import { ask } from "./ask.js";
import { make } from "./markdown.js";
import { Samples } from "./samples.js";

const EVERY = 1000; // ms
const KEPT = 120;   // figures of a chart
const MODELS = 16;  // of a job that has more
const MIB = 1048576;
const NONE = "–";

const cards = document.getElementById("live-cards");
const state = document.getElementById("live-state");
const tracks = new Map(); // of a card: its figures so far
let before = null;
let timer = null;

const show = (x, digits) => (Number.isFinite(x) ? x.toLocaleString("en", { maximumFractionDigits: digits }) : NONE);
const number = (x) => show(x, x < 10 ? 2 : x < 100 ? 1 : 0);
const milliseconds = (seconds) => number(1000 * seconds);

function figure(name, value, unit = "") {
  const shown = make("dd", {}, value);
  if (unit !== "" && value !== NONE) shown.append(" ", make("small", {}, unit));
  return make("div", {}, make("dt", {}, name), shown);
}

function svg(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  return element;
}

// The last two minutes; the newest at the right.
function chart(values, title) {
  const most = Math.max(1e-9, ...values.filter(Number.isFinite));
  const points = values.map((value, i) =>
    `${KEPT - values.length + i},${(98 - 94 * (Number.isFinite(value) ? value / most : 0)).toFixed(1)}`);
  const picture = svg("svg", { viewBox: `0 0 ${KEPT - 1} 100`, preserveAspectRatio: "none", class: "chart" });
  if (points.length > 1) {
    const line = `M${points.join("L")}`;
    picture.append(svg("path", { d: `${line}V100H${KEPT - values.length}Z`, class: "area" }), svg("path", { d: line }));
  }
  const head = make("p", { class: "chart-title" }, make("span", {}, title),
    make("span", {}, `most ${number(most < 1e-6 ? 0 : most)}`));
  return [head, picture];
}

function track(name, value) {
  const values = tracks.get(name) ?? [];
  if (Number.isFinite(value)) values.push(value);
  tracks.set(name, values.slice(-KEPT));
  return tracks.get(name);
}

// A counter of the timed steps, for a step.
const ofStep = (now, name, labels) => now.growth(before, name, labels) / now.growth(before, "rank_timed_steps_total", labels);

function rank(now, labels, power) {
  const step = ofStep(now, "rank_step_seconds_total", labels);
  const summing = ofStep(now, "rank_all_reduce_seconds_total", labels);
  const cell = (value) => make("td", { class: "number" }, value);
  return make("tr", {}, make("td", {}, labels.rank), make("td", {}, labels.host), cell(milliseconds(step)),
    cell(milliseconds(step - summing)), cell(milliseconds(summing)),
    ...(power ? [cell(number(now.rate(before, "energy_joules_total", labels)))] : []));
}

function ranks(now, backend) {
  const all = now.all("rank_steps_total", { backend });
  if (all.length === 0) return [];
  const power = now.all("energy_joules_total", { backend }).length > 0;
  const heads = ["Rank", "Host", "Step, ms", "Computing, ms", "All-reduces, ms", ...(power ? ["Power, W"] : [])];
  return [make("div", { class: "ranks" }, make("table", {},
    make("thead", {}, make("tr", {}, ...heads.map((head, i) => make("th", i > 1 ? { class: "number" } : {}, head)))),
    make("tbody", {}, ...all.map(({ labels: { rank: number, host } }) => rank(now, { backend, rank: number, host }, power)))))];
}

// What is told of each model of a job that has several; those in use and used last come first.
function readModels(now, backend) {
  const of = (name) => new Map(now.all(name, { backend }).map(({ labels, value }) => [labels.model, value]));
  const running = of("model_running"), waiting = of("model_waiting"), idle = of("model_idle_seconds");
  const bytes = of("model_bytes"), kv = of("model_kv_bytes"), sets = of("model_loaded"), loads = of("model_loads_total");
  const all = now.all("model_state", { backend }).map(({ labels: { model, state } }) => {
    const busy = running.get(model) > 0 || waiting.get(model) > 0;
    return { name: model, state, busy, idle: busy ? 0 : idle.get(model) ?? Number.MAX_VALUE, bytes: bytes.get(model),
      kv: kv.get(model), sets: sets.get(model), loads: loads.get(model) };
  });
  return all.sort((a, b) => a.idle - b.idle);
}

function modelRow({ name, state, busy, idle, bytes, kv, sets, loads }) {
  const cell = (value) => make("td", { class: "number" }, value);
  const used = busy ? "now" : idle === Number.MAX_VALUE ? NONE : `${show(idle, 0)} s`;
  return make("tr", {}, make("td", {}, make("bdi", {}, name)), make("td", {}, sets > 1 ? `${state} on ${sets} sets` : state),
    cell(bytes > 0 ? show(bytes / MIB, 1) : NONE), cell(kv > 0 ? show(kv / MIB, 1) : NONE), cell(used), cell(show(loads, 0)));
}

function models(now, backend) {
  const known = now.sum("models_known", { backend }), loaded = now.sum("LoadedModelCount", { backend });
  if (Number.isNaN(known)) return [];
  const shown = readModels(now, backend).slice(0, MODELS);
  const mebibytes = (name) => show(now.sum(name, { backend }) / MIB, 1);
  const heads = ["Model", "State", "MiB", "Keys, values", "Last use", "Loads"];
  const kv = now.sum("models_kv_memory_bytes", { backend }), kvHeld = kv - now.sum("models_kv_free_bytes", { backend });
  const more = known - shown.length, moreLoaded = loaded - shown.filter(({ state }) => state === "ready").length;
  return [make("p", { class: "chart-title" }, make("span", {}, `${show(loaded, 0)} of ${show(known, 0)} models loaded`),
    make("span", {}, `${mebibytes("models_used_bytes")} of ${mebibytes("models_memory_bytes")} MiB on a rank, ` +
      `keys and values ${show(kvHeld / MIB, 1)} of ${show(kv / MIB, 1)}`)),
  make("div", { class: "models" }, make("table", {},
    make("thead", {}, make("tr", {}, ...heads.map((head, i) => make("th", i > 1 ? { class: "number" } : {}, head)))),
    make("tbody", {}, ...shown.map(modelRow)))),
  ...(more > 0 ? [make("p", { class: "faint" }, `and ${show(more, 0)} more, ${show(moreLoaded, 0)} of them loaded`)] : [])];
}

function cacheFigure(share) {
  const shown = figure("KV cache", show(100 * share, 1), "%");
  shown.append(make("meter", { min: "0", max: "1", high: "0.9", value: String(share || 0), "aria-label": "KV cache" }));
  return shown;
}

function backendCard(now, backend) {
  const of = { backend };
  const tokens = now.rate(before, "generation_tokens_total", of);
  const power = now.rate(before, "energy_joules_total", of);
  const names = now.all("num_requests_running", of).map(({ labels }) => labels.model_name);
  const model = [...new Set(names)].filter((name) => name !== undefined).join(", ");
  const energy = now.all("energy_joules_total", of).length === 0 ? [] :
    [figure("Power", number(power), "W"), figure("Energy", number(power / tokens), "J/token")];
  return make("section", { class: "card" }, make("h2", {}, model, " ", make("span", {}, backend)),
    make("dl", { class: "figures" },
      figure("Generated", number(tokens), "tokens/s"),
      figure("Prompts", number(now.rate(before, "prompt_tokens_total", of)), "tokens/s"),
      figure("Running", show(now.sum("num_requests_running", of), 0)),
      figure("Waiting", show(now.sum("num_requests_waiting", of), 0)),
      figure("First token", milliseconds(now.meanSince(before, "time_to_first_token_seconds", of)), "ms"),
      figure("Between tokens", milliseconds(now.meanSince(before, "inter_token_latency_seconds", of)), "ms"),
      ...energy,
      cacheFigure(now.mean("kv_cache_usage_perc", of))),
    ...chart(track(backend, tokens), "Generated tokens/s, last two minutes"), ...models(now, backend),
    ...ranks(now, backend));
}

function gatewayCard(now) {
  return make("section", { class: "card" }, make("h2", {}, "Gateway"),
    make("dl", { class: "figures" },
      figure("Backends", show(now.sum("gateway_backends"), 0)),
      figure("Connections", show(now.sum("gateway_connections"), 0)),
      figure("Running", show(now.sum("gateway_requests_running"), 0)),
      figure("Requests", number(now.rate(before, "gateway_requests_total")), "/s"),
      figure("First token", milliseconds(now.meanSince(before, "gateway_first_token_seconds")), "ms"),
      figure("Own share", milliseconds(now.meanSince(before, "gateway_overhead_seconds")), "ms")));
}

async function look() {
  try {
    const now = new Samples(await (await ask("metrics")).text(), performance.now());
    const backends = now.values("num_requests_running", "backend");
    cards.replaceChildren(...backends.map((backend) => backendCard(now, backend)), gatewayCard(now));
    state.textContent = backends.length === 0 ? "No backend is there." : "Figures of the last second.";
    before = now;
  } catch (error) {
    state.textContent = `No figures: ${error.message}`;
    before = null;
  }
}

// Only one look at a time, and none while the page is not seen.
export function watch(on) {
  clearTimeout(timer);
  timer = null;
  if (!on) {
    before = null;
    return;
  }
  const round = async () => {
    if (!document.hidden) await look();
    if (timer !== null) timer = setTimeout(round, EVERY);
  };
  timer = setTimeout(round, 0);
}
