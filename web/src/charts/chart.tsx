// A chart over time with its title, its legend and the values under the crosshair.
import { signal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { spanMs } from "../choices";
import { watch } from "../draw/loop";
import { visible } from "../text";
import { type Data, type Line, TimeChart } from "./timechart";

/** The moment under the crosshair of any chart. */
export const crosshairTime = signal<number | null>(null);

export interface ChartProps {
  title: string;
  note?: ComponentChildren;
  lines: Line[];
  data: Data;
  format: (value: number) => string;
  formatRight?: (value: number) => string;
  stacked?: boolean;
  points?: boolean;
  /** Where the chart ends, when that is not now. */
  end?: (now: number) => number;
  span?: number;
  /** Said instead of an empty chart. */
  empty?: string | null;
  crosshair?: string;
  tall?: boolean;
}

export function Chart(props: ChartProps): JSX.Element {
  const holder = useRef<HTMLDivElement>(null);
  const legend = useRef<HTMLDListElement>(null);
  const chart = useRef<TimeChart | null>(null);
  const shape = `${props.stacked ?? false} ${props.lines.map((line) => `${line.label} ${line.right ?? ""}`).join("\n")}`;

  // biome-ignore lint/correctness/useExhaustiveDependencies: uPlot is made anew only when its lines are others
  useEffect(() => {
    const element = holder.current!;
    const { lines, format, formatRight } = props;
    const cursor = { index: null as number | null };
    const made = new TimeChart(
      element,
      {
        lines,
        stacked: props.stacked ?? false,
        points: props.points ?? false,
        format,
        formatRight,
        crosshair: props.crosshair ?? "page",
      },
      (index, time) => {
        cursor.index = index;
        if (element.matches(":hover")) crosshairTime.value = time;
        tell(made, legend.current, lines, cursor.index, format, formatRight);
      },
    );
    chart.current = made;
    const end = watch(element, {
      draw: (now) => made.draw(now),
    });
    const leave = (): void => {
      crosshairTime.value = null;
    };
    element.addEventListener("pointerleave", leave);
    return () => {
      element.removeEventListener("pointerleave", leave);
      end();
      made.destroy();
      chart.current = null;
    };
  }, [shape]);

  const span = props.span ?? spanMs.value;
  // biome-ignore lint/correctness/useExhaustiveDependencies: what else there is belongs to the shape
  useEffect(() => {
    const made = chart.current;
    if (!made) return;
    made.span = span;
    made.end = props.end ?? ((now) => now);
    made.take(props.data);
    tell(made, legend.current, props.lines, null, props.format, props.formatRight);
  }, [props.data, span, shape]);

  return (
    <figure class={`chart${props.tall ? " tall" : ""}`} aria-label={props.title}>
      <figcaption>
        <h3>{props.title}</h3>
        {props.note && <span class="note">{props.note}</span>}
        <dl class="legend" ref={legend}>
          {props.lines.map((line) => (
            <div key={line.label}>
              <dt>
                <i style={{ background: line.colour() }} />
                {visible(line.label)}
              </dt>
              <dd />
            </div>
          ))}
        </dl>
      </figcaption>
      <div class="plot" ref={holder}>
        {props.empty && <p class="empty">{props.empty}</p>}
      </div>
    </figure>
  );
}

/** Written past Preact: it happens with every movement of the mouse, in every chart at once. */
function tell(
  chart: TimeChart,
  legend: HTMLElement | null,
  lines: Line[],
  index: number | null,
  format: (value: number) => string,
  formatRight = format,
): void {
  legend?.querySelectorAll("dd").forEach((place, at) => {
    const value = chart.valueAt(at, index);
    place.textContent = value === null ? "–" : (lines[at]?.right ? formatRight : format)(value);
  });
}
