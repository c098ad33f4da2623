// Numbers, sizes and durations as people read them; null stays null, so that whoever shows it must say why.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const digits = [0, 1, 2, 3].map(
  (most) => new Intl.NumberFormat("en", { minimumFractionDigits: most, maximumFractionDigits: most }),
);

export function isNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

/** 0.42, 7.1, 981, 12.3k, 4.56M. */
export function short(value: number): string {
  const size = Math.abs(value);
  if (size < 10) return trim(value, size < 1 ? 2 : 1);
  if (size < 10_000) return whole.format(value);
  const [scale, unit] = size < 1e6 ? [1e3, "k"] : size < 1e9 ? [1e6, "M"] : size < 1e12 ? [1e9, "G"] : [1e12, "T"];
  return significant(value / (scale as number)) + unit;
}

export function count(value: number): string {
  return Number.isInteger(value) ? whole.format(value) : trim(value, 3);
}

export function rate(value: number): string {
  return `${short(value)}/s`;
}

export function bytes(value: number): string {
  let unit = 0;
  let left = value;
  while (Math.abs(left) >= 1024 && unit < 4) {
    left /= 1024;
    unit += 1;
  }
  return `${unit ? significant(left) : whole.format(left)} ${["B", "KB", "MB", "GB", "TB"][unit]}`;
}

/** 850 ms, 4.2 s, 3 m 20 s, 5 h 12 m, 2 d 3 h. */
export function duration(ms: number): string {
  const size = Math.abs(ms);
  if (size < 1) return ms === 0 ? "0 ms" : `${trim(ms, 2)} ms`;
  if (size < 1_000) return `${whole.format(ms)} ms`;
  if (size < 60_000) return `${trim(ms / 1_000, size < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(size / 60_000);
  const sign = ms < 0 ? "-" : "";
  if (minutes < 60) return sign + pair(minutes, "m", Math.floor((size % 60_000) / 1_000), "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return sign + pair(hours, "h", minutes % 60, "m");
  return sign + pair(Math.floor(hours / 24), "d", hours % 24, "h");
}

export function percent(value: number): string {
  return `${whole.format(value * 100)}%`;
}

export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}

function pair(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small ? `${large} ${largeUnit} ${small} ${smallUnit}` : `${large} ${largeUnit}`;
}

function significant(value: number): string {
  const size = Math.abs(value);
  return digits[size < 10 ? 2 : size < 100 ? 1 : 0]!.format(value);
}

function trim(value: number, most: number): string {
  const shown = digits[most]!.format(value);
  return shown.includes(".") ? shown.replace(/\.?0+$/, "") : shown;
}
