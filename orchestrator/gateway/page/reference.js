/** The reference: openapi.json, which this very server serves, for people to read. */
import { byId, make } from "./dom.js";
import { bindTheme } from "./scheme.js";

const METHODS = ["get", "post", "put", "delete"];

/** What a schema takes, in words; what it refers to by name. */
function kind(schema) {
  if (schema === undefined || Object.keys(schema).length === 0) return "anything";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  const several = schema.anyOf ?? schema.oneOf ?? schema.allOf;
  if (several) {
    const kinds = several.filter(({ type }) => type !== "null").map(kind);
    return [...new Set(kinds)].join(" or ");
  }
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.type === "array") return `list of ${kind(schema.items)}`;
  if (schema.type === "object") {
    const values = schema.additionalProperties;
    return values && values !== true ? `object of ${kind(values)}` : "object";
  }
  return schema.type ?? "anything";
}

/** Names of the schemas that one refers to, itself first, each once. */
function referred(schema, schemas, found = []) {
  if (schema === null || typeof schema !== "object") return found;
  const name = schema.$ref?.split("/").at(-1);
  if (name && !found.includes(name)) {
    found.push(name);
    referred(schemas[name], schemas, found);
  }
  Object.values(schema).forEach((part) => referred(part, schemas, found));
  return found;
}

function fields(schema) {
  const wanted = schema.required ?? [];
  const rows = Object.entries(schema.properties ?? {}).map(([name, field]) =>
    make(
      "div",
      { class: "field" },
      make("dt", {}, make("code", {}, name), wanted.includes(name) ? make("em", {}, "needed") : null),
      make(
        "dd",
        {},
        make("span", { class: "kind" }, kind(field)),
        field.description ? ` ${field.description}` : null,
      ),
    ),
  );
  return make("dl", {}, ...rows);
}

function shape(name, schemas, isOpen) {
  const schema = schemas[name];
  const about = schema.description ? make("p", {}, schema.description) : null;
  return make(
    "details",
    { open: isOpen },
    make("summary", {}, make("code", {}, name)),
    about,
    schema.properties ? fields(schema) : make("p", {}, kind(schema)),
  );
}

function shapes(title, content, schemas, isOpen) {
  const names = referred(content, schemas);
  if (!names.length) return null;
  return make(
    "section",
    {},
    make("h4", {}, title),
    ...names.map((name, index) => shape(name, schemas, isOpen && index === 0)),
  );
}

function example(method, path, operation) {
  const body = operation.requestBody ? ` \\\n  -H 'Content-Type: application/json' -d '{…}'` : "";
  const address = new URL(`.${path}`, location.href).href;
  const verb = method === "get" ? "" : `-X ${method.toUpperCase()} `;
  return make("pre", { tabindex: 0 }, `curl ${verb}${address}${body} \\\n  -H 'Authorization: Bearer KEY'`);
}

function operationOf(path, method, operation, schemas) {
  const id = `${method}${path}`.replaceAll(/\W+/g, "-");
  const good = Object.entries(operation.responses ?? {}).filter(([status]) => status < 300);
  const bad = Object.keys(operation.responses ?? {}).filter((status) => status >= 300);
  byId("contents").append(make("a", { href: `#${id}` }, make("b", {}, method), ` ${path}`));
  return make(
    "article",
    { id },
    make("h3", {}, make("b", { class: method }, method), make("code", {}, path)),
    make("p", {}, operation.description ?? operation.summary ?? ""),
    example(method, path, operation),
    shapes("It takes", operation.requestBody, schemas, true),
    shapes("It gives", good.map(([, response]) => response), schemas, false),
    bad.length ? make("p", { class: "errors" }, `Errors: ${bad.join(", ")}, in OpenAI's shape.`) : null,
  );
}

async function load() {
  const main = byId("reference");
  const response = await fetch("openapi.json");
  if (!response.ok) throw new Error(`status ${response.status}`);
  const { info, paths, components } = await response.json();
  byId("version").textContent = info.version;
  byId("about").textContent = info.description ?? "";
  for (const [path, methods] of Object.entries(paths)) {
    for (const method of METHODS.filter((name) => methods[name])) {
      main.append(operationOf(path, method, methods[method], components?.schemas ?? {}));
    }
  }
}

bindTheme(byId("theme"));
load()
  .catch((error) => {
    byId("about").textContent = `openapi.json cannot be read (${error.message}); load the page again.`;
  })
  .finally(() => {
    byId("reference").removeAttribute("aria-busy");
    // The part that the address names exists only now.
    if (location.hash) byId(location.hash.slice(1))?.scrollIntoView();
  });
