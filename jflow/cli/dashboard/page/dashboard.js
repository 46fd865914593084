"use strict";
// The page asks its own server for the state of the cluster and writes it into tables. Texts of the
// cluster become text nodes only, so that no name can be anything but a name.

const token = new URLSearchParams(location.hash.slice(1)).get("token") || "";
const PERIOD_MS = 1000;
const $ = (id) => document.getElementById(id);

function seconds(value) {
  if (value === null || value === undefined) return "-";
  if (value < 60) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
}

function bytes(value) {
  if (value === null || value === undefined) return "-";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit && value < 100 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

const count = (value) => (value === null || value === undefined ? "-" : value.toLocaleString("en"));
const rate = (value) => (value === null || value === undefined ? "-" : value.toFixed(1));
const container = (name) => name || "(default)";

// Characters that are not seen, or that change the direction of what follows, are shown as escapes.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

function short(text) {
  const cut = text.length > 300 ? `${text.slice(0, 150)} … ${text.slice(-150)}` : text;
  return cut.replace(HIDDEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// A column: heading, key to sort by, text, and what is special: a number, a mark for what is bad,
// an element instead of a text.
const TABLES = {
  tasks: {
    id: (row) => row.name,
    isBad: (row) => row.state !== "up",
    columns: [
      { head: "task", key: (row) => row.name },
      { head: "state", key: (row) => row.state, text: (row) => (row.reason ? `${row.state}: ${row.reason}` : row.state), bad: (row) => row.state !== "up" },
      { head: "CPU %", key: (row) => row.cpu_percent, text: (row) => rate(row.cpu_percent), number: true },
      { head: "memory", key: (row) => row.memory_bytes, text: (row) => bytes(row.memory_bytes), number: true },
      { head: "steps/s", key: (row) => row.steps_per_s, text: (row) => rate(row.steps_per_s), number: true },
      { head: "running", key: (row) => row.n_running, text: (row) => count(row.n_running), number: true },
      { head: "waited for", key: (row) => row.waited_for, text: (row) => rate(row.waited_for), number: true, bad: (row) => row.waited_for >= 1 },
      { head: "sessions", key: (row) => row.n_sessions, text: (row) => count(row.n_sessions), number: true },
      { head: "up for", key: (row) => row.uptime_s, text: (row) => seconds(row.uptime_s), number: true },
      { head: "address", key: (row) => row.address },
    ],
  },
  steps: {
    id: (row) => row.step,
    sort: { column: 1, isAscending: false },
    columns: [
      { head: "step", key: (row) => row.step },
      { head: "since", key: (row) => row.age_s, text: (row) => seconds(row.age_s), number: true },
      { head: "on", key: (row) => row.tasks.join(", ") },
      { head: "waits", key: (row) => row.waits.map((wait) => `${wait.task}: ${wait.what}`).join("; "), text: (row) => row.waits.map((wait) => `${wait.task}: ${wait.what}`).join("; ") || "computes" },
      { head: "of a client of", key: (row) => row.master },
    ],
  },
  coordinators: {
    id: (row) => `${row.task} ${row.name}`,
    columns: [
      { head: "coordinator", key: (row) => row.name },
      { head: "waiting", key: (row) => row.n_waiting, text: (row) => count(row.n_waiting), number: true },
      { head: "running", key: (row) => row.n_running, text: (row) => count(row.n_running), number: true },
      { head: "done", key: (row) => row.n_done, text: (row) => count(row.n_done), number: true },
      { head: "failed", key: (row) => row.n_failed, text: (row) => count(row.n_failed), number: true, bad: (row) => row.n_failed > 0 },
      { head: "retried", key: (row) => row.n_retried, text: (row) => count(row.n_retried), number: true },
      { head: "by worker", key: (row) => row.workers.length, text: (row) => row.workers.map((one) => `${one.task}: ${one.is_lost ? "lost" : `${one.n_running} running`}`).join(", ") },
    ],
  },
  containers: {
    id: (row) => `${row.task} ${row.name}`,
    columns: [
      { head: "container", key: (row) => container(row.name) },
      { head: "task", key: (row) => row.task },
      { head: "variables", key: (row) => row.n_variables, text: (row) => count(row.n_variables), number: true },
      { head: "memory", key: (row) => row.n_bytes, text: (row) => bytes(row.n_bytes), number: true },
      { head: "queues and others", key: (row) => row.n_resources, text: (row) => count(row.n_resources), number: true },
      { head: "list", element: (row) => variablesButton(row.task) },
    ],
  },
  variables: {
    id: (row) => `${row.container} ${row.device} ${row.name}`,
    columns: [
      { head: "variable", key: (row) => row.name },
      { head: "container", key: (row) => container(row.container) },
      { head: "device", key: (row) => row.device },
      { head: "dtype", key: (row) => row.dtype },
      { head: "shape", key: (row) => row.shape.join(" × ") || "scalar" },
      { head: "memory", key: (row) => row.n_bytes, text: (row) => bytes(row.n_bytes), number: true },
    ],
  },
  queues: {
    id: (row) => `${row.task} ${row.container} ${row.device} ${row.name} ${row.owner}`,
    columns: [
      { head: "queue", key: (row) => row.name },
      { head: "kind", key: (row) => row.kind },
      { head: "fill", key: (row) => (row.capacity > 0 ? row.size / row.capacity : 0), element: (row) => fill(row) },
      { head: "elements", key: (row) => row.size, text: (row) => (row.capacity > 0 ? `${count(row.size)} of ${count(row.capacity)}` : count(row.size)), number: true },
      { head: "memory", key: (row) => row.n_bytes, text: (row) => bytes(row.n_bytes), number: true },
      { head: "waiting puts", key: (row) => row.n_enqueues, text: (row) => count(row.n_enqueues), number: true },
      { head: "waiting gets", key: (row) => row.n_dequeues, text: (row) => count(row.n_dequeues), number: true },
      { head: "closed", key: (row) => (row.is_closed ? "yes" : "no") },
      { head: "container", key: (row) => container(row.container) },
      { head: "task", key: (row) => row.task },
    ],
  },
  sessions: {
    id: (row) => `${row.task} ${row.number}`,
    columns: [
      { head: "session", key: (row) => row.number, text: (row) => count(row.number), number: true },
      { head: "user", key: (row) => row.user || "-" },
      { head: "on", key: (row) => row.task },
      { head: "open for", key: (row) => row.age_s, text: (row) => seconds(row.age_s), number: true },
      { head: "steps registered", key: (row) => row.n_steps, text: (row) => count(row.n_steps), number: true },
      { head: "calls waiting", key: (row) => row.n_waiting, text: (row) => count(row.n_waiting), number: true },
      { head: "claim", key: (row) => row.claim || "-" },
      { head: "restarted tasks", key: (row) => row.restarted.join(", ") || "-", bad: (row) => row.restarted.length > 0 },
    ],
  },
};

const state = { isPaused: false, rows: {}, task: "", first: 0, total: 0 };

function fill(row) {
  const meter = document.createElement("meter");
  meter.max = row.capacity > 0 ? row.capacity : 1;
  meter.value = row.capacity > 0 ? row.size : 0;
  meter.setAttribute("aria-label", `${row.size} elements`);
  return meter;
}

function variablesButton(task) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "variables";
  button.setAttribute("aria-label", `variables of ${task}`);
  button.addEventListener("click", () => showVariables(task, 0));
  return button;
}

function makeHead(name) {
  const table = $(name);
  const spec = TABLES[name];
  const row = table.createTHead().insertRow();
  spec.columns.forEach((column, index) => {
    const cell = document.createElement("th");
    cell.scope = "col";
    if (column.number) cell.className = "number";
    if (column.key) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = column.head;
      button.addEventListener("click", () => {
        const isSame = spec.sort && spec.sort.column === index;
        spec.sort = { column: index, isAscending: isSame ? !spec.sort.isAscending : !column.number };
        write(name);
      });
      cell.append(button);
    } else {
      cell.textContent = column.head;
    }
    row.append(cell);
  });
  table.append(document.createElement("tbody"));
}

function textOf(column, row) {
  return short(String(column.text ? column.text(row) : column.key(row)));
}

function chosen(name) {
  const spec = TABLES[name];
  const wanted = $("filter").value.toLowerCase();
  const rows = (state.rows[name] || []).filter((row) => !wanted || spec.columns.some((column) => column.key && textOf(column, row).toLowerCase().includes(wanted)));
  if (!spec.sort) return rows;
  const { column, isAscending } = spec.sort;
  const key = spec.columns[column].key;
  const sign = isAscending ? 1 : -1;
  return rows.slice().sort((one, other) => {
    const [a, b] = [key(one), key(other)];
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  });
}

// Rows are kept by their ids, so that what has the focus keeps it.
function write(name) {
  const table = $(name);
  const spec = TABLES[name];
  const rows = chosen(name);
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((cell, index) => {
    if (spec.sort && spec.sort.column === index) cell.setAttribute("aria-sort", spec.sort.isAscending ? "ascending" : "descending");
    else cell.removeAttribute("aria-sort");
  });
  const known = new Map([...body.rows].map((element) => [element.dataset.id, element]));
  let before = null;
  for (const row of rows) {
    const id = spec.id(row);
    let element = known.get(id);
    if (element === undefined) {
      element = document.createElement("tr");
      element.dataset.id = id;
      spec.columns.forEach((column) => {
        const cell = element.insertCell();
        if (column.element) cell.append(column.element(row));
      });
    }
    known.delete(id);
    element.className = spec.isBad && spec.isBad(row) ? "bad" : "";
    spec.columns.forEach((column, index) => {
      const cell = element.cells[index];
      if (column.element) {
        const meter = cell.querySelector("meter");
        if (meter !== null) { meter.max = row.capacity > 0 ? row.capacity : 1; meter.value = row.capacity > 0 ? row.size : 0; }
        return;
      }
      const text = textOf(column, row);
      if (cell.textContent !== text) cell.textContent = text;
      const isBad = Boolean(column.bad && column.bad(row));
      cell.className = `${column.number ? "number" : ""}${isBad ? " bad" : ""}`.trim();
    });
    const next = before === null ? body.firstChild : before.nextSibling;
    if (next !== element) body.insertBefore(element, next);
    before = element;
  }
  for (const element of known.values()) element.remove();
  const total = (state.rows[name] || []).length;
  const shown = rows.length === total ? count(total) : `${count(rows.length)} of ${count(total)}`;
  const heading = table.closest("section").querySelector(".count");
  heading.textContent = name === "variables" ? `(${count(state.total)})` : `(${shown})`;
}

function writeEvents(events) {
  const list = $("events");
  const wanted = events.map((event) => `${new Date(event.at * 1000).toLocaleTimeString("en-GB")}\u0000${short(event.what)}`);
  const present = [...list.children].map((item) => item.dataset.text);
  if (wanted.length === present.length && wanted.every((text, index) => text === present[index])) return;
  list.replaceChildren(...wanted.map((text) => {
    const [at, what] = text.split("\u0000");
    const item = document.createElement("li");
    const time = document.createElement("time");
    time.textContent = at;
    item.dataset.text = text;
    item.append(time, what);
    return item;
  }));
  list.closest("section").querySelector(".count").textContent = `(${count(events.length)})`;
}

function writeThroughput(rates) {
  const most = Math.max(...rates, 1);
  const points = rates.map((value, index) => `${(240 * index) / Math.max(rates.length - 1, 1)},${38 - (36 * value) / most}`);
  $("throughput").querySelector("polyline").setAttribute("points", points.join(" "));
  $("rate").textContent = rates.length ? `${rate(rates[rates.length - 1])} parts of steps in a second, on all tasks` : "";
}

async function ask(path) {
  const reply = await fetch(path, { headers: { Authorization: `Bearer ${token}` } });
  if (reply.ok) return reply.json();
  const text = await reply.text();
  let message = text || `the server answers ${reply.status}`;
  try { message = JSON.parse(text).error || message; } catch (error) { /* it is plain text */ }
  throw new Error(message);
}

function say(text, isBad) {
  const status = $("status");
  if (status.textContent !== text) status.textContent = text;
  status.className = isBad ? "bad" : "";
}

async function look() {
  try {
    const found = await ask("api/state");
    for (const name of Object.keys(TABLES)) {
      if (name === "variables") continue;
      state.rows[name] = found[name] || [];
      write(name);
    }
    writeEvents(found.events || []);
    writeThroughput(found.throughput || []);
    const nBad = state.rows.tasks.filter((task) => task.state !== "up").length;
    const at = found.at ? ` at ${new Date(found.at * 1000).toLocaleTimeString("en-GB")}` : "";
    if (found.error) say(`${short(found.error)}; what follows was seen${at}`, true);
    else if (nBad) say(`${nBad} of ${state.rows.tasks.length} tasks do not answer, seen${at}`, true);
    else say(`${state.rows.tasks.length} tasks are up, seen${at}`, false);
  } catch (error) {
    say(`the page has lost its server: ${error.message}`, true);
  }
}

async function showVariables(task, first) {
  state.task = task;
  $("variables-of").hidden = false;
  $("variables-task").textContent = task;
  try {
    const found = await ask(`api/variables?task=${encodeURIComponent(task)}&first=${first}`);
    state.rows.variables = found.variables;
    state.total = found.total;
    state.first = found.first;
    const last = found.first + found.variables.length;
    $("range").textContent = found.error || `${count(last ? found.first + 1 : 0)} to ${count(last)} of ${count(found.total)}`;
    $("previous").disabled = found.first === 0;
    $("next").disabled = last >= found.total;
    write("variables");
  } catch (error) {
    $("range").textContent = error.message;
  }
}

async function traceStep() {
  const button = $("trace");
  button.disabled = true;
  $("trace-status").textContent = "waiting for a step to end";
  try {
    const found = await ask("api/step");
    for (const name of ["plan", "timeline"]) {
      const image = $(name);
      image.hidden = !found[name];
      if (found[name]) image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(found[name])}`;
    }
    $("plan").alt = "the placed operations of the step";
    $("timeline").alt = "when each of them ran";
    $("trace-status").textContent = found.what;
  } catch (error) {
    $("trace-status").textContent = error.message;
  }
  button.disabled = false;
}

async function go() {
  if (!state.isPaused && !document.hidden) await look();
  setTimeout(go, PERIOD_MS);
}

for (const name of Object.keys(TABLES)) makeHead(name);
$("filter").addEventListener("input", () => Object.keys(TABLES).forEach(write));
$("pause").addEventListener("click", () => {
  state.isPaused = !state.isPaused;
  $("pause").setAttribute("aria-pressed", String(state.isPaused));
  $("pause").textContent = state.isPaused ? "Go on" : "Pause";
});
$("previous").addEventListener("click", () => showVariables(state.task, Math.max(state.first - 100, 0)));
$("next").addEventListener("click", () => showVariables(state.task, state.first + 100));
$("hide").addEventListener("click", () => { $("variables-of").hidden = true; });
$("trace").addEventListener("click", traceStep);
go();
