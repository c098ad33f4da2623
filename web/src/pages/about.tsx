// What runs here: generations, guarantees, settings with their reasons, versions, and the keys of this page.
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { loadPipeline, pipeline } from "../api";
import { Facts } from "../parts/drawer";
import { KEYS } from "../parts/keys";
import { type Column, Table } from "../parts/table";
import { cut, destination, visible } from "../text";
import type { Generation, Pipeline, Sink } from "../wire/types";

type Setting = Pipeline["settings"][number];

const SETTINGS: Column<Setting>[] = [
  { name: "setting", wide: true, mono: true, value: (one) => one.name },
  { name: "value", mono: true, value: (one) => one.value, show: (one) => cut(String(one.value), 200) },
  { name: "why", wide: true, value: (one) => one.why, show: (one) => visible(one.why ?? "") },
];

const GENERATIONS: Column<Generation>[] = [
  { name: "generation", value: (one) => one.number },
  { name: "now", value: standsNow },
  { name: "how it was made", wide: true, value: (one) => one.standing, show: (one) => visible(one.standing) },
  { name: "of the log", wide: true, mono: true, value: spans, show: (one) => cut(spans(one)) },
  { name: "outputs", wide: true, mono: true, value: (one) => visible(one.outputs.join(", ")) },
];

const GUARANTEES: Column<Sink>[] = [
  { name: "table", value: (sink) => sink.table, show: (sink) => visible(sink.table) },
  { name: "goes to", value: destination },
  { name: "mode", value: (sink) => sink.mode, show: (sink) => sink.mode ?? "–" },
  { name: "guarantee", wide: true, value: (sink) => sink.guarantee, show: (sink) => sink.guarantee ?? "not stated" },
];

export function About(): JSX.Element {
  // A replay or a switch beside the run changes its generations.
  useEffect(() => void loadPipeline(), []);
  const known = pipeline.value;
  if (!known) return <p class="empty">asking …</p>;
  return (
    <div class="about">
      <div class="columns">
        <section class="card">
          <h2>{visible(known.name)}</h2>
          <Facts
            facts={[
              ["file", <code key="file">{known.file ?? "–"}</code>],
              ["generation", known.generation ?? "–"],
              [
                "queries",
                known.queries
                  .map((one) => `${one.name} (${[one.mode, one.trigger].filter(Boolean).join(", ")})`)
                  .join("; ") || "–",
              ],
              ["actions of this page", known.actions ? "allowed" : "switched off (--read-only)"],
            ]}
          />
        </section>
        <section class="card">
          <h2>Versions</h2>
          <Facts facts={Object.entries(known.versions).map(([name, version]) => [name, version])} />
        </section>
      </div>
      {known.generations.length > 0 && (
        <section class="card">
          <h2>Generations</h2>
          <Table
            label="generations"
            rows={known.generations}
            columns={GENERATIONS}
            rowKey={(one) => `${one.number}`}
            filter={false}
            rowsShown={8}
          />
        </section>
      )}
      <section class="card">
        <h2>Guarantees</h2>
        <Table
          label="guarantees"
          rows={known.sinks}
          columns={GUARANTEES}
          rowKey={(_, at) => `${at}`}
          filter={false}
          rowsShown={8}
          empty="no sinks"
        />
      </section>
      <section class="card">
        <h2>Settings</h2>
        <Table
          label="settings"
          rows={known.settings}
          columns={SETTINGS}
          rowKey={(one) => one.name}
          rowsShown={14}
          empty="none"
        />
      </section>
      <section class="card">
        <h2>Keys</h2>
        <Facts facts={KEYS.map(([keys, does]) => [keys, does])} />
      </section>
    </div>
  );
}

function standsNow(one: Generation): string {
  const own = one.number === pipeline.value?.generation;
  return [one.current && "current", own && "this run"].filter(Boolean).join(", ") || "–";
}

/** What a replay has read, partition by partition: the first offset and the one after the last. */
function spans(one: Generation): string {
  const read = Object.entries(one.end).flatMap(([topic, ends]) =>
    Object.entries(ends).map(([number, end]) => `${topic}[${number}] ${one.begin[topic]?.[number] ?? "–"} to ${end}`),
  );
  return read.join(", ") || "–";
}
