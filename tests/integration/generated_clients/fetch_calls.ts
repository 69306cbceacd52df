// Ten calls by the client that openapi-generator (typescript-fetch) has generated.
import { AttachmentsApi, Configuration, ConversationsApi, ModelsApi, SearchApi } from "./client";

function check(is_right: boolean, what: string): void {
  if (!is_right) throw new Error(what);
}

async function main(): Promise<void> {
  const configuration = new Configuration({
    basePath: process.env.BASE_URL,
    accessToken: process.env.TOKEN,
  });
  const chats = new ConversationsApi(configuration);
  const models = await new ModelsApi(configuration).modelsRetrieve();
  check(models.results.length > 0, "models");
  const chat = await chats.conversationsCreate({
    conversationRequest: { title: "Tea in Paris" },
  });
  const renamed = await chats.conversationsPartialUpdate({
    id: chat.id,
    patchedConversationRequest: { title: "Tea in Oslo" },
  });
  check(renamed.title === "Tea in Oslo", "rename");
  const turn = await chats.conversationsTurnsCreate({
    id: chat.id,
    turnRequestRequest: { input: "Hello", wait: true },
  });
  const listed = await chats.conversationsTurnsList({ id: chat.id });
  check(listed.results[0].id === turn.id, "turns");
  const found = await chats.conversationsList({ query: "oslo" });
  check(found.results[0].id === chat.id, "list");
  const matches = await new SearchApi(configuration).searchRetrieve({ query: "Oslo" });
  check(matches.results[0].conversation === chat.id, "search");
  const file = new File(["green"], "tea.txt", { type: "text/plain" });
  const sent = await chats.conversationsAttachmentsCreate({ id: chat.id, file });
  const back = await new AttachmentsApi(configuration).attachmentsRetrieve({
    id: sent.data[0].id,
  });
  check((await (back as Blob).text()) === "green", "attachment");
  await chats.conversationsDestroy({ id: chat.id });
  console.log("10 calls");
}

void main();
