/** Rates out of the counters that the endpoint tells: those of the last minute. Knows no page. */

export const WINDOW_S = 60;
const RATE_S = 2.5;
const GAP_S = 10;
const NOTHING = {
  emitted_tokens: 0,
  target_passes: 0,
  drafted_passes: 0,
  verified_tokens: 0,
  accepted_tokens: 0,
  accepted_per_position: [],
  forward_seconds: 0,
  idle_seconds: 0,
};

/** Takes each state of the cluster; `figures` are null before the first. */
export class Rates {
  #states = [];
  #figures = null;

  /** The next state of the cluster, which came `at` seconds by a clock that nobody sets. */
  take({ since, work }, at = performance.now() / 1000) {
    const last = this.#states.at(-1);
    if (last && since !== last.since) {
      // A server that began anew counts from nothing.
      this.#states = [];
      this.#figures = null;
    } else if (last && at - last.at > GAP_S) {
      this.#states = [];
    }
    const before = this.#states.at(-1);
    this.#states.push({ at, since, work });
    while (at - this.#states[1]?.at > WINDOW_S) this.#states.shift();
    if (!this.#figures) this.#figures = figures(NOTHING, work);
    // Where nothing was done since, what was seen last stays.
    else if (before && work.target_passes > before.work.target_passes) {
      this.#figures = figures(this.#states[0].work, work);
    }
  }

  get figures() {
    return this.#figures;
  }

  /** Tokens a second just now. */
  get speed() {
    const now = this.#states.at(-1);
    const before = this.#states.findLast((state) => now.at - state.at >= RATE_S - 1);
    if (!before) return 0;
    const tokens = now.work.emitted_tokens - before.work.emitted_tokens;
    return tokens / (now.at - before.at);
  }

  /** Tokens a second between each two states, as [seconds ago, speed]. */
  get history() {
    const now = this.#states.at(-1)?.at;
    return this.#states.slice(1).map((state, index) => {
      const before = this.#states[index];
      const tokens = state.work.emitted_tokens - before.work.emitted_tokens;
      return [now - state.at, tokens / Math.max(0.1, state.at - before.at)];
    });
  }
}

function figures(since, now) {
  const more = (name) => now[name] - since[name];
  const share = (part, whole) => (whole > 0 ? part / whole : null);
  return {
    tokensPerPass: share(more("emitted_tokens"), more("target_passes")),
    acceptance: share(more("accepted_tokens"), more("verified_tokens")),
    idle: share(more("idle_seconds"), more("idle_seconds") + more("forward_seconds")),
    passMs: share(more("forward_seconds") * 1000, more("target_passes")),
    positions: now.accepted_per_position.map((count, place) =>
      share(count - (since.accepted_per_position[place] ?? 0), more("drafted_passes")),
    ),
  };
}
