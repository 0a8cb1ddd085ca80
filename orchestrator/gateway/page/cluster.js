/** The cluster while it works: its services, and how fast they are. */
import { Card } from "./card.js";
import { byId, make, milliseconds, number, percent, say } from "./dom.js";
import { Trouble, events } from "./endpoint.js";
import { Rates, WINDOW_S } from "./rates.js";

const LONGEST_WAIT_MS = 10_000;
const MOST_POSITIONS = 16;

/** The panel. `onKeyWanted` is called where the endpoint wants a key, `onState` with each state. */
export class ClusterPanel {
  constructor({ onKeyWanted, onState }) {
    this.#onKeyWanted = onKeyWanted;
    this.#onState = onState;
    document.addEventListener("visibilitychange", () => {
      // A page that nobody sees holds no place that others want.
      if (document.hidden) this.#watching?.abort();
      else this.watch();
    });
  }

  #onKeyWanted;
  #onState;
  #rates = new Rates();
  #cards = new Map();
  #watching = null;
  #isDraining = false;

  /** Watches from now on; again, where it had given up. */
  async watch() {
    this.#watching?.abort();
    if (document.hidden) return;
    const watching = (this.#watching = new AbortController());
    const { signal } = watching;
    for (let wait = 1000; !signal.aborted; wait = Math.min(wait * 2, LONGEST_WAIT_MS)) {
      try {
        for await (const state of events("v1/cluster", { signal })) {
          wait = 1000;
          this.#show(state);
        }
        if (!this.#isDraining) this.#connection("lost", "The stream ended; asking again.");
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof Trouble)) throw error;
        if (error.status === 401) {
          this.#connection("lost", error.code ? "An API key is wanted." : error.message);
          this.#onKeyWanted();
          return;
        }
        this.#connection("lost", error.message);
      }
      await new Promise((done) => setTimeout(done, wait));
    }
  }

  #connection(state, text) {
    byId("connection").dataset.state = state;
    say(byId("connection"), text);
  }

  #show(state) {
    this.#isDraining = state.draining;
    this.#rates.take(state);
    this.#onState(state);
    const { figures: found, speed } = this.#rates;
    const { running_requests: running } = state.work;
    this.#connection(
      state.draining ? "lost" : "live",
      state.draining ? "The server is shutting down." : "live",
    );
    say(byId("speed"), number(speed, speed < 99.95 ? 1 : 0));
    say(byId("running"), running === 1 ? "1 request" : `${number(running)} requests`);
    say(byId("per-pass"), found.tokensPerPass === null ? "–" : number(found.tokensPerPass, 2));
    say(byId("acceptance"), found.acceptance === null ? "–" : percent(found.acceptance));
    say(byId("idle"), found.idle === null ? "–" : percent(found.idle));
    this.#drawSpeed();
    this.#showVerifier(state.verify, found);
    this.#showDrafts(state);
    showPositions(found.positions);
  }

  #drawSpeed() {
    const history = this.#rates.history;
    const most = Math.max(1, ...history.map(([, speed]) => speed));
    const x = (ago) => (100 - (ago / WINDOW_S) * 100).toFixed(2);
    const y = (speed) => (23 - (speed / most) * 21).toFixed(2);
    const line = history.map(([ago, speed]) => `${x(ago)},${y(speed)}`);
    const path = line.length ? `M${line.join("L")}` : "";
    byId("speed-line").setAttribute("d", path);
    const [begin, end] = [history[0], history.at(-1)];
    byId("speed-area").setAttribute("d", path && `${path}L${x(end[0])},24L${x(begin[0])},24Z`);
  }

  #showVerifier(verify, { passMs }) {
    const card = this.#card("verifier", byId("verifier"), null);
    card.update(verify, [
      ["pass", passMs === null ? "–" : milliseconds(passMs)],
      ["round trip", way(verify)],
      ["context", verify.context_tokens ? number(verify.context_tokens) : "–"],
    ]);
  }

  #showDrafts({ drafts, work }) {
    const list = byId("drafts");
    const ids = new Set(drafts.map(({ name }) => `draft ${name}`));
    for (const [id, card] of this.#cards) {
      if (id === "verifier" || ids.has(id)) continue;
      card.element.remove();
      this.#cards.delete(id);
    }
    for (const draft of drafts) {
      const card = this.#card(`draft ${draft.name}`, list, draft.name);
      const written = work.emitted_tokens ? draft.written_tokens / work.emitted_tokens : 0;
      card.update(
        draft,
        [
          ["step", draft.step_ms === null ? "–" : milliseconds(draft.step_ms)],
          ["round trip", way(draft)],
          ["accepted", draft.drafted_tokens ? percent(draft.accepted_tokens / draft.drafted_tokens) : "–"],
        ],
        written,
      );
    }
    byId("no-drafts").hidden = drafts.length > 0;
  }

  #card(id, place, draft) {
    if (!this.#cards.has(id)) {
      const card = new Card(draft);
      this.#cards.set(id, card);
      place.append(card.element);
    }
    return this.#cards.get(id);
  }
}

const way = (service) =>
  service.round_trip_ms === null ? "–" : milliseconds(service.round_trip_ms);

function showPositions(positions) {
  const list = byId("positions");
  const shown = positions.slice(0, MOST_POSITIONS);
  while (list.childElementCount > shown.length) list.lastChild.remove();
  while (list.childElementCount < shown.length) {
    list.append(make("li", {}, make("i"), make("span"), make("b")));
  }
  shown.forEach((share, place) => {
    const item = list.children[place];
    const text = share === null ? "–" : percent(share);
    const short = share === null ? "–" : `${Math.round(share * 100)}`;
    item.firstChild.style.setProperty("--share", (share ?? 0).toFixed(4));
    say(item.children[1], short);
    say(item.lastChild, `${place + 1}`);
    item.title = `token ${place + 1} behind the text: accepted in ${text} of the drafted passes`;
  });
  byId("no-positions").hidden = shown.some((share) => share);
}
