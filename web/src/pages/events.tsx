// What happened, newest on top.
import type { JSX } from "preact";
import { clockTime, When } from "../parts/when";
import { cut } from "../text";
import { ring } from "../wire/channels";

const SHOWN = 60;

export function Events(): JSX.Element {
  const events = ring("events");
  events.changed.value;
  const { length } = events;
  if (!length) return <p class="empty">nothing yet</p>;
  const rows = Array.from({ length: Math.min(SHOWN, length) }, (_, at) => length - 1 - at);
  return (
    <ol class="events" tabIndex={0} aria-label="What happened, newest first">
      {rows.map((at) => {
        const [time, level, query, text] = ["time", "level", "query", "text"].map((name) => events.column(name)[at]);
        return (
          <li key={events.version - (length - at)} class={String(level)}>
            <span class="num at">{clockTime(time as number).slice(0, 8)}</span>
            <span class="text">
              {query && <b>{cut(String(query), 60)} </b>}
              {cut(String(text), 400)}
            </span>
            <When time={time as number} />
          </li>
        );
      })}
    </ol>
  );
}
