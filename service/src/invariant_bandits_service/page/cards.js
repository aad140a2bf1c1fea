// What each part of the page says about a model. Every function gets the overview of the service, or its model, and returns elements.

import { beliefChart, bar, moving, rewardChart, whisker } from "./charts.js";
import { ago, day, el, fill, fixed, number, percent, placesFor, seconds, shorten, signed, whole } from "./words.js";

const $ = (id) => document.getElementById(id);
const empty = (words, more) => el("div", { class: "empty" }, el("p", null, words), more ? el("p", { class: "faint" }, more) : null);
const interval = (value, half) => {
  const places = placesFor(half);
  return `${fixed(value, places)} ± ${fixed(half, places)}`;
};

// Levels that the model's rewards are compared with: what the log's policy earned.
function levelsOf({ about }) {
  if (!Number.isFinite(about.logged_reward)) return [];
  const [low, high] = about.logged_reward_interval || [about.logged_reward, about.logged_reward];
  return [{ kind: "log", words: "the log’s policy", value: about.logged_reward, low, high, error: (high - low) / 3.92 }];
}

function compared(now, level) {
  const gain = now.mean - level.value, half = 1.96 * Math.hypot(now.error, level.error);
  const words = `${signed(gain, placesFor(half))} ± ${fixed(half, placesFor(half))} against ${level.words}`;
  return { words, kind: gain > half ? "good" : gain < -half ? "bad" : "" };
}

function tile(name, value, unit, note, kind = "") {
  return el("div", { class: "tile" }, el("h3", null, name),
    el("p", { class: "figure" }, value, unit ? el("span", { class: "unit" }, ` ${unit}`) : null),
    el("p", { class: `note ${kind}` }, note || "\u00a0"));
}

export function tiles(overview, rate) {
  const { model, service } = overview, { counts, timeline } = model;
  const points = moving(timeline.segments), now = points.at(-1), level = levelsOf(model)[0];
  const gain = now && now.n >= 10 && level ? compared(now, level) : null;
  const settled = counts.learned + counts.unlearned + counts.refused;
  const missing = counts.unlearned + counts.defaulted, limited = model.configuration.reward_wait !== null;
  const owed = !limited ? "no time limit is set" : settled ? `${percent(missing / settled)} got none in time` : "none settled yet";
  const speed = !counts.decisions ? "none yet" : rate === null ? "\u00a0" : rate === 0 ? "none just now" : `${rate < 9.95 ? rate.toFixed(1) : rate.toFixed(0)} per second`;
  const latency = service.latencies["decisions.decide"] || Object.entries(service.latencies).find(([name]) => /rank|evaluate/.test(name))?.[1];
  const share = counts.decisions ? counts.explored / counts.decisions : NaN;
  const cost = model.exploration.cost;
  const parts = [
    tile("Mean reward", now ? number(now.mean) : "–", "per decision", gain ? gain.words : now ? `last ${whole(now.n)} decisions` : "no reward yet", gain?.kind),
    tile("Decisions", whole(counts.decisions), "", speed),
    tile("Waiting for rewards", whole(counts.decisions - settled), "", owed),
    tile("Chance chose", Number.isFinite(share) ? percent(share) : "–", "", Number.isFinite(cost) && cost !== null ? `costs ${number(cost, 2)} per decision` : "so that other policies can be evaluated"),
    tile("A decision takes", latency ? seconds(latency.p50) : "–", "median", latency ? `99 % within ${seconds(latency.p99)}` : "no request yet"),
    tile("Store", service.available ? "healthy" : "away", "", `${whole(service.events)} events`, service.available ? "" : "bad"),
  ];
  fill($("tiles"), parts.map((one) => one.textContent), () => parts);
}

export function alarm(overview) {
  const { about } = overview.model;
  const others = Object.entries(overview.models).filter(([name, one]) => one.alarm && name !== overview.name).map(([name]) => name);
  fill($("alarm"), [about.alarm, overview.name, others], () => [
    about.alarm && el("div", { class: "alarm" }, el("span", { class: "bell", "aria-hidden": "true" }),
      el("div", null, el("strong", null, "Alarm: what was stable in the logs has changed."),
        el("p", null, "Decisions no longer rely on it; the model relearns from new rewards. See what moved, and fit a new version to recent logs."))),
    others.length > 0 && el("div", { class: "notice" }, `Alarm also in: ${others.join(", ")}.`),
  ]);
}

