// Numbers and times in words; elements from plain descriptions.

const NS = "http://www.w3.org/2000/svg";

export function number(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Math.abs(value) >= 1000) return value.toLocaleString("en", { maximumFractionDigits: 0 });
  return Number(value.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });
}

export const fixed = (value, places = 2) =>
  Number.isFinite(value) ? value.toFixed(places).replace("-", "−") : "–";

export const signed = (value, places = 2) => (value > 0 ? "+" : "") + fixed(value, places);

export const whole = (value) => Number(value).toLocaleString("en");

export const percent = (share, places = 1) => (Number.isFinite(share) ? `${(100 * share).toFixed(places)} %` : "–");

// How many decimals show an error of this size in two digits.
export const placesFor = (error) => (error > 0 ? Math.min(6, Math.max(0, 1 - Math.floor(Math.log10(error)))) : 2);

export function seconds(value) {
  if (!Number.isFinite(value)) return "–";
  if (value < 0.0095) return `${(1000 * value).toFixed(1)} ms`;
  if (value < 0.9995) return `${(1000 * value).toFixed(0)} ms`;
  if (value < 120) return `${Number(value.toPrecision(2))} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} days`;
}

export function ago(then, now) {
  const passed = Math.max(0, now - then);
  return passed < 1.5 ? "now" : `${seconds(Math.round(passed))} ago`;
}

export const day = (time, exact = false) =>
  new Date(1000 * time).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", ...(exact && { second: "2-digit" }) });

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000, 7776000, 31536000];

// Round times of this place between two, about as many as wanted: clock times within days, else dates.
export function timeTicks(low, high, wanted) {
  const step = STEPS.find((one) => one >= (high - low) / wanted) || STEPS.at(-1);
  const shift = 60 * new Date(1000 * low).getTimezoneOffset(), times = [];
  for (let time = Math.ceil((low - shift) / step) * step + shift; time <= high; time += step) times.push(time);
  const form = step >= 86400 ? { day: "numeric", month: "short" } : { hour: "2-digit", minute: "2-digit", ...(step < 60 && { second: "2-digit" }) };
  return times.map((time) => ({ time, words: new Date(1000 * time).toLocaleString("en-GB", form) }));
}

export const shorten = (text, most = 24) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const el = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);

export const svg = (tag, attributes, ...children) => filled(document.createElementNS(NS, tag), attributes, children);

// Put new content into a node, unless it would be the same; the element that had the focus keeps it.
export function fill(node, key, build) {
  const now = JSON.stringify(key);
  if (node.dataset.key === now) return;
  node.dataset.key = now;
  const held = node.contains(document.activeElement) ? document.activeElement.dataset.hold : null;
  node.replaceChildren(...[build()].flat(9).filter(Boolean));
  if (held) [...node.querySelectorAll("[data-hold]")].find((one) => one.dataset.hold === held)?.focus();
}
