// One figure: its name, its value, how it went lately, or why there is none.
import type { ComponentChildren, JSX } from "preact";
import { Spark, type Trend } from "../charts/spark";
import { isNumber } from "../format";

export interface FigureProps {
  name: string;
  value: number | null | undefined;
  format: (value: number) => string;
  why: string;
  tone?: "water" | "brass" | "coral" | "calm";
  trend?: () => Trend;
  note?: ComponentChildren;
  href?: string;
}

const MINUTES = 3 * 60_000;

export function Figure({ name, value, format, why, tone = "water", trend, note, href }: FigureProps): JSX.Element {
  const known = isNumber(value);
  const [amount = "", unit = ""] = known ? split(format(value)) : [];
  const inside = (
    <>
      <span class="name">{name}</span>
      {known ? (
        <strong class="num">
          {amount}
          {unit && <small>{unit}</small>}
        </strong>
      ) : (
        <strong class="none">N/A</strong>
      )}
      <span class="note">{known ? note : `because ${why}`}</span>
      {trend && known && <Spark trend={trend} tone={`--${tone}`} span={MINUTES} />}
    </>
  );
  const style = `figure ${tone}`;
  return href ? (
    <a class={style} href={href}>
      {inside}
    </a>
  ) : (
    <div class={style}>{inside}</div>
  );
}

/** The number apart from its unit, so that the number can be large. */
function split(text: string): [string, string] {
  const found = /^(-?[\d.,]+[kMGT]?)(.*)$/.exec(text);
  return found ? [found[1]!, found[2]!.trim()] : [text, ""];
}
