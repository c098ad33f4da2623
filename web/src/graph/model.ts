// The pipeline as nodes and edges, and how busy each of them is now.
import type { Pipeline, QueryState, State } from "../wire/types";

export type NodeKind = "source" | "table" | "sink";

export interface Node {
  id: string;
  kind: NodeKind;
  name: string;
  detail: string;
  /** Queries that do the work of this node. */
  queries: string[];
}

export interface Edge {
  from: string;
  to: string;
}

export interface Graph {
  nodes: Node[];
  edges: Edge[];
}

export function graphOf(pipeline: Pipeline): Graph {
  const upstream = new Map<string, Set<string>>();
  const reads = new Map(pipeline.tables.map((table) => [table.name, table.reads]));
  const above = (name: string, seen = new Set<string>()): Set<string> => {
    const known = upstream.get(name);
    if (known) return known;
    if (!seen.has(name)) {
      seen.add(name);
      for (const read of reads.get(name) ?? []) above(read, seen);
    }
    return seen;
  };
  for (const query of pipeline.queries) upstream.set(query.name, above(query.table, new Set()));
  const doing = (name: string): string[] =>
    pipeline.queries.filter((query) => upstream.get(query.name)?.has(name)).map((query) => query.name);
  const nodes: Node[] = [
    ...pipeline.sources.map(({ name, connector, detail }) => ({
      id: name,
      kind: "source" as const,
      name,
      detail: detail && detail !== name ? `${connector} · ${detail}` : connector,
      queries: doing(name),
    })),
    ...pipeline.tables.map(({ name, watermark }) => ({
      id: name,
      kind: "table" as const,
      name,
      detail: watermark ? `watermark ${watermark}` : "table",
      queries: doing(name),
    })),
    ...pipeline.sinks.map((sink, index) => ({
      id: `sink:${index}`,
      kind: "sink" as const,
      name: sink.detail ?? sink.to ?? sink.connector,
      detail: `${sink.connector}${sink.mode ? ` · ${sink.mode}` : ""}`,
      queries: sink.query ? [sink.query] : doing(sink.table),
    })),
  ];
  const known = new Set(nodes.map((node) => node.id));
  const edges = [
    ...pipeline.tables.flatMap((table) => table.reads.map((read) => ({ from: read, to: table.name }))),
    ...pipeline.sinks.map((sink, index) => ({ from: sink.table, to: `sink:${index}` })),
  ].filter(({ from, to }) => known.has(from) && known.has(to));
  return { nodes, edges };
}

export function queriesOf(node: Node, state: State | null): QueryState[] {
  return (state?.queries ?? []).filter((query) => node.queries.includes(query.name));
}

/** The busiest of the queries that do the work of a node; null when none tells. */
export function busyOf(node: Node, state: State | null): number | null {
  const told = queriesOf(node, state)
    .map((query) => query.busy)
    .filter((busy): busy is number => busy !== null);
  return told.length ? Math.max(...told) : null;
}

/** `failed` or `restarting` when a query that does the work of a node does not work. */
export function brokenBy(node: Node, state: State | null): "failed" | "restarting" | null {
  const queries = queriesOf(node, state);
  if (queries.some((query) => query.phase === "failed")) return "failed";
  return queries.some((query) => query.phase === "restarting" || query.restart) ? "restarting" : null;
}

const LATE = 10;

/** Always at work is fine for a query that keeps up; it is trouble for one that is behind as well. */
export function level(node: Node, state: State | null): string {
  const busy = busyOf(node, state);
  const broken = brokenBy(node, state);
  if (broken) return broken;
  if (busy === null) return "unknown";
  if (busy < 0.75) return busy < 0.3 ? "idle" : "flowing";
  return queriesOf(node, state).some((query) => (query.lag_seconds ?? 0) > LATE) ? "hot" : "busy";
}

export function rateOf(edge: Edge, state: State | null): number | null {
  return state?.edges.find(({ from, to }) => from === edge.from && to === edge.to)?.rate ?? null;
}
