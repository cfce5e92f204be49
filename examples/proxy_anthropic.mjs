// An agent with the official Anthropic client for JavaScript, to which the proxy of `backstory serve` gives a memory.
//
//     backstory serve
//     npm install @anthropic-ai/sdk
//     node examples/proxy_anthropic.mjs ada claude-haiku-4-5
//
// It is an agent as any other: nothing in it is about memory, but the base URL and whose words it sends. The key is the
// one of the model server (ANTHROPIC_API_KEY).

import Anthropic from "@anthropic-ai/sdk";

const [user = "ada", model = "claude-haiku-4-5"] = process.argv.slice(2);

// This is the one line that changes.
const client = new Anthropic({ baseURL: process.env.PROXY_URL ?? "http://127.0.0.1:8765/proxy/anthropic" });

const asked = { model, max_tokens: 1_000, metadata: { user_id: user } };
const messages = [{ role: "user", content: "Where do I live?" }];
const message = await client.messages.create({ ...asked, messages });
const answer = message.content.flatMap((block) => (block.type === "text" ? [block.text] : [])).join("");
console.log(answer);

// The conversation goes on: its thread is found by its words.
messages.push({ role: "assistant", content: answer }, { role: "user", content: "Say it again, word by word." });
const stream = client.messages.stream({ ...asked, messages });
stream.on("text", (text) => process.stdout.write(text));
await stream.finalMessage();
console.log();
