// The last minutes of the figures on the strip, remembered by the tab: the server tells only the newest.
import { slot } from "./channels";
import type { Figures, State } from "./types";

const EVERY = 1_000;
const KEPT = 300;

export const trendTimes: number[] = [];
export const trends: Partial<Record<keyof Figures, (number | null)[]>> = {};

export function rememberTrends(): void {
  slot("state").value.subscribe((value) => {
    const state = value as State | null;
    if (!state) return;
    const newest = trendTimes.at(-1) ?? -Infinity;
    // A clock that was set back begins a new trend.
    if (state.time < newest) forget();
    else if (state.time - newest < EVERY) return;
    trendTimes.push(state.time);
    for (const [name, figure] of Object.entries(state.figures) as [keyof Figures, number | null][]) {
      const kept = trends[name] ?? new Array<number | null>(trendTimes.length - 1).fill(null);
      trends[name] = kept;
      kept.push(figure);
      if (kept.length > KEPT) kept.shift();
    }
    if (trendTimes.length > KEPT) trendTimes.shift();
  });
}

function forget(): void {
  trendTimes.length = 0;
  for (const name of Object.keys(trends) as (keyof Figures)[]) delete trends[name];
}
