// Which channels the components on the screen want; the socket subscribes to their union.
import { useEffect } from "preact/hooks";

const counts = new Map<string, number>();
let tell: () => void = () => {};
let told = false;

export function onWanted(listener: () => void): void {
  tell = listener;
}

export function wanted(): Set<string> {
  return new Set(counts.keys());
}

function changed(): void {
  if (told) return;
  told = true;
  // Leaving one page and coming to the next is one change, not two.
  setTimeout(() => {
    told = false;
    tell();
  }, 0);
}

function want(names: readonly string[]): () => void {
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  changed();
  return () => {
    for (const name of names) {
      const left = (counts.get(name) ?? 1) - 1;
      if (left) counts.set(name, left);
      else counts.delete(name);
    }
    changed();
  };
}

/** Keep channels coming for as long as the component is shown. */
export function useChannels(...names: string[]): void {
  // biome-ignore lint/correctness/useExhaustiveDependencies: the names themselves are what it depends on
  useEffect(() => want(names), [names.join("\n")]);
}
