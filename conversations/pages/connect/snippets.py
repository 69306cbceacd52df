"""How clients are told the gateway's address: one text for each, ready to copy.

A text has `%BASE%` for the server's address, `%V1%` for the address with `/v1`,
`%MODEL%` for the name of a model and `%TOKEN%` for an access token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_lazy as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """How one client is configured. `location` is the file or form to put it in."""

    slug: str
    title: str
    language: str
    text: str
    location: str = ""

    def fill(self, values: dict[str, str]) -> str:
        text = self.text.strip("\n")
        for name, value in values.items():
            text = text.replace(f"%{name}%", value)
        return text


@dataclass(frozen=True, slots=True)
class SnippetGroup:
    title: Any  # a translated text
    snippets: Sequence[Snippet]


_LIBRARIES = [
    Snippet(
        slug="curl",
        title="curl",
        language="sh",
        text="""
curl -sS %V1%/chat/completions \\
  -H "Authorization: Bearer %TOKEN%" -H "Content-Type: application/json" \\
  -d '{"model": "%MODEL%", "messages": [{"role": "user", "content": "Hello"}]}'
""",
    ),
    Snippet(
        slug="openai-python",
        title="OpenAI, Python",
        language="python",
        text="""
from openai import OpenAI

client = OpenAI(base_url="%V1%", api_key="%TOKEN%")
print(client.responses.create(model="%MODEL%", input="Hello").output_text)
""",
    ),
    Snippet(
        slug="anthropic-python",
        title="Anthropic, Python",
        language="python",
        text="""
from anthropic import Anthropic

client = Anthropic(base_url="%BASE%", api_key="%TOKEN%")
message = client.messages.create(
    model="%MODEL%",
    max_tokens=1024,
    messages=[{"role": "user", "content": "Hello"}],
)
print(message.content[0].text)
""",
    ),
    Snippet(
        slug="openai-node",
        title="OpenAI, Node",
        language="js",
        text="""
import OpenAI from "openai";

const client = new OpenAI({ baseURL: "%V1%", apiKey: "%TOKEN%" });
const answer = await client.responses.create({ model: "%MODEL%", input: "Hello" });
console.log(answer.output_text);
""",
    ),
    Snippet(
        slug="anthropic-node",
        title="Anthropic, Node",
        language="js",
        text="""
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({ baseURL: "%BASE%", apiKey: "%TOKEN%" });
const message = await client.messages.create({
  model: "%MODEL%",
  max_tokens: 1024,
  messages: [{ role: "user", content: "Hello" }],
});
console.log(message.content[0].text);
""",
    ),
    Snippet(
        slug="go",
        title="OpenAI, Go",
        language="go",
        text="""
package main

