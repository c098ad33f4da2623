// A value, or "N/A, because …": a number that is not there is never shown as if it were one.
import type { JSX } from "preact";
import { isNumber } from "../format";

const USUAL: Record<string, string> = {
  in_rate: "no batch has ended yet",
  rate: "no batch has ended yet",
  out_rate: "the sinks do not count what they write",
  lag: "no source tells how far its end is away",
  lag_seconds: "nothing has been read from Kafka yet",
  watermark: "no event time has been seen yet, or none is declared",
  watermark_gap_ms: "no watermark is declared, or no event time has been seen yet",
  state_rows: "no batch has ended yet",
  state_bytes: "no batch has ended yet",
  sink_rows: "the sink does not count what it writes",
  batch_ms: "no batch has ended yet",
  busy: "there are no batches in this mode",
  bytes: "the broker does not tell sizes",
};

export function because(field: string, told?: Record<string, string> | null): string {
  return told?.[field] ?? USUAL[field] ?? "nobody has told it yet";
}

export function Na({ why }: { why: string }): JSX.Element {
  return (
    <span class="na" title={`N/A, because ${why}`}>
      N/A<span class="unseen">, because {why}</span>
    </span>
  );
}

export function Value({
  value,
  format,
  why,
}: {
  value: number | null | undefined;
  format: (value: number) => string;
  why: string;
}): JSX.Element {
  return isNumber(value) ? <span class="num">{format(value)}</span> : <Na why={why} />;
}
