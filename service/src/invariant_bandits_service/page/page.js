// The page: asks for what was last seen once a second, shows it, and lets an administrator change versions and arms.

import * as cards from "./cards.js";
import { el, fill } from "./words.js";

const EVERY = 1000, PATIENCE = 8000;
const $ = (id) => document.getElementById(id);
const state = { token: sessionStorage.getItem("token") || "", model: new URLSearchParams(location.search).get("model"), overview: null, seen: null, failures: 0, timer: 0, before: null, search: "", status: "", page: { decisions: [], next: null } };

class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  const headers = { ...(state.token && { Authorization: `Bearer ${state.token}` }), ...(options.body && { "Content-Type": "application/json" }) };
  const answer = await fetch(path, { ...options, headers, signal: AbortSignal.timeout(PATIENCE) });
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw new Refused(answer.status, body?.error?.message || `status ${answer.status}`);
  return body;
}

const query = () => (state.model ? `?model=${encodeURIComponent(state.model)}` : "");

async function refresh() {
  clearTimeout(state.timer);
  if (!document.hidden) {
    try {
      const overview = await ask(`v1/overview${query()}`);
      state.failures = 0;
      if (overview.name !== null) await list(overview.name);
      show(overview);
    } catch (error) {
      state.failures += 1;
      fail(error);
    }
  }
  state.timer = setTimeout(refresh, Math.min(EVERY * 2 ** Math.max(0, state.failures - 1), 8000));
}

// Decisions per second between what was seen now and what was seen some seconds ago.
function rateOf(overview) {
  const now = { name: overview.name, time: overview.service.time, count: overview.model.counts.decisions };
  if (!state.seen || state.seen[0].name !== now.name) state.seen = [];
  state.seen.push(now);
  while (state.seen.length > 8) state.seen.shift();
  const first = state.seen[0];
  return now.time - first.time > 0.9 ? Math.max(0, (now.count - first.count) / (now.time - first.time)) : null;
}

function show(overview) {
  if (overview.service.time === null) return pulse("starting", "");
  state.overview = overview;
  $("loading").hidden = true;
  pulse(overview.service.available ? "live" : "the store is away", overview.service.available ? "good" : "bad");
  selector(overview);
  if (!overview.model) return notice("No model is served yet.", "POST /v1/models makes one, empty or from a file.");
  notice(overview.service.available ? null : "The store cannot take events.", overview.service.failure || "Decisions are refused until it can; nothing that was acknowledged is lost.", "bad");
  $("figures").hidden = $("foot").hidden = false;
  document.title = `${overview.model.about.alarm ? "Alarm · " : ""}${overview.name} · decisions`;
  const now = overview.service.time || Date.now() / 1000;
  cards.alarm(overview);
  cards.tiles(overview, rateOf(overview));
  cards.reward(overview.model);
  cards.holdout(overview.model);
  cards.belief(overview.model, now);
  cards.drift(overview.model);
  showDecisions();
  cards.fates(overview.model);
  cards.arms(overview.model, overview.service.may_change);
  cards.chance(overview.model);
  cards.versions(overview, change);
  cards.serviceCard(overview.service, now);
}

function fail(error) {
  const known = state.overview !== null;
  if (error.status === 401) {
    pulse("token needed", "bad");
    hide();
    notice("This service needs a token.", state.token ? "It does not know the token of this tab." : "Ask the operator of the service for one with the role read.", "", el("button", { type: "button", "data-hold": "token", on: { click: openToken } }, "Enter a token"));
  } else if (error.status === 404 && state.model) {
    state.model = null;
    refresh();
  } else if (error.status) {
    pulse("refused", "bad");
    notice("The service refused the request.", error.message, "bad");
  } else {
    pulse("away", "bad");
    notice("The service does not answer.", known ? "The figures below are the last it sent. The page tries again every few seconds." : "The page tries again every few seconds.", "bad");
  }
}

function hide() {
  $("figures").hidden = $("foot").hidden = $("loading").hidden = $("choose").hidden = true;
}

function pulse(words, kind) {
  fill($("pulse"), words, () => [words]);
  $("pulse").className = `pulse ${kind}`;
}

function notice(words, more = "", kind = "", button = null) {
  fill($("notice"), [words, words && more], () => words && el("div", { class: `notice ${kind}` }, el("div", null, el("strong", null, words), more && el("p", null, more)), button));
}

function selector(overview) {
  const names = Object.keys(overview.models);
  fill($("model"), [overview.models, overview.name], () => names.map((name) => el("option", { value: name, selected: name === overview.name }, `${name}${overview.models[name].alarm ? " (alarm)" : ""}`)));
  $("model").disabled = names.length < 2;
  $("choose").hidden = !names.length;
}