import (
	"context"
	"fmt"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

func main() {
	client := openai.NewClient(
		option.WithBaseURL("%V1%/"),
		option.WithAPIKey("%TOKEN%"),
	)
	request := openai.ChatCompletionNewParams{
		Model:    "%MODEL%",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Hello")},
	}
	answer, err := client.Chat.Completions.New(context.Background(), request)
	if err != nil {
		panic(err)
	}
	fmt.Println(answer.Choices[0].Message.Content)
}
""",
    ),
    Snippet(
        slug="java",
        title="OpenAI, Java",
        language="java",
        text="""
import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.models.chat.completions.ChatCompletionCreateParams;

public class Hello {
    public static void main(String[] args) {
        OpenAIClient client = OpenAIOkHttpClient.builder()
            .baseUrl("%V1%")
            .apiKey("%TOKEN%")
            .build();
        var params = ChatCompletionCreateParams.builder()
            .model("%MODEL%").addUserMessage("Hello").build();
        var answer = client.chat().completions().create(params);
        System.out.println(answer.choices().get(0).message().content().orElse(""));
    }
}
""",
    ),
    Snippet(
        slug="dotnet",
        title="OpenAI, .NET",
        language="csharp",
        text="""
using System.ClientModel;
using OpenAI;
using OpenAI.Chat;

var options = new OpenAIClientOptions { Endpoint = new Uri("%V1%") };
var client = new ChatClient("%MODEL%", new ApiKeyCredential("%TOKEN%"), options);
Console.WriteLine((await client.CompleteChatAsync("Hello")).Value.Content[0].Text);
""",
    ),
    Snippet(
        slug="langchain",
        title="LangChain",
        language="python",
        text="""
from langchain_openai import ChatOpenAI

chat = ChatOpenAI(model="%MODEL%", base_url="%V1%", api_key="%TOKEN%")
print(chat.invoke("Hello").content)
""",
    ),
    Snippet(
        slug="vercel",
        title="Vercel AI SDK",
        language="js",
        text="""
import { generateText } from "ai";
import { createOpenAI } from "@ai-sdk/openai";

const openai = createOpenAI({ baseURL: "%V1%", apiKey: "%TOKEN%" });
const { text } = await generateText({ model: openai("%MODEL%"), prompt: "Hello" });
""",
    ),
]
_AGENTS = [
    Snippet(
        slug="codex",
        title="Codex",
        language="toml",
        location="~/.codex/config.toml; PARLEY_API_KEY=%TOKEN%",
        text="""
model = "%MODEL%"
model_provider = "parley"

[model_providers.parley]
name = "Parley"
base_url = "%V1%"
env_key = "PARLEY_API_KEY"
wire_api = "responses"
""",
    ),
    Snippet(
        slug="claude-code",
        title="Claude Code",
        language="sh",
        text="""
export ANTHROPIC_BASE_URL=%BASE%
export ANTHROPIC_AUTH_TOKEN=%TOKEN%
export ANTHROPIC_MODEL=%MODEL%
export ANTHROPIC_SMALL_FAST_MODEL=%MODEL%
claude
""",
    ),
    Snippet(
        slug="aider",
        title="aider",
        language="sh",
        text="""
export OPENAI_API_BASE=%V1% OPENAI_API_KEY=%TOKEN%
aider --model openai/%MODEL%
""",
    ),
    Snippet(
        slug="opencode",
        title="opencode",
        language="json",
        location="opencode.json",
        text="""
{
  "provider": {
    "parley": {
      "npm": "@ai-sdk/openai-compatible",
      "options": { "baseURL": "%V1%", "apiKey": "%TOKEN%" },
      "models": { "%MODEL%": {} }
    }
  }
}
""",
    ),
    Snippet(
        slug="openai-agents",
        title="OpenAI Agents SDK",
        language="python",
        text="""
from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)
client = AsyncOpenAI(base_url="%V1%", api_key="%TOKEN%")
model = OpenAIResponsesModel("%MODEL%", openai_client=client)
print(Runner.run_sync(Agent(name="Helper", model=model), "Hello").final_output)
""",
    ),
]
_FRONT_ENDS = [
    Snippet(
        slug="open-webui",
        title="Open WebUI",
        language="sh",
        text="""
docker run -d -p 3000:8080 \\
  -e OPENAI_API_BASE_URL=%V1% -e OPENAI_API_KEY=%TOKEN% \\
  ghcr.io/open-webui/open-webui:main
""",
    ),
    Snippet(
        slug="librechat",
        title="LibreChat",
        language="yaml",
        location="librechat.yaml",
        text="""
endpoints:
  custom:
    - name: "Parley"
      apiKey: "%TOKEN%"
      baseURL: "%V1%"
      models:
        default: ["%MODEL%"]
        fetch: true
""",
    ),
    Snippet(
        slug="llm",
        title="llm",
        language="yaml",
        location="extra-openai-models.yaml; llm keys set parley --value %TOKEN%",
        text="""
- model_id: parley
  model_name: %MODEL%
  api_base: "%V1%"
  api_key_name: parley
""",
    ),
]
_EDITORS = [
    Snippet(
        slug="continue",
        title="Continue",
        language="yaml",
        location="~/.continue/config.yaml",
        text="""
models:
  - name: Parley
    provider: openai
    model: %MODEL%
    apiBase: %V1%
    apiKey: %TOKEN%
""",
    ),
    Snippet(
        slug="zed",
        title="Zed",
        language="json",
        location="settings.json; PARLEY_API_KEY=%TOKEN%",
        text="""
{
  "language_models": {
    "openai_compatible": {
      "Parley": {
        "api_url": "%V1%",
        "available_models": [{ "name": "%MODEL%", "max_tokens": 128000 }]
      }
    }
  }
}
""",
    ),
]
_AUTOMATION = [
    Snippet(
        slug="n8n",
        title="n8n",
        language="text",
        location="Credentials, OpenAI",
        text="""
Base URL: %V1%
API Key: %TOKEN%
""",
    ),
    Snippet(
        slug="environment",
        title="OPENAI_BASE_URL",
        language="sh",
        text="""
export OPENAI_BASE_URL=%V1%
export OPENAI_API_KEY=%TOKEN%
""",
    ),
]
GROUPS = [
    SnippetGroup(_("Commands and libraries"), _LIBRARIES),
    SnippetGroup(_("Agents"), _AGENTS),
    SnippetGroup(_("Chat front ends"), _FRONT_ENDS),
    SnippetGroup(_("Editors"), _EDITORS),
    SnippetGroup(_("Automation"), _AUTOMATION),
]
