// Rows with any columns as a table, cells cut, with a drawer for a whole row.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { isNumber } from "../format";
import { type Column, Table } from "../parts/table";
import { fullTime } from "../parts/when";
import { cut, plain } from "../text";
import type { Cell, PanelData } from "../wire/types";

export interface Opened {
  title: string;
  columns: string[];
  row: Cell[];
  types: PanelData["types"];
}

/** The row whose drawer is open. */
export const openedRow = signal<Opened | null>(null);

const exact = new Intl.NumberFormat("en", { maximumFractionDigits: 6 });

export function cellText(cell: Cell, type?: string): string {
  if (type === "time" && isNumber(cell)) return fullTime(cell);
  if (isNumber(cell)) return exact.format(cell);
  return cut(plain(cell));
}

export function Rows({
  label,
  columns,
  types,
  rows,
  extra,
  rowsShown,
}: {
  label: string;
  columns: string[];
  types?: PanelData["types"];
  rows: Cell[][];
  extra?: ComponentChildren;
  rowsShown?: number;
}): JSX.Element {
  const made: Column<Cell[]>[] = columns.map((name, at) => {
    const type = types?.[at];
    const right = type ? type === "number" : rows.some((row) => isNumber(row[at] ?? null));
    return {
      name: `${at}`,
      title: cut(name, 60),
      right,
      moment: type === "time",
      wide: !right && type !== "time" && columns.length < 8,
      value: (row) => sortable(row[at] ?? null),
      show: (row) => {
        const cell = row[at] ?? null;
        return cell === null ? <span class="na">null</span> : cellText(cell, type);
      },
    };
  });
  return (
    <Table
      label={label}
      rows={rows}
      columns={made}
      rowKey={(_, index) => `${index}`}
      onOpen={(row) => {
        openedRow.value = { title: label, columns, row, types };
      }}
      empty="no rows"
      extra={extra}
      rowsShown={rowsShown ?? 12}
    />
  );
}

function sortable(cell: Cell): string | number | boolean | null {
  return cell !== null && typeof cell === "object" ? JSON.stringify(cell) : cell;
}
