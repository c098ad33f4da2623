// uPlot for a span of time that moves on by itself: drawn again when data came or when it moved by half a pixel.
import uPlot from "uplot";
import { look, zone, zoneName } from "../choices";
import { blend, drawnFont, faint, token } from "../draw/canvas";
import type { Drawing } from "../draw/loop";
import { sizeOf } from "../draw/sizes";
import { clockTime } from "../parts/when";

export interface Line {
  label: string;
  colour: () => string;
  /** Filled down to the line below it, or to zero. */
  filled?: boolean;
  /** On a scale of its own, at the right. */
  right?: boolean;
  dashed?: boolean;
}

export interface Plan {
  lines: Line[];
  stacked: boolean;
  format: (value: number) => string;
  formatRight?: ((value: number) => string) | undefined;
  /** Charts with the same name share their crosshair. */
  crosshair: string;
  points?: boolean;
}

type Values = (number | null | undefined)[];
export type Data = [number[], ...Values[]];

export class TimeChart implements Drawing {
  private plot: uPlot;
  private data: Data = [[]];
  private dirty = true;
  private drawnAt = 0;
  private drawnLook = "";
  /** The newest moment shown; what is drawn ends there. */
  end: (now: number) => number = (now) => now;
  span = 180_000;

  constructor(
    private readonly holder: HTMLElement,
    private readonly plan: Plan,
    private readonly onCursor: (index: number | null, time: number | null) => void,
  ) {
    this.plot = new uPlot(this.options(), [[]], holder);
  }

  take(data: Data): void {
    this.data = data;
    this.dirty = true;
    this.plot.setData(this.plan.stacked ? stack(data) : data, false);
  }

  touch(): void {
    this.dirty = true;
  }

  draw(now: number): void {
    const { wide: width, high: height } = sizeOf(this.holder);
    if (!width || !height) return;
    if (width !== this.plot.width || height !== this.plot.height) {
      this.plot.setSize({ width, height });
      this.dirty = true;
    }
    const shown = `${look.peek()} ${zone.peek()}`;
    const end = this.end(now);
    const moved = (Math.abs(end - this.drawnAt) / this.span) * width * devicePixelRatio;
    if (!this.dirty && moved < 0.5 && shown === this.drawnLook) return;
    this.dirty = false;
    this.drawnAt = end;
    this.drawnLook = shown;
    this.plot.setScale("x", { min: end - this.span, max: end });
  }

  destroy(): void {
    this.plot.destroy();
  }

  /** The value of a line itself, not of the pile below it. */
  valueAt(line: number, index: number | null): number | null {
    const values = this.data[line + 1];
    if (!values) return null;
    return values[index ?? lastIndex(values)] ?? null;
  }

  private options(): uPlot.Options {
    const { plan } = this;
    const axis = (side: Partial<uPlot.Axis>, format: (value: number) => string): uPlot.Axis => ({
      stroke: () => token("--ink-3"),
      font: drawnFont(),
      size: 50,
      gap: 6,
      ticks: { show: false },
      grid: { stroke: () => token("--line-soft"), width: 1 },
      values: (_, splits) => splits.map((value) => (value === null ? "" : format(value))),
      ...side,
    });
    const right = plan.lines.some((line) => line.right);
    return {
      width: Math.max(this.holder.clientWidth, 100),
      height: Math.max(this.holder.clientHeight, 60),
      ms: 1,
      padding: [8, right ? 0 : 10, 0, 0],
      tzDate: (time) => uPlot.tzDate(new Date(time), zoneName.peek()),
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: false, y: false },
        sync: { key: plan.crosshair, scales: ["x", null] },
        points: { size: 7, width: 2, fill: () => token("--surface") },
      },
      scales: {
        x: { time: true },
        y: { range: (_, low, high) => ranged(low, high) },
        right: { range: (_, low, high) => ranged(low, high) },
      },
      axes: [
        {
          stroke: () => token("--ink-3"),
          font: drawnFont(),
          size: 26,
          gap: 4,
          space: 90,
          ticks: { show: false },
          grid: { show: false },
          // A label that would be cut at the edge is left out.
          values: (plot, splits) =>
            splits.map((time) =>
              plot.valToPos(time, "x") > plot.bbox.width / devicePixelRatio - 16 ? "" : clockTime(time).slice(0, 8),
            ),
        },
        axis({ scale: "y" }, plan.format),
        ...(right ? [axis({ scale: "right", side: 1, grid: { show: false } }, plan.formatRight ?? plan.format)] : []),
      ],
      series: [{}, ...this.ordered().map((line) => this.series(line))],
      hooks: {
        setCursor: [(plot) => this.onCursor(plot.cursor.idx ?? null, this.data[0][plot.cursor.idx ?? -1] ?? null)],
      },
    };
  }

  /** A pile is painted from its top down, each layer over the one before. */
  private ordered(): Line[] {
    return this.plan.stacked ? [...this.plan.lines].reverse() : this.plan.lines;
  }

  private series(line: Line): uPlot.Series {
    const solid = (): string => blend(token("--surface"), line.colour(), 0.62);
    return {
      scale: line.right ? "right" : "y",
      stroke: line.colour,
      width: this.plan.stacked ? 1 : 1.75,
      ...(line.dashed ? { dash: [5, 4] } : {}),
      ...(this.plan.stacked ? { fill: solid } : line.filled ? { fill: () => faint(line.colour(), 0.14) } : {}),
      points: { show: this.plan.points ?? false, size: 4 },
      spanGaps: false,
    };
  }
}

/** Sums from the bottom up, in the order in which they are painted. */
function stack(data: Data): Data {
  const [times, ...layers] = data;
  const sums = new Array<number>(times.length).fill(0);
  const piled = layers.map((layer) =>
    layer.map((value, at) => {
      sums[at] = sums[at]! + (value ?? 0);
      return sums[at]!;
    }),
  );
  return [times, ...piled.reverse()];
}

function ranged(low: number | null, high: number | null): [number, number] {
  if (low === null || high === null) return [0, 1];
  const top = high <= 0 && low >= 0 ? 1 : high;
  const bottom = Math.min(0, low);
  return [bottom, top + (top - bottom) * 0.08];
}

function lastIndex(values: Values): number {
  for (let at = values.length - 1; at >= 0; at -= 1) if (values[at] !== null && values[at] !== undefined) return at;
  return -1;
}
