// Rows of time, key and value as one line a key, for uPlot.
import type { Data } from "../charts/timechart";
import type { Cell } from "../wire/types";

export const MOST_LINES = 12;

export interface Pivot {
  keys: string[];
  data: Data;
  /** Keys that are not drawn, because there are too many. */
  left: number;
  newest: number;
}

export function pivot(rows: readonly Cell[][], time: number, key: number, value: number): Pivot {
  const lines = new Map<string, Map<number, number | null>>();
  const sums = new Map<string, number>();
  const moments = new Set<number>();
  for (const row of rows) {
    const at = row[time];
    if (typeof at !== "number" || !Number.isFinite(at)) continue;
    const name = key < 0 ? "" : text(row[key] ?? null);
    const found = row[value];
    const amount = typeof found === "number" && Number.isFinite(found) ? found : null;
    let line = lines.get(name);
    if (!line) {
      line = new Map();
      lines.set(name, line);
    }
    line.set(at, amount);
    moments.add(at);
    sums.set(name, (sums.get(name) ?? 0) + Math.abs(amount ?? 0));
  }
  // The largest are drawn; by their names, so that a colour does not change its line with every row.
  const largest = [...lines.keys()].sort((a, b) => sums.get(b)! - sums.get(a)!).slice(0, MOST_LINES);
  const keys = largest.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const times = [...moments].sort((a, b) => a - b);
  // A moment at which one line has no row is a gap in the others' sampling, not a hole in this line: undefined.
  const data: Data = [times, ...keys.map((name) => times.map((at) => lines.get(name)!.get(at)))];
  return { keys, data, left: lines.size - keys.length, newest: times.at(-1) ?? 0 };
}

function text(cell: Cell): string {
  return cell === null ? "null" : typeof cell === "string" ? cell : JSON.stringify(cell);
}
