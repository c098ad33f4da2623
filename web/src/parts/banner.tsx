// What the reader must know before believing the page: paused, stale, away, failed.
import type { JSX } from "preact";
import { pipelineTrouble } from "../api";
import { count, duration, plural } from "../format";
import { slot } from "../wire/channels";
import { second, serverNow } from "../wire/clock";
import { paused, pausedAt, waiting } from "../wire/pause";
import { frameTime, link, pause, refused, retryAt, retryNow } from "../wire/socket";
import type { State } from "../wire/types";
import { clockTime } from "./when";

export function Banner(): JSX.Element {
  return (
    <div class="banners" aria-live="polite">
      <Away />
      <Paused />
      <Run />
    </div>
  );
}

function Paused(): JSX.Element | null {
  if (!paused.value) return null;
  return (
    <p class="banner brass">
      <span>
        paused at {clockTime(pausedAt.value)}, <b class="num">{count(waiting.value)}</b>{" "}
        {waiting.value === 1 ? "update" : "updates"} waiting
      </span>
      <button type="button" onClick={() => pause(false)}>
        Go on
      </button>
    </p>
  );
}

function Away(): JSX.Element | null {
  second.value;
  if (link.value === "live" || link.value === "connecting") return null;
  const age = frameTime.peek()
    ? `what is shown is ${duration(Math.floor((serverNow() - frameTime.peek()) / 1_000) * 1_000)} old`
    : "";
  if (link.value === "stale")
    return <p class="banner coral">stale: the server has been silent for three heartbeats; {age}</p>;
  const wait = Math.max(0, Math.ceil((retryAt.value - performance.now()) / 1_000));
  return (
    <p class="banner coral">
      <span>
        {refused.value ?? "no connection to the pipeline"}
        {age && `; ${age}`}; {wait ? `trying again in ${wait} s` : "trying again"}
      </span>
      <button type="button" onClick={retryNow}>
        Try now
      </button>
    </p>
  );
}

function Run(): JSX.Element | null {
  const state = slot("state").value.value as State | null;
  if (pipelineTrouble.value && !state) return <p class="banner coral">{pipelineTrouble.value}</p>;
  if (!state || state.phase === "running" || !state.reasons.length) return null;
  const [first, ...more] = state.reasons;
  const again = state.phase === "restarting"; // its sentence says so itself
  return (
    <p class={`banner ${state.phase === "failed" ? "coral" : again ? "brass" : "calm"}`}>
      {!again && `${state.phase}: `}
      {first}
      {more.length > 0 && ` (and ${plural(more.length, "more reason")})`}
    </p>
  );
}
