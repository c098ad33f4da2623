// The mill wheel: it turns while rows come in, faster the more there are, and stands still when nothing does.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { calm } from "../choices";
import { watch } from "../draw/loop";
import { slot } from "../wire/channels";
import { paused } from "../wire/pause";
import { link } from "../wire/socket";
import type { State } from "../wire/types";

export function Wheel(): JSX.Element {
  const box = useRef<SVGSVGElement>(null);
  useEffect(() => {
    const turning = box.current!;
    let angle = 0;
    let speed = 0;
    let before = performance.now();
    return watch(turning, {
      draw() {
        const now = performance.now();
        const rows = (slot("state").value.peek() as State | null)?.figures.in_rate ?? 0;
        const runs = link.peek() === "live" && !paused.peek() && !calm.peek();
        const wanted = runs && rows > 0 ? 12 + 22 * Math.log10(1 + rows) : 0;
        const passed = Math.min(100, now - before) / 1_000;
        speed += (wanted - speed) * Math.min(1, passed * 2);
        before = now;
        if (speed < 0.5) return;
        angle = (angle + speed * passed) % 360;
        turning.style.transform = `rotate(${angle.toFixed(2)}deg)`;
      },
    });
  }, []);
  return (
    <svg class="wheel" viewBox="0 0 32 32" aria-hidden="true" ref={box}>
      <g>
        <circle cx="16" cy="16" r="7.4" />
        <circle cx="16" cy="16" r="1.6" />
        {[0, 45, 90, 135, 180, 225, 270, 315].map((turn) => (
          <path key={turn} d="M16 13.5V4.2M13 4.2h6" transform={`rotate(${turn} 16 16)`} />
        ))}
      </g>
    </svg>
  );
}
