// The one animation-frame loop: takes in what came, then draws what is dirty and in sight.
import { second, serverNow } from "../wire/clock";
import { paused, pausedAt } from "../wire/pause";
import { listenForSilence, settle } from "../wire/socket";
import { measure } from "./sizes";

export interface Drawing {
  /** Draw if there is reason to; `now` is the server's time, standing still while the page is paused. */
  draw(now: number): void;
}

const visible = new Map<Element, Drawing>();
const all = new Map<Element, Drawing>();

const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const drawing = all.get(target);
    if (isIntersecting && drawing) visible.set(target, drawing);
    else visible.delete(target);
  }
});

/** Draw something for as long as its element is on the page; the returned function ends it. */
export function watch(element: Element, drawing: Drawing): () => void {
  all.set(element, drawing);
  observer.observe(element);
  const unmeasured = measure(element);
  return () => {
    unmeasured();
    observer.unobserve(element);
    all.delete(element);
    visible.delete(element);
  };
}

export function shownNow(): number {
  return paused.peek() ? pausedAt.peek() : serverNow();
}

let lastSecond = 0;

function tick(): void {
  settle();
  const at = performance.now();
  if (at - lastSecond >= 1_000) {
    lastSecond = at;
    second.value += 1;
    listenForSilence();
  }
  if (!document.hidden) {
    const now = shownNow();
    for (const drawing of visible.values()) drawing.draw(now);
  }
}

/** Begin; a hidden tab, where there are no animation frames, still takes in what comes once a second. */
export function beginLoop(): void {
  const frame = (): void => {
    requestAnimationFrame(frame);
    tick();
  };
  requestAnimationFrame(frame);
  setInterval(() => document.hidden && tick(), 1_000);
}
