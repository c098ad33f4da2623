// The largest few as bars that find their new place when the order changes.
import type { JSX } from "preact";
import { count, isNumber, short } from "../format";
import { cut, plain } from "../text";
import type { Panel, PanelData } from "../wire/types";
import { AsIs } from "./asis";
import { columnFor, vanished } from "./columns";

const MOST = 100;
const HIGH = 30;

export function Top({ panel, data }: { panel: Panel; data: PanelData }): JSX.Element {
  const failure = vanished(panel, data, ["label", "value"]);
  if (failure) return <AsIs failure={failure} data={data} />;
  if (!data.rows.length) return <p class="empty">no rows</p>;
  const [label, value] = [columnFor(panel, data, "label"), columnFor(panel, data, "value")];
  const bars = data.rows
    .map((row) => ({ name: plain(row[label] ?? null), none: (row[label] ?? null) === null, value: row[value] ?? null }))
    .slice(0, MOST);
  const largest = Math.max(1e-9, ...bars.map((bar) => (isNumber(bar.value) ? Math.abs(bar.value) : 0)));
  const seen = new Map<string, number>();
  const keyed = bars.map((bar, place) => {
    const again = seen.get(bar.name) ?? 0;
    seen.set(bar.name, again + 1);
    return { ...bar, place, key: `${again} ${bar.name}` };
  });
  // In the order of their names, so that Preact moves no element and the browser slides each bar to its place.
  keyed.sort((a, b) => (a.key < b.key ? -1 : 1));
  return (
    <ol class="top-list" tabIndex={0} style={{ height: `${bars.length * HIGH}px` }}>
      {keyed.map((bar) => (
        <li key={bar.key} style={{ transform: `translateY(${bar.place * HIGH}px)` }} aria-posinset={bar.place + 1}>
          <span class="rank num">{bar.place + 1}</span>
          <span class="label">{bar.none ? <span class="na">null</span> : cut(bar.name, 120)}</span>
          <span class="bar">
            <i style={{ transform: `scaleX(${isNumber(bar.value) ? Math.abs(bar.value) / largest : 0})` }} />
          </span>
          <span class="num value">
            {isNumber(bar.value) ? (
              <span title={count(bar.value)}>{short(bar.value)}</span>
            ) : (
              <span class="na" title="N/A, because the value is null or no number">
                N/A
              </span>
            )}
          </span>
        </li>
      ))}
    </ol>
  );
}
