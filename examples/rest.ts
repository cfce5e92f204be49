/**
 * Memory over HTTP from TypeScript, with nothing but `fetch`: an agent that remembers.
 *
 *     backstory serve &
 *     npx tsx examples/rest.ts        # or: tsc, then node
 *
 * A function plays the model of the agent, and a recorded reply the one that keeps memory, so it needs no key.
 * BACKSTORY_URL and BACKSTORY_TOKEN name another server.
 */

interface Message {
  role: "user" | "assistant";
  content: string;
}

interface Fact {
  id: string;
  content: string;
  category: string;
  confidence: number;
}

interface Problem {
  status: number;
  title: string;
  detail: string;
}

/** The memory of one user. */
class Memory {
  constructor(
    private readonly user: string,
    private readonly url = process.env.BACKSTORY_URL ?? "http://127.0.0.1:8765",
    private readonly token = process.env.BACKSTORY_TOKEN ?? "none",
  ) {}

  /** Record what is new of a conversation. It is durable when this returns; a retry with the same key counts once. */
  record(thread: string, messages: Message[], key: string): Promise<{ turns: number; skipped: number }> {
    return this.call("POST", "record", {}, { thread, messages }, { "Idempotency-Key": key });
  }

  /** Extract what is pending; without replies the server asks its model. */
  extract(replies?: { thread_id: string; reply: object }[]): Promise<{ updates: number; commits: number[] }> {
    return this.call("POST", "extract", {}, { replies });
  }

  /** The block to put before a model. */
  async context(about: string): Promise<string> {
    const block = await this.call<{ text: string }>("GET", "context", { for: about });
    return block.text;
  }

  async facts(): Promise<Fact[]> {
    return (await this.call<{ items: Fact[] }>("GET", "facts")).items;
  }

  /** The words that a fact was learned from. */
  async why(fact: string): Promise<string[]> {
    const found = await this.call<{ evidence: { content: string }[] }>("GET", `facts/${encodeURIComponent(fact)}/why`);
    return found.evidence.map((turn) => turn.content);
  }

  /** Undo the last update. */
  revert(): Promise<{ commit: number | null }> {
    return this.call("POST", "revert", {}, { seq: "HEAD" });
  }

  private async call<T>(
    method: string,
    path: string,
    query: Record<string, string> = {},
    body?: object,
    headers: Record<string, string> = {},
  ): Promise<T> {
    const address = new URL(`/v1/${path}`, this.url);
    address.search = new URLSearchParams({ user: this.user, ...query }).toString();
    const answer = await fetch(address, {
      method,
      headers: { Authorization: `Bearer ${this.token}`, "Content-Type": "application/json", ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    if (!answer.ok) {
      const problem = (await answer.json()) as Problem;
      throw new Error(`${problem.status} ${problem.title}: ${problem.detail}`);
    }
    return (await answer.json()) as T;
  }
}

/** Stands for the model: it knows what stands in the block, and nothing else. */
function answer(question: string, block: string): string {
  if (!question.endsWith("?")) return "Thank you for telling me.";
  return block.includes("Bergen") ? "You live in Bergen." : "You have not told me yet.";
}

async function main(): Promise<void> {
  const memory = new Memory(process.env.BACKSTORY_EXAMPLE_USER ?? "grace");
  const [monday, tuesday] = [crypto.randomUUID(), crypto.randomUUID()]; // two conversations

  async function say(thread: string, question: string): Promise<void> {
    const block = await memory.context(question);
    const messages: Message[] = [
      { role: "user", content: question },
      { role: "assistant", content: answer(question, block) },
    ];
    await memory.record(thread, messages, crypto.randomUUID());
    console.log(`user: ${question}\nagent: ${messages[1].content}`);
  }

  await say(monday, "I moved to Bergen.");
  await memory.extract([
    {
      thread_id: monday,
      reply: { newFacts: [{ content: "User lives in Bergen", category: "context", confidence: 0.95, evidence: [1] }] },
    },
  ]);
  await say(tuesday, "Where do I live?");
  for (const fact of await memory.facts()) {
    console.log(`${fact.content}, because you said: ${(await memory.why(fact.id)).join(" / ")}`);
  }
  const undone = await memory.revert();
  console.log(`undone by commit ${undone.commit}; facts left: ${(await memory.facts()).length}`);
}

await main();
export {};