$("model").addEventListener("change", () => {
  state.model = $("model").value;
  state.before = null;
  history.replaceState(null, "", `?model=${encodeURIComponent(state.model)}`);
  refresh();
});

// -- decisions --

// The page of decisions that is looked at: the latest ones are asked for again and again, older ones once.
async function list(model, again = false) {
  if (state.before !== null && !again) return;
  const asked = { model, limit: 12, search: state.search, status: state.status, before: state.before ?? "" };
  const wanted = new URLSearchParams(Object.entries(asked).filter(([, value]) => value !== ""));
  try {
    state.page = { ...(await ask(`v1/decisions?${wanted}`)), filtered: Boolean(state.search || state.status || state.before !== null) };
  } catch (error) {
    state.page = { decisions: [], next: null, error: error.message };
  }
}

function showDecisions() {
  const { page } = state;
  cards.decisions(page, state.overview.model, state.overview.service.time, explain);
  $("decisions-older").disabled = page.next === null;
  $("decisions-latest").disabled = state.before === null;
  const words = state.before !== null ? "Older decisions; this list does not refresh." : page.filtered && page.next !== null ? "Press Older to search further back." : "";
  if ($("decisions-words").textContent !== words) $("decisions-words").textContent = words;
}

async function turn(before) {
  state.before = before;
  await list(state.overview.name, true);
  showDecisions();
}

function explain(one) {
  $("decision-title").textContent = `Decision ${one.id}`;
  $("decision-words").replaceChildren(...cards.explained(one).flat(9).filter(Boolean));
  $("decision").showModal();
}

$("decision-form").addEventListener("submit", (event) => {
  event.preventDefault();
  [state.search, state.status] = [$("decision-search").value.trim(), $("decision-status").value];
  turn(null);
});
$("decisions-older").addEventListener("click", () => turn(state.page.next));
$("decisions-latest").addEventListener("click", () => turn(null));

// -- changing versions and arms --

function sure(words, yes) {
  $("sure-words").textContent = words;
  $("sure-yes").textContent = yes;
  $("sure").returnValue = "no";
  $("sure").showModal();
  return new Promise((resolve) => $("sure").addEventListener("close", () => resolve($("sure").returnValue === "yes"), { once: true }));
}

// Ask, do, and say what was done; `place` is where that is written.
async function act(place, question, yes, path, options, done) {
  if (!(await sure(question, yes))) return;
  try {
    $(place).textContent = done(await ask(`v1/models/${encodeURIComponent(state.overview.name)}/${path}`, options));
    await refresh();
  } catch (error) {
    $(place).textContent = `Nothing was changed: ${error.message}`;
    if (error.status === 401 || error.status === 403) openToken();
  }
}

function change(what, version) {
  const back = what === "rollback", yes = back ? "Roll back" : "Activate";
  const question = `${back ? "Roll back to" : "Activate"} version ${version} of ${state.overview.name}? It decides from the next request on.`;
  const path = back ? "rollback" : `versions/${encodeURIComponent(version)}/activate`;
  return act("outcome", question, yes, path, { method: "POST" }, (answer) => `Version ${answer.version} decides from now on.`);
}

$("arm-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const label = $("arm-label").value.trim(), name = state.overview.name, retire = event.submitter?.value === "retire";
  const question = retire ? `Retire ${label}? It is never chosen again by ${name}, and its name stays taken.` : `Add ${label} to the arms of ${name}? It can be chosen from the next request on.`;
  const path = retire ? `arms/${encodeURIComponent(label)}` : "arms", options = retire ? { method: "DELETE" } : { method: "POST", body: JSON.stringify({ label }) };
  await act("arm-outcome", question, retire ? "Retire" : "Add", path, options, () => `${label} ${retire ? "is retired" : "can be chosen"} from now on.`);
});

// -- the token --

function openToken() {
  $("token").value = "";
  $("token-forget").disabled = !state.token;
  $("token-dialog").returnValue = "";
  $("token-dialog").showModal();
}

function keepToken(token) {
  state.token = token;
  if (token) sessionStorage.setItem("token", token);
  else sessionStorage.removeItem("token");
  refresh();
}

$("token-button").addEventListener("click", openToken);
$("token-cancel").addEventListener("click", () => $("token-dialog").close(""));
$("token-forget").addEventListener("click", () => {
  $("token-dialog").close("");
  keepToken("");
});
$("token-form").addEventListener("submit", () => $("token").value.trim() && keepToken($("token").value.trim()));

document.addEventListener("visibilitychange", () => document.hidden || refresh());
let resized = 0;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => state.overview?.model && state.failures === 0 && show(state.overview), 150);
});
refresh();
