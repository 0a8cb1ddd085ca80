/** The conversation: what was said, what is asked next, and answers as they come. */
import { Answer } from "./answer.js";
import { byId, make, number } from "./dom.js";
import { Lost, Trouble, events } from "./endpoint.js";
import { Inspector } from "./inspector.js";

const ALTERNATIVES = 5;
const NEAR_END_PX = 80;
const EXAMPLES = [
  "Why is the sky blue?",
  "Write a short poem about two horses.",
  "Add two numbers in Python.",
];

export class Chat {
  constructor({ onKeyWanted }) {
    this.#onKeyWanted = onKeyWanted;
    this.#inspector = new Inspector(byId("turns"));
    const prompt = byId("prompt");
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    prompt.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#send();
      }
    });
    prompt.addEventListener("input", fit);
    byId("stop").addEventListener("click", () => this.#running?.abort());
    for (const text of EXAMPLES) {
      const choose = () => {
        prompt.value = text;
        fit();
        this.#send();
      };
      byId("examples").append(
        make("li", {}, make("button", { type: "button", class: "example", onclick: choose }, text)),
      );
    }
    this.#welcome = byId("welcome");
  }

  #onKeyWanted;
  #inspector;
  #welcome;
  #history = [];
  #running = null;

  /** Forgets everything that was said. */
  restart() {
    this.#running?.abort();
    this.#history = [];
    this.#inspector.hide();
    byId("turns").replaceChildren(this.#welcome);
    byId("prompt").focus();
  }

  async #send() {
    const prompt = byId("prompt");
    const text = prompt.value.trim();
    if (!text || this.#running || !isValid()) return;
    prompt.value = "";
    fit();
    this.#welcome.remove();
    const history = this.#history;
    const turn = make("article", { class: "turn" }, make("p", { class: "said" }, text));
    byId("turns").append(turn);
    const messages = [...history, { role: "user", content: text }];
    const question = { ...asked(), messages: withSystem(messages) };
    const { answer, error } = await this.#ask(turn, question);
    if (history !== this.#history) return;
    if (answer.text) {
      history.push(messages.at(-1), { role: "assistant", content: answer.text });
      if (!error && answer.finish) this.#offerComparison(turn, question, answer);
      this.#offerCopy(answer);
    } else {
      // Nothing came of it: the message goes back to where it can be sent again.
      prompt.value ||= text;
      fit();
    }
  }

  /** Streams an answer into `place`; an error is shown there as the endpoint tells it. */
  async #ask(place, question) {
    const answer = new Answer();
    place.append(answer.element);
    stickToEnd(true);
    const running = (this.#running = new AbortController());
    this.#setRunning(true);
    let error = null;
    try {
      const options = { body: question, signal: running.signal };
      for await (const chunk of events("v1/chat/completions", options)) {
        const sticks = isNearEnd();
        answer.take(chunk);
        stickToEnd(sticks);
      }
      if (!answer.finish) throw new Lost();
    } catch (problem) {
      if (problem instanceof Trouble) error = problem;
      else if (!running.signal.aborted) throw problem;
    } finally {
      answer.end(running.signal.aborted ? "stopped" : "broken off");
      this.#running = null;
      this.#setRunning(false);
    }
    const sticks = isNearEnd();
    if (running.signal.aborted) answer.element.classList.add("stopped");
    if (error) this.#tell(place, error);
    else byId("announcer").textContent = answer.report;
    stickToEnd(sticks);
    return { answer, error };
  }

  #setRunning(isRunning) {
    const [stop, send] = [byId("stop"), byId("send")];
    const had = document.activeElement === (isRunning ? send : stop);
    stop.hidden = !isRunning;
    send.hidden = isRunning;
    if (had) (isRunning ? stop : byId("prompt")).focus();
  }

  #tell(place, error) {
    const again = error.retryAfter ? ` Try again in ${error.retryAfter} s.` : "";
    const isLong = error.status === 400 && this.#history.length > 0;
    const text = error.message + again + (isLong ? " A new chat leaves out what was said before." : "");
    // A stream that had begun well has no status of its own to tell.
    const status = error.status === 200 ? null : error.status;
    const label = [status && `Error ${status}`, error.code].filter(Boolean).join(" · ");
    place.append(
      make("div", { class: "error", role: "alert" }, label ? make("b", {}, label) : null, text),
    );
    if (error.status === 401) this.#onKeyWanted();
  }

  #offerCopy(answer) {
    const button = make("button", { type: "button", class: "quiet" }, "Copy");
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(answer.text);
      button.textContent = "Copied";
    });
    // Only pages of this machine, or over TLS, may write to the clipboard.
    if (navigator.clipboard) answer.actions.append(button);
  }

  /** The same question with the same seed, without drafts or with them. */
  #offerComparison(turn, question, answer) {
    const had = question.max_drafts === undefined;
    const button = make(
      "button",
      { type: "button", class: "quiet" },
      had ? "Again without drafts" : "Again with drafts",
    );
    button.addEventListener("click", async () => {
      if (this.#running) return;
      byId("prompt").focus();
      button.hidden = true;
      const { max_drafts: _, ...other } = question;
      if (had) other.max_drafts = 0;
      const place = make("div", { class: "again" }, make("h3", {}, had ? "Without drafts" : "With drafts"));
      turn.append(place);
      const { answer: again, error } = await this.#ask(place, other);
      button.hidden = !error && Boolean(again.finish);
      if (button.hidden) {
        const [drafted, alone] = had ? [answer, again] : [again, answer];
        place.append(make("p", { class: "outcome" }, compared(drafted, alone)));
        stickToEnd(isNearEnd());
      }
    });
    answer.actions.append(button);
  }
}

