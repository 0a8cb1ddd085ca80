/** The orchestrator's HTTP endpoint: JSON in, JSON or server-sent events out, its errors as it tells
 * them. EventSource can send no key, so streams are read with fetch.
 */

import { kept } from "./kept.js";

/** The key that requests carry; kept for this tab only, never in an address. */
export const key = kept("sessionStorage", "outrider-key");

/** Why there is no answer; whatever else is thrown is a bug. */
export class Trouble extends Error {}

/** The endpoint cannot be reached, or was lost on the way. */
export class Lost extends Trouble {
  constructor() {
    super("The server cannot be reached.");
  }
}

/** What the endpoint refuses, in its own words. */
export class Refusal extends Trouble {
  constructor(status, problem, retryAfter = null) {
    super(problem?.message ?? `The server answered with status ${status}.`);
    this.status = status;
    this.code = problem?.code ?? null;
    this.retryAfter = retryAfter;
  }
}

/** The response; throws a Refusal for any but a good one. */
export async function ask(path, { body, accept = "application/json", signal } = {}) {
  const headers = headersOf(accept, body !== undefined);
  const response = await reached(
    fetch(path, {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "omit",
    }),
  );
  if (response.ok) return response;
  const told = await response.json().catch(() => null);
  throw new Refusal(response.status, told?.error, response.headers.get("Retry-After"));
}

function headersOf(accept, hasBody) {
  const headers = new Headers({ Accept: accept });
  if (hasBody) headers.set("Content-Type", "application/json");
  try {
    if (key.get()) headers.set("Authorization", `Bearer ${key.get()}`);
  } catch {
    throw new Refusal(401, { message: "The key has a character that no key can have; give it again." });
  }
  return headers;
}

/** What a promise of the network gives; throws Lost where it fails. */
async function reached(promise) {
  try {
    return await promise;
  } catch (error) {
    throw error.name === "AbortError" ? error : new Lost();
  }
}

/** The JSON of each event, up to the end of the stream; throws a Refusal that comes as one. */
export async function* events(path, options) {
  const response = await ask(path, { ...options, accept: "text/event-stream" });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reached(reader.read());
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        const event = JSON.parse(data);
        if (event.error) throw new Refusal(response.status, event.error);
        yield event;
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
