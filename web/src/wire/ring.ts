// A ring of rows in columns, as far as this tab has it: the newest rows, never more than `kept`.
import { signal } from "@preact/signals";
import type { Cell, Columns } from "./types";

export class Ring {
  columns: Columns = {};
  length = 0;
  version = -1;
  /** Grows when what is drawn from this ring has to be drawn again. */
  readonly changed = signal(0);

  constructor(private readonly kept: number) {}

  snapshot(columns: Columns, version: number): void {
    this.columns = {};
    this.length = 0;
    this.extend(columns);
    this.version = version;
  }

  /** False when rows are missing between what is here and what came: a new snapshot must be asked for. */
  append(columns: Columns, version: number): boolean {
    const known = this.version - (version - rowsIn(columns));
    if (this.version < 0 || known < 0) return false;
    // What crossed a subscription on its way may be here already.
    if (known < rowsIn(columns)) this.extend(known ? from(columns, known) : columns);
    this.version = Math.max(this.version, version);
    return true;
  }

  column(name: string): Cell[] {
    return this.columns[name] ?? [];
  }

  last(name: string): Cell {
    return this.columns[name]?.[this.length - 1] ?? null;
  }

  notify(): void {
    this.changed.value += 1;
  }

  private extend(columns: Columns): void {
    const added = rowsIn(columns);
    const before = this.length;
    for (const name of Object.keys(columns)) this.columns[name] ??= new Array<Cell>(before).fill(null);
    const surplus = Math.max(0, before + added - this.kept);
    for (const [name, old] of Object.entries(this.columns)) {
      const fresh = columns[name] ?? new Array<Cell>(added).fill(null);
      const all = old.concat(fresh);
      this.columns[name] = surplus ? all.slice(surplus) : all;
    }
    this.length = before + added - surplus;
  }
}

export function rowsIn(columns: Columns): number {
  for (const values of Object.values(columns)) return values.length;
  return 0;
}

function from(columns: Columns, start: number): Columns {
  return Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values.slice(start)]));
}
