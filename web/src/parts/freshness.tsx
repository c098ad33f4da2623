// How old the newest data is, and what was merged or left out on the way here.
import type { JSX } from "preact";
import { count, duration } from "../format";
import { second, serverNow } from "../wire/clock";
import { paused } from "../wire/pause";
import { frameTime, link, lost } from "../wire/socket";

const WORDS = { connecting: "connecting", live: "live", stale: "stale", away: "no connection" };

export function Freshness(): JSX.Element {
  second.value;
  const { coalesced, dropped } = lost.value;
  const age = frameTime.peek() ? Math.max(0, serverNow() - frameTime.peek()) : null;
  const state = paused.value ? "paused" : link.value;
  const told = `${count(coalesced)} updates merged, ${count(dropped)} left out on the way to this tab`;
  return (
    <span class={`freshness ${state}`} role="status" title={told} aria-label={`${state}, ${told}`}>
      <i />
      <span>{paused.value ? "paused" : WORDS[link.value]}</span>
      {age !== null && (
        <small class="num">
          {age < 1_000 ? "data < 1 s old" : `data ${duration(Math.floor(age / 1_000) * 1_000)} old`}
        </small>
      )}
      {coalesced + dropped > 0 && (
        <small class="num">
          {count(coalesced)} merged{dropped > 0 && ` · ${count(dropped)} dropped`}
        </small>
      )}
    </span>
  );
}
