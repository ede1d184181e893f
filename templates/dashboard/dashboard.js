// The pages are made by the server. This script keeps them fresh, sends what people ask for to the API, and knows keys.
"use strict";

const main = document.getElementById("main");
const topic = main.dataset.topic;
const log = document.getElementById("log");
const MOST_LINES = 1000;

// --- Fresh parts -------------------------------------------------------------------------------------------------

let refreshing = false;
let stale = false;

// Fetches this page again and replaces the parts that changed. At most once a second, and only while it is seen.
async function refresh() {
  stale = true;
  if (refreshing || document.hidden) return;
  refreshing = true;
  while (stale && !document.hidden) {
    stale = false;
    try {
      const answer = await fetch(location.href);
      if (answer.redirected && new URL(answer.url).pathname === "/login") return location.assign("/login");
      if (answer.ok) replaceParts(new DOMParser().parseFromString(await answer.text(), "text/html"));
    } catch {
      // The connection comes back, and then the page is fetched again.
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
  refreshing = false;
}

function replaceParts(fresh) {
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.getElementById(part.id);
    if (other && other.innerHTML !== part.innerHTML) {
      const folds = new Map([...part.querySelectorAll("details > summary")].map((one) => [one.textContent, one.parentElement.open]));
      part.replaceChildren(...other.childNodes);
      for (const summary of part.querySelectorAll("details > summary")) {
        if (folds.has(summary.textContent)) summary.parentElement.open = folds.get(summary.textContent);
      }
    }
    if (other && other.dataset.state) main.dataset.state = other.dataset.state;
  }
  showState();
}

// The icon and the title say how the run is, also in a tab in the background.
function showState() {
  const state = main.dataset.state;
  if (!state) return;
  const kind = { running: "iconRunning", done: "iconDone", queued: "iconQueued" }[state] || "iconAttention";
  const address = document.body.dataset[kind];
  const icon = document.getElementById("icon");
  if (icon.getAttribute("href") !== address) icon.setAttribute("href", address);
  document.title = document.title.replace(/^[a-z]+:/, state + ":");
}

// --- The socket ----------------------------------------------------------------------------------------------------

let wait = 250;

function connect() {
  if (!topic) return;
  const address = (location.protocol === "https:" ? "wss://" : "ws://") + location.host + "/api/events";
  const socket = new WebSocket(address);
  const watchdog = setTimeout(() => socket.close(), 10000);
  socket.onopen = () => {
    clearTimeout(watchdog);
    wait = 250;
    say("");
    socket.send(JSON.stringify({ subscribe: topic, brief: true }));
    // What happened meanwhile.
    log ? addLines() : refresh();
  };
  socket.onmessage = (message) => {
    if (log) addLines();
    // The log has its own way; what is above it changes when a run starts or ends.
    if (!log || message.data.includes('"run_')) refresh();
  };
  socket.onclose = () => {
    clearTimeout(watchdog);
    say("not connected, trying again");
    setTimeout(connect, wait * (0.5 + Math.random() / 2));
    wait = Math.min(wait * 2, 2000);
  };
}

function say(text) {
  const place = document.getElementById("connection");
  if (place) place.textContent = text;
}

// --- The log -------------------------------------------------------------------------------------------------------

const follow = document.getElementById("follow");
let adding = false;
let more = false;

// Adds the lines after the last one while the log is followed. Of many only the last are shown; the server keeps all.
async function addLines() {
  more = true;
  if (adding || !follow || !follow.checked) return;
  adding = true;
  while (more && follow.checked) {
    more = false;
    let isFarBehind = false;
    try {
      const { run, query } = log.dataset;
      const address = `/runs/${run}/log/lines?limit=${MOST_LINES}&${query}`;
      let answer = await fetch(`${address}&after=${log.dataset.next}`);
      // More lines than the page shows: the newest ones are enough.
      isFarBehind = answer.headers.get("x-more") === "yes";
      if (isFarBehind) answer = await fetch(address);
      if (answer.redirected) return location.assign("/login");
      if (!answer.ok) break;
      const text = await answer.text();
      log.dataset.next = answer.headers.get("x-next");
      await new Promise(requestAnimationFrame);
      if (isFarBehind) log.replaceChildren();
      showLines(text, isFarBehind);
    } catch {
      break;
    }
    await new Promise((done) => setTimeout(done, isFarBehind ? 1000 : 200));
  }
  adding = false;
}

function showLines(text, isCut) {
  if (!text.trim()) return;
  const fresh = new DOMParser().parseFromString(`<ol>${text}</ol>`, "text/html").querySelectorAll("li");
  const kept = [...fresh].slice(-MOST_LINES);
  const extra = log.children.length + kept.length - MOST_LINES;
  for (let left = Math.min(extra, log.children.length); left > 0; left--) log.firstElementChild.remove();
  log.append(...kept);
  const earlier = document.getElementById("earlier");
  if ((isCut || extra > 0) && log.firstElementChild) {
    const address = new URL(earlier.href);
    address.searchParams.set("before", log.firstElementChild.id.slice(1));
    earlier.href = address;
    earlier.hidden = false;
  }
  if (!location.hash) log.scrollTop = log.scrollHeight;
}

// The address of a line that is not on this page leads to the page around it.
function findLine() {
  const line = /^#e(\d+)$/.exec(location.hash);
  if (!log || !line || document.getElementById("e" + line[1])) return;
  const around = `?at=${line[1]}`;
  if (location.search !== around) location.replace(location.pathname + around + location.hash);
}

// --- What people ask for -------------------------------------------------------------------------------------------

// Repeating a creation with the same key creates nothing new.
let creationKey = newKey();

function newKey() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16)).join("");
}