export function reward(model) {
  const host = $("reward"), { timeline } = model;
  if (host.querySelector(".tip:not([hidden])") && host.matches(":hover")) return;
  const levels = levelsOf(model);
  fill(host, [timeline.settled, levels, timeline.marks, host.clientWidth], () => {
    if (!timeline.settled) return empty("No decision has been settled yet.", "Report rewards to POST /v1/rewards: the curve begins with the first one.");
    const points = moving(timeline.segments), now = points.at(-1);
    return [
      rewardChart(host, points, levels, timeline.marks),
      el("ul", { class: "legend" },
        el("li", null, el("i", { class: "key own" }), `this model, ${interval(now.mean, 1.96 * now.error)} over its last ${whole(now.n)} settled decisions`),
        levels.map((one) => el("li", null, el("i", { class: `key ${one.kind}` }),
          `${one.words}, ${interval(one.value, (one.high - one.low) / 2)} per round of the log (${whole(model.about.logged_rounds)} rounds)`)),
        logEvaluation(model.about.value)),
      el("p", { class: "faint" }, "Intervals at 95 %. The time axis shows when decisions were settled."),
    ];
  });
}

// What the evaluation on the log had said before the model was served.
function logEvaluation(value) {
  const line = value?.lines?.[0];
  if (!line || line.gain === null) return null;
  const places = placesFor((line.high - line.low) / 2);
  return el("li", { class: "faint" }, `evaluated on the log (${line.estimator}): ${signed(line.gain, places)} per round against the log’s policy, ${fixed(line.low, places)} to ${fixed(line.high, places)}`);
}

const action = (one) => (typeof one.action === "number" ? `row ${one.action + 1} of ${one.propensities.length}` : shorten(one.action, 28));

const WHY = {
  greedy: "the largest expected reward", exploration: "the policy wants to learn about it", test: "a test of a neglected action",
  floor: "drawn uniformly, as a fixed share of decisions is", holdout: "held out: the reference decided", first: "the first offered action, as the mode demands",
};
const STATUS = { waiting: "waiting", deferred: "not shown yet", learned: "learned", unlearned: "not learned", refused: "refused by the model" };

// What became of a decision: its reward, or why it has none.
function outcome(one) {
  const value = one.settled?.value ?? one.rewards.at(-1)?.value;
  return [value !== undefined && value !== null ? el("b", null, number(value)) : null, one.status !== "learned" && el("span", { class: `tag ${one.status === "refused" ? "bad" : ""}` }, STATUS[one.status])];
}

// A page of decisions: {decisions, next}, or why there is none.
export function decisions(page, model, now, open) {
  fill($("decisions"), [page, Math.round(now / 5)], () => {
    if (page.error) return empty("The list could not be read.", page.error);
    if (!page.decisions.length && !page.filtered) return empty("No decision yet.", "Ask for one with POST /v1/decisions; it appears here within seconds.");
    if (!page.decisions.length) return empty("No decision matches.", page.next ? "Older ones may match: press Older." : "");
    return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Decisions" }, el("table", { class: "list" },
      el("thead", null, el("tr", null, ["When", "Action", "Probability", "Why", "Reward", ""].map((one) => el("th", { scope: "col" }, one || el("span", { class: "hidden" }, "Explain"))))),
      el("tbody", null, page.decisions.map((one) => el("tr", null,
        el("td", { title: day(one.time, true) }, ago(one.time, now)),
        el("td", null, action(one), one.group === "holdout" && el("span", { class: "tag" }, "held out")),
        el("td", null, percent(one.propensity, 0)),
        el("td", null, one.why || "–"),
        el("td", null, outcome(one)),
        el("td", { class: "end" }, el("button", { type: "button", class: "quiet", "data-hold": one.id, "aria-label": `Explain decision ${one.id}`, on: { click: () => open(one) } }, "Explain")))))));
  });
}

const pairs = (list) => el("dl", { class: "facts" }, list.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => [el("dt", null, name), el("dd", null, value)]));
const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value));

// The features of an offered action, if the request had any.
function row(one, place) {
  const known = typeof one.action === "number" ? one.arms?.[place] : one.features?.[place];
  if (!known || !Object.keys(known).length) return null;
  const parts = Array.isArray(known) ? known.map(plain) : Object.entries(known).map(([name, value]) => `${name} ${plain(value)}`);
  return el("p", { class: "faint" }, shorten(parts.join(", "), 120));
}

