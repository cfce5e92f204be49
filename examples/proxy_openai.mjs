// An agent with the official OpenAI client for JavaScript, to which the proxy of `backstory serve` gives a memory.
//
//     backstory serve
//     npm install openai
//     node examples/proxy_openai.mjs ada gpt-5-mini
//
// It is an agent as any other: nothing in it is about memory, but the base URL and whose words it sends. The key is the
// one of the model server (OPENAI_API_KEY).

import OpenAI from "openai";

const [user = "ada", model = "gpt-5-mini"] = process.argv.slice(2);

// This is the one line that changes.
const client = new OpenAI({ baseURL: process.env.PROXY_URL ?? "http://127.0.0.1:8765/proxy/v1" });

const messages = [{ role: "user", content: "Where do I live?" }];
const completion = await client.chat.completions.create({ model, user, messages });
const answer = completion.choices[0].message.content;
console.log(answer);

// The conversation goes on: its thread is found by its words.
messages.push({ role: "assistant", content: answer }, { role: "user", content: "Say it again, word by word." });
for await (const chunk of await client.chat.completions.create({ model, user, messages, stream: true })) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
}
console.log();

// Another conversation. The header says whose it is as well as the field, for clients that cannot set it.
const headers = { "X-Backstory-User": user };
const response = await client.responses.create({ model, input: "Where do I live?" }, { headers });
console.log(response.output_text);
const next = { model, input: "Say it again, word by word.", previous_response_id: response.id, stream: true };
for await (const event of await client.responses.create(next, { headers })) {
  if (event.type === "response.output_text.delta") process.stdout.write(event.delta);
}
console.log();
