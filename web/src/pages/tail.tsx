// The live tail of a topic: newest on top; paused it keeps its rows and says how many wait.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { count, plural } from "../format";
import { openedRow } from "../panels/rows";
import { Choose } from "../parts/choose";
import { copyText, saveText } from "../parts/copy";
import { Filter } from "../parts/filter";
import { Icon } from "../parts/icon";
import { matches } from "../parts/matching";
import { clockTime } from "../parts/when";
import { cut, pretty, visible } from "../text";
import { ring, troubles } from "../wire/channels";
import type { Cell } from "../wire/types";
import { useChannels } from "../wire/wanted";
import { type TailRow, tailRows } from "./tailrows";

const SHOWN = 120;
const FORMS = ["raw", "pretty"] as const;

export function Tail({ topic }: { topic: string }): JSX.Element {
  const channel = `tail:${topic}`;
  useChannels(channel);
  const tail = ring(channel);
  tail.changed.value;
  const held = useSignal<{ rows: TailRow[]; version: number } | null>(null);
  const form = useSignal<(typeof FORMS)[number]>("raw");
  const filter = useSignal("");
  const made = useRef<{ version: number; rows: TailRow[] }>({ version: -1, rows: [] });
  if (made.current.version !== tail.version) made.current = { version: tail.version, rows: tailRows(tail) };
  const rows = held.value?.rows ?? made.current.rows;
  const found = filter.value
    ? rows.filter((row) => matches(filter.value, [row.key, row.value, row.partition, row.offset]))
    : rows;
  const waiting = held.value ? Math.max(0, tail.version - held.value.version) : 0;
  const lines = (): string => found.map((row) => JSON.stringify(row)).join("\n");
  const skipped = rows.reduce((sum, row) => sum + row.skipped, 0);
  const trouble = troubles.value[channel];
  return (
    <section class="card tail" aria-label={`live tail of ${topic}`}>
      <div class="tools">
        <h2>Live tail</h2>
        <Filter label="Filter the tail" value={filter} />
        <Choose
          label="Form of values"
          choices={FORMS}
          value={form.value}
          onChoose={(one) => {
            form.value = one;
          }}
        />
        <button
          type="button"
          class={`quiet ${held.value ? "on" : ""}`}
          aria-pressed={held.value !== null}
          onClick={() => {
            held.value = held.value ? null : { rows: made.current.rows, version: tail.version };
          }}
        >
          <Icon name={held.value ? "play" : "pause"} />
          {held.value ? `Go on, ${count(waiting)} waiting` : "Hold"}
        </button>
        <span class="gap" />
        <span class="note num">
          {filter.value && `${count(found.length)} of `}
          {plural(rows.length, "record")}
          {skipped > 0 && `, ${count(skipped)} skipped between them`}
        </span>
        <button type="button" class="plain" onClick={() => void copyText(lines(), plural(found.length, "record"))}>
          <Icon name="copy" /> Copy
        </button>
        <button type="button" class="plain" onClick={() => saveText(lines(), `${topic}.jsonl`)}>
          <Icon name="save" /> Export
        </button>
      </div>
      {trouble && <p class="trouble">N/A, because {visible(trouble)}</p>}
      <ol class="records" tabIndex={0} aria-label="Records, newest first">
        {found.slice(0, SHOWN).map((row) => (
          <Record key={`${row.partition} ${row.offset}`} row={row} form={form.value} topic={topic} />
        ))}
        {!found.length && !trouble && (
          <li class="empty">{rows.length ? "nothing matches the filter" : "waiting for the next record …"}</li>
        )}
      </ol>
      {found.length > SHOWN && (
        <p class="note">
          the newest {SHOWN} are shown; the filter, copy and export see all {count(found.length)}
        </p>
      )}
    </section>
  );
}

function Record({ row, form, topic }: { row: TailRow; form: string; topic: string }): JSX.Element {
  const value = row.value === null ? null : form === "pretty" ? pretty(row.value) : row.value;
  const open = (): void => {
    const columns = ["value", "key", "headers", "time", "partition", "offset"];
    const cells: Cell[] = [row.value, row.key, row.headers, row.time, row.partition, row.offset];
    openedRow.value = {
      title: topic,
      columns,
      row: cells,
      types: ["text", "text", "other", "time", "number", "number"],
    };
  };
  return (
    <li>
      <button type="button" class={`record ${form}`} onClick={open}>
        <span class="num at">{row.time === null ? "no time" : clockTime(row.time)}</span>
        <span class="num place">
          {row.partition}:{row.offset}
        </span>
        <span class="key">{row.key === null ? <i class="na">no key</i> : cut(row.key, 60)}</span>
        <span class="value">
          {value === null ? <i class="na">null</i> : cut(value, form === "pretty" ? 4_096 : 600)}
          {row.cut && <i class="tag">cut</i>}
          {row.binary && <i class="tag">binary</i>}
        </span>
      </button>
    </li>
  );
}
