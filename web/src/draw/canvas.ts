// A canvas as sharp as the screen, and the colours of the theme for what is drawn on it.
import { look } from "../choices";
import { sizeOf } from "./sizes";

let cachedFor = "";
let cache = new Map<string, string>();

/** The value of a design token, such as --water. */
export function token(name: string): string {
  if (cachedFor !== look.peek()) {
    cachedFor = look.peek();
    cache = new Map();
  }
  const known = cache.get(name);
  if (known !== undefined) return known;
  const found = whole(getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  cache.set(name, found);
  return found;
}

/** #abc, as the build may have shortened it, as #aabbcc. */
function whole(value: string): string {
  return /^#[\da-f]{3}$/i.test(value) ? `#${[...value.slice(1)].map((digit) => digit + digit).join("")}` : value;
}

/** The font of small words on a canvas: that of the page. */
export function drawnFont(): string {
  return `11px ${token("--sans")}`;
}

export const COLOURS = 10;

export function colour(index: number): string {
  return token(`--c${(index % COLOURS) + 1}`);
}

/** The drawing context with a point for each CSS pixel; null while the canvas has no size. */
export function sharp(canvas: HTMLCanvasElement): { pen: CanvasRenderingContext2D; wide: number; high: number } | null {
  const { wide, high } = sizeOf(canvas);
  const pen = canvas.getContext("2d");
  if (!wide || !high || !pen) return null;
  const scale = devicePixelRatio;
  if (canvas.width !== Math.round(wide * scale) || canvas.height !== Math.round(high * scale)) {
    canvas.width = Math.round(wide * scale);
    canvas.height = Math.round(high * scale);
  }
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, wide, high);
  return { pen, wide, high };
}

/** A colour of the theme with an opacity; tokens are written as #rrggbb. */
export function faint(hex: string, opacity: number): string {
  const alpha = Math.round(opacity * 255)
    .toString(16)
    .padStart(2, "0");
  return hex.length === 7 ? hex + alpha : hex;
}

/** Between two colours of the theme. */
export function blend(from: string, to: string, share: number): string {
  const mixed = [1, 3, 5].map((at) => {
    const a = Number.parseInt(from.slice(at, at + 2), 16);
    const b = Number.parseInt(to.slice(at, at + 2), 16);
    return Math.round(a + (b - a) * share)
      .toString(16)
      .padStart(2, "0");
  });
  return `#${mixed.join("")}`;
}
