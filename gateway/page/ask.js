// ask.js - questions to the gateway: its address, the key, errors as one kind, streams of events.

const KEY = "lockstep-key";
let onKeyWanted = () => {};

export const keyWanted = (callback) => { onKeyWanted = callback; };
export const key = () => sessionStorage.getItem(KEY) ?? "";
export const setKey = (value) =>
  value === "" ? sessionStorage.removeItem(KEY) : sessionStorage.setItem(KEY, value);

// What the gateway says is wrong: {"error": {"message"}}, whatever else the answer may be.
async function faultOf(response) {
  const text = await response.text();
  try {
    const said = JSON.parse(text).error.message;
    if (typeof said === "string") return said;
  } catch {
    // no JSON: a proxy's page, say
  }
  return `the gateway answers ${response.status} ${response.statusText}`;
}

// path is relative to the page: a proxy may have put it below another path. body: an object, or nothing to GET.
export async function ask(path, { body, signal } = {}) {
  const headers = {};
  if (key() !== "") headers.Authorization = `Bearer ${key()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    cache: "no-store",
  });
  if (response.ok) return response;
  if (response.status === 401) onKeyWanted();
  throw new Error(await faultOf(response));
}

// The data of every server-sent event, up to "[DONE]". Throws if the stream ends before.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the answer has broken off");
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}
