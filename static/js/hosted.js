// What a provider's own tool is doing, as its card tells it while the turn runs. Pure.
//
// conversations/pages/hosted_tool_cards.py says the same on the server, with all that was found,
// and takes this one's place at the end. Fields of an item may be missing until then.

const MAX_RESULTS = 50;
const TITLES = {
  web_search_call: "Searched the web",
  x_search_call: "Searched X",
  file_search_call: "Searched files",
  code_interpreter_call: "Ran code",
  code_execution_call: "Ran code",
  image_generation_call: "Drew an image",
  computer_call: "Acted on the screen",
  computer_call_output: "What the screen showed",
};
const STATES = { completed: "completed", failed: "failed", incomplete: "cancelled" };
const LEFT_OUT = new Set(["id", "type", "status", "provider_data"]);

/** `{title, state, query, code, results: [{title, url}], error}`; "" for nothing. */
export function cardOf(item) {
  const told = { title: titleOf(item.type), query: "", code: "", results: [] };
  Object.assign(told, (TELLERS[item.type] ?? unknown)(item));
  const error = errorOf(item.error);
  const results = told.results.filter(({ title, url }) => title || url);
  return {
    ...told,
    query: line(told.query),
    results: results.slice(0, MAX_RESULTS),
    error,
    state: stateOf(item.status ?? "completed", error),
  };
}

function stateOf(status, error) {
  if (error && status === "completed") return "failed";
  return STATES[status] ?? "executing";
}

const TELLERS = {
  web_search_call: search,
  x_search_call: search,
  file_search_call: (item) => ({
    query: item.queries,
    results: records(item.results).map((found) => ({ title: line(found.filename) })),
  }),
  code_interpreter_call: code,
  code_execution_call: code,
  image_generation_call: (item) => ({ query: item.revised_prompt || item.prompt }),
  mcp_call: (item) => ({ title: called("Called", item), code: pretty(item.arguments) }),
  mcp_approval_request: (item) => ({
    title: called("Asks to call", item),
    code: pretty(item.arguments),
  }),
  mcp_approval_response: (item) => ({
    title: item.approve ? "The call was allowed" : "The call was refused",
    query: item.reason,
  }),
  mcp_list_tools: (item) => ({
    title: `Listed the tools of ${item.server_label || "an MCP server"}`,
    results: records(item.tools).map((tool) => ({ title: line(tool.name) })),
  }),
  computer_call: (item) => ({
    query: records(item.actions ?? [item.action]).map(act).join(", then "),
  }),
  computer_call_output: () => ({}),
  custom_tool_call: (item) => ({
    title: `Used ${item.name || "a tool"}`,
    code: pretty(item.arguments || item.input),
  }),
  "parley:hosted_tool_call": (item) => ({
    title: `Used ${String(item.name || "a tool").replaceAll("_", " ")}`,
    code: pretty(item.arguments || item.input),
  }),
};

function search(item) {
  const action = isObject(item.action) ? item.action : oldAction(item);
  switch (action.type) {
    case "open_page":
      return { title: "Opened a page", results: [page(action)] };
    case "find_in_page":
      return {
        title: "Looked through a page",
        query: action.pattern,
        results: [page(action)],
      };
  }
  const found = [...records(action.sources), ...records(item.results)];
  const queries = action.queries?.length ? action.queries : action.query;
  return { query: queries, results: found.map(page) };
}

/** xAI's first form: the call of a function. */
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
  if ("x" in action && "y" in action) return `${kind} at ${action.x}, ${action.y}`;
  const given = action.keys || action.text || "";
  return `${kind} ${Array.isArray(given) ? given.join("+") : given}`.trim();
}

function called(verb, { name, server_label }) {
  return `${verb} ${name || "a tool"}${server_label ? ` of ${server_label}` : ""}`;
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
  const told = isObject ? error.message || error.content || error.type : error;
  if (told === null || told === undefined || told === "") return "";
  return typeof told === "string" ? told : pretty(told);
}

const isObject = (value) => value !== null && typeof value === "object";

const records = (values) => (Array.isArray(values) ? values.filter(isObject) : []);

function pretty(value) {
  if (value === null || value === undefined || value === "") return "";
  const told = parsed(value);
  return typeof told === "string" ? told : JSON.stringify(told, null, 2);
}

function parsed(value) {
  if (typeof value !== "string") return value;
  try {
    const told = JSON.parse(value);
    return isObject(told) ? told : value;
  } catch {
    return value;
  }
}

/** On one line; several are parted by semicolons. */
function line(text) {
  if (Array.isArray(text)) return text.map(line).filter(Boolean).join("; ");
  return String(text ?? "").trim().replace(/\s+/g, " ");
}
