// SQL over the tables that a run keeps in memory: read-only, and not too many rows.
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { Refused, runSql } from "../api";
import { plural } from "../format";
import { Rows } from "../panels/rows";
import { saveText } from "../parts/copy";
import { Icon } from "../parts/icon";
import { visible } from "../text";
import type { Cell } from "../wire/types";

const ROWS = 1_000;

type Answer = { columns: string[]; rows: Cell[][]; more?: boolean } | { error: string; hint: string | null };

export function SqlBox({ tables, allowed }: { tables: string[]; allowed: boolean }): JSX.Element {
  const sql = useSignal(`SELECT * FROM ${quoted(tables[0] ?? "")} LIMIT 100`);
  const answer = useSignal<Answer | null>(null);
  const busy = useSignal(false);
  const run = async (): Promise<void> => {
    if (busy.peek() || !allowed) return;
    busy.value = true;
    try {
      answer.value = await runSql(sql.peek(), ROWS);
    } catch (error) {
      answer.value = { error: (error as Error).message, hint: error instanceof Refused ? error.hint : null };
    }
    busy.value = false;
  };
  return (
    <section class="card sql" aria-label="SQL">
      <h2>Ask the tables in memory</h2>
      {!allowed && <p class="note">SQL is switched off, because the run was started with --read-only.</p>}
      <div class="tables">
        {tables.map((name) => (
          <button
            type="button"
            class="chip"
            key={name}
            onClick={() => {
              sql.value = `SELECT * FROM ${quoted(name)} LIMIT 100`;
            }}
          >
            <Icon name="table" />
            {visible(name)}
          </button>
        ))}
      </div>
      <textarea
        class="mono"
        aria-label="SQL to run"
        spellcheck={false}
        rows={3}
        disabled={!allowed}
        value={sql.value}
        onInput={(event) => {
          sql.value = event.currentTarget.value;
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void run();
        }}
      />
      <div class="tools">
        <button type="button" class="strong" disabled={!allowed || busy.value} onClick={() => void run()}>
          {busy.value ? "running …" : "Run"} <kbd>Ctrl Enter</kbd>
        </button>
        <span class="note">reads only; at most {ROWS} rows</span>
      </div>
      {answer.value && <Answered answer={answer.value} />}
    </section>
  );
}

function Answered({ answer }: { answer: Answer }): JSX.Element {
  if ("error" in answer)
    return (
      <p class="trouble" role="alert">
        {visible(answer.error)}
        {answer.hint && <small>{visible(answer.hint)}</small>}
      </p>
    );
  const lines = (): string =>
    answer.rows
      .map((row) => JSON.stringify(Object.fromEntries(row.map((cell, at) => [answer.columns[at], cell]))))
      .join("\n");
  return (
    <Rows
      label="the answer"
      columns={answer.columns}
      rows={answer.rows}
      extra={
        <>
          <span class="note">
            {answer.more ? "the first " : ""}
            {plural(answer.rows.length, "row")}
          </span>
          <button type="button" class="plain" onClick={() => saveText(lines(), "answer.jsonl")}>
            <Icon name="save" /> Export
          </button>
        </>
      }
    />
  );
}

function quoted(name: string): string {
  return /^\w+$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`;
}
