// The rows of a tail, newest first.
import type { Ring } from "../wire/ring";
import type { Cell } from "../wire/types";

export interface TailRow {
  time: number | null;
  partition: number;
  offset: number;
  key: string | null;
  value: string | null;
  headers: Cell;
  cut: boolean;
  binary: boolean;
  skipped: number;
}

export function tailRows(tail: Ring): TailRow[] {
  const column = (name: string): Cell[] => tail.column(name);
  const [times, partitions, offsets, keys, values] = ["time", "partition", "offset", "key", "value"].map(column);
  const [headers, cut, binary, skipped] = ["headers", "cut", "binary", "skipped"].map(column);
  const rows: TailRow[] = [];
  for (let at = tail.length - 1; at >= 0; at -= 1)
    rows.push({
      time: (times![at] ?? null) as number | null,
      partition: partitions![at] as number,
      offset: offsets![at] as number,
      key: text(keys![at] ?? null),
      value: text(values![at] ?? null),
      headers: headers![at] ?? null,
      cut: Boolean(cut![at]),
      binary: Boolean(binary![at]),
      skipped: Number(skipped![at] ?? 0),
    });
  return rows;
}

function text(cell: Cell): string | null {
  return cell === null || typeof cell === "string" ? cell : JSON.stringify(cell);
}
