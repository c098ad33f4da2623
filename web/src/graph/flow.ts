// What moves along the edges: drops of water, more and faster the more rows there are.
import { calm } from "../choices";
import { faint, sharp, token } from "../draw/canvas";
import type { Camera } from "./camera";
import type { Run } from "./layout";

export interface Stream {
  run: Run;
  /** Rows a second; what is not known but moves is drawn as a trickle. */
  rate: number;
}

const TAIL = 7;

export function paintFlow(canvas: HTMLCanvasElement, camera: Camera, streams: Stream[], now: number): void {
  const paper = sharp(canvas);
  if (!paper || calm.peek()) return;
  const { pen } = paper;
  pen.translate(camera.x, camera.y);
  pen.scale(camera.zoom, camera.zoom);
  const water = token("--water");
  const shades = Array.from({ length: TAIL }, (_, at) => faint(water, 0.85 * (1 - at / TAIL) ** 1.6));
  for (const { run, rate } of streams) if (rate > 0) drops(pen, run, rate, now, shades);
}

function drops(pen: CanvasRenderingContext2D, run: Run, rate: number, now: number, shades: string[]): void {
  const { points } = run;
  const strength = Math.log10(1 + rate);
  const speed = 6 + 9 * strength;
  const count = Math.max(1, Math.min(9, Math.round((1 + strength * 1.4) * (points.length / 32))));
  for (let drop = 0; drop < count; drop += 1) {
    const at = ((now / 1_000) * speed + (drop * points.length) / count) % points.length;
    for (let tail = TAIL - 1; tail >= 0; tail -= 1) {
      const place = points[Math.floor(at - tail * 0.8)];
      if (!place) continue;
      pen.fillStyle = shades[tail]!;
      pen.beginPath();
      pen.arc(place.x, place.y, 2.9 - tail * 0.28, 0, Math.PI * 2);
      pen.fill();
    }
  }
}
