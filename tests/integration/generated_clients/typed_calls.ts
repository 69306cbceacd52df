// Ten calls by fetch, with the types that openapi-typescript has generated.
import type { components, paths } from "./schema";

type Schemas = components["schemas"];
type Answer<T> = Promise<T>;

async function call(path: string, options: RequestInit = {}): Promise<any> {
  const headers: Record<string, string> = { Authorization: `Bearer ${process.env.TOKEN}` };
  if (typeof options.body === "string") headers["Content-Type"] = "application/json";
  const answer = await fetch(`${process.env.BASE_URL}${path}`, { ...options, headers });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  if (answer.status === 204) return null;
  const is_json = answer.headers.get("content-type")?.startsWith("application/json");
  return is_json ? answer.json() : answer.text();
}

function post<T>(path: keyof paths | string, body: unknown, method = "POST"): Answer<T> {
  return call(path, { method, body: JSON.stringify(body) });
}

function check(is_right: boolean, what: string): void {
  if (!is_right) throw new Error(what);
}

async function main(): Promise<void> {
  const models: Schemas["Models"] = await call("/api/models/");
  check(models.results.length > 0, "models");
  const wanted: Schemas["ConversationRequest"] = { title: "Tea in Paris" };
  const chat = await post<Schemas["Conversation"]>("/api/conversations/", wanted);
  const title: Schemas["PatchedConversationRequest"] = { title: "Tea in Oslo" };
  const address = `/api/conversations/${chat.id}/`;
  const renamed = await post<Schemas["Conversation"]>(address, title, "PATCH");
  check(renamed.title === "Tea in Oslo", "rename");
  const said: Partial<Schemas["TurnRequestRequest"]> = { input: "Hello", wait: true };
  const turn = await post<{ id: string }>(`${address}turns/`, said);
  const listed: Schemas["PaginatedTurnList"] = await call(`${address}turns/`);
  check(listed.results[0].id === turn.id, "turns");
  const found: Schemas["PaginatedConversationList"] = await call(
    "/api/conversations/?query=oslo",
  );
  check(found.results[0].id === chat.id, "list");
  const matches: Schemas["FoundConversations"] = await call("/api/search/?query=Oslo");
  check(matches.results[0].conversation === chat.id, "search");
  const form = new FormData();
  form.append("file", new Blob(["green"], { type: "text/plain" }), "tea.txt");
  const sent: Schemas["Attachments"] = await call(`${address}attachments/`, {
    method: "POST",
    body: form,
  });
  check((await call(`/api/attachments/${sent.data[0].id}/`)) === "green", "attachment");
  await call(address, { method: "DELETE" });
  console.log("10 calls");
}

void main();
