// The server's time, as well as it can be known here, so that the clocks of two machines need not agree.
import { signal } from "@preact/signals";

/** A difference beyond this, twice in a row, is a clock that was set and not a slow message. */
const JUMP = 5_000;

let offset = Date.now() - performance.now();
let known = false;
let doubts = 0;

/** By how much the server's clock jumped, last; the page says so. */
export const jumped = signal(0);
/** Grows once a second; whatever shows an age reads it. */
export const second = signal(0);

export function heardTime(time: number): void {
  const seen = time - performance.now();
  if (!known) {
    offset = seen;
    known = true;
    return;
  }
  const difference = seen - offset;
  // A message never comes before it was sent, so the largest difference is the truest; let it fade for drift.
  if (difference >= 0 && difference < JUMP) offset = seen;
  else if (Math.abs(difference) < JUMP) offset += difference * 0.01;
  if (Math.abs(difference) < JUMP) {
    doubts = 0;
    return;
  }
  doubts += 1;
  if (doubts < 2) return;
  offset = seen;
  doubts = 0;
  jumped.value = difference;
}

/** After a pause of the connection the clock is learnt anew. */
export function doubtClock(): void {
  known = false;
}

export function serverNow(): number {
  return performance.now() + offset;
}