async function ask(method, path, body, output, button) {
  if (button && button.hasAttribute("aria-busy")) return null;
  if (button) button.setAttribute("aria-busy", "true");
  show(output, "sending…", false);
  try {
    const answer = await fetch(path, {
      method,
      headers: { "content-type": "application/json", ...(method === "POST" && path === "/api/runs" ? { "idempotency-key": creationKey } : {}) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const text = await answer.text();
    const data = text ? JSON.parse(text) : {};
    if (!answer.ok) {
      const findings = (data.findings || []).map((one) => (one.line ? `line ${one.line}: ` : "") + one.reason);
      show(output, [data.detail, ...findings, data.hint].filter(Boolean).join(". "), true);
      return null;
    }
    creationKey = newKey();
    show(output, data.what ? `asked for: ${data.what}` : "done", false);
    refresh();
    return data;
  } catch (error) {
    show(output, "the service does not answer: " + error.message, true);
    return null;
  } finally {
    if (button) button.removeAttribute("aria-busy");
  }
}

function show(output, text, failed) {
  if (!output) return;
  output.textContent = text;
  output.classList.toggle("failed", failed);
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-post]");
  if (!button || (button.dataset.confirm && !confirm(button.dataset.confirm))) return;
  const { host, name } = button.dataset;
  const body = host ? { hosts: [host] } : name ? { name } : {};
  const method = button.dataset.method || "POST";
  const output = document.getElementById("answer");
  const done = await ask(method, button.dataset.post, method === "DELETE" ? undefined : body, output, button);
  if (done && button.dataset.then) location.assign(button.dataset.then);
});

document.addEventListener("submit", async (event) => {
  const form = event.target.closest("form[data-api]");
  if (!form) return;
  event.preventDefault();
  let path = form.dataset.api;
  const body = {};
  for (const field of form.elements) {
    if (!field.name || (field.value === "" && !field.required)) continue;
    const value = field.type === "checkbox" ? field.checked : field.value;
    const isNumber = field.type === "number";
    if (field.name.startsWith("settings:")) (body.settings ??= {})[field.name.slice(9)] = value;
    else if (field.name.startsWith("path:")) path = path.replace(`{${field.name.slice(5)}}`, encodeURIComponent(value));
    else body[field.name] = isNumber ? field.valueAsNumber : value;
  }
  const done = await ask(form.dataset.method || "POST", path, body, form.querySelector("output"), event.submitter);
  if (!done) return;
  if (done.path) show(form.querySelector("output"), location.origin + done.path, false);
  if (form.dataset.created && done.run) location.assign(form.dataset.created + done.run);
  if (!form.dataset.diff) form.reset();
});

// --- The task editor -----------------------------------------------------------------------------------------------

const editor = document.querySelector("[data-lint]");
let typed;

async function lint() {
  const answer = await fetch("/api/lint", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ text: editor.value }),
  });
  if (!answer.ok) return;
  const { findings } = await answer.json();
  const rows = findings.map((one) => {
    const row = document.createElement("li");
    row.className = one.is_error ? "error" : "notice";
    row.textContent = `${one.is_error ? "error" : "warning"}${one.line ? `, line ${one.line}` : ""}: ${one.reason}. ${one.fix}`;
    return row;
  });
  document.getElementById("findings").replaceChildren(...rows);
}

