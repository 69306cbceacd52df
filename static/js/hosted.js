// Cards of tools that the provider runs, while the turn is running. Pure.
//
// conversations/pages/hosted_tool_cards.py renders the same cards on the server, with all
// results, and replaces these at the end. Until then, fields of an item may be missing.

import { gettext, interpolate } from "./texts.js";

const MAX_RESULTS = 50;
const TITLES = {
  web_search_call: gettext("Searched the web"),
  x_search_call: gettext("Searched X"),
  file_search_call: gettext("Searched files"),
  code_interpreter_call: gettext("Ran code"),
  code_execution_call: gettext("Ran code"),
  image_generation_call: gettext("Drew an image"),
  computer_call: gettext("Acted on the screen"),
  computer_call_output: gettext("What the screen showed"),
};
const STATES = { completed: "completed", failed: "failed", incomplete: "cancelled" };
const LEFT_OUT = new Set(["id", "type", "status", "provider_data"]);

/** `{title, state, query, code, results: [{title, url}], error}`; "" for nothing. */
export function cardOf(item) {
  const card = { title: titleOf(item.type), query: "", code: "", results: [] };
  Object.assign(card, (READERS[item.type] ?? unknown)(item));
  const error = errorOf(item.error);
  const results = card.results.filter(({ title, url }) => title || url);
  return {
    ...card,
    query: line(card.query),
    results: results.slice(0, MAX_RESULTS),
    error,
    state: stateOf(item.status ?? "completed", error),
  };
}

function stateOf(status, error) {
  if (error && status === "completed") return "failed";
  return STATES[status] ?? "executing";
}

const READERS = {
  web_search_call: search,
  x_search_call: search,
  file_search_call: (item) => ({
    query: item.queries,
    results: records(item.results).map((found) => ({ title: line(found.filename) })),
  }),
  code_interpreter_call: code,
  code_execution_call: code,
  image_generation_call: (item) => ({ query: item.revised_prompt || item.prompt }),
  mcp_call: (item) => ({ title: called(item), code: pretty(item.arguments) }),
  mcp_approval_request: (item) => ({
    title: asking(item),
    code: pretty(item.arguments),
  }),
  mcp_approval_response: (item) => ({
    title: item.approve ? gettext("The call was allowed") : gettext("The call was refused"),
    query: item.reason,
  }),
  mcp_list_tools: (item) => ({
    title: listed(item),
    results: records(item.tools).map((tool) => ({ title: line(tool.name) })),
  }),
  computer_call: (item) => ({
    query: records(item.actions ?? [item.action]).map(act).join(gettext(", then ")),
  }),
  computer_call_output: () => ({}),
  custom_tool_call: (item) => ({
    title: used(item.name),
    code: pretty(item.arguments || item.input),
  }),
  "parley:hosted_tool_call": (item) => ({
    title: used(String(item.name || "").replaceAll("_", " ")),
    code: pretty(item.arguments || item.input),
  }),
};

function search(item) {
  const action = isObject(item.action) ? item.action : oldAction(item);
  switch (action.type) {
    case "open_page":
      return { title: gettext("Opened a page"), results: [page(action)] };
    case "find_in_page":
      return {
        title: gettext("Looked through a page"),
        query: action.pattern,
        results: [page(action)],
      };
  }
  const found = [...records(action.sources), ...records(item.results)];
  const queries = action.queries?.length ? action.queries : action.query;
  return { query: queries, results: found.map(page) };
}

/** xAI's first format: a function call. */
function oldAction(item) {
  const given = parsed(item.arguments || item.input);
  return { type: "search", query: given?.query };
}

function page({ url, title }) {
  const safe = typeof url === "string" && /^https?:\/\//i.test(url) ? url : "";
  return { title: line(title || safe), url: safe };
}

function code(item) {
  return { code: String(item.code || (parsed(item.arguments)?.code ?? "")) };
}

function act(action) {
  const kind = String(action.type ?? "").replace(/^parley:/, "").replaceAll("_", " ");
  if ("x" in action && "y" in action) {
    const place = { x: String(action.x), y: String(action.y) };
    return interpolate(gettext("%(kind)s at %(x)s, %(y)s"), { kind, ...place });
  }
  const given = action.keys || action.text || "";
  return `${kind} ${Array.isArray(given) ? given.join("+") : given}`.trim();
}

function called({ name, server_label: server }) {
  const words = server ? gettext("Called %(tool)s of %(server)s") : gettext("Called %(tool)s");
  return interpolate(words, { tool: name || gettext("a tool"), server });
}

function asking({ name, server_label: server }) {
  const words = server
    ? gettext("Asks to call %(tool)s of %(server)s")
    : gettext("Asks to call %(tool)s");
  return interpolate(words, { tool: name || gettext("a tool"), server });
}

function listed({ server_label }) {
  const server = server_label || gettext("an MCP server");
  return interpolate(gettext("Listed the tools of %(server)s"), { server });
}

function used(name) {
  return interpolate(gettext("Used %(tool)s"), { tool: name || gettext("a tool") });
}

function unknown(item) {
  const rest = Object.entries(item).filter(([name]) => !LEFT_OUT.has(name));
  return { code: pretty(Object.fromEntries(rest)) };
}

function titleOf(type) {
  if (TITLES[type]) return TITLES[type];
  const words = type.replace(/^parley:/, "").replace(/_call$/, "").replaceAll("_", " ");
  return words.slice(0, 1).toUpperCase() + words.slice(1);
}

function errorOf(error) {
  const isObject = error !== null && typeof error === "object";
  const text = isObject ? error.message || error.content || error.type : error;
  if (text === null || text === undefined || text === "") return "";
  return typeof text === "string" ? text : pretty(text);
}

const isObject = (value) => value !== null && typeof value === "object";

const records = (values) => (Array.isArray(values) ? values.filter(isObject) : []);

function pretty(value) {
  if (value === null || value === undefined || value === "") return "";
  const content = parsed(value);
  return typeof content === "string" ? content : JSON.stringify(content, null, 2);
}

function parsed(value) {
  if (typeof value !== "string") return value;
  try {
    const content = JSON.parse(value);
    return isObject(content) ? content : value;
  } catch {
    return value;
  }
}

/** On one line, separated by semicolons. */
function line(text) {
  if (Array.isArray(text)) return text.map(line).filter(Boolean).join("; ");
  return String(text ?? "").trim().replace(/\s+/g, " ");
}
