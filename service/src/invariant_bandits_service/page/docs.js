// Every call of the OpenAPI document, with a form to try it. Texts enter the page as text, never as markup.
const TITLES = { v1: "Decisions, rewards and models", ofrep: "OpenFeature", service: "The service" };
const element = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const node = Object.assign(document.createElement(tag), attributes);
  node.append(...children);
  return node;
}

// What a schema looks like, as a value; references that come back to themselves are cut.
function example(schema, all, depth = 0) {
  if (!schema || depth > 6) return null;
  if (schema.$ref) return example(all[schema.$ref.split("/").pop()], all, depth + 1);
  if (schema.default !== undefined && schema.default !== null) return schema.default;
  if (schema.enum) return schema.enum[0];
  const choice = (schema.anyOf || schema.oneOf || []).find((each) => each.type !== "null");
  if (choice) return example(choice, all, depth + 1);
  if (schema.type === "object") {
    const inner = schema.properties || {}, names = schema.required || Object.keys(inner).slice(0, 2);
    return Object.fromEntries(names.map((name) => [name, example(inner[name], all, depth + 1)]));
  }
  if (schema.type === "array") return [example(schema.items, all, depth + 1)].filter((each) => each !== null);
  return { string: "text", number: 0, integer: 0, boolean: false }[schema.type] ?? null;
}

function schemaText(content, all) {
  const [media, about] = Object.entries(content || {})[0] || [];
  if (!media) return "no body";
  return media === "application/json" ? JSON.stringify(example(about.schema, all), null, 2) : media;
}

function fields(call) {
  return (call.parameters || []).map((parameter) => {
    const input = make("input", { name: parameter.name, required: parameter.in === "path" });
    input.dataset.place = parameter.in;
    const note = parameter.schema.description || (parameter.schema.enum || []).join(", ");
    return make("label", {}, `${parameter.name} (${parameter.in})${note ? `: ${note}` : ""}`, input);
  });
}

async function send(form, method, path, answer) {
  const query = new URLSearchParams();
  for (const input of form.querySelectorAll("input[data-place]")) {
    if (input.dataset.place === "path") path = path.replace(`{${input.name}}`, encodeURIComponent(input.value));
    else if (input.value) query.set(input.name, input.value);
  }
  const headers = element("token").value ? { Authorization: `Bearer ${element("token").value}` } : {};
  const file = form.querySelector("input[type=file]")?.files[0], text = form.querySelector("textarea")?.value;
  const body = file || text || undefined, address = `${path.slice(1)}${query.size ? `?${query}` : ""}`;
  if (text && !file) headers["Content-Type"] = "application/json";
  try {
    const response = await fetch(address, { method: method.toUpperCase(), headers, body });
    const content = await response.text();
    let shown = content.slice(0, 20000);
    try { shown = JSON.stringify(JSON.parse(content), null, 2).slice(0, 20000); } catch { /* not JSON */ }
    answer.textContent = `${response.status} ${response.statusText}\n${shown}`;
  } catch (error) {
    answer.textContent = String(error);
  }
}

function callOf(method, path, call, all) {
  const form = make("form"), answer = make("pre", { tabIndex: 0 });
  answer.setAttribute("role", "status");
  form.append(make("p", { className: "faint" }, call.description || ""), ...fields(call));
  const body = call.requestBody?.content;
  if (body?.["application/json"])
    form.append(make("label", {}, "Body", make("textarea", { value: schemaText(body, all) })));
  if (body?.["application/octet-stream"]) form.append(make("label", {}, "File", make("input", { type: "file" })));
  const done = Object.entries(call.responses).map(([status, about]) => `${status}: ${schemaText(about.content, all)}`);
  answer.textContent = done.join("\n\n");
  form.append(make("button", { type: "submit" }, "Send"), answer);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form, method, path, answer);
  });
  const summary = make("summary", {},
    make("span", { className: `method ${method}` }, method.toUpperCase()),
    make("code", {}, path), make("span", { className: "faint" }, call.summary || ""));
  const details = make("details", { className: "call" }, summary);
  details.addEventListener("toggle", () => { if (!form.isConnected) details.append(form); });
  details.dataset.text = `${method} ${path} ${call.summary}`.toLowerCase();
  return details;
}

async function show() {
  const about = await (await fetch("openapi.json")).json();
  const groups = {}, all = about.components.schemas;
  for (const [path, methods] of Object.entries(about.paths))
    for (const [method, call] of Object.entries(methods))
      (groups[call.tags[0]] ??= []).push(callOf(method, path, call, all));
  const main = element("calls");
  main.className = "calls";
  main.replaceChildren(...Object.keys(TITLES).filter((tag) => groups[tag])
    .flatMap((tag) => [make("h2", {}, TITLES[tag]), ...groups[tag]]));
  element("search").addEventListener("input", ({ target }) => {
    for (const call of main.querySelectorAll(".call")) call.hidden = !call.dataset.text.includes(target.value.toLowerCase());
  });
}

show().catch((error) => { element("calls").textContent = `The document cannot be read: ${error}`; });