// Everything about one decision: what was asked, why this action, and what became of it.
export function explained(one) {
  const names = typeof one.action === "number" ? one.propensities.map((_, place) => `row ${place + 1}`) : one.arms;
  const scores = one.scores ? Object.values(one.scores) : null, chosen = one.propensities.map((_, place) => (typeof one.action === "number" ? place : one.arms[place]) === one.action);
  const order = names.map((_, place) => place).sort((a, b) => one.propensities[b] - one.propensities[a] || (scores ? scores[b] - scores[a] : 0)).slice(0, 20);
  return [
    pairs([["decided", day(one.time, true)], ["action", action(one)], ["because", WHY[one.why] || "not recorded"], ["probability", percent(one.propensity)],
      ["version", one.version], ["side of the holdout", one.group], ["status", STATUS[one.status]], ["protocol", one.protocol]]),
    el("h3", null, "Context"),
    one.context && Object.keys(one.context).length ? pairs(Object.entries(one.context).map(([name, value]) => [name, shorten(plain(value), 60)])) : el("p", { class: "faint" }, "None was given."),
    el("h3", null, "Offered"),
    el("table", { class: "offer" }, el("thead", null, el("tr", null, ["Action", "Expected", "Probability"].map((head) => el("th", { scope: "col" }, head)))),
      el("tbody", null, order.map((place) => el("tr", { class: chosen[place] ? "active" : "" },
        el("td", null, shorten(names[place], 28), chosen[place] && el("span", { class: "tag good" }, "chosen"), row(one, place)),
        el("td", null, scores ? number(scores[place]) : "–"), el("td", null, percent(one.propensities[place])))))),
    names.length > 20 && el("p", { class: "faint" }, `and ${names.length - 20} more`),
    el("h3", null, "Rewards"),
    one.rewards.length ? pairs(one.rewards.map((reward) => [day(reward.time, true), `${number(reward.value)} (${reward.fate})`])) : el("p", { class: "faint" }, "None has come."),
    one.settled && el("p", { class: "faint" }, one.settled.value === null ? `Settled without being learned: ${one.settled.why}.` : `Settled with ${number(one.settled.value)} (${one.settled.why}).`),
  ];
}

export function holdout(model) {
  const { holdout: held } = model;
  fill($("holdout"), [held], () => {
    if (!held) return empty("No decision is held out.", "Start with --holdout 0.05 to send 5 % of the units to a fixed reference. The difference in reward is what the model adds.");
    const { uplift } = held, to = held.to === "uniform" ? "uniform play" : held.to;
    const side = (one) => (one.mean === null ? "no reward yet" : `${number(one.mean)} over ${whole(one.decisions)}`);
    const half = uplift && (uplift.high - uplift.low) / 2;
    const kind = !uplift ? "" : uplift.low > 0 ? "good" : uplift.high < 0 ? "bad" : "";
    return [
      el("p", { class: `uplift ${kind}` }, uplift ? `${signed(uplift.value, placesFor(half))} ± ${fixed(half, placesFor(half))}` : "–", el("span", { class: "unit" }, " per decision")),
      el("p", { class: "faint" }, !uplift ? "At least 30 settled decisions on both sides are needed." : uplift.low > 0 ? "The model earns more than the reference." : uplift.high < 0 ? "The model earns less than the reference." : "The difference may still be chance."),
      pairs([["this model", side(held.model)], [shorten(to, 20), side(held.holdout)], ["held out", `${percent(held.share)} of ${held.key ? `values of ${held.key}` : "units"}`]]),
      el("p", { class: "faint" }, "Interval at 95 %, from the differences between groups of units, since the reference or its key last changed."),
    ];
  });
}

const POLICY_WORDS = {
  linucb: "This model is a LinUCB: it learns one reward model and weighs no hypotheses. An empty model starts this way and becomes AutoISD once its own history has enough windows.",
};

export function belief(model, now) {
  const host = $("belief"), { about, timeline } = model;
  if (host.querySelector(".tip:not([hidden])") && host.matches(":hover")) return;
  fill(host, [about.beliefs, timeline.settled, timeline.marks, Math.round(now / 10), about.log_evidence, host.clientWidth, about.policy], () => {
    if (!about.beliefs) return empty(POLICY_WORDS[about.policy] || `The policy ${about.policy} weighs no hypotheses.`, "It raises no alarm.");
    const names = Object.keys(about.beliefs);
    const points = [...timeline.points, { time: now, beliefs: about.beliefs }];
    return [
      beliefChart(host, points, names, timeline.marks),
      el("ul", { class: "legend" }, names.map((name, place) => el("li", null, el("i", { class: `key h${place}` }), `${name}, ${percent(about.beliefs[name], 0)}`))),
      evidence(about),
    ];
  });
}

