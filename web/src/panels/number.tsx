// One number, large, with the way it took since the page was opened.
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { Spark } from "../charts/spark";
import { count, isNumber, short } from "../format";
import { plain, visible } from "../text";
import type { Panel, PanelData } from "../wire/types";
import { AsIs } from "./asis";
import { columnFor, vanished } from "./columns";

const KEPT = 600;
const SPAN = 3 * 60_000;

export function NumberPanel({ panel, data }: { panel: Panel; data: PanelData }): JSX.Element {
  const times = useRef<number[]>([]);
  const values = useRef<(number | null)[]>([]);
  const failure = vanished(panel, data, ["value"]);
  if (failure) return <AsIs failure={failure} data={data} />;
  const cell = data.rows[0]?.[columnFor(panel, data, "value")] ?? null;
  const time = data.time ?? 0;
  if (time > (times.current.at(-1) ?? 0)) {
    times.current.push(time);
    values.current.push(isNumber(cell) ? cell : null);
    if (times.current.length > KEPT) {
      times.current.shift();
      values.current.shift();
    }
  }
  const unit = plain(panel.options.unit ?? null);
  return (
    <div class="big">
      {isNumber(cell) ? (
        <strong class="num" title={count(cell)}>
          {Math.abs(cell) < 1e6 ? count(Math.round(cell * 100) / 100) : short(cell)}
          {unit && <small>{visible(unit)}</small>}
        </strong>
      ) : (
        <strong class="na">
          N/A{<small>, because {data.rows.length ? "the value is null" : "there is no row yet"}</small>}
        </strong>
      )}
      <Spark trend={() => ({ times: times.current, values: values.current })} tone="--water" span={SPAN} />
    </div>
  );
}
