// One query: how it stands, why it is silent, what went wrong, and its charts under one crosshair.
import type { JSX } from "preact";
import { crosshairTime } from "../charts/chart";
import { SPANS, span } from "../choices";
import { bytes, count, duration, isNumber, percent, rate, short } from "../format";
import { Badge } from "../parts/badge";
import { Choose } from "../parts/choose";
import { Figure } from "../parts/figure";
import { because } from "../parts/na";
import { Trouble } from "../parts/trouble";
import { ago, clockTime, fullTime, When } from "../parts/when";
import { visible } from "../text";
import { slot } from "../wire/channels";
import type { QueryState, State } from "../wire/types";
import { useChannels } from "../wire/wanted";
import { QueryCharts } from "./querycharts";

/** Seconds behind that are worth a colour. */
const LATE = 10;

export function Query({ name }: { name: string | null }): JSX.Element {
  const queries = (slot("state").value.value as State | null)?.queries ?? [];
  const query = queries.find((one) => one.name === name) ?? (name === null ? queries[0] : undefined);
  if (!query)
    return <p class="empty">{queries.length ? `there is no query called ${name}` : "no query has been started yet"}</p>;
  return <Shown key={query.name} query={query} />;
}

function Shown({ query }: { query: QueryState }): JSX.Element {
  useChannels(`history:${query.name}`, `lag:${query.name}`);
  return (
    <div class="query">
      <div class="heading">
        <h2>{visible(query.name)}</h2>
        <Badge phase={query.phase} />
        {query.doing && <span class="note">{query.doing}</span>}
        <span class="gap" />
        {query.since !== null && (
          <span class="note">
            started <When time={query.since} both />
          </span>
        )}
      </div>
      {query.silence && (
        <p class="silence">
          <b>Why is there no output?</b> {query.silence}
        </p>
      )}
      {query.alignment && <p class="note">{visible(query.alignment)}</p>}
      {query.error && <Trouble failure={query.error} />}
      <QueryFigures query={query} />
      <div class="toolbar">
        <Choose
          label="Span of the charts"
          choices={SPANS}
          value={span.value}
          onChoose={(one) => {
            span.value = one;
          }}
        />
        <Moment />
      </div>
      <QueryCharts name={query.name} query={query} />
    </div>
  );
}

function Moment(): JSX.Element {
  const time = crosshairTime.value;
  return (
    <span class="note num">
      {time === null ? "point at a chart to read all of them" : `${fullTime(time)} · ${ago(time)}`}
    </span>
  );
}

function QueryFigures({ query }: { query: QueryState }): JSX.Element {
  const why = (field: string): string => (field.startsWith("lag") && query.lag_why) || because(field, query.why);
  return (
    <section class="figures small" aria-label="Figures of the query">
      <Figure
        name="Rows in"
        value={query.in_rate}
        format={rate}
        why={why("in_rate")}
        note={`${short(query.rows)} in all`}
      />
      <Figure
        name="Batch"
        value={query.batch_ms}
        format={duration}
        why={why("batch_ms")}
        note={`${count(query.batches)} so far`}
      />
      {isNumber(query.delay_ms) && (
        <Figure
          name="Delay"
          value={query.delay_ms}
          format={duration}
          why={why("delay_ms")}
          tone="brass"
          note={`${duration(query.waited_ms ?? 0)} of it waiting to begin`}
        />
      )}
      <Figure
        name="Busy"
        value={query.busy}
        format={percent}
        why={why("busy")}
        tone={(query.lag_seconds ?? 0) > LATE ? "coral" : "water"}
        note="of the last 10 s"
      />
      <Figure
        name="Behind"
        value={query.lag_seconds}
        format={(seconds) => duration(seconds * 1_000)}
        why={why("lag_seconds")}
        tone={(query.lag_seconds ?? 0) > LATE ? "coral" : "brass"}
        note={query.lag === null ? "" : `${short(query.lag)} records`}
      />
      <Figure
        name="Watermark gap"
        value={query.watermark_gap_ms}
        format={duration}
        why={why("watermark_gap_ms")}
        tone="brass"
        note={query.watermark === null ? "" : `stands at ${clockTime(query.watermark).slice(0, 8)}`}
      />
      <Figure
        name="State"
        value={query.state_rows}
        format={(rows) => `${short(rows)} rows`}
        why={why("state_rows")}
        note={query.state_bytes === null ? "" : bytes(query.state_bytes)}
      />
      <Figure
        name="Late rows"
        value={query.late}
        format={short}
        why={why("late")}
        tone="calm"
        note="dropped by the watermark"
      />
    </section>
  );
}
