// Charts of plain numbers, drawn for the width they have: lines with bands, shares as stacked areas.

import { day, el, fixed, number, percent, placesFor, svg, timeTicks, whole } from "./words.js";

const LEFT = 46, RIGHT = 12, TOP = 20, BOTTOM = 26;

function ticks(low, high, wanted = 4) {
  const rough = (high - low) / wanted || 1;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * unit).find((one) => one >= rough) || unit;
  const found = [];
  for (let one = Math.ceil(low / step) * step; one <= high + 1e-9 * step; one += step) found.push(Math.abs(one) < 1e-9 * step ? 0 : one);
  return { found, places: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

function frame(width, high, x, y, domain, range, words) {
  const across = timeTicks(domain[0], domain[1], Math.max(2, Math.floor(width / 130)));
  const up = ticks(range[0], range[1]);
  const shown = words.share ? [0, 0.5, 1] : up.found;
  return [
    shown.map((one) => svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(one), y2: y(one) })),
    shown.map((one) => svg("text", { class: "tick", x: LEFT - 8, y: y(one) + 4, "text-anchor": "end" },
      words.share ? percent(one, 0) : fixed(one, up.places))),
    across.map((one) => svg("text", { class: "tick", x: x(one.time), y: high - 8,
      "text-anchor": x(one.time) > width - 40 ? "end" : x(one.time) < LEFT + 20 ? "start" : "middle" }, one.words)),
  ];
}

// What happened in the time that is shown; of several marks close together, only the last one has its words.
function marks(list, x, width, high, domain) {
  const shown = list.filter((one) => one.time >= domain[0] && one.time <= domain[1]);
  return shown.map((one, place) => svg("g", { class: `mark ${one.kind}` },
    ["under", "over"].map((kind) => svg("line", { class: kind, x1: x(one.time), x2: x(one.time), y1: TOP - 14, y2: high - BOTTOM })),
    !(shown[place + 1] && x(shown[place + 1].time) - x(one.time) < 110) && svg("text", { x: x(one.time) + (x(one.time) > width - 110 ? -5 : 5), y: TOP - 8,
      "text-anchor": x(one.time) > width - 110 ? "end" : "start" }, one.kind === "alarm" ? "alarm" : `version ${one.words}`)));
}

const spanOf = (first, last) => (last > first ? [first, last] : [first - 30, last + 30]);

