// Two things against each other, the value as a colour.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { look } from "../choices";
import { watch } from "../draw/loop";
import { sizeOf } from "../draw/sizes";
import { plural } from "../format";
import { fullTime } from "../parts/when";
import { cut } from "../text";
import type { Cell, Panel, PanelData } from "../wire/types";
import { AsIs } from "./asis";
import { columnFor, vanished } from "./columns";
import { type Cells, cellAt, paintHeat } from "./heatpaint";

const MOST = 60;

export function Heat({ panel, data }: { panel: Panel; data: PanelData }): JSX.Element {
  const failure = vanished(panel, data, ["x", "y", "value"]);
  const cells = useMemo(() => cellsOf(panel, data), [panel, data]);
  const canvas = useRef<HTMLCanvasElement>(null);
  const newest = useRef(cells);
  newest.current = cells;
  const pointed = useSignal<string | null>(null);
  const broken = failure !== null;
  useEffect(() => {
    if (broken) return;
    const element = canvas.current!;
    let drawn: Cells | null = null;
    let drawnFor = "";
    return watch(element, {
      draw() {
        const reason = `${look.peek()} ${sizeOf(element).wide} ${sizeOf(element).high}`;
        if (drawn === newest.current && reason === drawnFor) return;
        drawn = newest.current;
        drawnFor = reason;
        paintHeat(element, drawn);
      },
    });
  }, [broken]);
  if (failure) return <AsIs failure={failure} data={data} />;
  return (
    <div class="heat-map">
      <canvas
        ref={canvas}
        role="img"
        aria-label={`heat map of ${plural(cells.ys.length, "row")} by ${plural(cells.xs.length, "column")}; the button above shows it as a table`}
        onPointerMove={(event) => {
          const box = event.currentTarget.getBoundingClientRect();
          pointed.value = cellAt(event.currentTarget, newest.current, event.clientX - box.x, event.clientY - box.y);
        }}
        onPointerLeave={() => {
          pointed.value = null;
        }}
      />
      <p class="note num">
        {pointed.value ??
          (cells.left ? `${plural(cells.left, "cell")} beyond ${MOST} × ${MOST} not drawn` : "point at a cell")}
      </p>
    </div>
  );
}

function cellsOf(panel: Panel, data: PanelData): Cells {
  const [x, y, value] = ["x", "y", "value"].map((role) => columnFor(panel, data, role)) as [number, number, number];
  const xs = axis(data.rows, x, data.types?.[x]);
  const ys = axis(data.rows, y, data.types?.[y]);
  const values = new Map<string, number>();
  let left = 0;
  for (const row of data.rows) {
    const [column, line] = [xs.indexOf.get(key(row[x])), ys.indexOf.get(key(row[y]))];
    const amount = row[value];
    if (column === undefined || line === undefined) left += 1;
    else if (typeof amount === "number" && Number.isFinite(amount)) values.set(`${column} ${line}`, amount);
  }
  return { xs: xs.names, ys: ys.names, values, left };
}

function key(cell: Cell | undefined): string {
  return JSON.stringify(cell ?? null);
}

/** The different values of a column in their order; of times the newest are kept, of others the first. */
function axis(rows: Cell[][], at: number, type?: string): { names: string[]; indexOf: Map<string, number> } {
  const found = new Map<string, Cell>();
  for (const row of rows) found.set(key(row[at]), row[at] ?? null);
  const sorted = [...found].sort(([, a], [, b]) => order(a, b));
  const kept = type === "time" ? sorted.slice(-MOST) : sorted.slice(0, MOST);
  return {
    names: kept.map(([, cell]) =>
      type === "time" && typeof cell === "number"
        ? fullTime(cell).slice(11, 19)
        : cut(cell === null ? "null" : String(cell), 24),
    ),
    indexOf: new Map(kept.map(([name], place) => [name, place])),
  };
}

function order(a: Cell, b: Cell): number {
  return typeof a === "number" && typeof b === "number"
    ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true });
}