if (editor) {
  editor.addEventListener("input", () => {
    clearTimeout(typed);
    typed = setTimeout(lint, 300);
  });
  const review = document.querySelector("[data-review]");
  if (review) review.addEventListener("click", () => showChanges(document.getElementById("task-before").textContent, editor.value));
}

// The changed lines between what is the same at both ends.
function showChanges(before, after) {
  const [old, now] = [before.split("\n"), after.split("\n")];
  let head = 0;
  while (head < Math.min(old.length, now.length) && old[head] === now[head]) head++;
  let tail = 0;
  while (tail < Math.min(old.length, now.length) - head && old.at(-1 - tail) === now.at(-1 - tail)) tail++;
  const row = (kind, sign) => (text) => {
    const span = document.createElement("span");
    span.className = kind;
    span.textContent = sign + text;
    return span;
  };
  const place = document.getElementById("review");
  place.hidden = false;
  place.replaceChildren(
    ...old.slice(head, old.length - tail).map(row("removed", "- ")),
    ...now.slice(head, now.length - tail).map(row("added", "+ ")),
  );
  if (!place.childNodes.length) place.textContent = "Nothing is changed.";
}

// --- What changed since this browser showed the diff -----------------------------------------------------------------

const since = document.getElementById("since");
if (since) {
  // A browser may keep nothing for pages.
  const kept = (use) => { try { return use(localStorage); } catch { return null; } };
  const [seen, now] = [Number(kept((store) => store.getItem("seen:" + topic))), Number(main.dataset.iterations)];
  if (seen > 0 && seen < now && !location.search) {
    since.href = `?since=${seen}`;
    since.textContent = `Since you last looked, after iteration ${seen}`;
    since.hidden = false;
  }
  if (!location.search) kept((store) => store.setItem("seen:" + topic, now));
}

// --- Keys ----------------------------------------------------------------------------------------------------------

let before = "";

document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  const keys = before + event.key;
  before = event.key === "g" ? "g" : "";
  const run = topic && topic !== "runs" ? `/runs/${topic}` : null;
  if (event.key === "?") document.getElementById("keys").showModal();
  else if (event.key === "/") {
    const search = document.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  } else if (keys === "gr") location.assign("/");
  else if (keys === "gl" && run) location.assign(run + "/log");
  else if (keys === "gd" && run) location.assign(run + "/diff");
});

// --- Start ---------------------------------------------------------------------------------------------------------

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && stale) refresh();
});
if (follow) follow.addEventListener("change", addLines);
addEventListener("hashchange", findLine);
findLine();
if (follow && !location.hash) log.scrollTop = log.scrollHeight;
showState();
connect();
