// Moments: how long ago, and in which zone exactly.
import type { JSX } from "preact";
import { zoneName } from "../choices";
import { shownNow } from "../draw/loop";
import { duration } from "../format";
import { second } from "../wire/clock";

const formats = new Map<string, Intl.DateTimeFormat>();

function formatter(kind: "clock" | "full"): Intl.DateTimeFormat {
  const key = `${kind} ${zoneName.value}`;
  const known = formats.get(key);
  if (known) return known;
  const made = new Intl.DateTimeFormat("en-GB", {
    timeZone: zoneName.value,
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    fractionalSecondDigits: 3,
    hourCycle: "h23",
    ...(kind === "full" ? { year: "numeric", month: "2-digit", day: "2-digit", timeZoneName: "short" } : {}),
  });
  formats.set(key, made);
  return made;
}

function parts(kind: "clock" | "full", time: number): Record<string, string> {
  return Object.fromEntries(
    formatter(kind)
      .formatToParts(time)
      .map((part) => [part.type, part.value]),
  );
}

/** A date that no calendar has is shown as the number that it is. */
function sane(time: number): boolean {
  return Math.abs(time) < 8.64e15;
}

export function clockTime(time: number): string {
  if (!sane(time)) return String(time);
  const { hour, minute, second: seconds, fractionalSecond } = parts("clock", time);
  return `${hour}:${minute}:${seconds}.${fractionalSecond}`;
}

export function fullTime(time: number): string {
  if (!sane(time)) return String(time);
  const { year, month, day, timeZoneName, hour, minute, second: seconds, fractionalSecond } = parts("full", time);
  const fraction = fractionalSecond === "000" ? "" : `.${fractionalSecond}`;
  return `${year}-${month}-${day} ${hour}:${minute}:${seconds}${fraction} ${timeZoneName}`;
}

export function ago(time: number): string {
  const age = shownNow() - time;
  if (Math.abs(age) < 1_000) return "now";
  const whole = duration(Math.floor(Math.abs(age) / 1_000) * 1_000);
  return age < 0 ? `in ${whole}` : `${whole} ago`;
}

/** "5 s ago" with the exact moment beside it, or in the hint where there is little room. */
export function When({ time, both = false }: { time: number; both?: boolean }): JSX.Element {
  second.value;
  return (
    <time dateTime={sane(time) ? new Date(time).toISOString() : ""} title={fullTime(time)}>
      {ago(time)}
      {both && <span class="exact">{fullTime(time)}</span>}
    </time>
  );
}
