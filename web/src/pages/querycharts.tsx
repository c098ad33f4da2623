// The charts of a query: rates, batches by step, lag, watermark, state, output.
import type { JSX } from "preact";
import { Chart } from "../charts/chart";
import { anyNumber, plotted } from "../charts/numbers";
import type { Data, Line } from "../charts/timechart";
import { colour, token } from "../draw/canvas";
import { bytes, duration, rate, short } from "../format";
import { because } from "../parts/na";
import { ring, troubles } from "../wire/channels";
import type { Ring } from "../wire/ring";
import type { QueryState } from "../wire/types";

const water = (): string => token("--water");
const brass = (): string => token("--brass");
const coral = (): string => token("--coral");
const MOST_PARTITIONS = 12;

/** Spark's steps in the order in which a batch takes them; others come after. */
const STEPS = ["latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets", "commitBatch"];

export function QueryCharts({ name, query }: { name: string; query: QueryState }): JSX.Element {
  const history = ring(`history:${name}`);
  const lag = ring(`lag:${name}`);
  // Both are read so that a new row of either draws this anew.
  const versions = [history.changed.value, lag.changed.value];
  const seldom = query.busy === null && query.phase !== "starting";
  const none = seldom
    ? "Spark tells of batches only now and then in this mode; what Kafka tells is below"
    : "no batch has ended yet";
  return (
    <div class="charts" data-versions={versions.join(" ")}>
      <Rates ring={history} empty={none} />
      <Batches ring={history} empty={none} />
      <Lag ring={lag} history={history} query={query} trouble={troubles.value[`lag:${name}`] ?? null} />
      <Watermark ring={history} query={query} />
      <State ring={history} empty={none} />
      <Output ring={history} empty={none} />
    </div>
  );
}

/** Said instead of a chart without a single number. */
function missing(data: Data, why: string): string | null {
  return data.slice(1).some((values) => anyNumber(values)) ? null : `N/A, because ${why}`;
}

function Rates({ ring: rows, empty }: { ring: Ring; empty: string }): JSX.Element {
  const data = plotted(rows, ["input_rate", "rate"]);
  const lines: Line[] = [
    { label: "arriving", colour: water, filled: true },
    { label: "capacity", colour: brass, dashed: true },
  ];
  return <Chart title="Rows a second" lines={lines} data={data} format={rate} empty={missing(data, empty)} />;
}

function Batches({ ring: rows, empty }: { ring: Ring; empty: string }): JSX.Element {
  const found = Object.keys(rows.columns)
    .filter((name) => name.startsWith("phase:"))
    .map((name) => name.slice(6))
    .sort((a, b) => order(a) - order(b) || a.localeCompare(b));
  const data = plotted(
    rows,
    found.map((step) => `phase:${step}`),
  );
  const lines = found.map((step, at) => ({ label: step, colour: () => colour(at) }));
  return (
    <Chart
      title="Batch duration by step"
      lines={lines}
      data={data}
      format={duration}
      stacked
      empty={missing(data, empty)}
    />
  );
}

function order(step: string): number {
  const at = STEPS.indexOf(step);
  return at < 0 ? STEPS.length : at;
}

function Lag({
  ring: rows,
  history,
  query,
  trouble,
}: {
  ring: Ring;
  history: Ring;
  query: QueryState;
  trouble: string | null;
}): JSX.Element {
  const partitions = Object.keys(rows.columns)
    .filter((name) => name.startsWith("p:"))
    .sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const why = trouble ?? query.lag_why ?? because("lag", query.why);
  if (!rows.length) {
    const data = plotted(history, ["lag"]);
    return (
      <Chart
        title="Records behind"
        lines={[{ label: "all", colour: brass, filled: true }]}
        data={data}
        format={short}
        empty={missing(data, why)}
      />
    );
  }
  const shown = partitions.slice(0, MOST_PARTITIONS);
  const data = plotted(rows, [...shown, "seconds"]);
  const lines: Line[] = [
    ...shown.map((name, at) => ({ label: name.slice(2), colour: () => colour(at) })),
    { label: "time", colour: () => token("--ink-2"), right: true, dashed: true },
  ];
  const more = partitions.length - shown.length;
  return (
    <Chart
      title="Records behind, by partition"
      note={more > 0 ? `${more} more partitions not drawn` : undefined}
      lines={lines}
      data={data}
      format={short}
      formatRight={(seconds) => duration(seconds * 1_000)}
      empty={missing(data, why)}
    />
  );
}

function Watermark({ ring: rows, query }: { ring: Ring; query: QueryState }): JSX.Element {
  const data = plotted(rows, ["watermark_gap_ms"]);
  return (
    <Chart
      title="Watermark behind now"
      lines={[{ label: "gap", colour: brass, filled: true }]}
      data={data}
      format={duration}
      empty={missing(data, because("watermark_gap_ms", query.why))}
    />
  );
}

function State({ ring: rows, empty }: { ring: Ring; empty: string }): JSX.Element {
  const data = plotted(rows, ["state_rows", "state_bytes"]);
  const lines: Line[] = [
    { label: "rows", colour: water, filled: true },
    { label: "memory", colour: () => colour(3), right: true, dashed: true },
  ];
  return (
    <Chart title="State" lines={lines} data={data} format={short} formatRight={bytes} empty={missing(data, empty)} />
  );
}

function Output({ ring: rows, empty }: { ring: Ring; empty: string }): JSX.Element {
  const data = plotted(rows, ["input_rows", "sink_rows", "late"]);
  const lines: Line[] = [
    { label: "read", colour: water },
    { label: "written", colour: () => colour(2), filled: true },
    { label: "late, dropped", colour: coral },
  ];
  return <Chart title="Rows a batch" lines={lines} data={data} format={short} empty={missing(data, empty)} />;
}
