// main.js - what both views share: the tabs, the models that there are, the key.
import { ask, key, keyWanted, setKey } from "./ask.js";
import * as chat from "./chat.js";
import * as live from "./live.js";

const AGAIN = 3000; // ms
const MODEL = "lockstep-model";
const get = (id) => document.getElementById(id);

// ---- tabs

const tabs = ["chat", "live"];

function select(name) {
  for (const tab of tabs) {
    const button = get(`tab-${tab}`);
    button.setAttribute("aria-selected", String(tab === name));
    button.tabIndex = tab === name ? 0 : -1;
    get(tab).hidden = tab !== name;
  }
  live.watch(name === "live");
  history.replaceState(null, "", name === "live" ? "#live" : location.pathname + location.search);
}

function onTabKey(event) {
  if (!["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  const other = event.currentTarget.id === "tab-chat" ? "live" : "chat";
  select(other);
  get(`tab-${other}`).focus();
}

// ---- models

function say(text) {
  get("notice").textContent = text;
  get("notice").hidden = text === "";
}

function showModels(names) {
  const picker = get("model");
  const wanted = picker.value || localStorage.getItem(MODEL);
  if (names.join("\n") !== [...picker.options].map((option) => option.value).join("\n"))
    picker.replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.includes(wanted)) picker.value = wanted;
}

let timer = null;

// Asked again until there is a model; after that when somebody opens the list.
async function readModels() {
  clearTimeout(timer);
  try {
    const models = await (await ask("v1/models")).json();
    const names = models.data.map(({ id }) => id);
    showModels(names);
    say(names.length > 0 ? "" : "No model is served yet.");
    if (names.length === 0) timer = setTimeout(readModels, AGAIN);
  } catch (error) {
    say(`The models are not known: ${error.message}`);
    if (!get("key-dialog").open) timer = setTimeout(readModels, AGAIN);
  }
}

// ---- the key

let declined = false; // the dialog was cancelled: only the button opens it again

function askForKey() {
  get("key-open").hidden = false;
  if (declined || get("key-dialog").open) return;
  get("key-dialog").returnValue = "";
  get("key-dialog").showModal();
}

function takeKey() {
  declined = get("key-dialog").returnValue !== "use";
  if (!declined) setKey(get("key").value.trim());
  get("key").value = "";
  if (!declined) readModels();
}

function openKey() {
  declined = false;
  askForKey();
}

chat.open();
keyWanted(askForKey);
get("key-open").hidden = key() === "";
get("key-open").addEventListener("click", openKey);
get("key-dialog").addEventListener("close", takeKey);
get("model").addEventListener("change", () => localStorage.setItem(MODEL, get("model").value));
get("model").addEventListener("pointerdown", readModels);
for (const tab of tabs) {
  get(`tab-${tab}`).addEventListener("click", () => select(tab));
  get(`tab-${tab}`).addEventListener("keydown", onTabKey);
}
select(location.hash === "#live" ? "live" : "chat");
readModels();