/** What came of the same question with drafts and without. */
function compared(drafted, alone) {
  const times = drafted.pace && alone.pace ? drafted.pace / alone.pace : null;
  const speed =
    times === null
      ? "both are too short to compare their speed"
      : times >= 1
      ? `drafts made it ${number(times, 1)} times as fast`
      : `drafts made it slower, ${number(times, 2)} times as fast`;
  const passes = `${number(drafted.passes.length)} target passes instead of ${number(alone.passes.length)}`;
  return drafted.text === alone.text
    ? `The same text, letter for letter: ${speed}, with ${passes}.`
    : `Another text, equally likely: this acceptance mode repeats an answer only with the same drafts. ${speed[0].toUpperCase()}${speed.slice(1)}.`;
}

/** Whether the settings can be sent; where not, they are shown with what is wrong. */
function isValid() {
  const form = byId("composer");
  if (form.checkValidity()) return true;
  if (byId("settings").hidden) byId("show-settings").click();
  return form.reportValidity();
}

/** What the settings ask for. */
function asked() {
  const value = (id) => byId(id).value.trim();
  const question = {
    stream: true,
    stream_options: { include_usage: true },
    logprobs: true,
    top_logprobs: ALTERNATIVES,
    return_token_authors: true,
    seed: value("seed") ? Number(value("seed")) : crypto.getRandomValues(new Uint32Array(1))[0],
  };
  if (value("temperature")) question.temperature = Number(value("temperature"));
  if (value("max-tokens")) question.max_tokens = Number(value("max-tokens"));
  if (!byId("drafts-on").checked) question.max_drafts = 0;
  return question;
}

function withSystem(messages) {
  const content = byId("system").value.trim();
  return content ? [{ role: "system", content }, ...messages] : messages;
}

/** The prompt grows with what is written in it. */
function fit() {
  const prompt = byId("prompt");
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight}px`;
}

function isNearEnd() {
  const turns = byId("turns");
  return turns.scrollHeight - turns.scrollTop - turns.clientHeight < NEAR_END_PX;
}

function stickToEnd(sticks) {
  const turns = byId("turns");
  if (sticks) turns.scrollTop = turns.scrollHeight;
}
