// The queries as a table.
import type { JSX } from "preact";
import { bytes, duration, percent, rate } from "../format";
import { Badge } from "../parts/badge";
import { because, Value } from "../parts/na";
import { type Column, Table } from "../parts/table";
import { go } from "../route";
import { visible } from "../text";
import type { QueryState } from "../wire/types";

function figure(name: string, field: keyof QueryState, format: (value: number) => string): Column<QueryState> {
  return {
    name,
    right: true,
    value: (query) => query[field] as number | null,
    show: (query) => <Value value={query[field] as number | null} format={format} why={because(field, query.why)} />,
  };
}

const COLUMNS: Column<QueryState>[] = [
  { name: "query", wide: true, value: (query) => query.name, show: (query) => visible(query.name) },
  { name: "phase", value: (query) => query.phase, show: (query) => <Badge phase={query.phase} /> },
  figure("in", "in_rate", rate),
  figure("batch", "batch_ms", duration),
  figure("busy", "busy", percent),
  figure("behind", "lag_seconds", (seconds) => duration(seconds * 1_000)),
  figure("gap", "watermark_gap_ms", duration),
  figure("state", "state_bytes", bytes),
];

export function Queries({ queries }: { queries: QueryState[] }): JSX.Element {
  return (
    <Table
      label="queries"
      rows={queries}
      columns={COLUMNS}
      rowKey={(query) => query.name}
      onOpen={(query) => go("query", query.name)}
      tone={(query) => (query.phase === "failed" || query.phase === "restarting" ? "bad" : "")}
      empty="no query has been started yet"
      rowsShown={10}
      filter={queries.length > 6}
    />
  );
}
