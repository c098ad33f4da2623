// The strip of figures over the graph.
import type { JSX } from "preact";
import type { Trend } from "../charts/spark";
import { bytes, count, duration, percent, rate, short } from "../format";
import { Figure } from "../parts/figure";
import { because } from "../parts/na";
import { href } from "../route";
import { trends, trendTimes } from "../wire/trends";
import type { State, Figures as Told } from "../wire/types";

const NONE: Told = {
  in_rate: null,
  out_rate: null,
  lag: null,
  lag_seconds: null,
  watermark_gap_ms: null,
  errors: null,
  dead: null,
  late: null,
};
const LONG_LAG = 60;

export function Figures({ state }: { state: State | null }): JSX.Element {
  const told = state?.figures ?? NONE;
  const why = (field: keyof Told): string => (state ? because(field, state.why) : "the run has not told anything yet");
  const trend = (field: keyof Told) => (): Trend => ({ times: trendTimes, values: trends[field] ?? [] });
  const process = state?.process;
  return (
    <section class="figures" aria-label="Figures">
      <Figure
        name="Rows in"
        value={told.in_rate}
        format={rate}
        why={why("in_rate")}
        trend={trend("in_rate")}
        note={process?.cpu != null ? `CPU ${percent(process.cpu)}` : ""}
      />
      <Figure
        name="Rows out"
        value={told.out_rate}
        format={rate}
        why={why("out_rate")}
        trend={trend("out_rate")}
        note={memory(process)}
      />
      <Figure
        name="Behind"
        value={told.lag_seconds}
        format={(seconds) => duration(seconds * 1_000)}
        why={why("lag_seconds")}
        tone={(told.lag_seconds ?? 0) > LONG_LAG ? "coral" : "brass"}
        trend={trend("lag_seconds")}
        note={told.lag === null ? "" : `${short(told.lag)} records`}
      />
      <Figure
        name="Watermark gap"
        value={told.watermark_gap_ms}
        format={duration}
        why={why("watermark_gap_ms")}
        tone="brass"
        trend={trend("watermark_gap_ms")}
        note={told.late ? `${short(told.late)} late rows dropped` : "no late rows dropped"}
      />
      <Figure
        name="Errors"
        value={told.errors}
        format={count}
        why={why("errors")}
        tone={told.errors ? "coral" : "calm"}
        note={told.errors ? "queries have failed" : "every query is well"}
      />
      <Figure
        name="Dead letters"
        value={told.dead}
        format={short}
        why={why("dead")}
        tone={told.dead ? "coral" : "calm"}
        trend={trend("dead")}
        href={href("dead")}
        note={told.dead ? "kept, with their reasons" : "every record was used"}
      />
    </section>
  );
}

function memory(process: State["process"] | undefined): string {
  const told = [process?.memory, process?.jvm_memory].filter((one): one is number => typeof one === "number");
  return told.length ? `memory ${bytes(told.reduce((a, b) => a + b))}` : "";
}