const path = (points) => points.map(([a, b], place) => `${place ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");

// A box that redraws when its width changes, and tells what is under the pointer.
function box(host, high, label, draw) {
  const width = Math.max(260, host.clientWidth);
  const { inside, tell, x } = draw(width);
  const cross = svg("line", { class: "cross", y1: TOP - 14, y2: high - BOTTOM, visibility: "hidden" });
  const tip = el("div", { class: "tip", hidden: true });
  const picture = svg("svg", { class: "chart", role: "img", "aria-label": label, width, height: high, viewBox: `0 0 ${width} ${high}` }, inside, cross);
  const holder = el("div", { class: "chart-box" }, picture, tip);
  holder.addEventListener("pointermove", (event) => {
    const found = tell(event.clientX - picture.getBoundingClientRect().left);
    if (!found) return;
    const at = x(found.at);
    cross.setAttribute("x1", at);
    cross.setAttribute("x2", at);
    cross.setAttribute("visibility", "visible");
    tip.replaceChildren(...found.lines.map((line) => el("div", null, line)));
    tip.hidden = false;
    tip.style.left = `${Math.min(Math.max(at + 12, 0), width - tip.offsetWidth - 4)}px`;
    if (at + 12 > width - tip.offsetWidth - 4) tip.style.left = `${at - tip.offsetWidth - 12}px`;
  });
  holder.addEventListener("pointerleave", () => {
    tip.hidden = true;
    cross.setAttribute("visibility", "hidden");
  });
  return holder;
}

// Moving means of rewards over segments [time, n, sum, sum of squares], with their errors: over at least 60 decisions, and a tenth.
export function moving(segments) {
  const total = segments.reduce((sum, one) => sum + one[1], 0), reach = Math.max(60, total / 10);
  const inside = [0, 0, 0], add = (one, sign) => [0, 1, 2].forEach((k) => (inside[k] += sign * one[k + 1]));
  let first = 0;
  return segments.map((one, place) => {
    add(one, 1);
    while (first < place && inside[0] - segments[first][1] >= reach) add(segments[first++], -1);
    const [n, sum, squares] = inside, mean = sum / n;
    const error = n > 1 ? Math.sqrt(Math.max(0, squares - n * mean * mean) / (n - 1) / n) : 0;
    return { at: one[0], mean, low: mean - 1.96 * error, high: mean + 1.96 * error, error, n };
  });
}

export function rewardChart(host, points, levels, marked, high = 290) {
  const shown = points.filter((one) => one.n >= Math.min(10, points.at(-1).n));
  const bounds = [...shown.flatMap((one) => [one.low, one.high]), ...levels.flatMap((one) => [one.low, one.high])];
  const pad = 0.08 * (Math.max(...bounds) - Math.min(...bounds)) || 0.5;
  const range = [Math.min(...bounds) - pad, Math.max(...bounds) + pad];
  const domain = spanOf(shown[0].at, points.at(-1).at);
  const last = shown.at(-1);
  const label = `Mean reward per decision, now ${number(last.mean)}` + levels.map((one) => `; ${one.words} ${number(one.value)}`).join("");
  return box(host, high, label, (width) => {
    const x = (value) => LEFT + ((width - LEFT - RIGHT) * (value - domain[0])) / (domain[1] - domain[0] || 1);
    const y = (value) => high - BOTTOM - ((high - TOP - BOTTOM) * (value - range[0])) / (range[1] - range[0]);
    const band = [...shown.map((one) => [x(one.at), y(one.high)]), ...shown.map((one) => [x(one.at), y(one.low)]).reverse()];
    const inside = [
      frame(width, high, x, y, domain, range, {}),
      levels.map((one) => svg("rect", { class: `band ${one.kind}`, x: LEFT, width: width - LEFT - RIGHT, y: y(one.high), height: Math.max(1, y(one.low) - y(one.high)) })),
      levels.map((one) => svg("line", { class: `level ${one.kind}`, x1: LEFT, x2: width - RIGHT, y1: y(one.value), y2: y(one.value) })),
      svg("path", { class: "band own", d: `${path(band)}Z` }),
      svg("path", { class: "line own", d: path(shown.map((one) => [x(one.at), y(one.mean)])) }),
      svg("circle", { class: "dot own", cx: x(last.at), cy: y(last.mean), r: 3.5 }),
      marks(marked, x, width, high, domain),
    ];
    const tell = (place) => {
      const one = shown.reduce((best, each) => (Math.abs(x(each.at) - place) < Math.abs(x(best.at) - place) ? each : best));
      const places = placesFor(1.96 * one.error);
      return { at: one.at, lines: [`until ${day(one.at, true)}`, `${fixed(one.mean, places)} ± ${fixed(1.96 * one.error, places)} over ${whole(one.n)}`] };
    };
    return { inside, tell, x };
  });
}

export function beliefChart(host, points, names, marked, high = 220) {
  const domain = spanOf(points[0].time, points.at(-1).time);
  const latest = points.at(-1).beliefs;
  const label = "Probability of each hypothesis, now " + names.map((name) => `${name} ${percent(latest[name] || 0, 0)}`).join(", ");
  return box(host, high, label, (width) => {
    const x = (value) => LEFT + ((width - LEFT - RIGHT) * (value - domain[0])) / (domain[1] - domain[0]);
    const y = (value) => high - BOTTOM - (high - TOP - BOTTOM) * value;
    const all = points.at(-1).time > points[0].time ? points : domain.map((time) => ({ ...points[0], time }));
    let below = all.map(() => 0);
    const areas = names.map((name, place) => {
      const above = all.map((one, k) => Math.min(1, below[k] + (one.beliefs[name] || 0)));
      const outline = [...all.map((one, k) => [x(one.time), y(above[k])]), ...all.map((one, k) => [x(one.time), y(below[k])]).reverse()];
      below = above;
      return svg("path", { class: `area h${place}`, d: `${path(outline)}Z` });
    });
    const tell = (place) => {
      const one = all.reduce((best, each) => (Math.abs(x(each.time) - place) < Math.abs(x(best.time) - place) ? each : best));
      return { at: one.time, lines: [day(one.time, true), ...names.map((name) => `${name} ${percent(one.beliefs[name] || 0, 0)}`)] };
    };
    return { inside: [areas, frame(width, high, x, y, domain, [0, 1], { share: true }), marks(marked, x, width, high, domain)], tell, x };
  });
}

// One line: a dot with its whisker about zero.
export function whisker(shift, error, reach) {
  const wide = 120, high = 22;
  const x = (value) => wide / 2 + (wide / 2 - 6) * Math.max(-1, Math.min(1, value / reach));
  const sure = Math.abs(shift) > 2 * error;
  return svg("svg", { class: "whisker", width: wide, height: high, "aria-hidden": "true" },
    svg("line", { class: "grid", x1: wide / 2, x2: wide / 2, y1: 0, y2: high }),
    svg("line", { class: sure ? "moved" : "still", x1: x(shift - 2 * error), x2: x(shift + 2 * error), y1: high / 2, y2: high / 2 }),
    svg("circle", { class: sure ? "moved" : "still", cx: x(shift), cy: high / 2, r: 4 }));
}

// A bar of a share; the words beside it say the number.
export const bar = (share, kind = "") =>
  svg("svg", { class: `bar ${kind}`, "aria-hidden": "true", preserveAspectRatio: "none", viewBox: "0 0 100 6" },
    svg("rect", { class: "track", width: 100, height: 6 }),
    svg("rect", { class: "full", width: Math.max(0, Math.min(100, 100 * share)), height: 6 }));
