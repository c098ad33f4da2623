// While the page is paused: what came is kept aside, bounded, and counted; nothing is lost by looking closely.
import { signal } from "@preact/signals";
import { apply, mistrust } from "./channels";
import { rowsIn } from "./ring";
import type { Delta } from "./types";

/** Rows of one channel that wait; beyond that the channel is asked for anew. */
const MOST_ROWS = 20_000;

export const paused = signal(false);
/** When it was paused, by the server's clock. */
export const pausedAt = signal(0);
/** Changes of channels that are not shown yet. */
export const waiting = signal(0);

type Waiting = { deltas: Delta[]; version: number; count: number };

const aside = new Map<string, Waiting>();
const overrun = new Set<string>();
let count = 0;

export function setAside(name: string, delta: Delta): void {
  count += delta.kind === "append" ? rowsIn(delta.data.columns) : 1;
  const known = aside.get(name);
  if (delta.kind !== "append" || !known) {
    aside.set(name, { deltas: [delta], version: delta.version, count: 0 });
    overrun.delete(name);
    return;
  }
  known.count += rowsIn(delta.data.columns);
  known.version = delta.version;
  if (known.count > MOST_ROWS) {
    known.deltas = [];
    overrun.add(name);
  } else known.deltas.push(delta);
}

/** The newest version of a channel that is here, shown or not. */
export function asideVersions(): Record<string, number> {
  return Object.fromEntries([...aside].map(([name, one]) => [name, one.version]));
}

export function tellWaiting(): void {
  waiting.value = count;
}

/** Put what waited into the channels; names of channels with a gap come back. */
export function release(): string[] {
  const gaps: string[] = [];
  for (const [name, one] of aside) {
    const fits = one.deltas.every((delta) => apply(name, delta));
    if (!fits || overrun.has(name)) {
      mistrust(name);
      gaps.push(name);
    }
  }
  discard();
  return gaps;
}

export function discard(): void {
  aside.clear();
  overrun.clear();
  count = 0;
  waiting.value = 0;
}
