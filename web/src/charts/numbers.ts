// Columns of a ring as uPlot wants them: numbers, or null where there is none.
import type { Ring } from "../wire/ring";
import type { Cell } from "../wire/types";
import type { Data } from "./timechart";

export function numeric(values: Cell[]): (number | null)[] {
  return values.map((value) => (typeof value === "number" && Number.isFinite(value) ? value : null));
}

/** Times must grow for uPlot: after a clock was set back, what was before is left out. */
export function plotted(ring: Ring, names: string[]): Data {
  const times = ring.column("time") as number[];
  let start = 0;
  for (let at = 1; at < times.length; at += 1) if (times[at]! < times[at - 1]!) start = at;
  return [times.slice(start), ...names.map((name) => numeric(ring.column(name).slice(start)))];
}

export function anyNumber(values: readonly (number | null | undefined)[]): boolean {
  return values.some((value) => value !== null && value !== undefined);
}