function evidence(about) {
  if (about.no_alarm_because) return el("p", { class: "verdict" }, el("span", { class: "tag" }, "no alarm possible"), ` ${about.no_alarm_because}.`);
  const power = about.log_evidence / Math.LN10, needed = -Math.log10(about.alarm_level);
  const odds = power < 0.05 ? ["1 to 1"] : ["10", el("sup", null, fixed(power, 1)), " to 1"];
  return el("p", { class: "verdict" }, about.alarm ? el("span", { class: "tag bad" }, "alarm") : el("span", { class: "tag good" }, "no alarm"),
    " evidence against invariance ", odds, "; the alarm rings at 10", el("sup", null, fixed(needed, 0)), " to 1.");
}

export function drift(model) {
  const { about } = model;
  fill($("drift"), [about.drift?.slice(0, 7), about.baseline_shift, about.policy], () => {
    if (!about.drift) return empty("This model keeps no log to compare with.", "A model that was fitted to logs shows here which directions moved.");
    const list = about.drift.filter((one) => one.error !== null).slice(0, 7);
    const reach = Math.max(...list.map((one) => Math.abs(one.shift) + 2 * one.error), 1e-9);
    const moved = list.filter((one) => Math.abs(one.shift) > 2 * one.error).length;
    return [
      el("p", null, moved ? `${moved} of ${about.drift.length} directions ${moved === 1 ? "has" : "have"} clearly moved.` : "No direction has clearly moved."),
      el("ul", { class: "drifts" }, list.map((one) => el("li", null,
        el("span", { class: "name", title: one.direction }, shorten(one.direction, 26)),
        whisker(one.shift, one.error, reach),
        el("span", { class: "size" }, signed(one.shift, placesFor(reach / 20)))))),
      el("p", { class: "faint" }, "Coefficient now minus coefficient in the logs, ± 2 standard deviations. Each direction has the names of its main columns."),
    ];
  });
}

export function fates(model) {
  const { counts, configuration } = model;
  fill($("fates"), [counts, model.waiting, configuration], () => {
    if (!counts.decisions) return empty("No decision yet.");
    const wait = configuration.reward_wait;
    const rules = wait === null ? "The first reward settles a decision at once." :
      `Rewards are awaited for ${seconds(wait)}; then ${configuration.default_reward === null ? "a decision without any is left unlearned" : `the default, ${number(configuration.default_reward)}, is learned once`}.`;
    const open = counts.decisions - counts.learned - counts.unlearned - counts.refused;
    const rows = [
      ["learned with their reward", counts.learned - counts.defaulted, "good"],
      ["learned with the default", counts.defaulted, ""],
      ["settled without a reward", counts.unlearned, ""],
      ["refused by the model", counts.refused, "bad"],
      [wait === null ? "no reward yet" : "still waiting", open, ""],
    ].filter(([, count], place) => count > 0 || place === 0 || place === 4);
    return [
      el("ul", { class: "bars" }, rows.map(([name, count, kind]) => el("li", null,
        el("span", { class: "name" }, name), el("span", { class: "size" }, whole(count)), bar(count / counts.decisions, kind)))),
      el("p", { class: "faint" }, `${rules} Rewards that came too late: ${whole(counts.late)}; for unknown decisions: ${whole(counts.unknown)}. All of them are stored.`),
    ];
  });
}

export function arms(model, mayChange) {
  const { registered, plays, count } = model.arms, total = model.counts.decisions;
  $("arm-form").hidden = !Object.keys(registered).length;
  $("arm-add").disabled = $("arm-retire").disabled = !mayChange;
  fill($("arms"), [registered, plays, count, total], () => {
    const names = Object.keys(plays);
    if (!names.length) return empty("No arm has been chosen yet.");
    const rows = !Object.keys(registered).length && names.every((name) => /^\d+$/.test(name));
    const sorted = rows ? names.sort((a, b) => a - b) : names.sort((a, b) => plays[b] - plays[a]);
    return [
      el("ul", { class: "bars" }, sorted.slice(0, 9).map((name) => el("li", null,
        el("span", { class: "name", title: name }, rows ? `row ${Number(name) + 1} of the offer` : shorten(name),
          registered[name] === false && el("span", { class: "tag" }, "retired")),
        el("span", { class: "size" }, percent(total ? plays[name] / total : 0)),
        bar(total ? plays[name] / total : 0)))),
      count > 9 && el("p", { class: "faint" }, `and ${whole(count - 9)} more, each chosen less often`),
      rows && el("p", { class: "faint" }, "This model chooses among rows of features; rows have no name that lasts beyond their round."),
    ];
  });
}

