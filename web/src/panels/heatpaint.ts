// The cells of a heat map on a canvas.
import { blend, drawnFont, sharp, token } from "../draw/canvas";
import { sizeOf } from "../draw/sizes";
import { count, short } from "../format";

export interface Cells {
  xs: string[];
  ys: string[];
  /** By "column row". */
  values: Map<string, number>;
  left: number;
}

const LEFT = 96;
const BELOW = 22;
const GAP = 2;

function sizes(canvas: HTMLCanvasElement, cells: Cells): { wide: number; high: number } {
  const { wide, high } = sizeOf(canvas);
  return {
    wide: Math.max(1, wide - LEFT) / Math.max(1, cells.xs.length),
    high: Math.max(1, high - BELOW) / Math.max(1, cells.ys.length),
  };
}

export function paintHeat(canvas: HTMLCanvasElement, cells: Cells): void {
  const paper = sharp(canvas);
  if (!paper) return;
  const { pen } = paper;
  const { wide, high } = sizes(canvas, cells);
  const amounts = [...cells.values.values()];
  const low = Math.min(0, ...amounts);
  const top = Math.max(low + 1e-9, ...amounts);
  const [cold, warm, hot] = ["--heat-0", "--heat-1", "--heat-2"].map(token) as [string, string, string];
  pen.font = drawnFont();
  pen.textBaseline = "middle";
  for (let y = 0; y < cells.ys.length; y += 1)
    for (let x = 0; x < cells.xs.length; x += 1) {
      const amount = cells.values.get(`${x} ${y}`);
      const share = amount === undefined ? 0 : (amount - low) / (top - low);
      pen.fillStyle =
        amount === undefined
          ? token("--surface-2")
          : share < 0.5
            ? blend(cold, warm, share * 2)
            : blend(warm, hot, share * 2 - 1);
      pen.beginPath();
      pen.roundRect(LEFT + x * wide, y * high, Math.max(1, wide - GAP), Math.max(1, high - GAP), Math.min(4, high / 4));
      pen.fill();
      if (amount !== undefined && wide > 34 && high > 16) {
        pen.fillStyle = share > 0.55 ? token("--on-heat") : token("--ink-2");
        pen.textAlign = "center";
        pen.fillText(short(amount), LEFT + x * wide + wide / 2, y * high + high / 2);
      }
    }
  names(pen, cells, wide, high, paper.high);
}

function names(pen: CanvasRenderingContext2D, cells: Cells, wide: number, high: number, bottom: number): void {
  pen.fillStyle = token("--ink-3");
  pen.textAlign = "right";
  const everyY = Math.ceil(13 / high);
  cells.ys.forEach((name, at) => {
    if (at % everyY === 0) pen.fillText(fit(pen, name, LEFT - 10), LEFT - 8, at * high + high / 2);
  });
  pen.textAlign = "center";
  const everyX = Math.ceil(58 / wide);
  cells.xs.forEach((name, at) => {
    if (at % everyX) return;
    pen.fillText(fit(pen, name, wide * everyX), LEFT + at * wide + wide / 2, bottom - 9);
  });
}

function fit(pen: CanvasRenderingContext2D, text: string, room: number): string {
  let shown = text;
  while (shown.length > 1 && pen.measureText(shown).width > room) shown = `${shown.slice(0, -2)}…`;
  return shown;
}

export function cellAt(canvas: HTMLCanvasElement, cells: Cells, atX: number, atY: number): string | null {
  const { wide, high } = sizes(canvas, cells);
  const [x, y] = [Math.floor((atX - LEFT) / wide), Math.floor(atY / high)];
  const [column, row] = [cells.xs[x], cells.ys[y]];
  if (column === undefined || row === undefined || atX < LEFT) return null;
  const amount = cells.values.get(`${x} ${y}`);
  return `${row} · ${column}: ${amount === undefined ? "N/A, because there is no row" : count(amount)}`;
}
