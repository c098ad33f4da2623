// Every channel that this tab has heard of; frames go in, pages read slots and rings.
import { batch, signal } from "@preact/signals";
import { Ring } from "./ring";
import { Slot } from "./slot";
import type { Delta } from "./types";

const KEPT = 2_000;
/** Channels that nobody looks at are kept for a quick way back, but not without bound. */
const IDLE_KEPT = 40;

const known = new Map<string, Slot | Ring>();
const dirty = new Set<Slot | Ring>();
const shown = new WeakSet<Slot | Ring>();

/** What the server said about a channel that it cannot fill. */
export const troubles = signal<Readonly<Record<string, string>>>({});

export function slot(name: string): Slot {
  const found = known.get(name);
  if (found instanceof Slot) return found;
  const made = new Slot();
  known.set(name, made);
  return made;
}

export function ring(name: string): Ring {
  const found = known.get(name);
  if (found instanceof Ring) return found;
  const made = new Ring(KEPT);
  known.set(name, made);
  return made;
}

/** Take one delta in; false when it leaves a gap. Nothing is shown before `flush`. */
export function apply(name: string, delta: Delta): boolean {
  if (delta.kind === "replace") {
    const target = slot(name);
    target.replace(delta.data, delta.version);
    dirty.add(target);
    return true;
  }
  const target = ring(name);
  dirty.add(target);
  if (delta.kind === "append") return target.append(delta.data.columns, delta.version);
  target.snapshot(delta.data.columns, delta.version);
  return true;
}

/** Show what came since the last time, all at once. */
export function flush(): void {
  if (!dirty.size) return;
  batch(() => {
    for (const one of dirty) {
      one.notify();
      shown.add(one);
    }
  });
  dirty.clear();
}

/** Whether anything of a channel is on the screen; the first of it is shown even while the page is paused. */
export function isShown(name: string): boolean {
  const found = known.get(name);
  return found !== undefined && shown.has(found);
}

export function versions(names: Iterable<string>): Record<string, number> {
  const have: Record<string, number> = {};
  for (const name of names) {
    const version = known.get(name)?.version ?? -1;
    if (version >= 0) have[name] = version;
  }
  return have;
}

/** Forget that we have anything of a channel, so that the server sends all of it. */
export function mistrust(name: string): void {
  const found = known.get(name);
  if (found) found.version = -1;
}

export function mistrustAll(): void {
  for (const one of known.values()) one.version = -1;
}

export function forgetIdle(wanted: ReadonlySet<string>): void {
  const idle = [...known.keys()].filter((name) => !wanted.has(name));
  for (const name of idle.slice(0, Math.max(0, idle.length - IDLE_KEPT))) known.delete(name);
}

export function trouble(name: string, message: string | null): void {
  if ((troubles.peek()[name] ?? null) === message) return;
  const { [name]: _, ...rest } = troubles.peek();
  troubles.value = message === null ? rest : { ...rest, [name]: message };
}

/** All but those of some channels. */
export function forgetTroubles(except: readonly string[]): void {
  const kept = Object.entries(troubles.peek()).filter(([name]) => except.includes(name));
  if (kept.length < Object.keys(troubles.peek()).length) troubles.value = Object.fromEntries(kept);
}
