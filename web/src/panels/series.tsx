// Lines over time, one a key.
import type { JSX } from "preact";
import { useMemo, useRef } from "preact/hooks";
import { Chart } from "../charts/chart";
import { spanMs } from "../choices";
import { colour } from "../draw/canvas";
import { count, plural, short } from "../format";
import { cut } from "../text";
import { serverNow } from "../wire/clock";
import type { Panel, PanelData } from "../wire/types";
import { AsIs } from "./asis";
import { columnFor, vanished } from "./columns";
import { pivot } from "./pivot";

/** Event times further away than this are a replay: the chart then ends at the newest row, not near now. */
const FAR = 20 * 60_000;
const LINES_FILLED = 2;

export function Series({ panel, data }: { panel: Panel; data: PanelData }): JSX.Element {
  const failure = vanished(panel, data, ["time", "value"]);
  const made = useMemo(
    () =>
      pivot(data.rows, columnFor(panel, data, "time"), columnFor(panel, data, "key"), columnFor(panel, data, "value")),
    [panel, data],
  );
  const behind = useRef(0);
  if (failure) return <AsIs failure={failure} data={data} />;
  const { keys, left, newest } = made;
  // The right edge follows the newest row at the pace of the clock, so that the chart glides between arrivals.
  const late = serverNow() - newest;
  behind.current =
    behind.current === 0 || late < behind.current ? late : behind.current + (late - behind.current) * 0.1;
  const far = late > FAR;
  const times = made.data[0];
  const whole = newest - (times[0] ?? newest);
  return (
    <Chart
      title={panel.title || panel.table}
      note={left > 0 ? `${plural(left, "more key")} not drawn` : undefined}
      lines={keys.map((key, at) => ({
        label: key === "" ? String(panel.options.value ?? "value") : cut(key, 40),
        colour: () => colour(at),
        filled: keys.length <= LINES_FILLED,
      }))}
      data={made.data}
      format={(value) => (Math.abs(value) < 1e4 ? count(Math.round(value * 100) / 100) : short(value))}
      end={far ? () => newest : (now) => now - behind.current}
      span={far ? Math.max(whole, 1_000) : Math.min(spanMs.value, Math.max(30_000, whole))}
      points={times.length < 3}
      empty={keys.length ? null : "no rows"}
      crosshair="results"
    />
  );
}
