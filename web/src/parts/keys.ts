// Keys that work on every page: Ctrl-K, p for pause, / for the filter, g and a letter for a page.
import { go } from "../route";
import { paused } from "../wire/pause";
import { pause } from "../wire/socket";
import { paletteOpen } from "./palette";

const GOES: Record<string, string> = { o: "overview", r: "results", t: "topics", d: "dead", a: "about" };
const WAITS = 1_200;

export const KEYS: [string, string][] = [
  ["Ctrl K", "go to anything"],
  ["p", "pause and go on"],
  ["/", "filter"],
  ["g then o r t d a", "overview, results, topics, dead letters, about"],
  ["↑ ↓ Enter", "rows of a table"],
  ["← → ↑ ↓", "nodes of the graph"],
  ["Esc", "close what is open"],
];

export function listenToKeys(): () => void {
  let wentAt = 0;
  const listen = (event: KeyboardEvent): void => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      paletteOpen.value = !paletteOpen.peek();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (event.key === "p") pause(!paused.peek());
    else if (event.key === "/") focusFilter(event);
    else if (event.key === "g") wentAt = performance.now();
    else if (performance.now() - wentAt < WAITS && GOES[event.key]) go(GOES[event.key]!);
  };
  document.addEventListener("keydown", listen);
  return () => document.removeEventListener("keydown", listen);
}

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input, textarea, select, dialog") !== null;
}

function focusFilter(event: KeyboardEvent): void {
  const box = document.querySelector<HTMLInputElement>("main input[type=search]");
  if (!box) return;
  event.preventDefault();
  box.focus();
}