export function chance(model) {
  const { counts, exploration, configuration } = model;
  fill($("chance"), [counts.decisions, exploration], () => {
    if (configuration.mode !== "online") return empty(`Mode: ${configuration.mode}.`, "The first offered action is played, so chance costs nothing and nothing else can be judged.");
    if (!counts.decisions) return empty("No decision yet.");
    return [
      el("dl", { class: "facts" },
        el("dt", null, "drawn uniformly"), el("dd", null, percent(exploration.floor)),
        el("dt", null, "not the most probable action"), el("dd", null, `${percent(exploration.share)} of decisions`),
        el("dt", null, "expected cost"), el("dd", null, exploration.cost === null ? "not measured yet" : `${number(exploration.cost, 2)} per decision`)),
      el("p", { class: "faint" }, "Exploration gives every action a known probability, so any other policy can be evaluated on these decisions. The cost is computed from the model’s own expected rewards."),
    ];
  });
}

export function versions(overview, act) {
  const { model, service, learning_failure: failure } = overview, list = [...model.versions].reverse();
  fill($("versions"), [list, service.may_change, failure], () => {
    const back = list.find((one) => one.previous);
    return [
      failure && el("p", { class: "outcome" }, `Learning from the latest decisions has failed since ${day(failure.since)}: ${failure.why}`),
      el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Versions of the model" }, el("table", null,
        el("thead", null, el("tr", null, ["Version", "From", "Learned", ""].map((one) => el("th", { scope: "col" }, one || el("span", { class: "hidden" }, "Change"))))),
        el("tbody", null, list.map((one) => el("tr", { class: one.active ? "active" : "" },
          el("td", null, el("code", null, one.version), one.active && el("span", { class: "tag good" }, "active")),
          el("td", null, one.note || one.origin, el("span", { class: "faint" }, `, ${day(one.time)}`)),
          el("td", null, `${whole(one.rounds)} rounds`),
          el("td", { class: "end" }, !one.active && el("button", { type: "button", class: "quiet", "data-hold": one.version, disabled: !service.may_change,
            "aria-label": `Activate version ${one.version}`, on: { click: () => act("activate", one.version) } }, "Activate"))))))),
      el("p", { class: "row" },
        el("button", { type: "button", "data-hold": "back", disabled: !back || !service.may_change, on: { click: () => act("rollback", back.version) } },
          back ? `Roll back to ${back.version}` : "Roll back"),
        el("span", { class: "faint" }, !service.may_change ? "This token may read, but not change anything." : back ? "That version continues exactly where it stopped." : "There is no earlier version to return to.")),
    ];
  });
}

const NAMES = { "decisions.decide": "decide", "decisions.reward": "reward", "serve.overview": "this page", "serve.metrics": "metrics", "decisions.list_decisions": "list decisions", "models.show": "model", "models.roll_back": "roll back" };

export function serviceCard(service, now) {
  const used = Object.entries(service.latencies).filter(([name]) => !/^(serve\.(page|healthy|ready)|document|none)/.test(name)).sort((a, b) => b[1].count - a[1].count).slice(0, 5);
  fill($("service"), [used, service.events, service.available, Math.round(now)], () => [
    el("dl", { class: "facts" },
      el("dt", null, "store"), el("dd", null, service.available ? "takes events, each durable before it is answered" : service.failure || "cannot take events: decisions are refused, nothing is lost"),
      el("dt", null, "running for"), el("dd", null, seconds(now - service.since)),
      el("dt", null, "release"), el("dd", null, service.version)),
    used.length > 0 && el("table", { class: "latency" }, el("caption", { class: "hidden" }, "Latency by request"),
      el("thead", null, el("tr", null, ["Request", "median", "95 %", "99 %"].map((one) => el("th", { scope: "col" }, one)))),
      el("tbody", null, used.map(([name, one]) => el("tr", null, el("td", null, NAMES[name] || name.replace(/[._]/g, " ")),
        [one.p50, one.p95, one.p99].map((value) => el("td", null, seconds(value))))))),
  ]);
}
