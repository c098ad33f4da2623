// A small line without axes, for a trend beside a figure.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { look } from "../choices";
import { faint, sharp, token } from "../draw/canvas";
import { watch } from "../draw/loop";
import { sizeOf } from "../draw/sizes";

const SHORTEST = 10_000;

export interface Trend {
  times: readonly number[];
  values: readonly (number | null)[];
}

export function Spark({ trend, tone, span }: { trend: () => Trend; tone: string; span: number }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const newest = useRef({ trend, tone, span });
  newest.current = { trend, tone, span };
  useEffect(() => {
    const element = canvas.current!;
    let drawn = "";
    let drawnAt = 0;
    return watch(element, {
      draw(now) {
        const { trend: read, tone: name, span: long } = newest.current;
        const found = read();
        const reason = `${look.peek()} ${name} ${found.times.at(-1)} ${sizeOf(element).wide}`;
        if (reason === drawn && now - drawnAt < 200) return;
        drawn = reason;
        drawnAt = now;
        paint(element, found, token(name), now, long);
      },
    });
  }, []);
  return <canvas class="spark" ref={canvas} />;
}

function paint(canvas: HTMLCanvasElement, { times, values }: Trend, stroke: string, now: number, span: number): void {
  const paper = sharp(canvas);
  if (!paper) return;
  const { pen, wide, high } = paper;
  const known = values.filter((value): value is number => value !== null);
  if (known.length < 2) return;
  const top = Math.max(...known, 0) || 1;
  const bottom = Math.min(...known, 0);
  // A trend that has only begun is drawn as wide as one that has lasted.
  const lasted = Math.min(span, Math.max(SHORTEST, now - (times[0] ?? now)));
  const x = (time: number): number => wide - ((now - time) / lasted) * wide;
  const y = (value: number): number => high - 2 - ((value - bottom) / (top - bottom)) * (high - 6);
  const points = times.map((time, at) => [x(time), values[at] ?? null] as const).filter(([, value]) => value !== null);
  const area = new Path2D();
  const line = new Path2D();
  points.forEach(([at, value], index) => {
    if (index === 0) {
      line.moveTo(at, y(value!));
      area.moveTo(at, high);
    } else line.lineTo(at, y(value!));
    area.lineTo(at, y(value!));
  });
  const last = points.at(-1)!;
  line.lineTo(wide, y(last[1]!));
  area.lineTo(wide, y(last[1]!));
  area.lineTo(wide, high);
  const wash = pen.createLinearGradient(0, 0, 0, high);
  wash.addColorStop(0, faint(stroke, 0.22));
  wash.addColorStop(1, faint(stroke, 0));
  pen.fillStyle = wash;
  pen.fill(area);
  pen.strokeStyle = stroke;
  pen.lineWidth = 1.5;
  pen.lineJoin = "round";
  pen.stroke(line);
}
