// A table with sorting, filtering, the keyboard, and only those rows in the page that can be seen.
import { useSignal } from "@preact/signals";
import type { ComponentChildren, JSX, TargetedKeyboardEvent } from "preact";
import { useMemo, useRef } from "preact/hooks";
import { count } from "../format";
import { Filter } from "./filter";
import { Icon } from "./icon";
import { matches } from "./matching";

export interface Column<Row> {
  name: string;
  title?: ComponentChildren;
  /** What is sorted by, and searched in. */
  value: (row: Row) => string | number | boolean | null;
  show?: (row: Row) => ComponentChildren;
  right?: boolean;
  wide?: boolean;
  /** Room for a moment, written in full. */
  moment?: boolean;
  mono?: boolean;
}

export interface TableProps<Row> {
  label: string;
  rows: readonly Row[];
  columns: Column<Row>[];
  rowKey: (row: Row, index: number) => string;
  onOpen?: (row: Row) => void;
  chosen?: string | null;
  sort?: string;
  descending?: boolean;
  empty?: string;
  /** Without sorting, as for a tail: the order is the meaning. */
  fixed?: boolean;
  filter?: boolean;
  extra?: ComponentChildren;
  tone?: (row: Row) => string;
  rowsShown?: number;
}

const HEIGHT = 34;
const MARGIN = 8;

export function Table<Row>(props: TableProps<Row>): JSX.Element {
  const sort = useSignal(props.sort ?? "");
  const descending = useSignal(props.descending ?? false);
  const filter = useSignal("");
  const top = useSignal(0);
  const body = useRef<HTMLDivElement>(null);

  const { rows, columns } = props;
  const kept = useMemo(
    () => arranged(rows, columns, filter.value, props.fixed ? "" : sort.value, descending.value),
    [rows, columns, filter.value, sort.value, descending.value, props.fixed],
  );
  const seen = props.rowsShown ?? 14;
  const first = Math.max(0, Math.min(Math.floor(top.value / HEIGHT), kept.length - 1) - MARGIN);
  const shown = kept.slice(first, first + seen + 2 * MARGIN);
  const grid = columns.map(width).join(" ");

  const sortBy = (name: string): void => {
    descending.value = sort.value === name ? !descending.value : false;
    sort.value = name;
  };

  return (
    <div class="table">
      {(props.filter !== false || props.extra) && (
        <div class="tools">
          {props.filter !== false && <Filter label={`Filter ${props.label}`} value={filter} />}
          {filter.value && (
            <span class="note">
              {count(kept.length)} of {count(rows.length)}
            </span>
          )}
          {props.extra}
        </div>
      )}
      <div class="grid" role="grid" aria-label={props.label} aria-rowcount={kept.length}>
        <div class="head" role="row" tabIndex={-1} style={{ gridTemplateColumns: grid }}>
          {columns.map((column) => (
            <div
              key={column.name}
              role="columnheader"
              tabIndex={-1}
              class={column.right ? "right" : ""}
              aria-sort={sort.value === column.name ? (descending.value ? "descending" : "ascending") : "none"}
            >
              {props.fixed ? (
                <span>{column.title ?? column.name}</span>
              ) : (
                <button type="button" class="plain" onClick={() => sortBy(column.name)}>
                  {column.title ?? column.name}
                  {sort.value === column.name && <Icon name={descending.value ? "down" : "up"} />}
                </button>
              )}
            </div>
          ))}
        </div>
        <div
          class="body"
          ref={body}
          style={{ maxHeight: `${seen * HEIGHT}px` }}
          onScroll={(event) => {
            top.value = event.currentTarget.scrollTop;
          }}
          onKeyDown={(event) => walk(event)}
          role="rowgroup"
        >
          {kept.length === 0 && <p class="empty">{filter.value ? "nothing matches the filter" : props.empty}</p>}
          <div style={{ height: `${kept.length * HEIGHT}px` }} class="all">
            {shown.map((row, place) => {
              const key = props.rowKey(row, first + place);
              return (
                <div
                  key={key}
                  role="row"
                  tabIndex={0}
                  aria-rowindex={first + place + 1}
                  aria-selected={props.chosen === key}
                  class={`row ${props.onOpen ? "opens" : ""} ${props.tone?.(row) ?? ""}`}
                  style={{ gridTemplateColumns: grid, transform: `translateY(${(first + place) * HEIGHT}px)` }}
                  onClick={() => props.onOpen?.(row)}
                  onKeyDown={(event) => {
                    if (event.key !== "Enter" && event.key !== " ") return;
                    event.preventDefault();
                    props.onOpen?.(row);
                  }}
                >
                  {columns.map((column) => (
                    <div
                      key={column.name}
                      role="gridcell"
                      tabIndex={-1}
                      class={`${column.right ? "right" : ""} ${column.mono ? "mono" : ""}`}
                    >
                      {column.show ? column.show(row) : column.value(row)}
                    </div>
                  ))}
                </div>
              );
            })}
          </div>
        </div>
      </div>
    </div>
  );
}

function width<Row>(column: Column<Row>): string {
  if (column.moment) return "minmax(13.8rem, 1.4fr)";
  if (column.wide) return "minmax(7.5rem, 3fr)";
  return column.right ? "minmax(3.9rem, 1fr)" : "minmax(5rem, 1.4fr)";
}

function arranged<Row>(
  rows: readonly Row[],
  columns: Column<Row>[],
  filter: string,
  sort: string,
  descending: boolean,
): readonly Row[] {
  const found = filter
    ? rows.filter((row) =>
        matches(
          filter,
          columns.map((column) => column.value(row)),
        ),
      )
    : rows;
  const by = columns.find((column) => column.name === sort);
  if (!by) return found;
  const sign = descending ? -1 : 1;
  const value = new Map(found.map((row) => [row, by.value(row)]));
  return [...found].sort((a, b) => compare(value.get(a) ?? null, value.get(b) ?? null, sign));
}

/** Numbers by size, texts by alphabet, and what is not there last, whichever way it is sorted. */
function compare(a: string | number | boolean | null, b: string | number | boolean | null, sign: number): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  if (typeof a === "number" && typeof b === "number") return (a - b) * sign;
  return String(a).localeCompare(String(b), "en", { numeric: true }) * sign;
}

/** Arrow keys go from row to row; the page scrolls along. */
function walk(event: TargetedKeyboardEvent<HTMLDivElement>): void {
  const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
  if (step === undefined || !(document.activeElement instanceof HTMLElement)) return;
  event.preventDefault();
  const rows = [...event.currentTarget.querySelectorAll<HTMLElement>("[role=row]")];
  const order = rows.sort((a, b) => Number(a.ariaRowIndex) - Number(b.ariaRowIndex));
  const here = order.indexOf(document.activeElement);
  const target = order[Math.max(0, Math.min(order.length - 1, here + step))];
  target?.focus();
  target?.scrollIntoView({ block: "nearest" });
}
