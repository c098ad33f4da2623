// The drawer of a node: what is written in the pipeline's file, and what its queries do now.
import type { ComponentChildren, JSX } from "preact";
import { bytes, count, duration, percent, rate } from "../format";
import { Badge } from "../parts/badge";
import { Drawer, Facts } from "../parts/drawer";
import { because, Value } from "../parts/na";
import { href } from "../route";
import { destination, visible } from "../text";
import type { Pipeline, QueryState, State } from "../wire/types";
import { graphOf, type Node, queriesOf } from "./model";
import { selected } from "./selected";

export function NodeDrawer({ pipeline, state }: { pipeline: Pipeline; state: State | null }): JSX.Element | null {
  const node = graphOf(pipeline).nodes.find((one) => one.id === selected.value);
  if (!node) return null;
  return (
    <Drawer
      key={node.id}
      title={visible(node.name)}
      kind={node.kind}
      onClose={() => {
        selected.value = null;
      }}
    >
      <Facts facts={written(node, pipeline, state)} />
      <Source node={node} pipeline={pipeline} />
      {queriesOf(node, state).map((query) => (
        <QueryFacts key={query.name} query={query} />
      ))}
    </Drawer>
  );
}

function written(node: Node, pipeline: Pipeline, state: State | null): [string, ComponentChildren][] {
  if (node.kind === "sink") {
    const sink = pipeline.sinks[Number(node.id.split(":")[1])]!;
    return [
      ["of table", sink.table],
      ["goes to", sink.to ? visible(sink.to) : destination(sink)],
      ["mode", sink.mode ?? "–"],
      ["guarantee", sink.guarantee ?? "not stated"],
      ...place(sink.file, sink.line),
    ];
  }
  if (node.kind === "table") {
    const table = pipeline.tables.find((one) => one.name === node.name)!;
    return [
      ["reads", table.reads.join(", ") || "nothing"],
      ["watermark", table.watermark ?? "none"],
      ...place(table.file, table.line),
    ];
  }
  const source = pipeline.sources.find((one) => one.name === node.name)!;
  const dead = state?.dead[node.name] ?? 0;
  return [
    ["comes from", `${source.connector}${source.detail ? ` ${source.detail}` : ""}`],
    ["watermark", source.watermark ?? "none"],
    [
      "dead letters",
      dead ? (
        <a key="dead" href={href("dead")}>
          {count(dead)}
        </a>
      ) : (
        "none"
      ),
    ],
    ...place(source.file, source.line),
  ];
}

function place(file: string | null, line: number | null): [string, ComponentChildren][] {
  return file ? [["written at", <code key="at">{`${file}${line ? `:${line}` : ""}`}</code>]] : [];
}

function Source({ node, pipeline }: { node: Node; pipeline: Pipeline }): JSX.Element | null {
  const table = node.kind === "table" ? pipeline.tables.find((one) => one.name === node.name) : undefined;
  const code = table?.sql ?? table?.source;
  return code ? (
    <pre class="code" tabIndex={0}>
      {visible(code.trim())}
    </pre>
  ) : null;
}

function QueryFacts({ query }: { query: QueryState }): JSX.Element {
  const show = (field: keyof QueryState, format: (value: number) => string): ComponentChildren => (
    <Value value={query[field] as number | null} format={format} why={because(field, query.why)} />
  );
  return (
    <section class="query-facts">
      <h3>
        <a href={href("query", query.name)}>query {visible(query.name)}</a> <Badge phase={query.phase} />
      </h3>
      {query.silence && <p class="silence">{query.silence}</p>}
      {query.error && <p class="trouble">{query.error.message}</p>}
      <Facts
        facts={[
          ["busy", show("busy", percent)],
          ["rows in", show("in_rate", rate)],
          ["batch", show("batch_ms", duration)],
          ["behind", show("lag_seconds", (value) => duration(value * 1_000))],
          ["watermark gap", show("watermark_gap_ms", duration)],
          ["state", show("state_rows", (value) => `${count(value)} rows`)],
          ["state memory", show("state_bytes", bytes)],
          ["late rows", count(query.late)],
        ]}
      />
    </section>
  );
}
